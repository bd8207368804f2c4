"""Lines and table cells for a terminal: every character of a name is seen (`core/visible.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .core.visible import visible

if TYPE_CHECKING:
    from rich.text import Text


def say(text: str) -> None:
    """Print a line for people; JSON for programs is printed as it is."""
    click.echo(visible(text))


def cell(text: str, style: str = "") -> Text:
    """Return a text for a table or line of `rich`, without markup."""
    from rich.text import Text  # few commands show a table: 40 ms

    return Text(visible(text), style)
