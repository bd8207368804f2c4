"""A directory of journals becomes a run, whatever is torn in it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from zlib import crc32

import pytest

from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.journal import Seen, decode_line, encode_line
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.core.run import OutputLine
from reliable_pubsub.lab.reading import Files, read_file, read_run

from .small_world import SmallWorld, sound_world, write_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_run(sound_world(), tmp_path)
    return tmp_path


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_a_run_is_read_as_it_was_written(folder: Path) -> None:
    world = sound_world()

    run = read_run(folder)

    assert run.lines == world.lines
    assert run.outputs == world.outputs
    assert (run.torn, run.warnings) == ({}, [])
    assert check(run).holds


def test_several_files_of_a_process_are_one_journal_in_order_of_time(folder: Path) -> None:
    lines = (folder / "p1.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "more").mkdir()
    (folder / "p1.jsonl").write_bytes(b"".join(lines[:5]))
    (folder / "more" / "z.jsonl").write_bytes(b"".join(lines[5:]))

    assert read_run(folder).lines == sound_world().lines


def test_the_last_line_of_a_killed_life_may_be_torn(folder: Path) -> None:
    append(folder / "p1.jsonl", b'{"type":"ok","at_ns":12')

    run = read_run(folder)

    assert run.torn == {"p1.jsonl": 1}
    assert not run.warnings
    assert run.lines == sound_world().lines


@pytest.mark.parametrize("between", [b"\n", b""], ids=["on its own line", "right after it"])
def test_the_next_life_continues_after_a_torn_line(folder: Path, between: bytes) -> None:
    path = folder / "p1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    second = [n for n, line in enumerate(lines) if line.startswith(b'{"type":"begin"')][1]
    lines[second:second] = [b'{"type":"invoke","at_ns":1' + between]
    path.write_bytes(b"".join(lines))

    run = read_run(folder)

    assert run.torn == {"p1.jsonl": 1}
    assert not run.warnings
    assert run.lines == sound_world().lines


def test_an_unreadable_line_in_the_middle_of_a_life_is_a_warning(folder: Path) -> None:
    path = folder / "p1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines.insert(2, b"\0\0\0\n")
    path.write_bytes(b"".join(lines))

    run = read_run(folder)

    assert run.torn == {"p1.jsonl": 1}
    (warning,) = run.warnings
    assert warning.startswith("p1.jsonl:3: cannot be read, and is not the last of a life: JSON is")
    assert run.unreadable == 1


def test_lines_that_cannot_be_read_for_one_reason_are_one_warning_that_says_it(
    folder: Path,
) -> None:
    path = folder / "p1.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"op":"put"', b'"op":"putt"'))

    run = read_run(folder)

    (warning,) = run.warnings
    assert "Invalid enum value 'putt' - at `$.op`; and " in warning
    assert warning.endswith(f"and {run.unreadable - 1} more like it")


def test_a_torn_last_line_of_an_output_is_normal_another_one_is_a_warning(folder: Path) -> None:
    append(folder / "out" / "s1.jsonl", b'{"topic":"t","off')
    run = read_run(folder)
    assert run.torn == {"out/s1.jsonl": 1}
    assert not run.warnings

    append(folder / "out" / "s1.jsonl", b"\n{}\n")

    assert [warning.split(":")[:2] for warning in read_run(folder).warnings] == [
        ["out/s1.jsonl", str(len(sound_world().outputs["s1"]) + 1)]
    ]


def test_payloads_are_compared_by_their_crc_text_or_not(folder: Path) -> None:
    line = {
        "topic": "t",
        "offset": 3,
        "message_id": "p1_4",
        "timestamp_ns": 9,
        "payload_base64": base64.b64encode(b"\xff\x00").decode(),
    }
    (folder / "out" / "s1.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")

    expected = OutputLine("t", Seen(3, "p1", 4, crc32(b"\xff\x00"), 9))
    assert read_run(folder).outputs["s1"] == [expected]


def test_of_two_outputs_with_one_name_the_nearer_one_is_taken(tmp_path: Path) -> None:
    world = SmallWorld()
    for name in ("a", "b"):
        world.start_client(f"p{name}", "publisher")
        world.start_client(f"s{name}", "subscriber", output=True)
        world.subscribe(f"s{name}", name)
        world.put(f"p{name}", name, 2)
    world.finish()
    write_run(world, tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / "out" / f"s{name}.jsonl").rename(tmp_path / name / "out.jsonl")
        journal = (tmp_path / f"s{name}.jsonl").read_bytes()
        named = journal.replace(f'"s{name}.jsonl"'.encode(), b'"out.jsonl"')
        (tmp_path / f"s{name}.jsonl").unlink()
        (tmp_path / name / f"s{name}.jsonl").write_bytes(named)

    run = read_run(tmp_path)

    assert {name: {line.topic for line in lines} for name, lines in run.outputs.items()} == {
        "sa": {"a"},
        "sb": {"b"},
    }
    assert check(run).holds


def test_an_output_that_is_not_named_is_judged_with_a_warning(folder: Path) -> None:
    data = (folder / "out" / "s1.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "lonely.jsonl").write_bytes(b"".join(data[:3]))

    run = read_run(folder)

    assert "lonely.jsonl: an output that no journal names" in run.warnings[0]
    assert check(run).holds


def test_what_is_neither_is_left_out_with_a_warning(folder: Path) -> None:
    (folder / "x.jsonl").write_text('{"a": 1}\n', encoding="utf-8")

    assert read_run(folder).warnings == ["x.jsonl: neither a journal nor an output, left out"]


def test_a_clock_that_goes_back_is_a_warning(folder: Path) -> None:
    path = folder / "p2.jsonl"
    append(path, path.read_bytes().splitlines(keepends=True)[-2])

    assert "its clock goes back" in " ".join(read_run(folder).warnings)


@pytest.mark.parametrize("what", ["nothing", "no journal", "no directory"])
def test_a_directory_without_histories_is_one_readable_error(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "absent" if what == "no directory" else tmp_path
    if what == "no journal":
        (tmp_path / "x.jsonl").write_bytes(b"{}\n")

    with pytest.raises(ConfigurationError, match=str(folder)):
        read_run(folder)


def test_the_reader_tells_how_far_it_is(folder: Path) -> None:
    sizes: list[int] = []

    read_run(folder, sizes.append)

    assert sum(sizes) == sum(path.stat().st_size for path in folder.rglob("*.jsonl"))


def test_every_line_survives_being_written(folder: Path) -> None:
    world = sound_world()
    written = b"".join(path.read_bytes() for path in sorted(folder.glob("*.jsonl")))

    assert sorted(written.splitlines(keepends=True)) == sorted(map(encode_line, world.lines))


def test_a_file_is_read_as_far_as_it_was_when_reading_began(folder: Path) -> None:
    path = folder / "p1.jsonl"
    first, second, *_ = path.read_bytes().splitlines(keepends=True)
    found = Files()

    lines = list(read_file(path, "p1.jsonl", found, end=len(first + second) + 7))

    assert lines == [decode_line(first), decode_line(second)]
    assert found.torn == {"p1.jsonl": 1}  # the line that was not whole by then
    assert not found.warnings
