"""Checked reading of a document that a person wrote: every problem is kept, the good values used.

Pure: it takes what `yaml_file.py` has parsed. `Problems` collects what is wrong with a file, in
the order of its lines; `Fields` gives the checked values of one mapping in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from . import names
from .errors import ConfigurationError, InvalidNameError
from .wording import (
    alternatives,
    did_you_mean,
    expected,
    facts,
    first_of,
    in_words,
    keys_of,
    plain,
    refused,
    structs_of,
)

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


T = TypeVar("T")


def read(problems: Problems, key_path: KeyPath, value: object, kind: type[T]) -> T | None:
    """Convert a value to its type; if it is not of it, note the smallest parts that are not."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        _explain(problems, key_path, value, kind)
        return None


def _explain(problems: Problems, at: KeyPath, value: object, kind: Any) -> None:
    """Note the parts of a value that msgspec refuses, as deep inside it as possible."""
    try:
        msgspec.convert(value, kind)
        return
    except msgspec.ValidationError:
        pass
    structs = structs_of(kind)
    inner = [one for one in map(plain, alternatives(kind)) if get_origin(one) in (list, dict)]
    of_lists = [get_args(one)[0] for one in inner if get_origin(one) is list]
    of_mappings = [get_args(one)[1] for one in inner if get_origin(one) is dict]
    if isinstance(value, dict) and structs:
        _explain_mapping(problems, at, value, structs)
    elif isinstance(value, dict) and of_mappings:
        for key, item in value.items():
            _explain(problems, (*at, key), item, of_mappings[0])
    elif isinstance(value, list) and value and of_lists:
        for index, item in enumerate(value):
            _explain(problems, (*at, index), item, of_lists[0])
    else:
        problems.add(at, refused(value, kind) + _quoted(at, value, kind))


def _explain_mapping(
    problems: Problems, at: KeyPath, value: dict[str, object], kinds: Sequence[type[Struct]]
) -> None:
    """Note unknown keys, keys that are missing, and what is wrong with the others."""
    tag_key = kinds[0].__struct_config__.tag_field or ""
    by_tag = {one.__struct_config__.tag: one for one in kinds}
    tag = value.get(tag_key)
    every = keys_of(*kinds)
    if tag_key and tag in list(by_tag):
        kinds = [by_tag[tag]]
    elif tag_key:
        problems.add((*at, tag_key), refused(tag, Literal[tuple(by_tag)]))
    for key in value:
        if key not in every:
            allowed = f"one of {', '.join(every)}" if len(every) > 1 else f"only {every[0]}"
            text = f"found an unknown key, expected {allowed}{did_you_mean(key, every)}"
            problems.add((*at, key), text, at_key=True)
        elif key not in keys_of(*kinds):
            owners = " or ".join(str(name) for name, one in by_tag.items() if key in keys_of(one))
            text = f"found with {tag_key} {tag}, expected only with {tag_key} {owners}"
            problems.add((*at, key), text)
    for field in fields(kinds[0]) if len(kinds) == 1 else ():
        key = field.encode_name
        if key in value:
            _explain(problems, (*at, key), value[key], field.type)
        elif field.required:
            problems.add((*at, key), f"found nothing, expected {expected(field.type)}")


def _quoted(at: KeyPath, value: object, kind: Any) -> str:
    """Advise to quote what YAML takes for something else than the text that was meant."""
    texts = [one for one in alternatives(kind) if plain(one) is str]
    if isinstance(value, str | list | dict) or not texts or "pattern" in facts(texts[0]):
        return ""
    shown = "" if value is None else in_words(value)
    return f'; if it is meant as text, quote it: {at[-1] if at else ""}: "{shown}"'


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
