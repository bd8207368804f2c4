"""A failing seed is shrunk to the shortest story that the search finds, and the story is true."""

from __future__ import annotations

import functools
import shlex

import pytest
from click.testing import CliRunner

from scripts.simulator import shrink as shrinking
from scripts.simulator.__main__ import main
from scripts.simulator.faults import FAULTS
from scripts.simulator.options import replay_command, shape_of
from scripts.simulator.report import show_failures
from scripts.simulator.shrink import rule_of, shrink
from scripts.simulator.simulation import WHOLE, Outcome, Variant, run_seed
from scripts.simulator.swarm import CLASSES, Shape

pytestmark = pytest.mark.slow

SEEDS_MAX = 200
NEEDS_NO_LUCK = [
    "subscribes too early",
    pytest.param("dedup by last id only", marks=pytest.mark.long),
    pytest.param("cursor moves on hand-over", marks=pytest.mark.long),
]


@functools.cache
def first_failing(fault: str) -> Outcome:
    """The first seed that finds a planted fault."""
    for seed in range(SEEDS_MAX):
        outcome = run_seed(seed, FAULTS[fault], tracing=True)
        if outcome.violations:
            return outcome
    pytest.fail(f"{SEEDS_MAX} seeds did not find {fault!r}")


def replayed(command: str) -> str:
    """What a printed command prints; it must fail."""
    script, *words = shlex.split(command)
    assert script == "scripts/simulate"
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1, result.output
    return result.output


@pytest.mark.parametrize("fault", NEEDS_NO_LUCK)
def test_the_story_is_smaller_and_breaks_the_same_rule(fault: str) -> None:
    whole = first_failing(fault)

    shrunk = shrink(whole.seed, FAULTS[fault])

    assert rule_of(shrunk.outcome) == rule_of(whole)
    assert shrunk.outcome == run_seed(whole.seed, FAULTS[fault], shrunk.shape, tracing=True)
    assert len(shrunk.outcome.trace) < len(whole.trace)
    assert len(shrunk.shape.without) > len(CLASSES) / 2


def test_the_command_that_is_printed_fails_again_with_the_whole_story(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fault = "subscribes too early"
    whole = first_failing(fault)

    show_failures([whole], fault, WHOLE, shrinking=True)
    printed = capsys.readouterr().out
    command = printed.split("replay with ")[-1].strip()
    again = replayed(command)

    shrunk = shrink(whole.seed, FAULTS[fault])
    assert again.splitlines()[:-2] == [
        *shrunk.outcome.trace,
        *(f"seed {whole.seed}: {violation}" for violation in shrunk.outcome.violations),
    ]


def test_the_search_is_the_same_every_time_and_ends_when_its_runs_are_used_up() -> None:
    whole = first_failing("no dedup")
    runs: list[int] = []

    first = shrink(
        whole.seed, FAULTS["no dedup"], runs_max=10, on_run=lambda: runs.append(len(runs))
    )
    again = shrink(whole.seed, FAULTS["no dedup"], runs_max=10)

    assert first == again
    assert len(runs) == 10
    assert rule_of(first.outcome) == rule_of(whole)


def a_run(seed: int, _: Variant, shape: Shape, *, tracing: bool) -> Outcome:
    """A world that fails by a kill and a late copy with 3 messages; else, often, in another way."""
    left = set(CLASSES) - set(shape.without)
    messages = 15 if shape.messages is None else shape.messages
    if {"kill", "late"} <= left and messages >= 3:
        violations = ["first rule: broken"]
    else:
        violations = ["second rule: broken"] if "kill" in left else []
    return Outcome(seed, violations, 0, {}, ["a line"] * (len(left) + messages))


def test_what_is_needed_is_left_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller world that breaks another rule is another story."""
    monkeypatch.setattr(shrinking, "run_seed", a_run)

    shrunk = shrink(0)

    left = [name for name in CLASSES if name not in shrunk.shape.without]
    assert left == ["late", "kill"]
    assert shrunk.shape.messages == 3
    assert shrunk.shape.publishers is None  # the run stays the same with fewer


@pytest.mark.parametrize(
    "shape",
    [
        WHOLE,
        Shape(without=CLASSES),
        Shape(without=("kill",)),
        Shape(without=tuple(name for name in CLASSES if name not in ("kill", "rollback"))),
        Shape(publishers=1, subscribers=0, messages=3, steps=0, faults_s=0.25),
    ],
)
def test_the_command_says_the_shape(shape: Shape) -> None:
    words = shlex.split(replay_command(7, "no dedup", shape))[1:]

    said = main.make_context("scripts/simulate", words).params

    assert (said["start"], said["seeds"], said["fault"]) == (7, 1, "no dedup")
    others = ("seeds", "start", "jobs", "fault", "trace", "no_shrink", "coverage")
    assert shape_of(**{name: value for name, value in said.items() if name not in others}) == shape


def test_without_and_only_exclude_each_other() -> None:
    result = CliRunner().invoke(main, ["--without", "kill", "--only", "twin"])

    assert result.exit_code == 2
    assert "exclude each other" in result.output


def test_coverage_names_every_class_of_faults() -> None:
    result = CliRunner().invoke(main, ["--seeds", "5", "--only", "kill", "--coverage"])

    assert result.exit_code == 0
    assert all(name in result.output for name in CLASSES)
