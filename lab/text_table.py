"""Tables for a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from reliable_pubsub.common.terminal import cell


def text_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]], **look: Any
) -> Table:
    """A table; a column whose name begins with # holds numbers. No text is taken for markup.

    Args:
        look: further arguments of `Table`.
    """
    table = Table(title=title or None, title_justify="left", **look)
    for name in columns:
        table.add_column(name.removeprefix("#"), justify="right" if name[:1] == "#" else "left")
    for row in rows:
        table.add_row(*(cell(one) if isinstance(one, str) else one for one in row))
    return table


def wide_console(width: int) -> Console:
    """Standard output; where it is no terminal, of this width."""
    return Console(width=None if sys.stdout.isatty() else width, highlight=False)
