"""Messages at QoS 0 in a journal: handed over at most once, put so, and in no log."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reliable_pubsub.common.core.batch import NO_OFFSET
from reliable_pubsub.common.core.journal import Found, Invoke, Ok, Seen, StoredLine
from reliable_pubsub.lab.core.checker import check

from .damage import assert_sound, batch, broken, change, places
from .small_world import SmallWorld

FIRST = 1 << 32


def unstored(number: int, *, crc: int | None = None) -> Seen:
    return Seen(NO_OFFSET, "p", FIRST + number, number if crc is None else crc, 9, 1, 0)


def offer(world: SmallWorld, number: int) -> None:
    client = world.clients["p"]
    facts = {"op": "put", "call": world.call(client), "topic": "t", "qos": 0, "epoch": 1}
    world.write(("p", client.pid), Invoke, sequence=FIRST + number, crcs=(number,), **facts)
    world.write(("p", client.pid), Ok, sequence=FIRST + number, count=1, **facts)


def hand_over(world: SmallWorld, *messages: Seen) -> None:
    client = world.clients["s"]
    facts = {"op": "get", "call": world.call(client), "topic": "t", "epoch": 1}
    world.write(("s", client.pid), Ok, messages=messages, **facts)


@pytest.fixture
def world() -> SmallWorld:
    """One of three messages at QoS 0 is lost; a stored one comes between them."""
    world = SmallWorld()
    world.start_client("p", "publisher")
    world.start_client("s", "subscriber")
    world.subscribe("s", "t")
    for number in (1, 2, 3):
        offer(world, number)
    hand_over(world, unstored(1))
    world.put("p", "t")
    world.get("s", "t")
    hand_over(world, unstored(3))
    world.finish()
    return world


def test_a_message_that_is_lost_breaks_no_rule(world: SmallWorld) -> None:
    verdict = assert_sound(world)

    (rule,) = [one for one in verdict.rules if one.rule == "V6"]
    assert rule.checked == 3


def test_what_a_process_was_pushed_when_another_had_its_id_does_not_count() -> None:
    """It cannot know of that before it asks; the answer then says that it has ended."""
    world = SmallWorld()
    world.start_client("p", "publisher")
    older = world.start_client("s", "subscriber").pid
    world.subscribe("s", "t")
    offer(world, 1)
    world.restart("s")
    world.subscribe("s", "t")
    hand_over(world, unstored(1))
    facts = {"op": "get", "call": 9, "topic": "t", "epoch": 1}
    world.write(("s", older), Ok, messages=(unstored(1),), **facts)
    world.finish()

    assert_sound(world)


def a_second_copy(world: SmallWorld) -> None:
    hand_over(world, unstored(1))


def a_copy_for_the_next_process(world: SmallWorld) -> None:
    world.kill("s")
    world.restart("s")
    hand_over(world, unstored(3))


def another_content(world: SmallWorld) -> None:
    hand_over(world, unstored(2, crc=77))


def a_message_that_was_stored(world: SmallWorld) -> None:
    for kind in (StoredLine, Found):
        for index in places(world, kind, topic="t"):
            messages = (*batch(world, index), Seen(1, "p", FIRST + 2, 2, 99, 1, 0))
            change(world, index, messages=messages)


@pytest.mark.parametrize("damage", [a_second_copy, a_copy_for_the_next_process, another_content])
def test_what_may_not_be_is_seen(world: SmallWorld, damage: Callable[[SmallWorld], None]) -> None:
    damage(world)

    assert broken(check(world.run)) == {"V6"}


def test_one_that_was_stored_is_seen(world: SmallWorld) -> None:
    a_message_that_was_stored(world)

    found = [text for one in check(world.run).rules for text in map(str, one.violations)]
    assert any("put at QoS 0, is in the log" in text for text in found)
