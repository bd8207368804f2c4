"""The result of a submission, and its forms: text, Gradescope, JUnit, CSV. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from msgspec import Struct


class StageResult(Struct, frozen=True, kw_only=True):
    """How a stage ended."""

    number: int
    name: str
    points: int
    score: int
    runs: int
    failed: int  # of the runs
    seconds: float
    lines: tuple[str, ...] = ()  # what is wrong, and the shortest run
    differs: tuple[str, ...] = ()  # runs whose verdict was another one with the same seed
    missed: tuple[str, ...] = ()  # faults that did not occur
    page: str = ""  # the shortest run, with arrows

    @property
    def is_passed(self) -> bool:
        return self.score == self.points


class Grade(Struct, frozen=True, kw_only=True):
    """How a submission ended."""

    name: str
    stages: tuple[StageResult, ...]
    seconds: float
    lines: tuple[str, ...] = ()  # why nothing could be judged
    notes: tuple[str, ...] = ()  # what the limits do not cover

    @property
    def score(self) -> int:
        return sum(one.score for one in self.stages)

    @property
    def points(self) -> int:
        return sum(one.points for one in self.stages)


def text_of(grade: Grade) -> str:
    """Return the result as a student reads it."""
    found = [*grade.lines]
    for one in grade.stages:
        runs = "not run" if not one.runs else f"{one.runs} run{'s' * (one.runs > 1)}"
        title = f"stage {one.number} {one.name}"
        runs += f", {one.failed} failed" if one.failed else ""
        found.append(f"{title:<36} {one.score:>3}/{one.points:<3} {runs}, {one.seconds:.1f} s")
        found += [f"  {line}" for line in one.lines]
        found += [f"  no fault occurred: {line}" for line in one.missed]
        found += [f"  differed with the same seed: {line}" for line in one.differs]
    found.append(f"total {grade.score}/{grade.points}")
    return "\n".join(found) + "\n"


def gradescope(grade: Grade) -> dict[str, Any]:
    """Return the document `results.json` of a Gradescope autograder."""
    return {
        "score": grade.score,
        "execution_time": round(grade.seconds),
        "output": "\n".join([*grade.lines, *grade.notes]),
        "output_format": "text",
        "visibility": "visible",
        "tests": [
            {
                "number": str(one.number),
                "name": one.name,
                "score": one.score,
                "max_score": one.points,
                "status": "passed" if one.is_passed else "failed",
                "output": "\n".join(one.lines),
                "output_format": "text",
                "visibility": "visible",
            }
            for one in grade.stages
        ],
        "extra_data": {"differs": [line for one in grade.stages for line in one.differs]},
    }


def junit(grade: Grade) -> bytes:
    """Return a JUnit document: a test for each stage."""
    failures = sum(not one.is_passed for one in grade.stages)
    suite = ElementTree.Element(
        "testsuite",
        name=grade.name,
        tests=str(len(grade.stages)),
        failures=str(failures),
        time=f"{grade.seconds:.3f}",
    )
    for one in grade.stages:
        name = f"stage {one.number}: {one.name}"
        time = f"{one.seconds:.3f}"
        case = ElementTree.SubElement(suite, "testcase", classname=grade.name, name=name, time=time)
        if not one.is_passed:
            lines = [_printable(line) for line in one.lines] or ["not passed"]
            failure = ElementTree.SubElement(case, "failure", message=lines[0])
            failure.text = "\n".join(lines)
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    document: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return document


def _printable(text: str) -> str:
    """Return a text without the characters that XML cannot have."""
    return "".join(one if one.isprintable() or one in "\t\n" else "?" for one in text)


def grades_csv(grades: Sequence[Grade]) -> str:
    """Return a table with a row for each submission."""
    stages = max((grade.stages for grade in grades), key=len, default=())
    rows = [["submission", "score", "points", *(f"stage {one.number}" for one in stages)]]
    for grade in grades:
        scores = [str(one.score) for one in grade.stages]
        rows.append([grade.name, str(grade.score), str(grade.points), *scores])
    return "".join(",".join(map(_cell, row)) + "\n" for row in rows)


def _cell(text: str) -> str:
    """Return a value as RFC 4180 has it."""
    return f'"{text.replace(chr(34), 2 * chr(34))}"' if set(text) & set(',"\r\n') else text


def differing(grades: Sequence[Grade]) -> str:
    """Return the runs whose verdict differed with the same seed, one a line."""
    return "".join(
        f"{grade.name}: stage {one.number}: {line}\n"
        for grade in grades
        for one in grade.stages
        for line in one.differs
    )
