"""V1, its second half: durable, then visible."""

from __future__ import annotations

from msgspec.structs import replace

from reliable_pubsub.common.core.journal import Begin, GrantedLine, Ok, PositionLine, StoredLine

from .damage import assert_sound, change, line_at, places
from .planted import Damage, assert_found, planted, planted_in
from .small_world import SmallWorld, sound_world


@planted("V1")
def a_put_is_acknowledged_before_it_is_durable(world: SmallWorld) -> None:
    index = places(world, Ok, op="put", process="p2", topic="u")[0]
    answer_first(world, index, places(world, StoredLine, topic="u")[0])


@planted("V1")
def an_epoch_is_heard_of_before_it_is_durable(world: SmallWorld) -> None:
    index = places(world, Ok, op="hello", process="s2")[1]
    answer_first(world, index, places(world, GrantedLine, client="s2")[1])


@planted("V1")
def a_subscribe_is_answered_before_it_is_durable(world: SmallWorld) -> None:
    index = places(world, Ok, op="subscribe", process="s2")[1]
    answer_first(world, index, places(world, PositionLine, subscriber="s2")[1])


@planted("V1")
def an_acknowledge_is_answered_before_it_is_durable(world: SmallWorld) -> None:
    index = places(world, Ok, op="acknowledge", process="s2")[0]
    answer_first(world, index, places(world, PositionLine, subscriber="s2")[2])


@planted("V1")
def an_unsubscribe_is_answered_before_it_is_durable(world: SmallWorld) -> None:
    index = places(world, Ok, op="unsubscribe", process="s1")[0]
    answer_first(world, index, places(world, PositionLine, subscriber="s1", active=False)[0])


def answer_first(world: SmallWorld, answer: int, line: int) -> None:
    """An answer and the line of the proxy on which it rests change places."""
    assert line < answer
    first, second = line_at(world, line), line_at(world, answer)
    world.lines[line] = replace(second, at_ns=first.at_ns)
    world.lines[answer] = replace(first, at_ns=second.at_ns)


def test_an_answer_from_memory_is_no_fault_of_a_proxy_that_says_so() -> None:
    world = sound_world()
    a_put_is_acknowledged_before_it_is_durable(world)
    change(world, places(world, Begin, role="proxy")[0], durability="snapshot")

    assert_sound(world)


def test_an_answer_is_not_doubted_where_its_line_may_be_missing() -> None:
    """The proxy that gave it was killed; another one tells of the same later."""
    world = sound_world()
    index = places(world, PositionLine, subscriber="s2")[2]
    del world.lines[index]
    for place, line in enumerate(world.lines[index:], start=index):
        if line.process == "proxy":
            change(world, place, pid=9)

    assert_sound(world)


@planted_in(__name__)
def test_a_planted_damage_breaks_its_rule_and_no_other(rules: set[str], damage: Damage) -> None:
    assert_found(damage, rules)
