"""V6 and V7: an operator's action excuses what it says, and nothing more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reliable_pubsub.common.core.journal import AdministeredLine, Failed, Invoke, Ok, PositionLine
from reliable_pubsub.lab.core.checker import check

from .damage import broken, texts
from .small_world import PROXY, SmallWorld

Told = Callable[[SmallWorld], None]


def a_world() -> SmallWorld:
    """Four messages, all of which a subscriber was given and has acknowledged."""
    world = SmallWorld()
    world.start_client("p", "publisher")
    world.start_client("s", "subscriber")
    world.subscribe("s", "t")
    for _ in range(4):
        world.put("p", "t")
    world.get("s", "t", 4)
    world.acknowledge("s", "t")
    return world


def moved(end: int, *, generation: int = 2, action: str = "set_cursor", first: int = 4) -> Told:
    def tell(world: SmallWorld) -> None:
        world.write(
            PROXY,
            AdministeredLine,
            number=1,
            action=action,
            topic="t",
            subscriber="s",
            generation=generation,
            first=first,
            end=end,
        )

    return tell


def nothing(world: SmallWorld) -> None:
    """No operator did anything."""


def position(world: SmallWorld, cursor: int, generation: int = 2, *, active: bool = True) -> None:
    world.write(
        PROXY,
        PositionLine,
        topic="t",
        subscriber="s",
        generation=generation,
        cursor=cursor,
        active=active,
        epoch=1,
    )


def continues(world: SmallWorld, cursor: int, *, asks_from: int = 4) -> None:
    """The subscriber subscribes again, with its own place, and gets another."""
    client = world.clients["s"]
    who, call = ("s", client.pid), world.call(client)
    world.write(
        who, Invoke, op="subscribe", call=call, topic="t", epoch=client.epoch, cursor=asks_from
    )
    position(world, cursor)
    world.write(
        who,
        Ok,
        op="subscribe",
        call=call,
        topic="t",
        epoch=client.epoch,
        log="log-of-t",
        generation=2,
        cursor=cursor,
    )
    again = tuple(
        type(one)(
            one.offset, one.publisher, one.sequence, one.crc, one.timestamp_ns, delivery_count=2
        )
        for one in world.log["t"][cursor:4]
    )
    call = world.call(client)
    world.write(who, Invoke, op="get", call=call, topic="t", epoch=client.epoch)
    world.write(who, Ok, op="get", call=call, topic="t", epoch=client.epoch, messages=again)


@pytest.mark.parametrize(
    ("told", "to", "rules"),
    [
        (moved(1), 1, set()),
        (nothing, 1, {"V6", "V7"}),
        (moved(2), 1, {"V6", "V7"}),
    ],
    ids=["as an operator did it", "without an operator", "further back than the operator did"],
)
def test_messages_come_again_where_an_operator_moved_a_subscription(
    told: Told, to: int, rules: set[str]
) -> None:
    world = a_world()
    told(world)
    position(world, to)

    continues(world, to)

    verdict = check(world.run)
    assert broken(verdict) == rules, texts(verdict)


def test_a_subscriber_that_does_not_go_where_an_operator_put_it_breaks_v7() -> None:
    world = a_world()
    moved(1)(world)
    position(world, 1)

    continues(world, 4)

    verdict = check(world.run)
    assert "V7" in broken(verdict)
    assert any("had moved it to 1" in text for text in texts(verdict))


def subscribes(world: SmallWorld, cursor: int, *, start: str = "") -> None:
    """The subscriber subscribes in generation 2, and continues at its own place."""
    client = world.clients["s"]
    call = {"op": "subscribe", "call": world.call(client), "topic": "t", "epoch": client.epoch}
    world.write(("s", client.pid), Invoke, **call, start=start, cursor=cursor)
    answer = {"log": "log-of-t", "generation": 2, "cursor": cursor}
    world.write(("s", client.pid), Ok, **call, **answer)


@pytest.mark.parametrize(
    "told",
    [moved(6, action="skip"), moved(3, action="skip", first=2), nothing],
    ids=["not gone past yet", "gone past before", "without an operator"],
)
def test_a_start_counts_for_nothing_while_the_subscription_exists(told: Told) -> None:
    """Its process died before it heard of the skip, and its start was still in doubt."""
    world = a_world()
    world.put("p", "t", 4)
    told(world)
    position(world, 6)
    subscribes(world, 4)
    world.kill("s")
    world.trim("t", 7)
    world.restart("s")
    subscribes(world, 4, start="earliest")

    assert "V8" not in broken(check(world.run))


@pytest.mark.parametrize(
    ("told", "start", "brought", "at", "is_sound"),
    [
        (moved(6, action="skip"), "earliest", 0, 6, True),
        (moved(6, action="skip"), "last", None, 6, True),
        (moved(2), "earliest", 0, 2, True),
        (moved(2), "last", None, 2, True),
        (moved(6, action="skip"), "earliest", 0, 7, False),
        (moved(2), "earliest", 0, 1, False),
        (moved(6, action="skip"), "earliest", 4, 6, False),
        (nothing, "earliest", 0, 6, False),
        (nothing, "last", None, 2, False),
    ],
    ids=[
        "forward",
        "forward, where it was last",
        "back",
        "back, where it was last",
        "one too late",
        "one too early",
        "by one that has a place of its own",
        "without an operator",
        "back without an operator",
    ],
)
def test_a_subscription_that_was_moved_and_ended_begins_where_the_operator_left_it(
    told: Told, start: str, brought: int | None, at: int, is_sound: bool
) -> None:
    """Its subscriber heard neither of the move nor of the end before it unsubscribed."""
    world = a_world()
    world.put("p", "t", 4)
    told(world)
    world.unsubscribe("s", "t")
    world.clients["s"].generation["t"] = 2  # the operator's

    world.subscribe("s", "t", start=start, at=at, cursor=brought)

    verdict = check(world.run)
    assert ("V8" not in broken(verdict)) == is_sound, texts(verdict)


@pytest.mark.parametrize(
    ("told", "end", "rules"),
    [
        (moved(6, action="skip"), 6, set()),
        (nothing, 6, {"V6", "V7"}),
        (moved(5, action="skip"), 6, {"V6", "V7"}),
    ],
    ids=["as an operator did it", "without an operator", "more than the operator skipped"],
)
def test_a_loss_that_is_reported_as_an_operators_is_one_that_an_operator_made(
    told: Told, end: int, rules: set[str]
) -> None:
    world = a_world()
    world.put("p", "t")
    world.put("p", "t")
    told(world)
    position(world, end)
    client = world.clients["s"]
    who, call = ("s", client.pid), world.call(client)
    world.write(who, Invoke, op="get", call=call, topic="t", epoch=client.epoch)
    world.write(
        who,
        Failed,
        op="get",
        call=call,
        topic="t",
        code="LOST",
        first=4,
        end=end,
        by_operator=True,
    )

    verdict = check(world.run)
    assert broken(verdict) == rules, texts(verdict)


@pytest.mark.parametrize(
    ("told", "rules"),
    [
        (moved(4, generation=1, action="end_subscription"), set()),
        (moved(4, generation=0, action="delete_topic"), set()),
        (nothing, {"V7"}),
        (moved(4, generation=9, action="end_subscription"), {"V7"}),
    ],
    ids=[
        "by an operator",
        "with its topic",
        "by no one",
        "while the operator ended another one",
    ],
)
def test_a_subscription_ends_only_when_its_subscriber_or_an_operator_ends_it(
    told: Told, rules: set[str]
) -> None:
    world = a_world()
    told(world)

    position(world, 4, 1, active=False)

    verdict = check(world.run)
    assert broken(verdict) == rules, texts(verdict)


def test_a_subscriber_that_was_there_before_its_journal_is_not_judged_by_what_it_asked() -> None:
    """Its first life subscribed and wrote no journal; the proxy did."""
    world = SmallWorld()
    world.start_client("p", "publisher")
    world.put("p", "t")
    position(world, 0, 1)
    world.start_client("s", "subscriber")

    position(world, 1, 1)

    verdict = check(world.run)
    assert "V7" not in broken(verdict), texts(verdict)


@pytest.mark.parametrize("action", ["truncate", "delete_topic"])
@pytest.mark.parametrize(("start", "rules"), [(2, set()), (3, {"V7"})])
def test_a_truncation_removes_what_its_action_says(
    start: int, rules: set[str], action: str
) -> None:
    world = a_world()
    world.write(PROXY, AdministeredLine, number=1, action=action, topic="t", first=0, end=2)

    world.trim("t", start)

    verdict = check(world.run)
    assert broken(verdict) == rules, texts(verdict)


@pytest.mark.parametrize(("resumed", "rules"), [(True, set()), (False, {"V7"})])
def test_nothing_is_stored_while_puts_are_paused(resumed: bool, rules: set[str]) -> None:
    world = a_world()
    world.write(PROXY, AdministeredLine, number=1, action="pause")
    if resumed:
        world.write(PROXY, AdministeredLine, number=2, action="resume")

    world.put("p", "t")

    verdict = check(world.run)
    assert broken(verdict) == rules, texts(verdict)
