"""The story of a message, and the commands that tell it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reliable_pubsub.__main__ import main
from reliable_pubsub.common.core.journal import Event, PositionLine
from reliable_pubsub.lab.core.story import in_one_column, messages_called, tell
from reliable_pubsub.lab.core.verdict import MessageKey

from .small_world import SmallWorld, sound_world, write_run


def lab(*words: str) -> Result:
    return CliRunner().invoke(main, ["lab", *words], prog_name="reliable-pubsub")


@pytest.fixture
def crashed() -> SmallWorld:
    """A put that is killed, a proxy event, a delivery that is killed, and its repeat."""
    world = SmallWorld()
    world.start_client("p1", "publisher")
    world.start_client("s1", "subscriber", output=True)
    world.subscribe("s1", "t")
    world.put("p1", "t", 2, outcome="killed")
    world.kill("p1")
    world.restart("p1")
    world.put("p1", "t", 2, duplicate=True)
    world.get("s1", "t", 2, record=False)
    world.kill("s1")
    world.restart("s1")
    world.subscribe("s1", "t")
    world.get("s1", "t", 2)
    world.audit()
    return world


def test_a_story_has_one_line_for_each_event_with_the_kills_in_between(
    crashed: SmallWorld,
) -> None:
    story = tell(crashed.run, MessageKey("t", "p1", 2))

    crc = crashed.log["t"][1].crc
    assert [f"{line.who}: {line.what}" for line in story.lines] == [
        "p1 (pid 101): put t sequence 1 to 2: invoked",
        f"proxy (pid 1): stored under epoch 1: offset 1, crc {crc:08x}",
        "lab (pid 3): kill p1",
        "p1 (pid 103): begins as publisher",
        "p1 (pid 103): put t sequence 1 to 2: invoked",
        "p1 (pid 103): put: acknowledged at offset 1 (sync), had been stored before",
        f"s1 (pid 102): get: given: offset 1, crc {crc:08x}",
        "lab (pid 3): kill s1",
        "s1 (pid 104): begins as subscriber",
        f"s1 (pid 104): get: given: offset 1, crc {crc:08x}, delivery 2",
        "s1 (pid 104): record: cursor 2",
        f"auditor (pid 2): found in the log: offset 1, crc {crc:08x}",
        "auditor (pid 2): the log was read to its end: offsets 0 to 1",
    ]
    assert story.outputs == {"s1": [2]}
    assert next(in_one_column(story)) == (
        "     0.013 s  p1 (pid 101)              put t sequence 1 to 2: invoked"
    )


def test_a_story_tells_refusals_doubt_losses_and_removal() -> None:
    world = SmallWorld()
    world.start_client("p1", "publisher")
    world.start_client("s1", "subscriber")
    world.subscribe("s1", "t")
    world.put("p1", "t", outcome="FULL")
    world.put("p1", "t", outcome="unknown")
    world.put("p1", "t", duplicate=True)
    world.put("p1", "t")
    world.trim("t", 1)
    world.get("s1", "t")

    told = [line.what for line in tell(world.run, MessageKey("t", "p1", 1)).lines]

    assert "put: failed, FULL" in told
    assert "put: unknown outcome, PROXY_UNREACHABLE" in told
    assert "the topic begins at 1 now" in told
    assert told[-1] == "get: told that 0 are lost"


def test_an_id_is_found_in_every_topic_that_has_it() -> None:
    run = sound_world().run

    assert messages_called(run, "p2_1") == [MessageKey("t", "p2", 1), MessageKey("u", "p2", 1)]
    assert messages_called(run, "p2_99") == []
    assert messages_called(run, "nonsense") == []


def test_check_of_a_sound_run_shows_twelve_rules_and_exits_0(tmp_path: Path) -> None:
    write_run(sound_world(), tmp_path)

    result = lab("check", str(tmp_path))

    assert result.exit_code == 0, result.output
    assert "holds: 12 of 13 rules judged" in result.output
    assert result.output.count("held") == 12


def test_check_of_a_damaged_run_tells_the_story_and_exits_1(tmp_path: Path) -> None:
    world = sound_world()
    del world.outputs["s1"][1]
    write_run(world, tmp_path)

    result = lab("check", str(tmp_path))

    assert result.exit_code == 1
    assert "VIOLATED: V6" in result.output
    assert "broken 1 x" in result.output
    assert "lost messages, by where they stood" in result.output
    assert "The story of p1_3 on 't'" in result.output
    assert "put t sequence 3 to 4: invoked" in result.output
    assert f"reliable-pubsub lab trace ID {tmp_path}" in result.output


def test_check_says_why_a_rule_was_not_judged(tmp_path: Path) -> None:
    world = SmallWorld()
    world.start_client("p1", "publisher")
    write_run(world, tmp_path)

    result = lab("check", str(tmp_path))

    assert result.exit_code == 0
    assert "not judged" in result.output
    assert "holds: 1 of 13 rules judged" in result.output


def test_check_gives_the_whole_verdict_as_json(tmp_path: Path) -> None:
    world = sound_world()
    del world.outputs["s1"][1]
    write_run(world, tmp_path)

    result = lab("check", "--json", str(tmp_path))

    verdict = json.loads(result.stdout)
    assert result.exit_code == 1
    assert verdict["holds"] is False
    assert [rule["rule"] for rule in verdict["rules"] if rule["violations"]] == ["V6"]
    assert verdict["losses"][0]["middle"] == 1


def test_trace_tells_the_story_in_every_topic(tmp_path: Path) -> None:
    write_run(sound_world(), tmp_path)

    result = lab("trace", "p2_1", str(tmp_path))

    assert result.exit_code == 0
    assert "The story of p2_1 on 't'" in result.output
    assert "The story of p2_1 on 'u'" in result.output


@pytest.mark.parametrize("words", [("check",), ("trace", "p1_1")])
def test_a_directory_without_histories_is_one_paragraph_and_exit_2(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    result = lab(*words, str(tmp_path))

    assert result.exit_code == 2
    assert "error [CONFIGURATION]" in result.output
    assert "holds no journal" in " ".join(result.output.split())


def test_trace_of_an_unknown_message_is_one_paragraph_and_exit_2(tmp_path: Path) -> None:
    write_run(sound_world(), tmp_path)

    result = lab("trace", "p9_9", str(tmp_path))

    assert result.exit_code == 2
    assert "speaks of a message 'p9_9'" in " ".join(result.output.split())


def test_the_story_of_a_lost_message_has_the_fault_and_the_cursor_that_passed_it() -> None:
    world = SmallWorld()
    world.start_client("s1", "subscriber", output=True)
    world.subscribe("s1", "t")
    world.start_client("p1", "publisher")
    world.put("p1", "t")
    world.get("s1", "t")
    lab, proxy = ("lab", 3), ("proxy", 1)
    position = {"topic": "t", "subscriber": "s1", "generation": 1, "active": True}
    world.write(lab, Event, what="half_open", target="s1")
    world.write(lab, Event, what="half_open", target="another")
    world.write(proxy, PositionLine, cursor=1, **position)
    world.put("p1", "t")
    world.write(proxy, PositionLine, cursor=2, **position)
    world.write(lab, Event, what="quiet")
    world.audit()

    story = tell(world.run, MessageKey("t", "p1", 2))

    told = [line.what for line in story.lines]
    assert told[0] == "half_open s1"
    assert "half_open another" not in told
    cursor = told.index("cursor of s1: 1 to 2, past offset 1")
    assert told[cursor + 1] == "no more faults after this"
    assert story.outputs == {"s1": []}
