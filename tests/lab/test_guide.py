"""docs/teach/lab.md and its answers: what a class runs is there, and what it says is so."""

from __future__ import annotations

import re
from pathlib import Path

from reliable_pubsub.lab.catalogue import load_scenario, shipped
from reliable_pubsub.lab.core.scenario import After

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "teach" / "lab.md").read_text(encoding="utf-8")
ANSWERS = (DOCS / "teach" / "lab-answers.md").read_text(encoding="utf-8")
TIMETABLE = GUIDE[: GUIDE.index("## What is promised")]


def numbered(page: str) -> list[int]:
    return [int(number) for number in re.findall(r"^([0-9]+)\. ", page, re.MULTILINE)]


def test_every_shipped_scenario_is_in_the_timetable_and_nothing_else_is() -> None:
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+|random)`", TIMETABLE))

    assert named - {"reliable-pubsub"} == set(shipped())


def test_the_students_page_has_every_question_and_no_answer() -> None:
    assert numbered(GUIDE) == numbered(ANSWERS) == list(range(1, 13))
    answers = re.findall(r"^[0-9]+\. (.{30})", ANSWERS, re.MULTILINE)

    assert len(answers) == 12
    assert not [answer for answer in answers if answer in GUIDE]


def test_the_number_in_answer_8_is_that_of_the_scenario() -> None:
    (event,) = load_scenario(shipped()["exercise-snapshot"]).events

    assert isinstance(event.when, After)
    assert f"continue with message {event.when.count + 1}" in ANSWERS
    assert f"all {event.when.count} before it" in ANSWERS
