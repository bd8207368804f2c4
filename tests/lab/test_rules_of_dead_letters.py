"""V2 and V6, for messages that were given up: no loss, no gap, one letter each."""

from __future__ import annotations

from msgspec.structs import replace

from reliable_pubsub.common.core.journal import DeadLetteredLine
from reliable_pubsub.lab.core.checker import check

from .damage import assert_sound, broken
from .small_world import SmallWorld
from .worlds import a_world_with_a_subscriber, a_world_with_an_output, offsets_in_output


def test_what_was_given_up_is_not_in_the_output_and_is_no_loss() -> None:
    world = a_world_with_an_output()
    world.reject("s1", "t")
    world.finish()

    assert offsets_in_output(world) == [0, 2, 3, 4]
    assert_sound(world)


def test_what_was_given_up_comes_in_the_output_with_a_later_subscription() -> None:
    """The one in between has no line, because all that it was given was given up."""
    world = a_world_with_an_output()
    world.reject("s1", "t")
    world.unsubscribe("s1", "t")
    world.subscribe("s1", "t")
    world.put("p1", "t")
    world.reject("s1", "t")
    world.subscribe("s1", "t", start="offset 1", at=1)
    world.finish()

    assert offsets_in_output(world) == [0, 1, 2, 3, 4, 5]
    assert_sound(world)


def test_a_subscription_whose_first_message_was_given_up_begins_after_it() -> None:
    """What follows there was given to a dead life of the one before, too."""
    world = a_world_with_a_subscriber(7, output=True)
    world.get("s1", "t", 6, record=False)
    world.kill("s1")
    world.restart("s1")
    world.subscribe("s1", "t")
    world.get("s1", "t", 5)
    world.unsubscribe("s1", "t")
    world.subscribe("s1", "t", start="offset 4", at=4)
    world.reject("s1", "t")
    world.finish()

    assert offsets_in_output(world) == [0, 1, 2, 3, 4, 5, 6]
    assert_sound(world)


def test_a_letter_that_is_not_there_is_a_loss() -> None:
    world = a_world_with_an_output()
    world.reject("s1", "t")
    world.log["t.dead"].clear()
    world.finish()

    assert "V6" in broken(check(world.run))


def a_world_without_room_for_letters() -> SmallWorld:
    """A subscriber got three messages, and could not give up the second."""
    world = a_world_with_a_subscriber(3)
    world.get("s1", "t")
    world.reject("s1", "t", refused=True)
    return world


def test_a_letter_that_is_refused_lets_its_message_come_again() -> None:
    world = a_world_without_room_for_letters()
    world.get("s1", "t", 2)
    world.finish()

    assert_sound(world)


def test_a_message_whose_letter_was_refused_is_not_passed_over() -> None:
    world = a_world_without_room_for_letters()
    world.clients["s1"].place["t"] = 2
    world.get("s1", "t")
    world.finish()

    assert "V6" in broken(check(world.run))


def test_a_letter_that_is_there_twice_is_a_duplicate() -> None:
    world = a_world_with_an_output()
    world.reject("s1", "t")
    (line,) = [line for line in world.lines if isinstance(line, DeadLetteredLine)]
    again = replace(line.letter, offset=1, sequence=2)
    world.log["t.dead"].append(again)
    world.lines.append(replace(line, letter=again))
    world.finish()

    assert "V2" in broken(check(world.run))
