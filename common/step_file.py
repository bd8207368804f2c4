"""Reading step files: every value is checked, every problem is kept, the good ones are used.

Pure: it takes a document that `yaml_file.py` has parsed, and gives steps or all that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from . import names
from .errors import ConfigurationError, InvalidNameError
from .limits import (
    BATCH_MESSAGES_MAX,
    BATCH_OVERHEAD_BYTES_MAX,
    BODY_BYTES_MAX,
    STEP_MESSAGES_MAX,
)
from .settings import did_you_mean, first_of, in_words
from .steps import Action, OnEmpty, PublisherStep, SubscriberStep

if TYPE_CHECKING:
    from .yaml_file import Document, KeyPath

SLEEP_S_MAX: Final = 86_400  # a day; a longer pause in a step file is a slip of the pen
SEQUENCE_DIGITS: Final = 10  # room that the check of `batch` leaves for the appended number
PAYLOAD_OVERHEAD_BYTES: Final = 5  # what the encoding adds to each payload, at most

PUBLISHER_KEYS: Final = (
    "topic",
    "message",
    "message_file",
    "number_of_times",
    "sleep_between_messages",
    "sleep_after",
    "batch",
    "numbered",
)
GET_KEYS: Final = (
    "number_of_times",
    "sleep_between",
    "sleep_between_messages",
    "batch",
    "on_empty",
    "timeout",
)
SUBSCRIBER_KEYS: Final = ("action", "topic", "sleep_after", *GET_KEYS)
ACTIONS: Final[tuple[Action, ...]] = ("subscribe", "get", "unsubscribe")
ON_EMPTY: Final[tuple[OnEmpty, ...]] = ("wait", "skip")


def parse_publisher_steps(document: Document) -> tuple[PublisherStep, ...]:
    """Read the steps of a publisher.

    Raises:
        ConfigurationError: all that is wrong with the file (the first 20), one line each: file,
            line, key path, what was found, what was expected.
    """
    problems = _Problems(document)
    steps = [_publisher_step(fields) for fields in _steps_of(problems, PUBLISHER_KEYS)]
    problems.raise_if_any()
    return tuple(steps)


def parse_subscriber_steps(document: Document) -> tuple[SubscriberStep, ...]:
    """Read the steps of a subscriber.

    Raises:
        ConfigurationError: as for `parse_publisher_steps`.
    """
    problems = _Problems(document)
    steps = [_subscriber_step(fields) for fields in _steps_of(problems, SUBSCRIBER_KEYS)]
    problems.raise_if_any()
    return tuple(steps)


def _publisher_step(fields: _Fields) -> PublisherStep:
    topic = fields.topic()
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
        fields.check_batch_fits(batch, message, numbered)
    return PublisherStep(
        topic=topic,
        message=message,
        message_file=message_file,
        number_of_times=fields.whole("number_of_times", STEP_MESSAGES_MAX),
        sleep_between_messages_s=fields.seconds("sleep_between_messages"),
        sleep_after_s=fields.seconds("sleep_after"),
        batch=batch,
        numbered=numbered,
    )


def _subscriber_step(fields: _Fields) -> SubscriberStep:
    action = fields.choice("action", ACTIONS, default=None)
    topic = fields.topic()
    sleep_after_s = fields.seconds("sleep_after")
    if action is not None and action != "get":
        for key in GET_KEYS:
            if fields.has(key):
                fields.problem(key, f"found with action {action}, expected only with action get")
        return SubscriberStep(action=action, topic=topic, sleep_after_s=sleep_after_s)
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


def _steps_of(problems: _Problems, known: Sequence[str]) -> Iterator[_Fields]:
    """Give the fields of each step that is a mapping; note what is wrong around them."""
    data = problems.document.data
    if not isinstance(data, dict):
        problems.add((), f"found {in_words(data)}, expected a mapping with the key steps")
        return
    for key in data:
        if key != "steps":
            advice = did_you_mean(key, ("steps",))
            problems.add((key,), f"found an unknown key, expected only steps{advice}", at_key=True)
    steps = data.get("steps")
    if not isinstance(steps, list) or not steps:
        if "steps" in data or len(data) == 0:
            found = "an empty list" if steps == [] else in_words(steps)
            problems.add(("steps",), f"found {found}, expected a list of steps")
        return
    for index, step in enumerate(steps):
        if isinstance(step, dict):
            fields = _Fields(problems, ("steps", index), step)
            fields.check_keys(known)
            yield fields
        else:
            expected = f"a mapping with the keys {', '.join(known)}"
            problems.add(("steps", index), f"found {in_words(step)}, expected {expected}")


class _Problems:
    """All that is wrong with one file."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._lines: list[tuple[int, str]] = []

    def add(self, key_path: KeyPath, text: str, *, at_key: bool = False) -> None:
        """Note a problem of a value, or of its key."""
        document = self.document
        line = document.key_line_of(key_path) if at_key else document.line_of(key_path)
        place = f"{document.path}, line {line}"
        where = f"{place}, {_in_words(key_path)}" if key_path else place
        self._lines.append((line, f"{where}: {text}"))

    def raise_if_any(self) -> None:
        """Tell all problems in the order of the file.

        Raises:
            ConfigurationError: there is one, or more.
        """
        if not self._lines:
            return
        self._lines.sort(key=lambda problem: problem[0])
        raise ConfigurationError(first_of([text for _, text in self._lines]))


_C = TypeVar("_C", bound=str)


class _Fields:
    """The keys of one step. Each method gives a checked value, or its default and a problem."""

    def __init__(self, problems: _Problems, key_path: KeyPath, step: Mapping[str, object]) -> None:
        self._problems = problems
        self._key_path = key_path
        self._step = step

    def has(self, key: str) -> bool:
        """Say whether a key is given."""
        return key in self._step

    def problem(self, key: str | None, text: str) -> None:
        """Note a problem of a key, or of the whole step."""
        key_path = self._key_path if key is None else (*self._key_path, key)
        self._problems.add(key_path, text)

    def wrong(self, key: str, expected: str) -> None:
        """Note that a value is not what it has to be."""
        self.problem(key, f"found {in_words(self._step.get(key))}, expected {expected}")

    def check_keys(self, known: Sequence[str]) -> None:
        """Note each key that a step of this kind does not have."""
        for key in self._step:
            if key not in known:
                text = f"found an unknown key, expected one of {', '.join(known)}"
                key_path = (*self._key_path, key)
                self._problems.add(key_path, text + did_you_mean(key, known), at_key=True)

    def topic(self) -> str:
        """Give the topic; every step has one."""
        text = self.text("topic", numbers_need_quotes=True)
        if not self.has("topic"):
            self.wrong("topic", "the name of a topic")
        elif text is not None:
            try:
                return names.topic(text)
            except InvalidNameError as error:
                self.wrong("topic", error.expected)
        return ""

    def text(self, key: str, *, numbers_need_quotes: bool = False) -> str | None:
        """Give text; None if the key is not given."""
        value = self._step.get(key)
        if isinstance(value, str) or not self.has(key):
            return value if isinstance(value, str) else None
        advice = ""
        if numbers_need_quotes and not isinstance(value, list | dict):
            shown = "" if value is None else in_words(value)
            advice = f'; if it is meant as text, quote it: {key}: "{shown}"'
        self.wrong(key, f"text{advice}")
        return None

    def whole(self, key: str, maximum: int) -> int:
        """Give a whole number from 1; its default is 1."""
        value = self._step.get(key, 1)
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= maximum:
            return value
        self.wrong(key, f"a whole number from 1 to {maximum:,}")
        return 1

    def seconds(self, key: str) -> float:
        """Give a pause; its default is 0."""
        seconds = _seconds_of(self._step.get(key, 0))
        if seconds is None:
            self.wrong(key, f"seconds from 0 to {SLEEP_S_MAX:,}")
            return 0.0
        return seconds

    def timeout(self) -> float | None:
        """Give the time a get may wait; None if it is not given."""
        if not self.has("timeout"):
            return None
        seconds = _seconds_of(self._step["timeout"])
        if not seconds:
            expected = f"seconds above 0, at most {SLEEP_S_MAX:,}; leave it out to wait for ever"
            self.wrong("timeout", expected)
            return None
        return seconds

    def flag(self, key: str, *, default: bool) -> bool:
        """Give true or false."""
        value = self._step.get(key, default)
        if isinstance(value, bool):
            return value
        self.wrong(key, "true or false")
        return default

    def choice(self, key: str, choices: Sequence[_C], *, default: _C | None) -> _C | None:
        """Give one of a few words; None if it is wrong, or required and not given."""
        if default is not None and not self.has(key):
            return default
        value = self._step.get(key)
        for choice in choices:
            if choice == value:
                return choice
        advice = did_you_mean(value, choices) if isinstance(value, str) else ""
        self.wrong(key, f"one of {', '.join(choices)}{advice}")
        return None

    def check_batch_fits(self, batch: int, message: str, numbered: bool) -> None:
        """Note a batch, or a single message, that is larger than a request may be."""
        size = len(message.encode()) + (1 + SEQUENCE_DIGITS if numbered else 0)
        room = BODY_BYTES_MAX - BATCH_OVERHEAD_BYTES_MAX
        fitting = room // (size + PAYLOAD_OVERHEAD_BYTES)
        if fitting == 0:
            self.problem("message", f"found {size:,} bytes, expected less than {room:,}")
        elif batch > fitting:
            self.wrong(
                "batch",
                f"at most {fitting:,} messages of {size:,} bytes: a request holds "
                f"{BODY_BYTES_MAX:,} bytes",
            )


def _seconds_of(value: object) -> float | None:
    """Give a number from 0 to a day as seconds; None for all else, NaN and booleans included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= SLEEP_S_MAX else None


def _in_words(key_path: KeyPath) -> str:
    """Write a key path as a person would: `steps[1].topic`."""
    parts = []
    for key in key_path:
        if isinstance(key, int):
            parts.append(f"[{key}]")
        elif key.isidentifier():
            parts.append(f".{key:.60}")
        else:
            parts.append(f"[{key!r:.60}]")
    return "".join(parts).removeprefix(".")
