"""The decisions of `reliable-pubsub grade`: plans, shortest runs, submissions, limits, results."""

from __future__ import annotations

import csv
import json
from random import Random
from xml.etree import ElementTree

import pytest

from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.examples import shipped
from reliable_pubsub.lab.grade.core.limits import Limits, Usage, beyond, limits_in
from reliable_pubsub.lab.grade.core.page import page_of
from reliable_pubsub.lab.grade.core.plan import Ask, Deliver, Kill, Plan, faults_in
from reliable_pubsub.lab.grade.core.results import (
    Grade,
    StageResult,
    differing,
    grades_csv,
    gradescope,
    junit,
    text_of,
)
from reliable_pubsub.lab.grade.core.shrinking import shrink
from reliable_pubsub.lab.grade.core.stages import STAGES, GradeStage, plan_of
from reliable_pubsub.lab.grade.core.submission import commands_in
from reliable_pubsub.lab.grade.core.telling import RunEvent, lines_of
from reliable_pubsub.lab.grade.core.verdict import BrokenRule
from reliable_pubsub.lab.grade.self_test import WRONG

COMMANDS = {
    "broker": "./broker --port {port} --data {data}",
    "client": "./client --broker {broker} --id {id} --state '{state}/x y'",
}


class TestTheStages:
    def test_give_100_points_together(self) -> None:
        assert sum(stage.points for stage in STAGES) == 100

    @pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
    def test_have_the_same_run_for_the_same_seed(self, stage: GradeStage) -> None:
        plans = [plan_of(stage, Random(seed)) for seed in (1, 1, 2)]

        assert plans[0] == plans[1] != plans[2]

    @pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
    def test_have_the_same_faults_with_every_seed(self, stage: GradeStage) -> None:
        counts = {faults_in(plan_of(stage, Random(seed))) for seed in range(20)}

        assert len(counts) == 1
        assert (counts == {0}) == (stage.does == "no fault")


class TestTheShortestRun:
    FAULT = Ask(client="p1", op="put", topic="t", id="m2", message="x", aim="answer lost")
    PLAN: Plan = (
        Ask(client="s1", op="subscribe", topic="t"),
        Ask(client="p1", op="put", topic="t", id="m1", message="x"),
        Kill("broker"),
        FAULT,
        Ask(client="s1", op="get", topic="t"),
        Ask(client="p1", op="put", topic="other", id="m3", message="x"),
        Deliver(),
    )
    BREACH = BrokenRule(rule="nothing twice", text="", client="s1", topic="t", id="m2")

    def test_has_only_the_steps_that_break_the_rule(self) -> None:
        subscribe, needed = self.PLAN[0], self.FAULT

        found = shrink(self.PLAN, self.BREACH, lambda plan: {subscribe, needed} <= set(plan))

        assert found == (subscribe, needed)

    def test_has_no_fault_where_none_is_needed(self) -> None:
        found = shrink(
            self.PLAN,
            self.BREACH,
            lambda plan: any(isinstance(one, Ask) and one.id == "m2" for one in plan),
        )

        assert faults_in(found) == 0
        assert len(found) == 1

    def test_is_the_whole_run_if_time_is_up(self) -> None:
        assert shrink(self.PLAN, self.BREACH, lambda plan: None) == self.PLAN

    def test_is_told_with_arrows_and_the_moment_of_each_fault(self) -> None:
        events = [
            RunEvent(0.1, "s1", "subscribe"),
            RunEvent(0.2, "s1", "ok", is_answer=True),
            RunEvent(0.3, "p1", "put m1"),
            RunEvent(0.4, "judge", "loses the answer to p1"),
            RunEvent(0.5, "p1", "ok", is_answer=True),
        ]

        assert lines_of(events) == [
            "  0.100 s   s1     subscribe ──► ok",
            "  0.300 s   p1     put m1",
            "  0.400 s ✗ judge  loses the answer to p1",
            "  0.500 s   p1     ──► ok",
        ]

    def test_is_drawn_with_an_arrow_for_each_request_and_a_cross_for_a_lost_answer(self) -> None:
        events = [
            RunEvent(0.1, "p1", "put <m1>"),
            RunEvent(0.2, "judge", "loses the answer to p1"),
            RunEvent(0.3, "p1", "ok", is_answer=True),
        ]

        page = page_of("Stage 3", ["broken"], events)

        assert page.count("class='arrow'") == 2
        assert page.count("class='arrow lost'") == page.count("✗") == 1
        assert "put &lt;m1&gt;" in page


class TestASubmission:
    def test_is_started_with_its_values_each_one_word(self) -> None:
        commands = commands_in(COMMANDS)

        assert commands.broker_command(5, "/a b") == ["./broker", "--port", "5", "--data", "/a b"]
        assert commands.client_command("tcp://h:1", "s1", "/s")[-1] == "/s/x y"

    @pytest.mark.parametrize(
        ("data", "problem"),
        [
            (None, "needs the keys broker and client"),
            ({"broker": COMMANDS["broker"]}, "client is missing"),
            (COMMANDS | {"brokr": "x"}, "did you mean broker"),
            (COMMANDS | {"broker": "./broker {port}"}, r"broker must contain \{data\}"),
            (COMMANDS | {"client": "./client '"}, "quote is not closed"),
            (COMMANDS | {"build": 5}, "build must be a command"),
        ],
    )
    def test_that_cannot_be_read_is_refused_with_the_reason(
        self, data: object, problem: str
    ) -> None:
        with pytest.raises(ConfigurationError, match=problem):
            commands_in(data)


class TestLimits:
    def test_are_read_with_their_units(self) -> None:
        found = limits_in("cpu=60s,mem=512M,disk=1G,time=90")

        assert found == Limits(cpu_s=60, memory_bytes=512 << 20, disk_bytes=1 << 30, time_s=90)

    def test_that_cannot_be_read_are_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="'ram=1G' is not one of"):
            limits_in("ram=1G")

    @pytest.mark.parametrize(
        ("field", "words"),
        [
            ("processes", "processes"),
            ("memory_bytes", "memory"),
            ("disk_bytes", "folders"),
            ("written_bytes", "writes"),
            ("cpu_s", "CPU"),
            ("time_s", "longer"),
        ],
    )
    def test_are_each_passed_by_more(self, field: str, words: str) -> None:
        usage = dict.fromkeys(Usage.__struct_fields__, 0)

        assert beyond(Usage(**usage), Limits()) is None
        assert words in (beyond(Usage(**usage | {field: 1 << 60}), Limits()) or "")


class TestResults:
    GRADE = Grade(
        name="a & b",
        seconds=3.0,
        stages=(
            StageResult(number=1, name="one", points=10, score=10, runs=2, failed=0, seconds=1.0),
            StageResult(
                number=2,
                name="two",
                points=20,
                score=0,
                runs=1,
                failed=1,
                seconds=2.0,
                lines=("seed 1: broken: nothing twice\0", "<again>"),
                differs=("seed 1: nothing twice: broken, then not",),
            ),
        ),
    )

    def test_are_a_document_for_gradescope(self) -> None:
        found = json.loads(json.dumps(gradescope(self.GRADE)))

        assert found["score"] == 10
        assert [one["status"] for one in found["tests"]] == ["passed", "failed"]
        assert [one["max_score"] for one in found["tests"]] == [10, 20]
        assert "<again>" in found["tests"][1]["output"]

    def test_are_a_junit_document(self) -> None:
        (suite,) = ElementTree.fromstring(junit(self.GRADE))

        assert suite.attrib["tests"] == "2"
        assert suite.attrib["failures"] == "1"
        (failure,) = suite.findall("testcase/failure")
        assert failure.attrib["message"] == "seed 1: broken: nothing twice?"

    def test_are_a_table_with_a_row_for_each_submission(self) -> None:
        rows = list(csv.reader(grades_csv([self.GRADE]).splitlines()))

        assert rows[0] == ["submission", "score", "points", "stage 1", "stage 2"]
        assert rows[1] == ["a & b", "10", "30", "10", "0"]

    def test_name_the_verdicts_that_differed_with_the_same_seed(self) -> None:
        assert differing([self.GRADE]) == (
            "a & b: stage 2: seed 1: nothing twice: broken, then not\n"
        )

    def test_are_read_as_text(self) -> None:
        text = text_of(self.GRADE)

        assert "10/10" in text
        assert "0/20  1 run, 1 failed" in text
        assert text.endswith("total 10/30\n")


def test_the_reference_has_at_most_400_lines() -> None:
    reference = shipped("examples") / "graded_service.py"

    assert len(reference.read_text(encoding="utf-8").splitlines()) <= 400


def test_each_stage_has_a_wrong_service_that_it_must_find() -> None:
    assert len(WRONG) >= 12
    assert set(WRONG.values()) == {stage.number for stage in STAGES}
