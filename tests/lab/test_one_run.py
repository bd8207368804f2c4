"""A verdict needs the lines of one run: those of several are refused, and say why."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.journal import CreatedLine, Event, Failed
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.reading import read_run

from .small_world import LAB, PROXY, SmallWorld, sound_world, write_run


def refusal(world: SmallWorld, folder: Path) -> str:
    write_run(world, folder)
    with pytest.raises(ConfigurationError) as refused:
        read_run(folder)
    return str(refused.value)


def test_a_directory_above_several_runs_is_refused_with_their_names(tmp_path: Path) -> None:
    for name in ("monday", "tuesday"):
        write_run(sound_world(), tmp_path / name)

    with pytest.raises(
        ConfigurationError, match=r"several runs.* in monday and tuesday"
    ) as refused:
        read_run(tmp_path)

    assert "Name the directory of one run" in str(refused.value)


def test_a_run_beside_the_copy_of_another_is_refused(tmp_path: Path) -> None:
    write_run(sound_world(), tmp_path)
    shutil.copytree(tmp_path, tmp_path / "old")

    with pytest.raises(ConfigurationError, match="in old and the directory itself"):
        read_run(tmp_path)


def test_files_that_two_data_directories_wrote_are_refused(tmp_path: Path) -> None:
    world = sound_world()
    topic, log = next(
        (line.topic, line.log) for line in world.lines if isinstance(line, CreatedLine)
    )
    world.write(PROXY, CreatedLine, topic=topic, log="another")

    text = refusal(world, tmp_path)

    assert f"the log of topic {topic!r} is {log!r} and later 'another'" in text
    assert "another data directory" in text


@pytest.mark.parametrize("why", ["set back", "told"])
def test_another_log_is_judged_where_the_run_itself_speaks_of_it(why: str, tmp_path: Path) -> None:
    world = sound_world()
    topic = next(line.topic for line in world.lines if isinstance(line, CreatedLine))
    world.write(PROXY, CreatedLine, topic=topic, log="another")
    if why == "told":
        client = world.clients["p1"]
        call = world.call(client)
        world.write(
            ("p1", client.pid), Failed, op="put", call=call, code="LOG_CHANGED", topic=topic
        )
    else:
        world.write(LAB, Event, what="rollback", target="proxy")
    write_run(world, tmp_path)

    assert read_run(tmp_path).lines == world.lines


def test_a_client_that_lost_its_state_between_two_lives_is_refused(tmp_path: Path) -> None:
    world = SmallWorld()
    world.start_client("p1", "publisher")
    world.put("p1", "t")
    world.kill("p1")
    world.clients["p1"].epoch = 0  # what it remembers
    world.restart("p1")

    assert "publisher 'p1' (pid 102) began without the state of its earlier life" in refusal(
        world, tmp_path
    )


def test_a_client_without_a_state_directory_may_begin_again(tmp_path: Path) -> None:
    world = SmallWorld()
    world.start_client("p1", "publisher", remembers=False)
    world.kill("p1")
    world.clients["p1"].epoch = 0
    world.restart("p1")
    write_run(world, tmp_path)

    assert read_run(tmp_path).lines == world.lines


def test_two_processes_of_one_id_at_a_time_may_have_a_state_each(tmp_path: Path) -> None:
    world = SmallWorld()
    client = world.start_client("p1", "publisher")
    first = ("p1", client.pid)
    client.epoch = 0
    world.restart("p1")
    world.write(first, Failed, op="put", call=9, code="FENCED", topic="t")
    write_run(world, tmp_path)

    assert read_run(tmp_path).lines == world.lines


def test_a_plan_that_is_run_again_puts_its_messages_again() -> None:
    world = SmallWorld()
    world.start_client("p1", "publisher")
    world.put("p1", "t", 2)
    world.run_again("p1")
    world.put("p1", "t", 2)

    assert check(world.run).holds


def test_a_message_of_one_run_of_a_plan_stands_once_in_every_run() -> None:
    world = SmallWorld()
    world.start_client("p1", "publisher")
    world.put("p1", "t", 2)
    world.run_again("p1")
    world.put("p1", "t", 2)
    world.clients["p1"].planned = 0
    world.put("p1", "t", 2)

    assert [rule.rule for rule in check(world.run).rules if not rule.holds] == ["V2"]
