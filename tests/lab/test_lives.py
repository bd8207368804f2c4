"""Whose lines count: replaced processes, resumed subscriptions, a proxy that was set back.

Each journal is sound, or breaks no rule beyond those that a rollback breaks; a checker that looks
less closely takes it for a fault.
"""

from __future__ import annotations

from reliable_pubsub.common.core.journal import (
    Begin,
    End,
    Event,
    Found,
    FoundEnd,
    GrantedLine,
    Invoke,
    Ok,
    Unknown,
)
from reliable_pubsub.lab.core.checker import check

from .damage import assert_sound, broken, change, line_at, places
from .small_world import LAB, PROXY, SmallWorld
from .worlds import a_world_with_a_subscriber

TWIN = ("s1", 77)


# Replaced processes.


def test_an_unsubscribe_of_a_replaced_process_ends_nothing() -> None:
    world = a_world_with_a_subscriber(4, output=True)
    world.get("s1", "t", 2)
    old = ("s1", world.clients["s1"].pid)
    world.restart("s1")
    world.write(old, Invoke, op="unsubscribe", call=50, topic="t", epoch=1)
    world.subscribe("s1", "t")
    world.write(old, Unknown, op="unsubscribe", call=50, topic="t", code="FENCED")
    world.finish()

    assert_sound(world)


def a_world_with_a_twin() -> SmallWorld:
    """A second process has a copy of the state, begins later, and asks for an epoch later still."""
    world = a_world_with_a_subscriber(4, output=True)
    client = world.clients["s1"]
    world.write(LAB, Event, what="replace", target="s1", detail=str(TWIN[1]))
    world.write(TWIN, Begin, role="subscriber", wall_ns=0, output=client.output)
    world.get("s1", "t", 2)
    world.write(TWIN, Invoke, op="hello", call=1, epoch=2)
    world.write(PROXY, GrantedLine, role="subscriber", client="s1", epoch=2)
    world.write(TWIN, Ok, op="hello", call=1, epoch=2)
    world.write(("s1", client.pid), End, code="FENCED")
    client.epoch = 2
    world.restart("s1")
    world.subscribe("s1", "t")
    world.finish()
    return world


def test_the_lab_says_which_of_two_processes_continues_with_the_work() -> None:
    assert_sound(a_world_with_a_twin())


def test_where_it_is_not_said_the_one_that_began_later_continues() -> None:
    world = a_world_with_a_twin()
    del world.lines[places(world, Event, what="replace")[0]]

    (text,) = check(world.run).warnings

    assert "1 gets of replaced processes" in text


# Subscriptions that continue, and new ones.


def a_world_with_an_unsubscribe_in_doubt(*, remembers: bool) -> SmallWorld:
    """It has two messages; its unsubscribe has no answer, and it subscribes again."""
    world = a_world_with_a_subscriber(4, remembers=remembers)
    world.get("s1", "t", 2)
    world.acknowledge("s1", "t")
    who = ("s1", world.clients["s1"].pid)
    world.write(who, Invoke, op="unsubscribe", call=50, topic="t", epoch=1)
    world.kill("s1")
    world.restart("s1")
    world.subscribe("s1", "t")
    return world


def skip_one(world: SmallWorld) -> None:
    """The subscription continues one message later than it stood."""
    change(world, places(world, Ok, op="subscribe")[-1], cursor=3)
    world.clients["s1"].place["t"] = 3
    world.finish()


def test_who_brings_its_place_continues_under_another_generation_too() -> None:
    """Its unsubscribe had its effect; so the proxy built the subscription again."""
    world = a_world_with_an_unsubscribe_in_doubt(remembers=True)
    change(world, places(world, Invoke, op="subscribe")[-1], cursor=2)
    change(world, places(world, Ok, op="subscribe")[-1], generation=2)

    skip_one(world)

    assert "V6" in broken(check(world.run))


def test_who_brings_no_place_continues_under_the_same_generation() -> None:
    """Its unsubscribe never arrived; so the proxy still has the subscription."""
    world = a_world_with_an_unsubscribe_in_doubt(remembers=False)

    skip_one(world)

    assert "V6" in broken(check(world.run))


def test_who_brings_no_place_begins_again_under_another_generation() -> None:
    """Its unsubscribe had its effect; what was put in between is not for it."""
    world = a_world_with_an_unsubscribe_in_doubt(remembers=False)
    change(world, places(world, Ok, op="subscribe")[-1], generation=2)

    skip_one(world)

    assert "V6" not in broken(check(world.run))


# A proxy that was set back.


def set_back(world: SmallWorld, kept: int) -> None:
    """The topic has only this many messages again; no client has an epoch, or a subscription."""
    world.write(LAB, Event, what="rollback", target="proxy")
    del world.log["t"][kept:]
    for client in world.clients.values():
        client.epoch = 0
        client.place.clear()
        client.generation.clear()
        client.handed.clear()


def test_a_generation_that_a_set_back_proxy_gives_again_is_another_subscription() -> None:
    world = a_world_with_a_subscriber(4, remembers=False)
    world.get("s1", "t", 3)
    world.acknowledge("s1", "t")
    world.kill("s1")
    set_back(world, 1)
    world.restart("s1")
    world.subscribe("s1", "t")
    world.finish()

    assert "V6" not in broken(check(world.run))
    del world.lines[places(world, Event, what="rollback")[0]]
    assert "V6" in broken(check(world.run))


def test_an_epoch_that_a_set_back_proxy_gives_again_replaces_no_process() -> None:
    world = a_world_with_a_subscriber(4, remembers=False)
    world.kill("s1")
    world.restart("s1")
    world.kill("s1")
    set_back(world, 4)
    world.restart("s1")
    world.subscribe("s1", "t")
    world.put("p1", "t", 2)
    world.get("s1", "t", 2)
    world.finish()

    assert not [text for text in check(world.run).warnings if "replaced" in text]


def test_lines_of_an_output_belong_to_the_log_that_came_second_if_the_first_gave_nothing() -> None:
    world = a_world_with_a_subscriber(4, output=True)
    set_back(world, 0)
    world.log["t"].clear()
    world.restart("s1")
    world.subscribe("s1", "t")
    index = places(world, Ok, op="subscribe")[-1]
    change(world, index, log="another", cursor=0)
    world.put("p1", "t", 3)
    world.finish()

    assert "V6" not in broken(check(world.run))


# A log that was read in part.


def test_after_what_an_auditor_has_read_the_word_of_the_proxy_counts() -> None:
    world = a_world_with_a_subscriber(4)
    world.write(("auditor", 9), Found, topic="t", messages=tuple(world.log["t"][:2]))
    world.get("s1", "t", 4)

    verdict = assert_sound(world)

    assert "no process read 't' to the end" in verdict.warnings[0]
    world.audit()
    assert isinstance(line_at(world, -1), FoundEnd)
    assert not assert_sound(world).warnings
