"""Reads a YAML file, or JSON, which is a part of YAML: plain data, and the line of each value.

A deliberate subset of YAML, because a step file needs no more and every further feature can change
the meaning of a file by accident: no tags, anchors or aliases (so no alias bomb), no merge keys,
no key twice, keys are text, at most `YAML_DEPTH_MAX` levels, at most one document. A number has
only decimal digits; the versions of YAML read other forms differently, and people a third way
(`010` is 8 in YAML 1.1 and 10 in 1.2). Other plain values have the meaning that `yaml.safe_load`
gives them. `load_yaml` is the only part that opens a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec import Struct
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from .core.errors import ConfigurationError
from .core.limits import STEP_FILE_BYTES_MAX
from .core.names import is_encodable
from .system import system_errors

YAML_DEPTH_MAX: Final = 20  # lists and mappings inside each other
PLAIN_CHARS_MAX: Final = 100  # of a number or a date; longer ones cost quadratic time to read

KeyPath = tuple[str | int, ...]  # ("steps", 2, "topic"); () is the whole document

_STRING_TAG = "tag:yaml.org,2002:str"
_NUMBER_TAGS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_DECIMAL: Final = re.compile(
    r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)(e[-+][0-9]+)?|[-+]?\.inf|\.nan", re.IGNORECASE
)
# Text to YAML 1.1, a number to YAML 1.2: 0o17, 08, 1e3.
_NUMBER_ELSEWHERE: Final = re.compile(
    r"[-+]?(0o[0-7]+|0x[0-9a-f]+|([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[-+]?[0-9]+)?)", re.IGNORECASE
)
# Characters with a meaning in YAML 1.1 that only merges use; here they are text.
_TAGS_READ_AS_TEXT = ("tag:yaml.org,2002:merge", "tag:yaml.org,2002:value")


class Document(Struct, frozen=True, kw_only=True):
    """The data of a YAML file, and the line of each value. Lines count from 1."""

    path: str  # as the caller named the file
    data: object  # dict with text keys, list, str, int, float, bool, date, or None if empty
    key_lines: Mapping[KeyPath, int]  # entries of mappings: line of the key
    value_lines: Mapping[KeyPath, int]  # every value: its first line

    def line_of(self, key_path: KeyPath) -> int:
        """Line where a value begins; if it is not there, where its nearest parent begins."""
        while key_path and key_path not in self.value_lines:
            key_path = key_path[:-1]
        return self.value_lines.get(key_path, 1)

    def key_line_of(self, key_path: KeyPath) -> int:
        """Line of the key of an entry; of the value, where there is no key."""
        return self.key_lines.get(key_path) or self.line_of(key_path)

    def part(self, *keys: str) -> Document:
        """The value of a nested entry, as a separate document."""
        data = self.data
        for key in keys:
            data = data.get(key) if isinstance(data, dict) else None
        depth = len(keys)
        return Document(
            path=self.path,
            data=data,
            key_lines={at[depth:]: n for at, n in self.key_lines.items() if at[:depth] == keys},
            value_lines={at[depth:]: n for at, n in self.value_lines.items() if at[:depth] == keys},
        )


def load_yaml(path: Path) -> Document:
    """Read and parse a YAML file of at most 1 MiB; `-` is standard input.

    Raises:
        ConfigurationError: the file cannot be read, is too large, is not UTF-8, or is not YAML
            of the kind this module accepts. One sentence, with line and column where there is one.
    """
    wrong = f"{path}: cannot be read"
    try:
        with (
            system_errors(lambda error: ConfigurationError(f"{wrong}: {error.strerror}")),
            open(0, "rb", closefd=False) if str(path) == "-" else path.open("rb") as file,
        ):
            content = file.read(STEP_FILE_BYTES_MAX + 1)
    except ValueError as error:  # a NUL in the name
        raise ConfigurationError(f"{wrong}: {error}") from error
    if len(content) > STEP_FILE_BYTES_MAX:
        raise ConfigurationError(
            f"{path}: is larger than {STEP_FILE_BYTES_MAX:,} bytes, the most a YAML file may have; "
            "use number_of_times or message_file to say more with less"
        )
    return parse_yaml_bytes(content, str(path))


def parse_yaml_bytes(content: bytes, path: str) -> Document:
    """Parse the bytes of a YAML file; `path` only serves the error texts.

    Raises:
        ConfigurationError: not UTF-8, or not YAML of the kind this module accepts.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(
            f"{path}, line {line}: is not UTF-8 text (byte {content[error.start]:#04x} at position "
            f"{error.start:,}); save the file with the encoding UTF-8"
        ) from error
    return parse_yaml(text, path)


def parse_yaml(text: str, path: str) -> Document:
    """Parse YAML; `path` only serves the error texts.

    Raises:
        ConfigurationError: not YAML of the kind this module accepts, with line and column.
    """
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        line, column = _place_of(text, int(error.position))
        raise ConfigurationError(
            f"{path}, line {line}, column {column}: character {text[error.position]!r} "
            "is not allowed in YAML"
        ) from error
    lines = _Lines(loader)
    try:
        node = loader.get_single_node()
        data = None if node is None else lines.read((), node)
    except yaml.MarkedYAMLError as error:
        raise ConfigurationError(f"{path}{_explain(error)}") from error
    except (ValueError, OverflowError) as error:  # an escape that names no character, a date 99-99
        mark = lines.mark or loader.get_mark()
        place = f"line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigurationError(f"{path}, {place}: cannot be understood: {error}") from error
    finally:
        loader.dispose()
    return Document(path=path, data=data, key_lines=lines.keys, value_lines=lines.values)


class _Loader(yaml.SafeLoader):
    """The safe loader, without tags, anchors, aliases and deep nesting."""

    depth = 0

    def scan_to_next_token(self) -> None:
        """Skip spaces and comments; inside brackets also tabs, which may indent JSON."""
        super().scan_to_next_token()
        while self.flow_level and self.peek() == "\t":
            self.forward()
            super().scan_to_next_token()

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        """Build the node of the next event, if its kind is accepted."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise _refusal(f"found the alias *{event.anchor}, but aliases are not used here", event)
        if event.anchor is not None:
            raise _refusal(
                f"found the anchor &{event.anchor}, but anchors are not used here", event
            )
        if event.tag is not None:
            raise _refusal(
                f"found the tag {event.tag!r}, but tags are not used here; quote text that looks "
                "like something else",
                event,
            )
        if self.depth == YAML_DEPTH_MAX:
            raise _refusal(f"more than {YAML_DEPTH_MAX} levels inside each other", event)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Lines:
    """Turns nodes into plain data and notes the line of each."""

    def __init__(self, loader: _Loader) -> None:
        self._loader = loader
        self.keys: dict[KeyPath, int] = {}
        self.values: dict[KeyPath, int] = {}
        self.mark: yaml.Mark | None = None  # of the value being read

    def read(self, key_path: KeyPath, node: Node) -> object:
        """Give the data of a node and of everything in it."""
        self.values[key_path] = node.start_mark.line + 1
        if isinstance(node, MappingNode):
            return self._mapping(key_path, node)
        if isinstance(node, SequenceNode):
            return [self.read((*key_path, index), item) for index, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, key_path: KeyPath, node: MappingNode) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = self._scalar(key_node) if isinstance(key_node, ScalarNode) else None
            if not isinstance(key, str):
                scalar = isinstance(key_node, ScalarNode)
                found = f"{key_node.value:.60}" if scalar else "a list or a mapping"
                raise _refusal(f"found {found} as a key, expected text; quote it", key_node)
            entry = (*key_path, key)
            if key in mapping:
                raise _refusal(
                    f"key {key!r:.60} is given twice, first on line {self.keys[entry]}", key_node
                )
            self.keys[entry] = key_node.start_mark.line + 1
            mapping[key] = self.read(entry, value_node)
        return mapping

    def _scalar(self, node: Node) -> object:
        self.mark = node.start_mark
        if _is_ambiguous(node):
            raise _refusal(
                f"found {node.value:.60}, which has different values in different YAML versions; "
                "write a number in decimal digits without leading zeros, or quote text",
                node,
            )
        if node.tag == _STRING_TAG or node.tag in _TAGS_READ_AS_TEXT:
            if not is_encodable(node.value):  # an escape of a surrogate
                raise _refusal("found half of a surrogate pair, which UTF-8 cannot hold", node)
            return node.value
        if len(node.value) > PLAIN_CHARS_MAX:
            raise _refusal(f"a number or date of more than {PLAIN_CHARS_MAX} characters", node)
        return self._loader.construct_object(node)


def _is_ambiguous(node: Node) -> bool:
    """Return whether a plain value is a number in other than decimal digits."""
    if node.tag in _NUMBER_TAGS:
        return not _DECIMAL.fullmatch(node.value)
    is_plain = isinstance(node, ScalarNode) and node.style is None and node.tag == _STRING_TAG
    return is_plain and _NUMBER_ELSEWHERE.fullmatch(node.value) is not None


def _refusal(problem: str, where: Node | yaml.Event) -> yaml.MarkedYAMLError:
    mark: Any = where.start_mark
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _explain(error: yaml.MarkedYAMLError) -> str:
    """Say in one line where the text stops being YAML, and why."""
    mark = error.problem_mark or error.context_mark
    place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    context = ""
    if error.context and error.problem:
        context = f" ({error.context}"
        if error.context_mark:
            context += f" that begins on line {error.context_mark.line + 1}"
        context += ")"
    return f"{place}: {(error.problem or error.context or '').removeprefix('but ')}{context}"


def _place_of(text: str, position: int) -> tuple[int, int]:
    """Line and column, both from 1, of a character."""
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1
