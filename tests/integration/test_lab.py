"""The lab: every shipped scenario runs with real processes, and ends as it says.

The same command as a student types, a few at a time; each run has a directory and ports of its own.
Its processes are forked on Linux; those of the first test of a run, and of Ctrl-C, are executed.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from reliable_pubsub.common.system import IS_LINUX
from reliable_pubsub.lab.catalogue import load_scenario, shipped
from reliable_pubsub.lab.rig.child_process import ChildProcess
from reliable_pubsub.lab.rig.processes import FOLDERS
from reliable_pubsub.lab.running import main as run
from reliable_pubsub.lab.running import run_directory
from reliable_pubsub.lab.showing import main as show

from .harness import PATIENCE_S, REPOSITORY, Process, eventually

AT_A_TIME = 2
SCENARIOS = {name: load_scenario(path) for name, path in shipped().items()}
LONG = {  # with the shorter one of the gate
    "both-proxies-cut": "standby-takes-over",
    "postgres-fails-over": "standby-takes-over",
    "random": "everything-dies",
    "acknowledgement-lost": "late-copies",
    "exercise-snapshot": "proxy-rolled-back",
}

Result = subprocess.CompletedProcess[str]


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "reliable_pubsub", "lab", *map(str, arguments)]


def lab(*arguments: str | Path, executes: bool = False, path: str | None = None) -> Result:
    """Run the command in a fork, where that is possible.

    Args:
        executes: what it starts, as for a student; else that is forked too.
        path: of the shell, where the usual one shall not count.
    """
    words = command(*arguments)
    if IS_LINUX and not executes:
        words[2] = "tests.integration.forked_lab"
    environment = {} if path is None else {"PATH": path}
    with TemporaryDirectory() as directory:
        process = Process("lab", words, Path(directory), 0, cwd=REPOSITORY, environment=environment)
        try:
            code = process.wait(PATIENCE_S)
        finally:
            process.kill()
        return Result(words, code, process.stdout, process.stderr)


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Future[Result]]]:
    """The scenarios that a chosen test looks at, under way."""
    directory = tmp_path_factory.mktemp("lab")
    looked_at = {
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.path == request.path
        and "runs" in item.fixturenames
    }
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield {
            name: pool.submit(
                lab,
                *("run", name, "--dir", directory / name),
                executes=one.database is not None,  # a proxy there replaces itself
            )
            for name, one in SCENARIOS.items()
            if name in looked_at
        }


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.long] * (one in LONG)) for one in SCENARIOS]
)
def test_a_shipped_scenario_ends_as_it_says(name: str, runs: Mapping[str, Future[Result]]) -> None:
    result = runs[name].result(PATIENCE_S)

    if "Skipped: nothing was run" in " ".join(result.stderr.split()):
        assert result.returncode == 2
        pytest.skip(result.stderr)
    assert "As the scenario expects: " in result.stdout, result.stdout + result.stderr
    assert "NOT as the scenario expects" not in result.stdout
    assert "Traceback" not in result.stderr
    broken = SCENARIOS[name].expect.violated
    assert result.returncode == (1 if broken else 0)
    for rule in broken:
        assert f"{rule}" in result.stdout


@pytest.mark.parametrize("name", ["push-lost", "relay-dies"])
def test_pushes_have_come_where_a_scenario_pushes(
    name: str, runs: Mapping[str, Future[Result]]
) -> None:
    """Otherwise it would show nothing, because polling alone keeps the rules, too."""
    result = runs[name].result(PATIENCE_S)

    (directory,) = re.findall(r"^files: (.*)$", result.stdout, re.MULTILINE)
    log = (Path(directory) / "logs" / "subscriber-1.log").read_text()
    (taken,) = re.findall(r"^pushes of 'news': (\d+) taken", log, re.MULTILINE)
    assert int(taken) > 0


def test_the_three_exercises_and_the_rollback_must_break_a_rule_and_nothing_else_may() -> None:
    assert {
        name: one.expect.violated for name, one in SCENARIOS.items() if one.expect.violated
    } == {
        "exercise-cursor-on-send": ["V6"],
        "exercise-dedup-last-id": ["V2", "V4"],
        "exercise-snapshot": ["V1", "V3"],
        "proxy-rolled-back": ["V1", "V3"],
    }


def processes_below(directory: Path) -> list[str]:
    """Command lines of living processes that name this directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(directory) in line:
            found.append(line)
    return found


QUICK = """
title: Quick
publishers:
  publisher-1:
    steps: [{topic: news, message: hello, number_of_times: %d, sleep_between_messages: 0.01}]
subscribers:
  subscriber-1:
    steps:
      - {action: subscribe, topic: news}
      - {action: get, topic: news, number_of_times: all}
"""


def scenario_file(directory: Path, text: str) -> Path:
    path = directory / "quick.yaml"
    path.write_text(text)
    return path


def test_a_run_leaves_its_files_and_no_process(tmp_path: Path) -> None:
    file = scenario_file(tmp_path, QUICK % 20)

    result = lab("run", file, "--dir", tmp_path / "run", "-q", executes=True)

    assert result.returncode == 0, result.stdout + result.stderr
    run = tmp_path / "run"
    assert {path.stem for path in (run / "journals").iterdir()} == {
        *("auditor", "lab", "proxy", "publisher-1", "subscriber-1")
    }
    lines = (run / "outputs" / "subscriber-1.jsonl").read_text().splitlines()
    assert [json.loads(line)["payload"] for line in lines] == [f"hello_{n}" for n in range(1, 21)]
    assert (run / "scenario.yaml").read_text() == file.read_text()
    assert processes_below(run) == []
    assert lab("run", file, "--dir", tmp_path / "run", "-q").returncode == 0  # emptied, and again


@pytest.mark.parametrize("with_a_run", [False, True])
def test_a_directory_with_something_else_in_it_is_not_emptied(
    with_a_run: bool, tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    for folder in FOLDERS if with_a_run else ():
        (tmp_path / folder).mkdir()
    (tmp_path / "scenario.yaml").write_text("")

    result = lab("run", "proxy-dies", "--dir", tmp_path)

    assert result.returncode == 2
    assert "nothing was removed" in " ".join(result.stderr.split())
    assert (tmp_path / "thesis.txt").exists()


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, marks=pytest.mark.long),
    ],
)
def test_ctrl_c_and_a_terminal_that_is_closed_end_every_process(
    number: signal.Signals, tmp_path: Path
) -> None:
    file = scenario_file(tmp_path, QUICK % 100_000)
    run = tmp_path / "run"
    child = ChildProcess(command("run", file, "--dir", run), tmp_path / "log", cwd=REPOSITORY)
    try:
        journal = run / "journals" / "publisher-1.jsonl"
        eventually(lambda: journal.exists() and '"put"' in journal.read_text(), "first put")
        child.signal(number)
        code = child.wait(PATIENCE_S)
    finally:
        child.kill()

    text = child.said()
    assert code == 130, text
    assert "every process of the scenario has been ended" in text
    assert processes_below(run) == []


def test_a_run_that_is_killed_takes_its_processes_with_it(tmp_path: Path) -> None:
    file = scenario_file(tmp_path, QUICK % 100_000)
    run = tmp_path / "run"
    child = ChildProcess(command("run", file, "--dir", run), tmp_path / "log", cwd=REPOSITORY)
    try:
        journal = run / "journals" / "publisher-1.jsonl"
        eventually(lambda: journal.exists() and '"put"' in journal.read_text(), "first put")
    finally:
        child.kill()

    eventually(lambda: not processes_below(run), "end of its processes")


def test_an_exercise_that_does_not_fail_is_reported_with_an_exit_code_of_its_own(
    tmp_path: Path,
) -> None:
    file = scenario_file(tmp_path, QUICK % 20 + "expect: {violated: [V2]}")

    result = lab("run", file, "--dir", tmp_path / "run")

    assert result.returncode == 6
    assert "V2 must break; no rule did" in result.stdout


def test_a_process_that_ends_otherwise_is_reported(tmp_path: Path) -> None:
    file = scenario_file(tmp_path, QUICK % 20 + "expect: {exit_codes: {publisher-1: 4}}")

    result = lab("run", file, "--dir", tmp_path / "run")

    assert result.returncode == 6
    assert "publisher-1: exit code 0, expected was exit code 4" in result.stdout


def test_an_event_that_never_happened_is_reported(tmp_path: Path) -> None:
    event = "events:\n  - {after: {process: publisher-1, put: 21}, kill: proxy}\n"
    file = scenario_file(tmp_path, QUICK % 20 + event)

    result = lab("run", file, "--dir", tmp_path / "run")

    assert result.returncode == 6
    assert "it never came to this: kill proxy, after publisher-1 has put or got 21" in " ".join(
        result.stdout.split()
    )


def test_a_run_shows_its_lesson_compares_a_prediction_and_asks_the_question(
    tmp_path: Path,
) -> None:
    lesson = "# Quick\n#\n# What happens: nothing.\n# Question: why not?\n"
    file = scenario_file(tmp_path, lesson + QUICK % 20)
    arguments = [str(file), "--dir", str(tmp_path / "run"), "--predict"]

    result = CliRunner().invoke(run, arguments, input="V99\nV1,V6\n")

    assert result.exit_code == 0, result.output
    assert result.output.startswith("What happens: nothing.\nQuestion: why not?\n")
    assert "'V99' is no rule" in result.output
    assert "Your prediction was V1 and V6; what broke was no rule. Why?" in result.output
    assert result.output.count("Question: why not?") == 2


def test_a_run_as_json_is_one_document(tmp_path: Path) -> None:
    file = scenario_file(tmp_path, QUICK % 20)

    result = lab("run", file, "--dir", tmp_path / "run", "--json")

    document = json.loads(result.stdout)
    assert (document["exit_code"], document["holds"]) == (result.returncode, True)


def test_show_prints_a_scenario_with_its_lesson() -> None:
    text = shipped()["proxy-dies"].read_text()

    assert CliRunner().invoke(show, ["proxy-dies"]).output == text


def test_a_directory_that_another_run_uses_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = scenario_file(tmp_path, QUICK % 20)

    with run_directory(tmp_path / "run", file) as where:
        result = lab("run", file, "--dir", where)

        assert result.returncode == 2
        assert "another run uses this directory now" in " ".join(result.stderr.split())
        assert (where / "scenario.yaml").exists()


def test_what_is_wrong_with_a_scenario_is_reported_with_file_and_line(tmp_path: Path) -> None:
    file = scenario_file(tmp_path, QUICK % 20 + "events:\n  - {at: 1s, kil: proxy}\n")

    result = lab("run", file, "--dir", tmp_path / "run")

    assert result.returncode == 2
    assert "line 12, events[0].kil: found an unknown key" in " ".join(result.stderr.split())


def test_a_scenario_that_needs_a_small_disk_is_skipped_where_there_can_be_none(
    tmp_path: Path,
) -> None:
    result = lab("run", "disk-full", "--dir", tmp_path / "run", path="/nowhere")

    assert result.returncode == 2
    assert "which this machine does not allow" in " ".join(result.stderr.split())


def test_a_mistyped_name_is_reported_with_the_nearest_one() -> None:
    result = lab("run", "proxy-die")

    assert result.returncode == 2
    assert "did you mean 'proxy-dies'?" in " ".join(result.stderr.split())


def test_list_shows_every_scenario() -> None:
    result = lab("list")

    assert result.returncode == 0
    assert all(name in result.stdout for name in SCENARIOS)


def test_tab_completes_the_names_of_scenarios() -> None:
    completer = ShellComplete(run, {}, "run", "_RUN_COMPLETE")

    assert [item.value for item in completer.get_completions([], "proxy-r")] == [
        "proxy-rolled-back"
    ]
    assert [item.type for item in completer.get_completions([], "./")] == ["file"]
