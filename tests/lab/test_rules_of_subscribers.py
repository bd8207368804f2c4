"""V8, V9 and V12: where subscriptions begin and end, and how a run ends."""

from __future__ import annotations

from msgspec.structs import replace

from reliable_pubsub.common.core.journal import (
    Failed,
    Finished,
    Found,
    FoundEnd,
    Invoke,
    Ok,
    PositionLine,
)
from reliable_pubsub.lab.core.run import OutputLine

from .damage import change, line_at, move_subscription, places
from .planted import Damage, assert_found, planted, planted_in
from .small_world import SmallWorld
from .worlds import begin_with_deaths


@planted("V8")
def a_put_begun_after_a_subscribe_is_not_delivered(world: SmallWorld) -> None:
    index = places(world, Ok, op="subscribe", process="s2")[0]
    change(world, index, at_ns=1)
    # It is asked for before everything, too, so only the later side of the rule can see it.
    change(world, places(world, Invoke, op="subscribe", process="s2")[0], at_ns=1)


@planted("V8")
def a_subscription_begins_too_late(world: SmallWorld) -> None:
    move_subscription(world, "s1", 1)
    del world.outputs["s1"][0]


@planted("V6", "V8")
def a_subscription_begins_with_what_was_over_before(world: SmallWorld) -> None:
    move_subscription(world, "s1", -1)


@planted("V9")
def a_program_is_given_a_message_after_its_unsubscribe(world: SmallWorld) -> None:
    index = places(world, Ok, op="unsubscribe", process="s1")[0]
    line = line_at(world, index)
    (last, *_) = [
        line_at(world, place)
        for place in reversed(places(world, Ok, op="get", process="s1"))
        if place < index
    ]
    world.lines.insert(index + 1, replace(last, at_ns=line.at_ns + 1))


@planted("V9")
def an_output_continues_after_the_unsubscribe(world: SmallWorld) -> None:
    ended = line_at(world, places(world, PositionLine, subscriber="s1", active=False)[0]).cursor
    place = next(n for n, line in enumerate(world.outputs["s1"]) if line.message.offset >= ended)
    world.outputs["s1"].insert(place, OutputLine("t", world.log["t"][ended]))


@planted("V12")
def a_finished_publisher_left_out_a_message_of_its_plan(world: SmallWorld) -> None:
    for index in places(world, Invoke, op="put", process="p2"):
        if line_at(world, index).plan == "0:3":
            change(world, index, plan="0:4")


@planted("V12")
def a_finished_publisher_left_out_the_end_of_its_plan(world: SmallWorld) -> None:
    index = places(world, Finished, target="p2")[0]
    change(world, index, messages=line_at(world, index).messages + 1)


@planted("V12")
def a_process_that_had_to_finish_did_not(world: SmallWorld) -> None:
    change(world, places(world, Finished, target="p1")[0], done=False, detail="exit code 3")


@planted("V12")
def a_subscriber_does_not_stand_at_the_end(world: SmallWorld) -> None:
    world.put("p1", "t")
    del world.lines[places(world, Found)[0] : places(world, FoundEnd)[-1] + 1]
    world.audit()


@planted("V12")
def the_proxy_does_not_know_a_subscription(world: SmallWorld) -> None:
    index = places(world, FoundEnd, topic="t")[0]
    positions = line_at(world, index).positions
    change(world, index, positions={"s1": positions["s1"]})


@planted("V12")
def the_proxy_knows_of_more_than_was_received(world: SmallWorld) -> None:
    index = places(world, FoundEnd, topic="t")[0]
    positions = line_at(world, index).positions
    change(world, index, positions={**positions, "s2": positions["s2"] + 1})


@planted("V12")
def a_message_of_a_finished_plan_was_refused_and_never_put(world: SmallWorld) -> None:
    index = places(world, Finished, target="p2")[0]
    last = line_at(world, places(world, Invoke, op="put", process="p2")[-1])
    at_ns = line_at(world, index).at_ns
    world.lines[index:index] = [
        replace(last, at_ns=at_ns, call=90, sequence=last.sequence + 1, crcs=(1,), plan="1:0"),
        Failed(at_ns=at_ns, process="p2", pid=last.pid, op="put", call=90, code="LIMIT"),
    ]


@planted("V12")
def the_proxy_has_one_that_unsubscribed(world: SmallWorld) -> None:
    begin_with_deaths(world)
    world.unsubscribe("s1", "t")
    world.finish()
    change(world, places(world, FoundEnd)[-1], positions={"s1": 1})


@planted_in(__name__)
def test_a_planted_damage_breaks_its_rule_and_no_other(rules: set[str], damage: Damage) -> None:
    assert_found(damage, rules)
