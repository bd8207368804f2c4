"""`Pattern`: a kind and a text that select topics. `matching.py` decides what it matches."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from ..arguments import checked
from ..errors import InvalidPatternError
from ..limits import PATTERN_CHARS_MAX
from ..names import is_encodable


class Pattern(Struct, frozen=True, array_like=True, order=True, forbid_unknown_fields=True):
    """A selection of topics. The kinds known everywhere: exact, prefix, glob, regex."""

    allowed: ClassVar[str] = "glob(...), regex(...) or prefix(...)"  # where an argument is one

    kind: Annotated[str, Meta(min_length=1, max_length=32)]
    text: Annotated[str, Meta(max_length=PATTERN_CHARS_MAX)]

    def __post_init__(self) -> None:
        """Refuse what no request can carry."""
        if not self.text.isascii() and not is_encodable(self.text):
            raise InvalidPatternError(pattern=self.text, problem="it has a lone surrogate")

    def __str__(self) -> str:
        return f"{self.kind} {self.text!r}"


Topics = str | Pattern  # what a call is about: one topic, or those of a pattern


@checked
def glob(text: str) -> Pattern:
    """Topics by a glob: `*` any text, `?` any character, `[a-z]` and `[!a-z]` one of a set.

    `/` is a character as any other. Topics of dead letters are meant only if it ends in `.dead`;
    the same holds for the two below.
    """
    return Pattern("glob", text)


@checked
def regex(text: str) -> Pattern:
    """Topics by a regular expression that the whole name fits (marks: docs/how-to/relay.md)."""
    return Pattern("regex", text)


@checked
def prefix(text: str) -> Pattern:
    """Topics that begin so; all of them with an empty text."""
    return Pattern("prefix", text)
