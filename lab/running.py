"""`reliable-pubsub lab run`: a scenario file, real processes, a verdict, an exit code."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

import click
import msgspec
from msgspec.structs import replace
from rich.console import Console, Group

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS
from reliable_pubsub.common.core.errors import ConfigurationError, PubSubError
from reliable_pubsub.common.journal_file import open_journal
from reliable_pubsub.common.signals import ignore_signals, stop_on_signals
from reliable_pubsub.common.terminal import cell

from .auditor import NAME as AUDITOR
from .auditor import audit
from .catalogue import about, comment_of, complete, load_scenario, scenario_path
from .core.checker import check
from .core.scenario import Scenario
from .core.story import first_story
from .core.verdict import Verdict
from .live import LiveStory, live, picture
from .reading import read_run
from .report import report_option, write_report
from .rig.director import Director
from .rig.processes import BACKUPS, FOLDERS, Processes
from .run_directory import claimed
from .text_table import wide_console
from .tool_errors import judge_errors
from .verdict_text import rules_in, show_verdict

LOOK_AGAIN_S: Final = 0.02
RUNS: Final = Path("run") / "lab"
COPY: Final = "scenario.yaml"
RULE_BROKEN: Final = 1
NOT_AS_EXPECTED: Final = 6
INTERRUPTED: Final = 130


def run_directory(directory: Path, scenario_file: Path) -> AbstractContextManager[Path]:
    """The run directory, with nothing in it but a copy of the scenario; locked meanwhile.

    Raises:
        ConfigurationError: another run uses it, it holds something else, or it cannot be written.
    """
    content = scenario_file.read_bytes()  # it may lie in the directory
    known = {COPY, *FOLDERS}
    return claimed(directory, lambda names: known <= names <= known | {BACKUPS}, COPY, content)


def perform(
    scenario: Scenario,
    directory: Path,
    console: Console,
    *,
    quiet: bool,
    see: Callable[[Group], None] | None = None,
) -> list[str]:
    """Run it; every process is ended and reaped, whatever happens.

    Args:
        see: is given each picture of the run.

    Returns:
        What was not as the scenario expects, one sentence each.
    """
    story = LiveStory(console, time.monotonic, quiet=quiet)
    processes = Processes(scenario, directory)
    recorder = open_journal(directory / "journals" / "lab.jsonl", "lab")
    try:
        recorder.begin("lab")
        director = Director(scenario, processes, recorder, clock=time.monotonic, tell=story.tell)
        is_live = console.is_terminal and not quiet
        with live(console) if is_live else nullcontext() as screen:
            views = [view for view in (screen and screen.update, see) if view]
            while not director.turn():
                for view in views:
                    view(picture(scenario, processes, story.lines))
                time.sleep(LOOK_AGAIN_S)
        if is_live:
            console.print(picture(scenario, processes, story.lines))
        wrong = [f"{name}: {why}" for name, why in director.unfinished.items()]
        wrong += [f"it never came to this: {event.in_words}" for event in director.not_happened]
        if processes.look_for_doors():
            try:
                file = directory / "journals" / f"{AUDITOR}.jsonl"
                audit(processes.endpoint, open_journal(file, AUDITOR), topics=scenario.topics)
            except PubSubError as error:
                wrong.append(f"the auditor could not read the log: {error}")
        else:
            wrong.append(f"the proxy does not run at the end, see {processes.proxy.log}")
        recorder.end()
    finally:
        ignore_signals()
        processes.close()
    return wrong


def exit_code_of(expected: Sequence[str], broken: Sequence[str], wrong: Sequence[str]) -> int:
    """0 only if every rule holds and everything went as the scenario expects."""
    if broken:
        return RULE_BROKEN
    return NOT_AS_EXPECTED if wrong or expected else 0


def outcome(expected: Sequence[str], broken: Sequence[str], wrong: Sequence[str]) -> list[str]:
    """The outcome against what the scenario expects, in sentences."""
    sentences = []
    if expected and sorted(expected) == sorted(broken):
        sentences.append(
            f"As the scenario expects: {and_list(broken)} broken. The failure is the lesson."
        )
    elif expected:
        sentences.append(
            f"NOT as the scenario expects: it says that {and_list(expected)} must break; "
            f"{and_list(broken) if broken else 'no rule'} did."
        )
    elif broken:
        sentences.append(f"NOT as the scenario expects: {and_list(broken)} broken.")
    sentences += [f"NOT as the scenario expects: {sentence}." for sentence in wrong]
    return sentences or [
        "As the scenario expects: every rule holds, and every process finished its work."
    ]


def and_list(words: Sequence[str]) -> str:
    """`V1, V3 and V7`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def compared(predicted: Set[str], broken: Sequence[str]) -> str:
    """What a student said against what happened, in one sentence."""
    if predicted == set(broken):
        return "Your prediction was right."
    said, was = (and_list(sorted(one)) if one else "no rule" for one in (predicted, broken))
    return f"Your prediction was {said}; what broke was {was}. Why?"


def _predicted() -> Set[str]:
    """Ask which rules will break.

    Raises:
        ConfigurationError: there is no answer.
    """
    try:
        return click.prompt(
            "Which rules will break? none, or for example V1,V6",
            value_proc=lambda given: rules_in("" if given.strip().lower() == "none" else given),
            err=True,
        )
    except click.Abort:
        raise ConfigurationError("--predict asks which rules will break: answer it") from None


def _as_json(
    scenario: Scenario, verdict: Verdict, code: int, sentences: Sequence[str], where: Path
) -> bytes:
    """Return the verdict of a run as one JSON document."""
    head = {"scenario": scenario.title, "seed": scenario.seed, "exit_code": code}
    head |= {"holds": verdict.holds, "outcome": sentences, "directory": str(where)}
    return msgspec.json.encode({**head, **msgspec.to_builtins(verdict)})


def _print_outcome(console: Console, sentences: Sequence[str], question: str) -> None:
    for line in sentences:
        console.print(cell(line, "bold red" if line.startswith("NOT") else ""))
    if question:
        console.print(cell(f"Question: {question}", "bold"), soft_wrap=True)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("scenario", shell_complete=complete)
@report_option()
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Run directory, emptied first.  [default: run/lab/<scenario>]",
)
@click.option("--seed", type=click.IntRange(0), help="Another chance for events at random.")
@click.option("--predict", is_flag=True, help="First ask which rules will break, then compare.")
@click.option("--json", "as_json", is_flag=True, help="The verdict as JSON on stdout, no table.")
@click.option("-q", "--quiet", is_flag=True, help="Only the verdict.")
def main(
    scenario: str,
    report: Path | None,
    directory: Path | None,
    seed: int | None,
    predict: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Launch the processes of a scenario, cause its failures, judge the journals.

    SCENARIO is a YAML file, or the name of one that is shipped (`reliable-pubsub lab list`).

    \b
    title: The proxy dies
    publishers:
      publisher-1:
        steps: [{topic: news, message: hello, number_of_times: 100}]
    subscribers:
      subscriber-1:
        steps:
          - {action: subscribe, topic: news}
          - {action: get, topic: news, number_of_times: all}
    events:
      - {after: {process: publisher-1, put: 40}, kill: proxy, restart: 0.5s}
      - {at: 2s, cut: subscriber-1, for: 1s}
      - {every: 0.5s, random: [kill, stop, cut], until: 5s}

    What dies is started again by the same command. At the end everything is healed and delivered,
    an auditor reads the log, and all journals are checked against thirteen rules.

    \b
    Exit codes: 0 every rule holds, and all ended as the scenario expects
                1 a rule is broken (an exercise that shall fail ends so, too)
                2 the scenario cannot be used, or not on this machine
                6 every rule holds, but an exercise did not fail, or something else was unexpected
    """
    with judge_errors():
        path = scenario_path(scenario)
        wanted = load_scenario(path)
        if seed is not None:
            wanted = replace(wanted, seed=seed)
        console = Console(stderr=True) if as_json else wide_console(100)
        lesson = comment_of(path)
        for word, text in lesson.items() if not quiet and not as_json else ():
            console.print(cell(f"{word}: {text}"), soft_wrap=True)
        predicted = _predicted() if predict else None
    with judge_errors(), run_directory(directory or RUNS / path.stem, path) as where:
        wrong: list[str] | None = None
        with stop_on_signals("stopped: every process of the scenario has been ended", exit_code=0):
            wrong = perform(wanted, where, console, quiet=quiet or as_json)
        if wrong is None:
            sys.exit(INTERRUPTED)
        found = read_run(where)
        verdict = check(found)
        broken = [rule.rule for rule in verdict.rules if not rule.holds]
        sentences = outcome(wanted.expect.violated, broken, wrong)
        code = exit_code_of(wanted.expect.violated, broken, wrong)
        if as_json:
            click.echo(_as_json(wanted, verdict, code, sentences, where))
        else:
            show_verdict(console, verdict, first_story(found, verdict), where, found.torn)
        if predicted is not None:
            sentences.append(compared(predicted, broken))
        _print_outcome(console, sentences, "" if quiet else lesson.get("Question", ""))
        console.print(cell(f"files: {where}"), soft_wrap=True)
        if report is not None:
            write_report(report, found, verdict, title=wanted.title, about=about(path))
            console.print(cell(f"report: {report}"), soft_wrap=True)
        sys.exit(code)
