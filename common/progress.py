"""Plans and progress for people: a table of the steps, a bar while they run.

`rich` is loaded only when something is shown: it takes longer than the rest of a small command.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Protocol

from .core.steps import PlanRow
from .core.visible import visible
from .terminal import cell


def print_plan(rows: Sequence[PlanRow]) -> None:
    """Show the steps of a plan."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="plan")
    for name in ("step", "action", "topic", "messages", "batch", "sleep between", "sleep after"):
        justify: Literal["left", "right"] = "left" if name in ("action", "topic") else "right"
        table.add_column(name, justify=justify, overflow="fold")
    table.add_column("detail", overflow="fold")
    for row in rows:
        table.add_row(
            str(row.step),
            row.action,
            cell(row.topic),
            "" if row.messages is None else f"{row.messages:,}",
            str(row.batch),
            f"{row.sleep_between_s:g} s",
            f"{row.sleep_after_s:g} s",
            cell(row.detail),
        )
    Console().print(table)


def message_in_words(topic: str, offset: int | None, message_id: str, payload: bytes) -> str:
    """Return a message as one line; characters that a terminal might execute or hide are codes."""
    text = payload.decode("utf-8", errors="backslashreplace")
    line = f"{topic} {'-' if offset is None else offset} {message_id}: {text}"
    return visible(line, kept="")


class Advance(Protocol):
    """Moves a progress bar."""

    def __call__(self, messages: int, what: str) -> None:
        """Advance by `messages`; `what` is the current action."""


@contextmanager
def progress_bar(total: int, done: int, *, quiet: bool) -> Iterator[Advance]:
    """A bar on stderr if that is a terminal; nothing in a log file.

    Args:
        total, done: messages of the plan, and those already done.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda messages, what: None
        return
    from rich import progress as bar
    from rich.console import Console
    from rich.markup import escape

    with bar.Progress(
        bar.SpinnerColumn(),
        bar.TextColumn("{task.description}"),
        bar.BarColumn(),
        bar.MofNCompleteColumn(),
        bar.TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task("starting", total=total, completed=done)

        def advance(messages: int, what: str) -> None:
            progress.update(task, advance=messages, description=escape(visible(what)))

        yield advance
