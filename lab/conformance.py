"""`reliable-pubsub conformance`: any client, put through faults and judged by the checker."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import msgspec
from msgspec import Struct
from msgspec.structs import asdict
from rich.console import Console
from rich.text import Text

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.signals import stop_on_signals
from reliable_pubsub.common.terminal import cell

from .conformance_run import Candidate, Judged, run_case
from .core.conformance import CASES, MESSAGES, MESSAGES_MAX, MESSAGES_MIN, ROLES, Case, chosen
from .core.conformance_verdict import Breach, Judgement, exit_code, paragraphs
from .core.story import first_story
from .run_directory import claimed
from .text_table import text_table, wide_console
from .tool_errors import judge_errors
from .verdict_text import show_story

RUNS: Final = Path("run") / "conformance"
MARKER: Final = "conformance.json"  # in each directory that a run has written
PATIENCE_S: Final = 60.0
STYLES: Final[dict[Judgement, str]] = {
    "conforms": "green",
    "broken": "bold red",
    "not as expected": "bold yellow",
    "not tried": "bold yellow",
}


class CaseReport(Struct, frozen=True, kw_only=True):
    """A case in the JSON document."""

    case: str
    does: str
    expects: str
    judgement: Judgement
    broken: tuple[str, ...]  # rules
    judged: tuple[str, ...]  # rules
    found: tuple[Breach, ...]
    ending: str
    note: str
    seconds: float
    directory: str
    again: str  # the command that repeats it
    crash_point: int | None  # at which it broke
    crash_points: tuple[str, ...]  # that it has, by name


class Report(Struct, frozen=True, kw_only=True):
    """The JSON document."""

    role: str
    command: tuple[str, ...]
    messages: int
    seed: int
    conforms: bool
    cases: tuple[CaseReport, ...]


def again(case: Case, wanted: Candidate, crash_point: int | None) -> str:
    """The command that repeats a case."""
    options = ["--role", wanted.role, "--case", case.name, "--seed", str(wanted.seed)]
    options += ["--messages", str(wanted.messages)]
    if crash_point is not None:
        options += ["--crash-point", str(crash_point)]
    if wanted.patience_s != PATIENCE_S:
        options += ["--patience", f"{wanted.patience_s:g}"]
    return f"reliable-pubsub conformance {shlex.join(options)} -- {shlex.join(wanted.command)}"


def _run_cases(
    cases: Sequence[Case], wanted: Candidate, where: Path
) -> list[tuple[CaseReport, Judged]]:
    """Run each case, and print how it ended."""
    done: list[tuple[CaseReport, Judged]] = []
    with stop_on_signals("stopped: every process that was started has been ended"):
        for number, case in enumerate(cases, start=1):
            count = f"{number} of {len(cases)}: {case.name}"
            began_s = time.monotonic()
            with Console(stderr=True).status(f"{count}: {case.does}"):
                judged = run_case(case, wanted, where / case.name)
            result = judged.result
            report = CaseReport(
                **asdict(result),
                broken=result.broken,
                does=case.does,
                expects=case.expects,
                seconds=round(time.monotonic() - began_s, 1),
                directory=str(judged.directory),
                again=again(case, wanted, result.crash_point),
                crash_points=tuple(judged.points.values()),
            )
            done.append((report, judged))
            if not sys.stderr.isatty():
                click.echo(f"{count}: {result.judgement}", err=True)
    return done


def _show(
    console: Console, cases: Sequence[tuple[CaseReport, Judged]], wanted: Candidate, where: Path
) -> None:
    """The table, notes, what is wrong in each case that does not conform, and the result."""
    rows = [
        (
            one.case,
            one.does,
            Text(one.judgement, style=STYLES[one.judgement]),
            ", ".join(one.broken) or f"{len(one.judged)} judged",
            f"{one.seconds:.1f}",
        )
        for one, _ in cases
    ]
    title = f"{wanted.role}: {wanted.messages} messages, seed {wanted.seed}"
    console.print(text_table(title, ("case", "what happens", "verdict", "rules", "#s"), rows))
    for one, judged in cases:
        if one.note:
            console.print(cell(f"note: {one.case}: {one.note}"), soft_wrap=True)
        if one.judgement != "conforms":
            _explain(console, one, judged)
    console.print(_last_line([one for one, _ in cases], wanted))
    console.print(f"files: {where}", soft_wrap=True)


def _explain(console: Console, one: CaseReport, judged: Judged) -> None:
    """What is wrong in one case, the story of a message that shows it, where the files are."""

    def say(line: str, style: str = "") -> None:
        console.print(cell(line, style), soft_wrap=True)

    console.print()
    say(f"{one.case}: {one.judgement}", STYLES[one.judgement])
    say(f"  what happens: {one.does}")
    say(f"  expected:     {one.expects}")
    say(f"  it ended:     {one.ending}")
    for line in paragraphs(judged.result):
        say(f"  {line}", "red" if one.broken else "")
    if judged.run is not None and judged.verdict is not None:
        story = first_story(judged.run, judged.verdict)
        if story is not None:
            show_story(console, story)
    say(f"  files:  {one.directory}")
    say(f"  rules:  reliable-pubsub lab check {one.directory}/evidence")
    say(f"  again:  {one.again}")


def _list(console: Console) -> None:
    rows = [(case.name, case.does, case.expects) for case in CASES]
    title = "cases, each with a proxy of its own"
    console.print(text_table(title, ("case", "what happens", "expected"), rows))


def _last_line(results: Sequence[CaseReport], wanted: Candidate) -> Text:
    count = f"{len(results)} of {len(CASES)} cases"
    not_tried = [result.case for result in results if result.judgement == "not tried"]
    fine = ("conforms", "not tried")
    wrong = [result.case for result in results if result.judgement not in fine]
    if not wrong and not_tried:
        count = f"{len(results) - len(not_tried)} of {len(CASES)} cases"
        text = f"NOT TRIED: {', '.join(not_tried)}; this {wanted.role} passed {count}"
        return Text(text, style="bold yellow")
    if not wrong:
        return Text(f"CONFORMS: this {wanted.role} passed {count}", style="bold green")
    return Text(f"DOES NOT CONFORM: {', '.join(wrong)}", style="bold red")


def _written(
    done: Sequence[tuple[CaseReport, Judged]], wanted: Candidate, where: Path, *, conforms: bool
) -> bytes:
    """The report, which is also left in the directory of the run."""
    report = Report(
        role=wanted.role,
        command=wanted.command,
        messages=wanted.messages,
        seed=wanted.seed,
        conforms=conforms,
        cases=tuple(one for one, _ in done),
    )
    document = msgspec.json.encode(report)
    (where / MARKER).write_bytes(msgspec.json.format(document) + b"\n")
    return document


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
    "--crash-point",
    type=click.IntRange(1),
    help="Of the case crash-points only this one, as a failure names it.",
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
    crash_point: int | None,
    patience_s: float,
    directory: Path | None,
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Judge a client in any language: COMMAND is run under faults, and checked against the rules.

    For each case a proxy of its own is started on loopback, and a faulty link before it. COMMAND
    gets five values, as {words} in its arguments and as environment variables:

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
      0 done · 3 no answer from the proxy: it is started again · any other: it refuses to continue

    \b
      reliable-pubsub conformance --role publisher -- ./put --to {endpoint} --as {id}
      reliable-pubsub conformance --role subscriber --case client-killed -- node get.js

    \b
    Exit codes: 0 conforms
                1 a rule is broken
                2 usage, or COMMAND cannot be started
                6 no rule is broken, and something was not as expected: it never connected, hung,
                  filled the disk, or gave up where it should continue
                7 the cases that were tried conform, and one could not be tried on this machine:
                  crash-points needs Linux on x86_64 or aarch64
    """
    console = wide_console(100)
    if is_list:
        _list(console)
        return
    if role is None:
        raise click.UsageError("--role publisher or --role subscriber says what COMMAND is")
    if not command:
        raise click.UsageError("COMMAND is missing: what comes after `--` is started and judged")
    wanted = Candidate(role, command, messages, seed, patience_s, crash_point)  # type: ignore[arg-type]  # a Choice
    with judge_errors():
        if shutil.which(command[0]) is None:
            raise ConfigurationError(
                f"{command[0]}: there is no such program; for a line of a shell write: sh -c '...'"
            )
    run = claimed(directory or RUNS / role, lambda names: MARKER in names, MARKER, b"{}\n")
    with judge_errors(), run as where:
        done = _run_cases(chosen(names), wanted, where)
        code = exit_code([judged.result for _, judged in done])
        document = _written(done, wanted, where, conforms=code == 0)
    if as_json:
        click.echo(document)
    else:
        _show(console, done, wanted, where)
    sys.exit(code)


if __name__ == "__main__":
    main(prog_name="reliable-pubsub conformance")
