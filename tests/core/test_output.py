"""The output of a subscriber: which file a run may write to, what is cut, what is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import ConfigurationError, InUseError
from reliable_pubsub.common.core.plan_mark import PlanMark
from reliable_pubsub.common.core.steps import PlanPosition
from reliable_pubsub.subscriber.output import OutputFile, Shown, begin_output


def test_an_output_file_of_another_program_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "precious.txt"
    path.write_text("not ours\n")

    with pytest.raises(ConfigurationError, match="is not empty"):
        begin_output(PlanMark("digest"), path, again=False)

    assert path.read_text() == "not ours\n"


def test_a_run_continues_in_the_output_file_it_began(tmp_path: Path) -> None:
    """P4: with another file in between, or with none, the first one had a hole."""
    begun = begin_output(PlanMark("digest", 2), tmp_path / "a.jsonl", again=False)
    mark = begun.at(PlanPosition(1, 0), 120)

    assert begin_output(mark, tmp_path / "a.jsonl", again=False) == mark
    for other in (tmp_path / "b.jsonl", None):
        with pytest.raises(ConfigurationError, match=r"a\.jsonl"):
            begin_output(mark, other, again=False)
    assert begin_output(mark, tmp_path / "b.jsonl", again=True).output_bytes == 0


def test_a_run_that_began_without_an_output_file_gets_none_later(tmp_path: Path) -> None:
    mark = PlanMark("digest", 2).at(PlanPosition(0, 1))

    with pytest.raises(ConfigurationError, match="without --output"):
        begin_output(mark, tmp_path / "a.jsonl", again=False)


def test_a_refused_start_leaves_the_output_file_as_it_is(tmp_path: Path) -> None:
    """It was cut at the opening, before the proxy had seen that the state was an old copy."""
    path = tmp_path / "got.jsonl"
    path.write_bytes(b"one\ntwo\n")

    OutputFile(path, recorded_bytes=4).close()

    assert path.read_bytes() == b"one\ntwo\n"


def test_a_second_process_on_an_output_file_is_refused(tmp_path: Path) -> None:
    first = OutputFile(tmp_path / "got.jsonl", 0)

    with pytest.raises(InUseError):
        OutputFile(tmp_path / "got.jsonl", 0)

    first.close()


def test_a_payload_cannot_command_a_terminal() -> None:
    shown: list[str] = []

    Shown(shown.append, 0).append([Message("t", 0, "p", 1, 0, b"\x1b[2Jgone\nline")])

    assert shown == ["t 0 p_1: U+001B[2JgoneU+000Aline"]
