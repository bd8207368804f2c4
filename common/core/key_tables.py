"""The keys of step files and scenarios, as tables for pages and as JSON Schema for editors.

Everything is read from the types that describe the file (`step_keys.py`), by way of the JSON Schema
that msgspec makes of them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

_KINDS = {"string": "text", "boolean": "true or false", "number": "number", "integer": "number"}


class KeyRow(Struct, frozen=True):
    """One key."""

    key: str
    values: str  # the allowed values
    default: str  # "required", "" if there is none
    meaning: str


def json_schema(kind: type[Struct], title: str) -> dict[str, Any]:
    """The JSON Schema of a file, for editors: https://json-schema.org/draft/2020-12."""
    schema = msgspec.json.schema(kind)
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, "title": title, **schema}


def key_rows(kind: type[Struct]) -> list[KeyRow]:
    """The keys of a mapping, in their order."""
    schema = msgspec.json.schema(kind)
    shown = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    required = shown.get("required", ())
    return [
        KeyRow(
            key,
            _values(one),
            "required" if key in required else _default(one.get("default")),
            one.get("description", ""),
        )
        for key, one in shown["properties"].items()
    ]


def markdown(rows: Sequence[KeyRow]) -> str:
    """The rows as a Markdown table."""
    lines = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for row in rows:
        values = row.values.replace("|", "\\|")
        lines.append(f"| `{row.key}` | {values} | {row.default} | {row.meaning} |")
    return "\n".join(lines) + "\n"


def help_text(rows: Sequence[KeyRow]) -> str:
    """The rows as text for `--help`, at most 80 columns wide."""
    width = max(len(row.key) for row in rows) + 2
    lines: list[str] = []
    for row in rows:
        default = f" [{row.default}]" if row.default else ""
        said = f"{row.values}{default}: {row.meaning}"
        first, *more = textwrap.wrap(said, 74 - width, break_long_words=False)
        lines.append(f"  {row.key:<{width}}{first}")
        lines += [" " * (width + 2) + line for line in more]
    return "\n".join(lines)


def _values(schema: dict[str, Any]) -> str:
    """The allowed values, in words."""
    if "title" in schema:
        return str(schema["title"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_values(one) for one in schema["anyOf"]))
    if "$ref" in schema:
        return "mapping"
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_values(schema['items'])}"
    if kind == "object":
        return "mapping"
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high = schema.get("maximum")
    if low is None and above is None:
        return str(_KINDS[str(kind)])
    begin = f"above {above:,}" if low is None else f"{low:,}"
    return f"{begin} to {high:,}" if high is not None else f"from {begin}"


def _default(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return (
        "" if value in (None, {}, []) else f"{value:g}" if isinstance(value, float) else str(value)
    )
