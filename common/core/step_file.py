"""Reads step files: keys are checked by their types, then rules that types cannot express.

Pure: it takes a document that `yaml_file.py` has parsed, and returns steps or all problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, UnsetType

from . import names
from .batch import BATCH_ROOM_BYTES, PAYLOAD_OVERHEAD_BYTES
from .dead_letter import check_may_die, is_dead
from .errors import ConfigurationError, InvalidNameError, UsageError
from .fields import Problems, T, read
from .limits import BODY_BYTES_MAX
from .message_base import Start
from .start import parse_start
from .step_keys import (
    AnySubscriberKeys,
    PublisherFile,
    PutKeys,
    SeekKeys,
    SubscribeKeys,
    SubscriberFile,
    UnsubscribeKeys,
)
from .steps import PublisherStep, SubscriberStep
from .wording import in_words

if TYPE_CHECKING:
    from ..yaml_file import Document, KeyPath

SEQUENCE_DIGITS: Final = 10  # room that the check of `batch` leaves for the appended number


def parse_publisher_steps(document: Document) -> tuple[PublisherStep, ...]:
    """Read the steps of a publisher.

    Raises:
        ConfigurationError: all keys that are wrong (the first 20), one line each: file, line, key
            path, what was found, what was expected; without such, all keys that contradict others.
    """
    _check_role(document, "action" in _first_step(document), "subscriber")
    problems = Problems(document)
    steps = read_publisher_steps(problems, (), document.data)
    problems.raise_if_any()
    return steps


def parse_subscriber_steps(document: Document) -> tuple[SubscriberStep, ...]:
    """Read the steps of a subscriber.

    Raises:
        ConfigurationError: as for `parse_publisher_steps`.
    """
    first = _first_step(document)
    puts = not first.keys().isdisjoint(("message", "message_file")) and "action" not in first
    _check_role(document, puts, "publisher")
    problems = Problems(document)
    steps = read_subscriber_steps(problems, (), document.data)
    problems.raise_if_any()
    return steps


def _first_step(document: Document) -> Mapping[str, object]:
    """The first step as it is written; nothing if it is no mapping."""
    steps = document.data.get("steps") if isinstance(document.data, dict) else None
    first = steps[0] if isinstance(steps, list) and steps else None
    return first if isinstance(first, dict) else {}


def _check_role(document: Document, is_other: bool, other: str) -> None:
    """Refuse the file of the other role as a whole: each of its keys would be a problem."""
    if is_other:
        line = document.line_of(("steps", 0))
        raise ConfigurationError(
            f"{document.path}, line {line}: found a step of a {other}; run this file with "
            f"`reliable-pubsub {other}`, or name another one"
        )


def read_publisher_steps(
    problems: Problems, key_path: KeyPath, data: object
) -> tuple[PublisherStep, ...]:
    """Read the mapping with the key `steps` that is at `key_path`; note what is wrong."""
    file = read(problems, key_path, data, PublisherFile)
    return publisher_steps(problems, key_path, file.steps if file is not None else ())


def read_subscriber_steps(
    problems: Problems, key_path: KeyPath, data: object
) -> tuple[SubscriberStep, ...]:
    """As `read_publisher_steps`, for a subscriber."""
    file = read(problems, key_path, data, SubscriberFile)
    return subscriber_steps(problems, key_path, file.steps if file is not None else ())


def publisher_steps(
    problems: Problems, key_path: KeyPath, keys: Sequence[PutKeys]
) -> tuple[PublisherStep, ...]:
    """The steps of valid keys; note keys that contradict others."""
    return tuple(
        _put(_Step(problems, (*key_path, "steps", index)), one) for index, one in enumerate(keys)
    )


def subscriber_steps(
    problems: Problems,
    key_path: KeyPath,
    keys: Sequence[AnySubscriberKeys],
) -> tuple[SubscriberStep, ...]:
    """As `publisher_steps`, for a subscriber."""
    steps = tuple(
        _action(_Step(problems, (*key_path, "steps", index)), one) for index, one in enumerate(keys)
    )
    _check_settles(problems, key_path, steps)
    return steps


def _check_settles(problems: Problems, key_path: KeyPath, steps: Sequence[SubscriberStep]) -> None:
    """Note what only a member of a group can do, where no step before has joined one."""
    joined: set[str] = set()
    for index, step in enumerate(steps):
        if step.action == "subscribe":
            (joined.discard if step.group is None else joined.add)(step.topic)
        elif step.topic in joined:
            continue
        for key, is_said in (("settle", step.settle != "ack"), ("ends_group", step.ends_group)):
            if is_said:
                problems.add(
                    (*key_path, "steps", index, key),
                    "found without a group, expected only after a step that subscribes to "
                    f"{in_words(step.topic)} with `group`",
                )


class _Step:
    """Notes the problems of one step."""

    def __init__(self, problems: Problems, key_path: KeyPath) -> None:
        self._problems = problems
        self._key_path = key_path

    def problem(self, key: str | None, text: str) -> None:
        self._problems.add((*self._key_path, key) if key else self._key_path, text)

    def topic(self, text: str) -> None:
        try:
            names.exact(text)
        except InvalidNameError as error:
            self.problem("topic", f"found {in_words(text)}, expected {error.expected}")


def _put(step: _Step, keys: PutKeys) -> PublisherStep:
    step.topic(keys.topic)
    if is_dead(keys.topic):
        step.problem(
            "topic",
            f"found {in_words(keys.topic)}, expected one that does not end with .dead: only "
            "subscribers make dead letters",
        )
    from_file = keys.message_file is not UNSET
    numbered = or_else(keys.numbered, not from_file)
    if from_file == (keys.message is not UNSET):
        found = "both" if from_file else "neither"
        step.problem(None, f"found {found}, expected one of message and message_file")
    elif from_file and numbered:
        step.problem(
            "numbered",
            "found true, expected false or nothing with message_file: the lines of a file stay as "
            "is",
        )
    elif keys.message is not UNSET:
        _check_batch_fits(step, keys.batch, keys.message, numbered)
    put = PublisherStep(
        topic=keys.topic,
        message=or_else(keys.message, None),
        message_file=or_else(keys.message_file, None),
        number_of_times=keys.number_of_times,
        sleep_between_messages_s=keys.sleep_between_messages,
        sleep_after_s=keys.sleep_after,
        batch=keys.batch,
        numbered=numbered,
        qos=keys.qos,
        wait=keys.wait,
        acknowledged_by=keys.acknowledged_by,
        timeout_s=keys.timeout,
    )
    _check_wait(step, put)
    return put


def _check_wait(step: _Step, put: PublisherStep) -> None:
    """Note keys that need `wait: delivered` without it, and a QoS that is too low for it."""
    usual = PublisherStep(topic="")
    if put.wait == "stored":
        for key, differs in (
            ("acknowledged_by", put.acknowledged_by != usual.acknowledged_by),
            ("timeout", put.timeout_s != usual.timeout_s),
        ):
            if differs:
                step.problem(key, "found without wait: delivered, expected only with it")
    elif put.qos != 2:
        step.problem(
            "wait", f"found with QoS {put.qos}, expected QoS 2: else a restart may not wait again"
        )


def _action(step: _Step, keys: AnySubscriberKeys) -> SubscriberStep:
    topic, is_pattern = _topics(step, keys)
    if isinstance(keys, SubscribeKeys):
        return _subscribe(step, keys, topic, is_pattern)
    if isinstance(keys, SeekKeys):
        start = _start(step, keys.start)
        if start is not None and is_pattern and start.at == "offset":
            step.problem("from", "found an offset beside match, expected no offset: topics differ")
        return SubscriberStep(
            action="seek",
            topic=topic,
            match=is_pattern,
            start=start,
            sleep_after_s=keys.sleep_after,
        )
    if isinstance(keys, UnsubscribeKeys):
        if is_pattern and keys.ends_group:
            step.problem("ends_group", "found beside match, expected a topic for it")
        return SubscriberStep(
            action="unsubscribe",
            topic=topic,
            match=is_pattern,
            sleep_after_s=keys.sleep_after,
            ends_group=keys.ends_group,
        )
    if keys.delay and keys.settle != "nack":
        step.problem("delay", "found without settle: nack, expected only with it")
    between = or_else(keys.sleep_between_messages, keys.sleep_between)
    if keys.sleep_between and keys.sleep_between_messages is not UNSET:
        step.problem(
            "sleep_between_messages",
            "found beside sleep_between, expected one of the two: they mean the same",
        )
    return SubscriberStep(
        action="get",
        topic=topic,
        match=is_pattern,
        number_of_times=keys.number_of_times,
        sleep_between_s=between,
        sleep_after_s=keys.sleep_after,
        batch=keys.batch,
        on_empty=keys.on_empty,
        timeout_s=or_else(keys.timeout, None),
        settle=keys.settle,
        delay_s=keys.delay,
    )


def _topics(step: _Step, keys: AnySubscriberKeys) -> tuple[str, bool]:
    """The topic or the glob of a step, and whether it is a glob."""
    if keys.match is UNSET and keys.topic is not UNSET:
        step.topic(keys.topic)
        return keys.topic, False
    if keys.match is UNSET:
        step.problem("topic", "found nothing, expected the name of a topic, or match with a glob")
        return "", False
    if keys.topic is not UNSET:
        step.problem("match", "found beside topic, expected one of the two")
    return keys.match, True


def _start(step: _Step, text: str) -> Start | None:
    """Read the value of `from`; None if it is wrong, which is noted."""
    try:
        return parse_start(text)
    except UsageError as error:
        step.problem("from", str(error))
        return None


def _subscribe(step: _Step, keys: SubscribeKeys, topic: str, is_pattern: bool) -> SubscriberStep:
    start = None if keys.start is UNSET else _start(step, keys.start)
    if is_pattern and keys.group is not UNSET:
        step.problem("group", "found beside match, expected a topic for it")
    if keys.where is not UNSET and not is_pattern:
        step.problem("where", "found without match, expected only with it")
    if keys.max_deliveries is not UNSET:
        try:
            check_may_die(topic)
        except UsageError as error:
            step.problem("max_deliveries", str(error))
    _check_group(step, keys)
    return SubscriberStep(
        action="subscribe",
        topic=topic,
        match=is_pattern,
        where=or_else(keys.where, ""),
        sleep_after_s=keys.sleep_after,
        start=start,
        qos=keys.qos,
        session=keys.session,
        lease_s=or_else(keys.lease, None),
        push=keys.push,
        max_deliveries=or_else(keys.max_deliveries, None),
        group=or_else(keys.group, None),
        ordered_by=or_else(keys.ordered_by, None),
    )


def _check_group(step: _Step, keys: SubscribeKeys) -> None:
    """Note a name that no group can have, and keys that are for groups only, or not for them."""
    if keys.group is UNSET:
        if keys.ordered_by is not UNSET:
            step.problem("ordered_by", "found without group, expected only with it")
        return
    try:
        names.client_id(keys.group)
    except InvalidNameError as error:
        step.problem("group", f"found {in_words(keys.group)}, expected {error.expected}")
    for key, is_said in (
        ("qos", keys.qos != 2),
        ("session", keys.session != "persistent"),
        ("push", keys.push),
    ):
        if is_said:
            step.problem(key, "found beside group, expected nothing: a group has none")


def or_else(value: T | UnsetType, default: T) -> T:
    """The value of a key, or its default."""
    return default if isinstance(value, UnsetType) else value


def _check_batch_fits(step: _Step, batch: int, message: str, numbered: bool) -> None:
    """Note a batch, or a single message, that is larger than a request may be."""
    size = len(message.encode()) + (1 + SEQUENCE_DIGITS if numbered else 0)
    fitting = BATCH_ROOM_BYTES // (size + PAYLOAD_OVERHEAD_BYTES)
    if fitting == 0:
        step.problem("message", f"found {size:,} bytes, expected less than {BATCH_ROOM_BYTES:,}")
    elif batch > fitting:
        step.problem(
            "batch",
            f"found {batch}, expected at most {fitting:,} messages of {size:,} bytes: a request "
            f"holds {BODY_BYTES_MAX:,} bytes",
        )
