"""V9, for leases and clean sessions."""

from __future__ import annotations

from reliable_pubsub.common.core.journal import ExpiredLine, Invoke, Ok, PositionLine

from .damage import assert_sound
from .planted import Damage, assert_found, planted, planted_in
from .small_world import PROXY, SmallWorld
from .worlds import a_world_with_a_subscriber, replay


def expire(world: SmallWorld, *, session: str = "persistent", silent_ms: int = 2001) -> None:
    """The subscription of s1 has been silent; what comes after it is up to the test."""
    replay(world, "now", 5)
    facts = {"topic": "t", "subscriber": "s1", "generation": 2, "cursor": 6}
    world.write(PROXY, ExpiredLine, **facts, session=session, lease_ms=1000, silent_ms=silent_ms)


def test_a_persistent_session_that_expired_may_continue() -> None:
    world = SmallWorld()
    expire(world)
    world.acknowledge("s1", "t")
    world.finish()

    assert_sound(world)


@planted("V9")
def a_lease_ends_too_early(world: SmallWorld) -> None:
    expire(world, silent_ms=1999)
    world.finish()


@planted("V9")
def a_clean_session_moves_after_its_end(world: SmallWorld) -> None:
    expire(world, session="clean")
    world.acknowledge("s1", "t")
    world.finish()


def continue_with_the_next(world: SmallWorld) -> None:
    """s1 brings its place to the subscription after the one that it knew."""
    client = world.clients["s1"]
    client.generation["t"] = 3
    place = client.place["t"]
    who, call = ("s1", client.pid), 98
    world.write(who, Invoke, op="subscribe", call=call, topic="t", cursor=place)
    facts = {"generation": 3, "cursor": place, "epoch": client.epoch}
    world.write(PROXY, PositionLine, topic="t", subscriber="s1", active=True, **facts)
    world.write(who, Ok, op="subscribe", call=call, topic="t", log="log-of-t", **facts)


@planted("V9")
def a_clean_session_continues_in_silence(world: SmallWorld) -> None:
    expire(world, session="clean")
    continue_with_the_next(world)
    world.finish()


def test_who_began_a_clean_session_again_and_died_before_saying_so_may_continue() -> None:
    world = SmallWorld()
    expire(world, session="clean")
    who = ("s1", world.clients["s1"].pid)
    world.write(who, Invoke, op="subscribe", call=97, topic="t", start="now")
    world.kill("s1")
    world.restart("s1")
    continue_with_the_next(world)
    world.finish()

    assert_sound(world)


def begin_again_by_a_pattern(world: SmallWorld, *, then: int) -> None:
    """A new life of s1 has another clean subscription by a pattern, and was told of none.

    Args:
        then: messages that follow.
    """
    fresh = a_world_with_a_subscriber(3)
    fresh.kill("s1")
    fresh.restart("s1")
    s1 = fresh.clients["s1"]
    fresh.write(("s1", s1.pid), Invoke, op="match", call=97, match="glob ?", epoch=s1.epoch)
    again = {"topic": "t", "subscriber": "s1", "generation": 2, "cursor": 3, "session": "clean"}
    fresh.write(PROXY, PositionLine, **again, active=True, epoch=s1.epoch)
    if then:
        fresh.put("p1", "t", then)
    expired = {"lease_ms": 1000, "silent_ms": 2001}
    fresh.write(PROXY, ExpiredLine, **again, **expired)
    del s1.place["t"]
    fresh.finish()
    vars(world).update(vars(fresh))


def test_a_life_that_was_not_told_of_its_clean_subscription_need_not_have_what_is_older() -> None:
    world = SmallWorld()
    begin_again_by_a_pattern(world, then=0)

    assert_sound(world)


@planted("V12")
def a_life_is_not_told_of_its_clean_subscription_which_has_messages(world: SmallWorld) -> None:
    begin_again_by_a_pattern(world, then=1)


@planted_in(__name__)
def test_a_planted_damage_breaks_its_rule_and_no_other(rules: set[str], damage: Damage) -> None:
    assert_found(damage, rules)
