"""A run in lines: who did what and when, with arrows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

JUDGE: Final = "judge"


class RunEvent(Struct, frozen=True):
    """Something that happened in a run."""

    at_s: float
    who: str
    does: str
    is_answer: bool = False


def lines_of(events: Sequence[RunEvent]) -> list[str]:
    """Return a line for each event; an answer that follows its request shares a line with it."""
    width = max((len(one.who) for one in events), default=0)
    found: list[str] = []
    before: RunEvent | None = None
    for one in events:
        follows = before is not None and before.who == one.who and not before.is_answer
        if one.is_answer and follows:
            found[-1] += f" ──► {one.does}"
        else:
            mark = "✗" if one.who == JUDGE else " "
            arrow = "──► " if one.is_answer else ""
            found.append(f"{one.at_s:7.3f} s {mark} {one.who:<{width}}  {arrow}{one.does}")
        before = one
    return found
