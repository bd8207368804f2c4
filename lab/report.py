"""A report of a lab run: one page of HTML that can be sent, kept, printed and opened anywhere."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from reliable_pubsub.common.core.errors import ConfigurationError

from . import report_page
from .core.run import LabRun
from .core.verdict import Verdict

Command = TypeVar("Command", bound=Callable[..., Any])


LAB_RUN: Final = "Report of a lab run"


def report_page_text(
    run: LabRun, verdict: Verdict, *, title: str, about: str, eyebrow: str = LAB_RUN
) -> str:
    """The page, with the style and the script that lie beside this file."""
    assets = files(__package__)
    dress = report_page.Dress(
        style=assets.joinpath("report.css").read_text("utf-8"),
        script=assets.joinpath("report.js").read_text("utf-8"),
        eyebrow=eyebrow,
    )
    return report_page.page(run, verdict, title=title, about=about, dress=dress)


def write_report(
    path: Path,
    run: LabRun,
    verdict: Verdict,
    *,
    title: str,
    about: str = "",
    eyebrow: str = LAB_RUN,
) -> None:
    """Write the page.

    Raises:
        ConfigurationError: it cannot be written.
    """
    text = report_page_text(run, verdict, title=title, about=about, eyebrow=eyebrow)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"report {path}: cannot be written: {error.strerror}; the verdict above is valid"
        ) from error


def report_option() -> Callable[[Command], Command]:
    """The option of the commands that have a run to show."""
    return click.option(
        "--report",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Write the run as one page of HTML: timeline, verdict, the story of a message.",
    )
