"""Checked reading of a document that a person wrote: every problem is kept, the good values used.

Pure: it takes what `yaml_file.py` has parsed. `Problems` collects what is wrong with a file, in
the order of its lines; `Fields` gives the checked values of one mapping in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from . import names
from .errors import ConfigurationError, InvalidNameError
from .wording import did_you_mean, first_of, in_words

if TYPE_CHECKING:
    from .yaml_file import Document, KeyPath

SLEEP_S_MAX: Final = 86_400  # a day; a longer pause is a slip of the pen


class Problems:
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

    def add_from(self, key_path: KeyPath, error: ConfigurationError) -> None:
        """Note what another reader found wrong with the value that stands here."""
        self._lines.append((self.document.line_of(key_path), str(error)))

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


class Fields:
    """The keys of one mapping. Each method gives a checked value, or its default and a problem."""

    def __init__(self, problems: Problems, key_path: KeyPath, values: Mapping[str, object]) -> None:
        self._problems = problems
        self._key_path = key_path
        self._values = values

    def has(self, key: str) -> bool:
        """Say whether a key is given."""
        return key in self._values

    def given(self, key: str, default: object) -> object:
        """The value as it stands in the file, or the default."""
        return self._values.get(key, default)

    def problem(self, key: str | None, text: str) -> None:
        """Note a problem of a key, or of the whole mapping."""
        key_path = self._key_path if key is None else (*self._key_path, key)
        self._problems.add(key_path, text)

    def wrong(self, key: str, expected: str) -> None:
        """Note that a value is not what it has to be."""
        self.problem(key, f"found {in_words(self._values.get(key))}, expected {expected}")

    def check_keys(self, known: Sequence[str]) -> None:
        """Note each key that such a mapping does not have."""
        for key in self._values:
            if key not in known:
                text = f"found an unknown key, expected one of {', '.join(known)}"
                key_path = (*self._key_path, key)
                self._problems.add(key_path, text + did_you_mean(key, known), at_key=True)

    def topic(self) -> str:
        """Give the topic; it is required."""
        text = self.text("topic", numbers_need_quotes=True)
        if not self.has("topic"):
            self.wrong("topic", "the name of a topic")
        elif text is not None:
            try:
                return names.exact(text)
            except InvalidNameError as error:
                self.wrong("topic", error.expected)
        return ""

    def text(self, key: str, *, numbers_need_quotes: bool = False) -> str | None:
        """Give text; None if the key is not given."""
        value = self._values.get(key)
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
        value = self._values.get(key, 1)
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= maximum:
            return value
        self.wrong(key, f"a whole number from 1 to {maximum:,}")
        return 1

    def seconds(self, key: str) -> float:
        """Give a pause; its default is 0."""
        seconds = seconds_of(self._values.get(key, 0))
        if seconds is None:
            self.wrong(key, f"seconds from 0 to {SLEEP_S_MAX:,}")
            return 0.0
        return seconds

    def timeout(self) -> float | None:
        """Give the time a get may wait; None if it is not given."""
        if not self.has("timeout"):
            return None
        seconds = seconds_of(self._values["timeout"])
        if not seconds:
            expected = f"seconds above 0, at most {SLEEP_S_MAX:,}; leave it out to wait for ever"
            self.wrong("timeout", expected)
            return None
        return seconds

    def flag(self, key: str, *, default: bool) -> bool:
        """Give true or false."""
        value = self._values.get(key, default)
        if isinstance(value, bool):
            return value
        self.wrong(key, "true or false")
        return default

    def choice(self, key: str, choices: Sequence[_C], *, default: _C | None) -> _C | None:
        """Give one of a few words; None if it is wrong, or required and not given."""
        if default is not None and not self.has(key):
            return default
        value = self._values.get(key)
        for choice in choices:
            if choice == value:
                return choice
        advice = did_you_mean(value, choices) if isinstance(value, str) else ""
        self.wrong(key, f"one of {', '.join(choices)}{advice}")
        return None


def seconds_of(value: object) -> float | None:
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
