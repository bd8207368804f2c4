"""The judge itself: each kind of fault is seen, and a perfect file is called perfect."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from scripts.delivery import Verdict, compare

PUTS = {"t": {"p": [b"p_1", b"\xff", b"p_3"], "q": [b"q_1"]}, "other": {"p": [b"not ours"]}}


def a_line(offset: int, publisher: str, sequence: int, **payload: str) -> str:
    fields = {"topic": "t", "offset": offset, "message_id": f"{publisher}_{sequence}"}
    return json.dumps(fields | (payload or {"payload": f"{publisher}_{sequence}"})) + "\n"


def perfect_lines() -> list[str]:
    return [
        a_line(0, "p", 1),
        a_line(1, "p", 2, payload_base64="/w=="),
        a_line(2, "q", 1),
        a_line(3, "p", 3),
    ]


def judged(directory: Path, lines: list[str]) -> Verdict:
    """The verdict on a file of `lines`, beside a perfect one."""
    (directory / "first").write_text("".join(perfect_lines()))
    (directory / "second").write_text("".join(lines))
    outputs = {name: directory / name for name in ("first", "second")}
    first, second = compare(outputs, {"first": ["t"], "second": ["t"]}, PUTS)
    assert first.perfect
    return second


def test_a_perfect_file_is_perfect(tmp_path: Path) -> None:
    verdict = judged(tmp_path, perfect_lines())

    assert verdict.perfect
    assert (verdict.expected, verdict.received) == (4, 4)


def test_a_file_that_is_missing_has_lost_everything(tmp_path: Path) -> None:
    (verdict,) = compare({"s": tmp_path / "none"}, {"s": ["t"]}, PUTS)

    assert (verdict.lost, verdict.received) == (4, 0)
    assert not verdict.perfect


def _without_the_last(lines: list[str]) -> list[str]:
    return lines[:-1]


def _without_one_in_the_middle(lines: list[str]) -> list[str]:
    return [lines[0], *lines[2:]]


def _twice(lines: list[str]) -> list[str]:
    return [*lines, lines[2]]


def _swapped(lines: list[str]) -> list[str]:
    return [lines[0], lines[2], lines[1], lines[3]]


def _other_payload(lines: list[str]) -> list[str]:
    return [lines[0].replace('"p_1"}', '"P_1"}'), *lines[1:]]


def _unknown(lines: list[str]) -> list[str]:
    return [*lines, a_line(4, "p", 4)]


def _torn(lines: list[str]) -> list[str]:
    return [*lines, lines[0][:20]]


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (_without_the_last, "lost"),
        (_without_one_in_the_middle, "lost"),
        (_twice, "duplicated"),
        (_swapped, "out_of_order"),
        (_other_payload, "altered"),
        (_unknown, "altered"),
        (_torn, "altered"),
    ],
)
def test_each_fault_is_counted_as_what_it_is(
    spoil: Callable[[list[str]], list[str]], fault: str, tmp_path: Path
) -> None:
    verdict = judged(tmp_path, spoil(perfect_lines()))

    faults = ("lost", "duplicated", "out_of_order", "altered", "misplaced")
    assert {name: asdict(verdict)[name] for name in faults} == {
        name: int(name == fault) for name in faults
    }
    assert not verdict.perfect


def test_files_that_disagree_on_an_offset_are_not_both_right(tmp_path: Path) -> None:
    moved = [a_line(4, "p", 1)]

    verdict = judged(tmp_path, moved)

    assert (verdict.misplaced, verdict.lost) == (1, 3)


def test_a_hole_in_the_offsets_is_seen_though_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "only"
    path.write_text("".join([*perfect_lines()[:-1], a_line(4, "p", 3)]))

    (verdict,) = compare({"only": path}, {"only": ["t"]}, PUTS)

    assert (verdict.misplaced, verdict.lost) == (1, 0)
    assert not verdict.perfect
