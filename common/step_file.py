"""Reading step files: every value is checked, every problem is kept, the good ones are used.

Pure: it takes a document that `yaml_file.py` has parsed, and gives steps or all that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal

from .dead_letter import check_may_die, is_dead
from .errors import UsageError
from .fields import SLEEP_S_MAX, Fields, Problems, seconds_of
from .limits import (
    BATCH_MESSAGES_MAX,
    BATCH_OVERHEAD_BYTES_MAX,
    BODY_BYTES_MAX,
    DELIVERIES_MAX,
    DELIVERY_SUBSCRIBERS_MAX,
    LEASE_MS_MAX,
    STEP_MESSAGES_MAX,
)
from .messages import QoS, SessionKind, Start
from .profiles import NO_PROFILE, PROFILES, Profile
from .start import parse_start
from .step_keys import GET_KEYS, PUBLISHER_KEYS, SUBSCRIBE_KEYS, SUBSCRIBER_KEYS
from .steps import DELIVERED_S, Action, OnEmpty, PublisherStep, SubscriberStep, Wait
from .wording import did_you_mean, in_words

if TYPE_CHECKING:
    from .yaml_file import Document, KeyPath

SEQUENCE_DIGITS: Final = 10  # room that the check of `batch` leaves for the appended number
PAYLOAD_OVERHEAD_BYTES: Final = 5  # what the encoding adds to each payload, at most

SESSIONS: Final[tuple[SessionKind, ...]] = ("persistent", "clean")
QOS: Final[tuple[QoS, ...]] = (0, 1, 2)
ACTIONS: Final[tuple[Action, ...]] = ("subscribe", "get", "unsubscribe")
ON_EMPTY: Final[tuple[OnEmpty, ...]] = ("wait", "skip")
WAITS: Final[tuple[Wait, ...]] = ("stored", "delivered")


def parse_publisher_steps(document: Document) -> tuple[PublisherStep, ...]:
    """Read the steps of a publisher.

    Raises:
        ConfigurationError: all that is wrong with the file (the first 20), one line each: file,
            line, key path, what was found, what was expected.
    """
    problems = Problems(document)
    steps = read_publisher_steps(problems, (), document.data)
    problems.raise_if_any()
    return steps


def parse_subscriber_steps(document: Document) -> tuple[SubscriberStep, ...]:
    """Read the steps of a subscriber.

    Raises:
        ConfigurationError: as for `parse_publisher_steps`.
    """
    problems = Problems(document)
    steps = read_subscriber_steps(problems, (), document.data)
    problems.raise_if_any()
    return steps


def read_publisher_steps(
    problems: Problems, key_path: KeyPath, data: object
) -> tuple[PublisherStep, ...]:
    """Read the mapping with the key `steps` that stands at `key_path`; note what is wrong."""
    found = _steps_of(problems, key_path, data, PUBLISHER_KEYS)
    return tuple(_publisher_step(fields) for fields in found)


def read_subscriber_steps(
    problems: Problems, key_path: KeyPath, data: object
) -> tuple[SubscriberStep, ...]:
    """As `read_publisher_steps`, for a subscriber."""
    found = _steps_of(problems, key_path, data, SUBSCRIBER_KEYS)
    return tuple(_subscriber_step(fields) for fields in found)


def _publisher_step(fields: Fields) -> PublisherStep:
    topic = fields.topic()
    if is_dead(topic):
        fields.wrong(
            "topic", "one that does not end with .dead: only subscribers make dead letters"
        )
    message = fields.text("message", numbers_need_quotes=True)
    message_file = fields.text("message_file")
    batch = fields.whole("batch", BATCH_MESSAGES_MAX)
    numbered = fields.flag("numbered", default=message_file is None)
    if fields.has("message") == fields.has("message_file"):
        found = "both" if fields.has("message") else "neither"
        fields.problem(None, f"found {found}, expected one of message and message_file")
    elif fields.has("message_file"):
        if message_file == "" or (message_file is not None and "\0" in message_file):
            fields.wrong("message_file", "the path of a file with one message in each line")
        if numbered:
            fields.wrong(
                "numbered", "false or nothing with message_file: the lines of a file stay as is"
            )
    elif message is not None:
        _check_batch_fits(fields, batch, message, numbered)
    return PublisherStep(
        topic=topic,
        message=message,
        message_file=message_file,
        number_of_times=fields.whole("number_of_times", STEP_MESSAGES_MAX),
        sleep_between_messages_s=fields.seconds("sleep_between_messages"),
        sleep_after_s=fields.seconds("sleep_after"),
        batch=batch,
        numbered=numbered,
        qos=_qos(fields, _profile(fields)),
        wait=_wait(fields),
        acknowledged_by=_acknowledged_by(fields),
        timeout_s=DELIVERED_S if (timeout_s := _put_timeout(fields)) is None else timeout_s,
    )


def _subscriber_step(fields: Fields) -> SubscriberStep:
    action = fields.choice("action", ACTIONS, default=None)
    topic = fields.topic()
    sleep_after_s = fields.seconds("sleep_after")
    for owner, keys in (("get", GET_KEYS), ("subscribe", SUBSCRIBE_KEYS)):
        for key in keys:
            if fields.has(key) and action not in (None, owner):
                fields.problem(
                    key, f"found with action {action}, expected only with action {owner}"
                )
    start = _start(fields)
    if action is not None and action != "get":
        profile = _profile(fields)
        return SubscriberStep(
            action=action,
            topic=topic,
            sleep_after_s=sleep_after_s,
            start=start,
            qos=_qos(fields, profile),
            session=fields.choice("session", SESSIONS, default=profile.session) or profile.session,
            lease_s=_lease_s(fields) if fields.has("lease") else profile.lease_s,
            push=fields.flag("push", default=profile.push),
            max_deliveries=_max_deliveries(fields, topic),
            replay=_replay(fields, start),
        )
    between = "sleep_between"
    if fields.has("sleep_between_messages"):
        if fields.has("sleep_between"):
            fields.problem(
                "sleep_between_messages",
                "found beside sleep_between, expected one of the two: they mean the same",
            )
        between = "sleep_between_messages"
    return SubscriberStep(
        action="get",
        topic=topic,
        number_of_times=fields.whole("number_of_times", STEP_MESSAGES_MAX),
        sleep_between_s=fields.seconds(between),
        sleep_after_s=sleep_after_s,
        batch=fields.whole("batch", BATCH_MESSAGES_MAX),
        on_empty=fields.choice("on_empty", ON_EMPTY, default="wait") or "wait",
        timeout_s=fields.timeout(),
    )


def _profile(fields: Fields) -> Profile:
    """Give the preset; what else the step says goes before it."""
    if not fields.has("profile"):
        return NO_PROFILE
    return PROFILES.get(fields.choice("profile", tuple(PROFILES), default=None) or "", NO_PROFILE)


def _qos(fields: Fields, profile: Profile) -> QoS:
    """Give the level of service; its default is that of the profile."""
    level = fields.given("qos", profile.qos)
    for qos in QOS:
        if level is qos:
            return qos
    fields.wrong("qos", "0 (at most once), 1 (at least once) or 2 (exactly once)")
    return 2


def _wait(fields: Fields) -> Wait:
    """Give what a put waits for, and see that what goes with it is there for that."""
    wait = fields.choice("wait", WAITS, default="stored") or "stored"
    if wait == "stored":
        for key in ("acknowledged_by", "timeout"):
            if fields.has(key):
                fields.problem(key, "found without wait: delivered, expected only with it")
    elif fields.given("qos", 2) != 2:
        fields.problem(
            "wait", "found with QoS 1, expected QoS 2: else a restart may not wait again"
        )
    return wait


def _acknowledged_by(fields: Fields) -> int | Literal["all"]:
    """Give how many subscribers have to acknowledge; its default is all."""
    value = fields.given("acknowledged_by", "all")
    if value == "all":
        return "all"
    number = isinstance(value, int) and not isinstance(value, bool)
    if number and 1 <= value <= DELIVERY_SUBSCRIBERS_MAX:  # type: ignore[operator]
        return value  # type: ignore[return-value]
    most = f"{DELIVERY_SUBSCRIBERS_MAX:,}"
    fields.wrong("acknowledged_by", f"all, or a whole number from 1 to {most}")
    return "all"


def _put_timeout(fields: Fields) -> float | None:
    """Give how long a put waits for its subscribers; None if it is not given."""
    if not fields.has("timeout"):
        return None
    timeout_s = seconds_of(fields.given("timeout", None))
    if not timeout_s:
        fields.wrong("timeout", f"seconds above 0, at most {SLEEP_S_MAX:,}")
        return None
    return timeout_s


def _max_deliveries(fields: Fields, topic: str) -> int | None:
    """Give how often a message is handed over before it is a dead letter; None: for ever."""
    if not fields.has("max_deliveries"):
        return None
    try:
        check_may_die(topic)
    except UsageError as error:
        fields.problem("max_deliveries", str(error))
    return fields.whole("max_deliveries", DELIVERIES_MAX)


def _lease_s(fields: Fields) -> float | None:
    """Give how long a subscription may be silent; None if it is not given."""
    if not fields.has("lease"):
        return None
    lease_s = fields.given("lease", None)
    number = isinstance(lease_s, int | float) and not isinstance(lease_s, bool)
    if number and 0.001 <= lease_s <= LEASE_MS_MAX / 1000:  # type: ignore[operator]
        return float(lease_s)  # type: ignore[arg-type]
    most = LEASE_MS_MAX // 1000
    fields.wrong("lease", f"seconds above 0 (0.001), at most {most:,}; leave it out for no end")
    return None


def _start(fields: Fields) -> Start | None:
    """Give where a subscribe begins; None if it is not given."""
    text = fields.text("from", numbers_need_quotes=False)
    if text is None:
        return None
    try:
        return parse_start(text)
    except UsageError as error:
        fields.problem("from", str(error))
        return None


def _replay(fields: Fields, start: Start | None) -> bool:
    """Give whether a subscribe begins where it says, whatever was acknowledged."""
    replay = fields.flag("replay", default=False)
    if replay and (start is None or start.at in ("now", "last")):
        fields.wrong("replay", "false, or a `from` that may lie below what was acknowledged")
    return replay


def _steps_of(
    problems: Problems, key_path: KeyPath, data: object, known: Sequence[str]
) -> Iterator[Fields]:
    """Give the fields of each step that is a mapping; note what is wrong around them."""
    if not isinstance(data, dict):
        problems.add(key_path, f"found {in_words(data)}, expected a mapping with the key steps")
        return
    here = Fields(problems, key_path, data)
    for key in data:
        if key != "steps":
            advice = did_you_mean(key, ("steps",))
            text = f"found an unknown key, expected only steps{advice}"
            problems.add((*key_path, key), text, at_key=True)
    steps = data.get("steps")
    if not isinstance(steps, list) or not steps:
        if "steps" in data or len(data) == 0:
            found = "an empty list" if steps == [] else in_words(steps)
            here.problem("steps", f"found {found}, expected a list of steps")
        return
    for index, step in enumerate(steps):
        step_path = (*key_path, "steps", index)
        if isinstance(step, dict):
            fields = Fields(problems, step_path, step)
            fields.check_keys(known)
            yield fields
        else:
            expected = f"a mapping with the keys {', '.join(known)}"
            problems.add(step_path, f"found {in_words(step)}, expected {expected}")


def _check_batch_fits(fields: Fields, batch: int, message: str, numbered: bool) -> None:
    """Note a batch, or a single message, that is larger than a request may be."""
    size = len(message.encode()) + (1 + SEQUENCE_DIGITS if numbered else 0)
    room = BODY_BYTES_MAX - BATCH_OVERHEAD_BYTES_MAX
    fitting = room // (size + PAYLOAD_OVERHEAD_BYTES)
    if fitting == 0:
        fields.problem("message", f"found {size:,} bytes, expected less than {room:,}")
    elif batch > fitting:
        fields.wrong(
            "batch",
            f"at most {fitting:,} messages of {size:,} bytes: a request holds "
            f"{BODY_BYTES_MAX:,} bytes",
        )
