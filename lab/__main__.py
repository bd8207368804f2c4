"""`reliable-pubsub lab`: judge what processes wrote in their journals."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, LazyGroup, readable_errors
from reliable_pubsub.common.core.errors import ConfigurationError

from .core.checker import check
from .core.run import LabRun
from .core.story import first_story, messages_called, tell
from .reading import BytesRead, journal_files, read_run, without_collection
from .report import report_option, write_report
from .verdict_text import show_story, show_verdict

VIOLATED = 1  # exit codes
GAPS = 6

EXIT_CODES = (
    "Exit codes: 0 every judged rule holds · 1 a rule is violated · 2 usage, no journal · 6 no "
    "rule is violated, and evidence is missing: no rule was judged, or not one that is required, "
    "or lines cannot be read, or a subscriber's journal stops in the middle."
)


def _rules(_context: click.Context, _option: click.Parameter, given: str) -> frozenset[str]:
    """The rules of `--require`."""
    names = frozenset(name.strip().upper() for name in given.split(",") if name.strip())
    known = [f"V{number}" for number in range(1, 14)]
    for name in sorted(names.difference(known)):
        raise click.BadParameter(f"{name!r} is no rule; the rules are V1 to V13")
    return names


@click.group(
    cls=LazyGroup,
    modules={"run": "reliable_pubsub.lab.running", "list": "reliable_pubsub.lab.catalogue"},
    context_settings=CONTEXT_SETTINGS,
)
def main() -> None:
    """Break processes on purpose, and judge from their journals what happened to each message.

    `run` launches the processes of a scenario, breaks them, and judges. Every process that is
    started by hand writes its journal with --journal FILE; `check` and `trace` read them.
    """


@main.command(name="check", context_settings=CONTEXT_SETTINGS, epilog=EXIT_CODES)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="The whole verdict as JSON on stdout.")
@click.option(
    "--require",
    "required",
    metavar="RULES",
    default="",
    callback=_rules,
    help="Rules that must be judged, such as V1,V2,V6.",
)
@report_option()
def check_command(
    folder: Path, as_json: bool, required: frozenset[str], report: Path | None
) -> None:
    """Check the journals of DIR against the thirteen rules of exactly-once.

    Reads every *.jsonl in DIR and below: journals (--journal) of publishers, subscribers, the
    proxy, an auditor, and output files (--output) of subscribers, known by what is in them.
    A rule without evidence is not judged, and says why.

    \b
      reliable-pubsub lab check results
      reliable-pubsub lab check results --json | jq '.rules[] | select(.violations != [])'
    """
    with readable_errors(), without_collection():
        run = _read(folder)
        verdict = check(run)
        gaps = list(verdict.gaps(required, run.unreadable))
        if as_json:
            head = {"holds": verdict.holds, "gaps": gaps, "torn": run.torn}
            click.echo(msgspec.json.encode({**head, **msgspec.to_builtins(verdict)}))
        else:
            story = first_story(run, verdict)
            show_verdict(Console(), verdict, story, folder, run.torn, gaps)
        if report is not None:
            write_report(report, run, verdict, title=folder.resolve().name)
    if not verdict.holds or gaps:
        sys.exit(GAPS if verdict.holds else VIOLATED)


@main.command(context_settings=CONTEXT_SETTINGS)
@click.argument("message_id", metavar="ID")
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), default=Path())
def trace(message_id: str, folder: Path) -> None:
    """Tell the story of a message: who put, stored, got and recorded it, and when.

    ID is the message's id, `publisher_sequence`. A publisher numbers each topic from 1, so there
    may be one in several topics: then each is shown.

    \b
      reliable-pubsub lab trace publisher-1_17 results
    """
    with readable_errors(), without_collection():
        run = _read(folder)
        messages = messages_called(run, message_id)
        if not messages:
            raise ConfigurationError(
                f"no journal in {folder} speaks of a message {message_id!r}; an id is "
                "<publisher>_<sequence>, for example publisher-1_17"
            )
        for message in messages:
            show_story(Console(), tell(run, message))


def _read(folder: Path) -> LabRun:
    total = sum(path.stat().st_size for path in journal_files(folder))
    with _reading_bar(total) as advance:
        return read_run(folder, advance)


@contextmanager
def _reading_bar(total: int) -> Iterator[BytesRead]:
    """A progress bar on stderr, if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda size: None
        return
    columns = (TextColumn("reading"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda size: progress.advance(task, size)


if __name__ == "__main__":
    main(prog_name="reliable-pubsub lab")
