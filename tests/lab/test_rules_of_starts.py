"""V8, for subscriptions that were asked to begin somewhere, and for seeks."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.journal import (
    AdministeredLine,
    ExpiredLine,
    Invoke,
    PositionLine,
    Unknown,
)
from reliable_pubsub.lab.core.checker import check

from .damage import assert_sound, broken
from .planted import Damage, assert_found, planted, planted_in
from .small_world import PROXY, SmallWorld
from .worlds import a_world_with_a_subscriber, replay


def begin_with_a_seek(world: SmallWorld, start: str, at: int) -> None:
    """A new world: a seek, and the end."""
    replay(world, start, at)
    world.finish()


@pytest.mark.parametrize(
    ("start", "at"),
    [("earliest", 0), ("offset 2", 2), ("newest 3", 2), ("time 1003", 3), ("age 1", 4), ("now", 5)],
)
def test_a_seek_from_where_it_was_asked_for_is_sound(start: str, at: int) -> None:
    world = SmallWorld()
    begin_with_a_seek(world, start, at)

    assert_sound(world)


def begin_after_one_more_than_was_given(world: SmallWorld, *, is_buried: bool) -> None:
    """A subscriber dies with two of three messages, and continues after the third."""
    fresh = a_world_with_a_subscriber(3)
    fresh.get("s1", "t", 2)
    if is_buried:
        fresh.bury("s1", "t", 2)
    fresh.kill("s1")
    fresh.restart("s1")
    fresh.subscribe("s1", "t", start="offset 1", at=3, cursor=2)
    fresh.put("p1", "t")
    fresh.get("s1", "t")
    vars(world).update(vars(fresh))
    world.finish()


def test_a_start_after_a_dead_letter_whose_answer_was_lost_is_sound() -> None:
    """`max_deliveries` gave the message up; the process died before it heard of that."""
    world = SmallWorld()
    begin_after_one_more_than_was_given(world, is_buried=True)

    assert_sound(world)


@planted("V8")
def a_start_is_above_the_place_of_its_subscriber(world: SmallWorld) -> None:
    begin_after_one_more_than_was_given(world, is_buried=False)


@planted("V8")
def a_seek_begins_at_another_offset(world: SmallWorld) -> None:
    begin_with_a_seek(world, "offset 2", 3)


@planted("V8")
def a_seek_from_the_earliest_leaves_the_first_out(world: SmallWorld) -> None:
    begin_with_a_seek(world, "earliest", 1)


@planted("V8")
def a_seek_of_the_newest_leaves_one_out_at_the_wrong_end(world: SmallWorld) -> None:
    begin_with_a_seek(world, "newest 3", 1)


@planted("V8")
def a_seek_from_a_time_leaves_out_what_was_taken_then(world: SmallWorld) -> None:
    begin_with_a_seek(world, "time 1003", 5)


@planted("V8")
def a_seek_from_a_time_begins_before_it(world: SmallWorld) -> None:
    begin_with_a_seek(world, "time 1003", 2)


@planted("V8")
def a_seek_from_now_on_misses_what_is_put_then(world: SmallWorld) -> None:
    begin_with_a_seek(world, "now", 6)


@planted("V8")
def a_seek_of_the_newest_leaves_one_out(world: SmallWorld) -> None:
    begin_with_a_seek(world, "newest 3", 3)


@planted("V8")
def a_start_moves_a_subscription_that_exists(world: SmallWorld) -> None:
    """Forward, so that what it had not got is left out."""
    fresh = a_world_with_a_subscriber(3)
    fresh.get("s1", "t")
    fresh.put("p1", "t", 2)
    fresh.subscribe("s1", "t", start="newest 1", at=4, cursor=0)
    fresh.get("s1", "t")
    fresh.audit()
    vars(world).update(vars(fresh))


@planted("V8")
def a_seek_from_now_on_gives_what_was_over_before(world: SmallWorld) -> None:
    begin_with_a_seek(world, "now", 4)


@planted("V8")
def a_seek_after_the_last_received_leaves_some_out(world: SmallWorld) -> None:
    replay(world, "now", 5)
    world.acknowledge("s1", "t")
    world.unsubscribe("s1", "t")
    world.put("p1", "t", 2)
    world.subscribe("s1", "t", start="last", at=8)
    world.finish()


def refuse_a_start(world: SmallWorld, start: str, code: str) -> None:
    """A seek is refused; then the world continues."""
    replay(world, "now", 5)
    facts = {"op": "subscribe", "call": 99, "topic": "t"}
    world.write(("s1", world.clients["s1"].pid), Invoke, **facts, start=start)
    world.write(("s1", world.clients["s1"].pid), Unknown, **facts, code=code)
    world.finish()


@pytest.mark.parametrize("start", ["offset 7", "time 9999"])
def test_a_start_that_lies_in_the_future_is_refused_rightly(start: str) -> None:
    world = SmallWorld()
    refuse_a_start(world, start, "OUT_OF_RANGE")

    assert_sound(world)


@planted("V8")
def a_start_is_refused_as_gone_that_is_there(world: SmallWorld) -> None:
    refuse_a_start(world, "offset 0", "TRUNCATED")


@planted("V8")
def a_moment_is_refused_as_gone_that_is_there(world: SmallWorld) -> None:
    refuse_a_start(world, "time 1003", "TRUNCATED")


@planted("V8")
def a_start_is_refused_as_still_to_come_that_is_there(world: SmallWorld) -> None:
    refuse_a_start(world, "offset 6", "OUT_OF_RANGE")


@planted("V8")
def a_start_is_refused_that_is_always_there(world: SmallWorld) -> None:
    refuse_a_start(world, "earliest", "TRUNCATED")


def a_world_that_has_acknowledged() -> SmallWorld:
    """A subscriber has acknowledged three messages of five."""
    world = a_world_with_a_subscriber(5)
    world.get("s1", "t", 3)
    world.acknowledge("s1", "t")
    return world


def test_a_seek_gives_again_what_was_acknowledged_marked() -> None:
    world = a_world_that_has_acknowledged()
    world.subscribe("s1", "t", start="earliest", at=0)
    world.get("s1", "t", 5)
    world.finish()

    assert_sound(world)


def test_a_seek_that_is_not_marked_is_a_fault() -> None:
    world = a_world_that_has_acknowledged()
    world.subscribe("s1", "t", start="earliest", at=0)
    world.clients["s1"].handed.clear()
    world.get("s1", "t", 5)
    world.finish()

    assert "V8" in broken(check(world.run))


def test_who_continues_begins_after_what_was_acknowledged() -> None:
    world = a_world_that_has_acknowledged()
    world.subscribe("s1", "t", start="earliest", at=3, cursor=3)
    world.get("s1", "t", 2)
    world.finish()

    assert_sound(world)


def test_who_continues_below_what_was_acknowledged_is_a_fault() -> None:
    world = a_world_that_has_acknowledged()
    world.subscribe("s1", "t", start="earliest", at=0, cursor=3)
    world.get("s1", "t", 5)
    world.finish()

    assert "V8" in broken(check(world.run))


@pytest.mark.parametrize(("begins_at", "is_sound"), [(3, True), (2, False)])
def test_a_start_may_return_to_what_an_earlier_start_passed_over_and_no_further(
    begins_at: int, is_sound: bool
) -> None:
    world = a_world_that_has_acknowledged()
    world.unsubscribe("s1", "t")
    world.subscribe("s1", "t", start="now", at=5, cursor=3)
    world.unsubscribe("s1", "t")
    world.subscribe("s1", "t", start="earliest", at=begins_at, cursor=3)
    world.get("s1", "t", 5 - begins_at)
    world.finish()

    assert ("V8" not in broken(check(world.run))) == is_sound


@pytest.mark.parametrize(("begins_at", "is_sound"), [(3, True), (4, False)])
def test_a_start_returns_to_the_first_message_that_one_of_two_starts_passed_over(
    begins_at: int, is_sound: bool
) -> None:
    world = a_world_with_a_subscriber(5)
    world.get("s1", "t", 3)
    world.unsubscribe("s1", "t")
    world.subscribe("s1", "t", start="newest 2", at=3, cursor=3)
    world.subscribe("s1", "t", start="now", at=5)
    world.unsubscribe("s1", "t")
    world.subscribe("s1", "t", start="earliest", at=begins_at, cursor=3)
    world.get("s1", "t", 5 - begins_at)
    world.finish()

    assert ("V8" not in broken(check(world.run))) == is_sound


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_a_subscriber_that_an_operator_has_forgotten_begins_as_a_new_one(
    is_forgotten: bool,
) -> None:
    world = a_world_that_has_acknowledged()
    if is_forgotten:
        world.write(
            PROXY,
            AdministeredLine,
            number=1,
            action="forget_client",
            subscriber="s1",
            role="subscriber",
        )
    world.subscribe("s1", "t", start="last", at=0)
    world.get("s1", "t", 5)
    world.finish()

    assert ("V8" not in broken(check(world.run))) == is_forgotten


def test_a_clean_session_whose_beginning_its_subscriber_never_heard_of_forgets_too() -> None:
    """Its answer was lost and its process died; what comes then is neither below nor a repeat."""
    world = a_world_that_has_acknowledged()
    s1 = world.clients["s1"]
    asked = {"op": "subscribe", "call": 9, "topic": "t", "epoch": s1.epoch}
    world.write(("s1", s1.pid), Invoke, **asked, start="earliest", cursor=0)
    in_between = {"topic": "t", "subscriber": "s1", "generation": 2, "session": "clean"}
    world.write(PROXY, PositionLine, **in_between, cursor=0, active=True, epoch=s1.epoch)
    world.kill("s1")
    world.write(PROXY, ExpiredLine, **in_between, cursor=0, lease_ms=1000, silent_ms=2001)
    world.restart("s1")
    s1.generation["t"] = 2
    s1.handed.clear()
    world.subscribe("s1", "t", start="earliest", at=0, cursor=0)
    world.get("s1", "t", 5)
    world.finish()

    assert_sound(world)


@planted_in(__name__)
def test_a_planted_damage_breaks_its_rule_and_no_other(rules: set[str], damage: Damage) -> None:
    assert_found(damage, rules)
