"""Reads and checks a document with msgspec; its error names every wrong key.

Pure: it takes what `yaml_file.py` has parsed. `read` converts a value to its type; where msgspec
refuses, it walks down to the smallest parts that are refused, with the lines where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct

from .errors import ConfigurationError
from .schemas import convert
from .wording import (
    alternatives,
    did_you_mean,
    expected,
    facts,
    fields_of,
    first_of,
    in_words,
    keys_of,
    plain,
    refused,
    structs_of,
)

if TYPE_CHECKING:
    from ..yaml_file import Document, KeyPath

SLEEP_S_MAX: Final = 86_400  # a day; a longer pause is probably a mistake


class Problems:
    """All that is wrong with one file."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._lines: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, key_path: KeyPath, text: str, *, at_key: bool = False) -> None:
        """Note a problem of a value, or of its key."""
        document = self.document
        line = document.key_line_of(key_path) if at_key else document.line_of(key_path)
        place = f"{document.path}, line {line}"
        where = f"{place}, {_in_words(key_path)}" if key_path else place
        self._lines.append((line, f"{where}: {text}"))

    def add_from(self, key_path: KeyPath, error: ConfigurationError) -> None:
        """Note a problem that another reader found in this value."""
        self._lines.append((self.document.line_of(key_path), str(error)))

    def raise_if_any(self) -> None:
        """Raise an error with all problems, in the order of the file.

        Raises:
            ConfigurationError: there are problems.
        """
        if not self._lines:
            return
        self._lines.sort(key=lambda problem: problem[0])
        raise ConfigurationError(first_of([text for _, text in self._lines]))


T = TypeVar("T")


def read(problems: Problems, key_path: KeyPath, value: object, kind: type[T]) -> T | None:
    """Convert a value to its type; if that fails, note the smallest parts that are wrong."""
    try:
        return convert(value, kind)
    except msgspec.ValidationError as error:
        noted = len(problems)
        _explain(problems, key_path, value, kind)
        if len(problems) == noted:  # no part explains it: note the whole value
            problems.add(key_path, str(error))
        return None


def _explain(problems: Problems, at: KeyPath, value: object, kind: Any) -> None:
    """Note the parts of a value that msgspec refuses, as deep inside it as possible."""
    try:
        convert(value, kind)
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
    types = fields_of(kinds[0]) if len(kinds) == 1 else {}
    for key, item in value.items():
        if key in types:
            _explain(problems, (*at, key), item, types[key].type)
        elif key not in every:
            allowed = f"one of {', '.join(every)}" if len(every) > 1 else f"only {every[0]}"
            text = f"found an unknown key, expected {allowed}{did_you_mean(key, every)}"
            problems.add((*at, key), text, at_key=True)
        elif key not in keys_of(*kinds):
            owners = " or ".join(str(name) for name, one in by_tag.items() if key in keys_of(one))
            text = f"found with {tag_key} {tag}, expected only with {tag_key} {owners}"
            problems.add((*at, key), text)
    for key, field in types.items():
        if field.required and key not in value:
            problems.add((*at, key), f"found nothing, expected {expected(field.type)}")


def _quoted(at: KeyPath, value: object, kind: Any) -> str:
    """Advise to quote text that YAML reads as another type."""
    texts = [one for one in alternatives(kind) if plain(one) is str]
    if isinstance(value, str | list | dict) or not texts or "pattern" in facts(texts[0]):
        return ""
    shown = "" if value is None else in_words(value)
    return f'; if it is meant as text, quote it: {at[-1] if at else ""}: "{shown}"'


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
