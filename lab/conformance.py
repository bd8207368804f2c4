"""`reliable-pubsub conformance`: any client, put through faults and judged by the checker."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, readable_errors
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.signals import stop_on_signals

from .conformance_run import Judged, Wanted, run_case
from .core.conformance import CASES, MESSAGES, MESSAGES_MAX, MESSAGES_MIN, ROLES, Case, chosen
from .core.conformance_verdict import Found, Judgement, Result, exit_code, told
from .core.story import tell
from .text_table import text_table, wide_console
from .verdict_text import show_story

RUNS: Final = Path("run") / "conformance"
MARKER: Final = "conformance.json"  # in each directory that a run has written
PATIENCE_S: Final = 60.0
STYLES: Final[dict[Judgement, str]] = {
    "conforms": "green",
    "broken": "bold red",
    "not as expected": "bold yellow",
}


class CaseReport(Struct, frozen=True, kw_only=True):
    """A case in the JSON document."""

    case: str
    does: str
    expects: str
    judgement: Judgement
    broken: tuple[str, ...]  # rules
    judged: tuple[str, ...]  # rules
    found: tuple[Found, ...]
    ending: str
    note: str
    seconds: float
    directory: str
    again: str  # the command that repeats it


class Report(Struct, frozen=True, kw_only=True):
    """The JSON document."""

    role: str
    command: tuple[str, ...]
    messages: int
    seed: int
    conforms: bool
    cases: tuple[CaseReport, ...]


def emptied(directory: Path) -> Path:
    """A directory with nothing in it.

    Raises:
        ConfigurationError: it holds something that no run has written, or cannot be written.
    """
    try:
        if directory.exists() and any(directory.iterdir()):
            if not (directory / MARKER).exists():
                raise ConfigurationError(
                    f"{directory}: is not empty, and not from an earlier run of conformance; "
                    "nothing was removed. Choose another --dir"
                )
            shutil.rmtree(directory)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / MARKER).write_text("{}\n")
    except OSError as error:
        raise ConfigurationError(f"{directory}: cannot be used: {error.strerror}") from error
    return directory.resolve()


def again(case: Case, wanted: Wanted) -> str:
    """The command that repeats a case."""
    options = ["--role", wanted.role, "--case", case.name, "--seed", str(wanted.seed)]
    options += ["--messages", str(wanted.messages)]
    if wanted.patience_s != PATIENCE_S:
        options += ["--patience", f"{wanted.patience_s:g}"]
    return f"reliable-pubsub conformance {shlex.join(options)} -- {shlex.join(wanted.command)}"


@contextmanager
def _doing(console: Console, case: Case, number: int, count: int) -> Iterator[None]:
    """Say which case runs, where a person watches."""
    if not console.is_terminal:
        yield
        return
    with console.status(f"{number} of {count}: {case.name}: {case.does}"):
        yield


def _run_cases(
    cases: Sequence[Case], wanted: Wanted, where: Path
) -> list[tuple[Case, Judged, float]]:
    """Run each case, and say how it ended."""
    done: list[tuple[Case, Judged, float]] = []
    with stop_on_signals("stopped: every process that was started has been ended"):
        for number, case in enumerate(cases, start=1):
            began_s = time.monotonic()
            with _doing(Console(stderr=True), case, number, len(cases)):
                judged = run_case(case, wanted, where / case.name)
            done.append((case, judged, time.monotonic() - began_s))
            if not sys.stderr.isatty():
                count = f"{number} of {len(cases)}"
                click.echo(f"{count}: {case.name}: {judged.result.judgement}", err=True)
    return done


def _show(
    console: Console, cases: Sequence[tuple[Case, Judged, float]], wanted: Wanted, where: Path
) -> None:
    """The table, notes, what is wrong in each case that does not conform, and the last word."""
    console.print(_table(cases, wanted))
    for case, judged, _ in cases:
        if judged.result.note:
            console.print(f"note: {case.name}: {judged.result.note}", soft_wrap=True)
        if judged.result.judgement != "conforms":
            _explain(console, case, judged, wanted, where)
    console.print(_last_line(_results(cases), wanted))
    console.print(f"files: {where}", soft_wrap=True)


def _table(cases: Sequence[tuple[Case, Judged, float]], wanted: Wanted) -> Table:
    rows = [
        (
            case.name,
            case.does,
            Text(judged.result.judgement, style=STYLES[judged.result.judgement]),
            ", ".join(judged.result.broken) or f"{len(judged.result.judged)} judged",
            f"{seconds:.1f}",
        )
        for case, judged, seconds in cases
    ]
    title = f"{wanted.role}: {wanted.messages} messages, seed {wanted.seed}"
    return text_table(title, ("case", "what happens", "verdict", "rules", "#s"), rows)


def _explain(console: Console, case: Case, judged: Judged, wanted: Wanted, directory: Path) -> None:
    """What is wrong in one case, the story of a message that shows it, where the files are."""
    result = judged.result
    console.print()
    console.print(Text(f"{case.name}: {result.judgement}", style=STYLES[result.judgement]))
    console.print(Text(f"  what happens: {case.does}"), soft_wrap=True)
    console.print(Text(f"  expected:     {case.expects}"), soft_wrap=True)
    console.print(Text(f"  it ended:     {result.ending}"), soft_wrap=True)
    for line in told(result):
        console.print(Text(f"  {line}", style="red" if result.broken else ""), soft_wrap=True)
    first = judged.verdict.first if judged.verdict is not None else None
    if judged.run is not None and first is not None and first.message is not None:
        show_story(console, tell(judged.run, first.message))
    console.print(Text(f"  files:  {directory / case.name}"), soft_wrap=True)
    console.print(
        Text(f"  rules:  reliable-pubsub lab check {directory / case.name / 'evidence'}"),
        soft_wrap=True,
    )
    console.print(Text(f"  again:  {again(case, wanted)}"), soft_wrap=True)


def _list(console: Console) -> None:
    rows = [(case.name, case.does, case.expects) for case in CASES]
    title = "cases, each with a proxy of its own"
    console.print(text_table(title, ("case", "what happens", "expected"), rows))


def _report(cases: Sequence[tuple[Case, Judged, float]], wanted: Wanted, directory: Path) -> Report:
    return Report(
        role=wanted.role,
        command=wanted.command,
        messages=wanted.messages,
        seed=wanted.seed,
        conforms=exit_code(_results(cases)) == 0,
        cases=tuple(
            CaseReport(
                case=case.name,
                does=case.does,
                expects=case.expects,
                judgement=judged.result.judgement,
                broken=judged.result.broken,
                judged=judged.result.judged,
                found=judged.result.found,
                ending=judged.result.ending,
                note=judged.result.note,
                seconds=round(seconds, 1),
                directory=str(directory / case.name),
                again=again(case, wanted),
            )
            for case, judged, seconds in cases
        ),
    )


def _results(cases: Sequence[tuple[Case, Judged, float]]) -> list[Result]:
    return [judged.result for _, judged, _ in cases]


def _last_line(results: Sequence[Result], wanted: Wanted) -> Text:
    count = f"{len(results)} of {len(CASES)} cases"
    wrong = [result.case for result in results if result.judgement != "conforms"]
    if not wrong:
        return Text(f"CONFORMS: this {wanted.role} passed {count}", style="bold green")
    return Text(f"DOES NOT CONFORM: {', '.join(wrong)}", style="bold red")


@click.command(
    context_settings={**CONTEXT_SETTINGS, "ignore_unknown_options": True},
)
@click.option("--role", type=click.Choice(ROLES), default=None, help="What COMMAND is.  [required]")
@click.option(
    "--case",
    "names",
    multiple=True,
    type=click.Choice([case.name for case in CASES]),
    metavar="NAME",
    help="Only this case; may be given several times.",
)
@click.option("--list", "is_list", is_flag=True, help="Show all cases, and run none.")
@click.option(
    "--messages",
    type=click.IntRange(MESSAGES_MIN, MESSAGES_MAX),
    default=MESSAGES,
    show_default=True,
    help="Messages of each case.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Of all random moments."
)
@click.option(
    "--patience",
    "patience_s",
    type=click.FloatRange(1, 280),
    default=PATIENCE_S,
    show_default=True,
    help="Seconds without a movement after which COMMAND counts as hung.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the files go, emptied first.  [default: run/conformance/ROLE]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.argument("command", metavar="-- COMMAND", nargs=-1, type=click.UNPROCESSED)
def main(
    role: str | None,
    names: tuple[str, ...],
    is_list: bool,
    messages: int,
    seed: int,
    patience_s: float,
    directory: Path | None,
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Judge a client in any language: COMMAND is run through faults, and held against the rules.

    For each case a proxy of its own is started on loopback, and a faulty link before it. COMMAND
    is told five things, as {words} in its arguments and as environment variables:

    \b
      {endpoint}   CONFORMANCE_ENDPOINT   where the proxy is
      {id}         CONFORMANCE_ID         the id to use
      {topic}      CONFORMANCE_TOPIC      the topic to use
      {state_dir}  CONFORMANCE_STATE_DIR  what has to survive kill -9; empty at first
      {output}     CONFORMANCE_OUTPUT     a file to append to, a line for each message:
                                          OFFSET, a tab and the payload; or the payload alone

    A publisher puts the lines of its standard input, which is also the file {input}, as one
    message each, writes a line of output when a message is acknowledged, and ends with exit code 0
    when all are. A subscriber subscribes, writes a line for each message, and runs until SIGTERM.

    \b
    What is killed is started again by the same command. Exit codes of COMMAND:
      0 done · 3 no answer from the proxy: it is started again · any other: it refuses to go on

    \b
      reliable-pubsub conformance --role publisher -- ./put --to {endpoint} --as {id}
      reliable-pubsub conformance --role subscriber --case client-killed -- node get.js

    \b
    Exit codes: 0 conforms
                1 a rule is broken
                2 usage, or COMMAND cannot be started
                6 no rule is broken, and something was not as expected: it never connected, hung,
                  or gave up where it was to go on
    """
    console = wide_console(100)
    if is_list:
        _list(console)
        return
    if role is None:
        raise click.UsageError("--role publisher or --role subscriber says what COMMAND is")
    if not command:
        raise click.UsageError("COMMAND is missing: what comes after `--` is started and judged")
    wanted = Wanted(role, command, messages, seed, patience_s)  # type: ignore[arg-type]  # a Choice
    with readable_errors():
        if shutil.which(command[0]) is None:
            raise ConfigurationError(
                f"{command[0]}: there is no such program. COMMAND is a program and its arguments, "
                "as after `exec`; for a line of a shell write: sh -c '...'"
            )
        where = emptied(directory or RUNS / role)
        done = _run_cases(chosen(names), wanted, where)
        report = msgspec.json.encode(_report(done, wanted, where))
        (where / MARKER).write_bytes(msgspec.json.format(report) + b"\n")
    if as_json:
        click.echo(report)
    else:
        _show(console, done, wanted, where)
    sys.exit(exit_code(_results(done)))


if __name__ == "__main__":
    main(prog_name="reliable-pubsub conformance")
