"""Phrases for errors: what was found and what was expected.

`expected` and `facts` read the annotated type that a value is converted to by msgspec, so that a
range is written once: `Annotated[int, Meta(ge=1, le=9)]` is "a whole number from 1 to 9".
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from msgspec import Meta, Struct, UnsetType
from msgspec.structs import FieldInfo, fields

PROBLEMS_MAX: Final = 20  # of one file, reported at once

_ASPECTS: Final = ("ge", "gt", "le", "pattern", "title", "description", "examples")
_KINDS: Final[Mapping[Any, str]] = {str: "text", bool: "true or false"}


def facts(kind: Any) -> dict[str, Any]:
    """The `Meta` of a type as a dictionary: range, description, title and extras."""
    found: dict[str, Any] = {}
    kind = given_type(kind)
    while get_origin(kind) is Annotated:
        kind, *metas = get_args(kind)
        for meta in metas:
            assert isinstance(meta, Meta)
            said = {name: getattr(meta, name) for name in _ASPECTS}
            said |= {**(meta.extra_json_schema or {}), **(meta.extra or {})}
            found |= {name: value for name, value in said.items() if value is not None}
        kind = given_type(kind)
    return found


def plain(kind: Any) -> Any:
    """The type of a given key, without its `Meta`."""
    kind = given_type(kind)
    while get_origin(kind) is Annotated:
        kind = given_type(get_args(kind)[0])
    return kind


def alternatives(kind: Any) -> tuple[Any, ...]:
    """The alternatives of a union type, without "not given"."""
    arms = _arms(plain(kind))
    if len(arms) == 1:
        return (kind,)
    return tuple(one for arm in arms if arm is not UnsetType for one in alternatives(arm))


def given_type(kind: Any) -> Any:
    """The type of a key that is given: of `X | UnsetType` it is X."""
    given = [arm for arm in _arms(kind) if arm is not UnsetType]
    return given[0] if len(given) == 1 else kind


def _arms(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def structs_of(kind: Any) -> tuple[type[Struct], ...]:
    """The mappings among the alternatives of a type."""
    arms = map(plain, alternatives(kind))
    return tuple(one for one in arms if isinstance(one, type) and issubclass(one, Struct))


@cache
def fields_of(kind: type[Struct]) -> dict[str, FieldInfo]:
    """The fields of a mapping by their keys. Kept: msgspec reads the annotations at each call."""
    return {field.encode_name: field for field in fields(kind)}


@cache
def keys_of(*kinds: type[Struct]) -> tuple[str, ...]:
    """The keys of mappings, each once; first the tag that tells the mappings apart."""
    tags = [one.__struct_config__.tag_field for one in kinds]
    keys = [key for one in kinds for key in fields_of(one)]
    return tuple(dict.fromkeys([tag for tag in tags if tag] + keys))


def expected(kind: Any) -> str:
    """The values of a type, in words."""
    about = facts(kind)
    if "expected" in about:
        return str(about["expected"])
    if "title" in about:
        examples = ", ".join(map(str, about.get("examples", ())))
        return f"{about['title']} such as {examples}" if examples else str(about["title"])
    arms = alternatives(kind)
    structs = structs_of(kind)
    if len(arms) > max(1, len(structs)):
        return ", or ".join(dict.fromkeys(map(expected, arms)))
    if structs:
        keys = keys_of(*structs)
        return f"a mapping with the key{'s' * (len(keys) > 1)} {', '.join(keys)}"
    kind = plain(kind)
    if get_origin(kind) is Literal:
        words = ", ".join(map(str, get_args(kind)))
        return f"one of {words}" if len(get_args(kind)) > 1 else words
    if get_origin(kind) is list:
        return f"a list of {expected(get_args(kind)[0]).removeprefix('one of ')}"
    if kind not in (int, float):
        return _KINDS.get(kind, "a mapping")
    what = "a whole number" if kind is int else "a number"
    if "le" not in about:
        return what
    low = f"above {about['gt']:,}" if "gt" in about else f"from {about['ge']:,}"
    unit = f" ({about['unit']})" if "unit" in about else ""
    return f"{what} {low} to {about['le']:,}{unit}"


def refused(value: object, kind: Any, *, expects: str = "") -> str:
    """Describe a value of the wrong type: found, expected, the closest word.

    Args:
        expects: the expected values, if the type does not say all.
    """
    literals = [one for one in map(plain, alternatives(kind)) if get_origin(one) is Literal]
    words = [word for one in literals for word in get_args(one) if isinstance(word, str)]
    advice = did_you_mean(value, words) if isinstance(value, str) else ""
    return f"found {in_words(value)}, expected {expects or expected(kind)}{advice}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Name the closest known word, as the end of a sentence; nothing, if none is close."""
    import difflib  # 2 ms

    by_lower = {name.lower(): name for name in known}
    plain = word[:64].lower().replace("-", "_").replace(" ", "_")
    closest = difflib.get_close_matches(plain, by_lower, n=1)
    return f"; did you mean {by_lower[closest[0]]!r}?" if closest else ""


def in_words(value: object) -> str:
    """Say what was found, in at most 60 characters and one line."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, str):
        return f"{value!r:.60}"
    return f"{value!s:.60}"


def counted(count: int, what: str) -> str:
    """`1 link`, `2 links`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def key_in_words(key: str) -> str:
    """Give a key of a file in one line of at most 60 characters."""
    return f"{key if key.isprintable() else repr(key):.60}"


def first_of(problems: Sequence[str]) -> str:
    """The problems of a file, one on a line; at most PROBLEMS_MAX, then how many more."""
    lines = list(problems[:PROBLEMS_MAX])
    if len(problems) > PROBLEMS_MAX:
        lines.append(f"... and {len(problems) - PROBLEMS_MAX} more")
    return "\n".join(lines)
