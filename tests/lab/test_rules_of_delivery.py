"""V6: each subscriber has each offset once, in order, without a gap."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from reliable_pubsub.common.core.journal import (
    Begin,
    Event,
    Failed,
    FoundEnd,
    Invoke,
    Ok,
    Seen,
    TrimmedLine,
)
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.core.indexing import index_run
from reliable_pubsub.lab.core.run import LabRun
from reliable_pubsub.lab.core.verdict import Losses

from .damage import assert_sound, batch, broken, change, edit_log, line_at, places
from .planted import Damage, assert_found, planted, planted_in
from .small_world import LAB, SmallWorld, sound_world
from .worlds import (
    a_world_with_a_subscriber,
    a_world_with_an_output,
    begin_with_a_loss,
    begin_with_deaths,
    offsets_in_output,
)


@planted("V6")
def a_duplicate_in_the_output_file(world: SmallWorld) -> None:
    world.outputs["s1"].insert(1, world.outputs["s1"][1])


@planted("V6")
def an_output_line_is_missing(world: SmallWorld) -> None:
    del world.outputs["s1"][1]


@planted("V6", "V12")
def the_last_output_line_is_missing(world: SmallWorld) -> None:
    del world.outputs["s1"][-1]


@planted("V6")
def two_output_lines_are_swapped(world: SmallWorld) -> None:
    lines = world.outputs["s1"]
    lines[1], lines[2] = lines[2], lines[1]


@planted("V6")
def an_output_does_not_begin_where_it_subscribed(world: SmallWorld) -> None:
    del world.outputs["s1"][0]


@planted("V6")
def a_message_is_given_again_and_not_marked(world: SmallWorld) -> None:
    for index in places(world, Ok, op="get", process="s2"):
        messages = line_at(world, index).messages
        change(world, index, messages=tuple(replace(m, delivery_count=1) for m in messages))


@planted("V6")
def a_program_is_given_a_message_after_a_gap(world: SmallWorld) -> None:
    index = next(n for n in places(world, Ok, op="get", process="s2") if batch(world, n)[1:])
    change(world, index, messages=batch(world, index)[1:])


@planted("V6")
def what_was_done_is_given_again_by_the_same_process(world: SmallWorld) -> None:
    first, *_ = places(world, Ok, op="get", process="s2")
    last = places(world, Ok, op="get", process="s2")[-1]
    line = line_at(world, first)
    again = replace(line.messages[0], delivery_count=2)
    world.lines.insert(last, replace(line, pid=line_at(world, last).pid, messages=(again,)))


@planted("V6")
def a_loss_is_told_of_what_is_in_the_log(world: SmallWorld) -> None:
    index = places(world, Ok, op="get", process="s2")[1]
    line = line_at(world, index)
    first = line.messages[0].offset
    told = Failed(
        at_ns=line.at_ns,
        process="s2",
        pid=line.pid,
        op="get",
        call=70,
        code="LOST",
        topic="t",
        first=first,
        end=first + 1,
    )
    world.lines.insert(index, told)
    messages = line.messages[1:]
    change(world, index + 1, messages=messages)


@planted("V6", "V7")
def a_subscriber_resumes_after_what_it_was_given(world: SmallWorld) -> None:
    index = places(world, Ok, op="subscribe", process="s1")[1]
    change(world, index, cursor=line_at(world, index).cursor + 2)


@planted("V6")
def a_program_resumes_after_what_it_was_given(world: SmallWorld) -> None:
    begin_with_deaths(world)
    change(world, places(world, Ok, op="subscribe")[-1], cursor=4)
    world.clients["s1"].place["t"] = 4
    world.finish()


@planted("V6")
def a_program_resumes_with_what_was_done(world: SmallWorld) -> None:
    begin_with_deaths(world)
    change(world, places(world, Ok, op="subscribe")[-1], cursor=0)
    world.clients["s1"].place["t"] = 0
    world.finish()


@planted("V6")
def a_loss_of_nothing_is_told(world: SmallWorld) -> None:
    begin_with_a_loss(world)
    index = places(world, Failed)[0]
    line = line_at(world, index)
    world.lines.insert(index, replace(line, first=0, end=0))


@planted("V6")
def a_loss_is_told_before_it_is_durable(world: SmallWorld) -> None:
    begin_with_a_loss(world)
    change(world, places(world, TrimmedLine)[0], at_ns=world.at_ns)


@planted("V6")
def a_loss_ends_before_what_is_gone(world: SmallWorld) -> None:
    begin_with_a_loss(world)
    index = places(world, Failed)[0]
    line = line_at(world, index)
    world.lines[index : index + 1] = [replace(line, end=2), replace(line, first=2)]


@planted("V6", "V12")
def a_loss_reaches_beyond_the_end_of_the_log(world: SmallWorld) -> None:
    begin_with_a_loss(world, lost=5)
    change(world, places(world, Failed)[0], end=7)


@planted("V6")
def a_loss_names_what_was_given_to_a_program(world: SmallWorld) -> None:
    begin_with_a_loss(world, had=2)
    change(world, places(world, Failed)[0], first=1)


@planted("V6")
def a_loss_names_what_is_in_the_output(world: SmallWorld) -> None:
    begin_with_a_loss(world, had=2, output=True)
    change(world, places(world, Failed)[0], first=1)


def test_what_is_lost_and_reported_is_no_gap() -> None:
    world = SmallWorld()
    world.start_client("p1", "publisher")
    world.start_client("s1", "subscriber", output=True)
    world.start_client("s2", "subscriber")
    for name in ("s1", "s2"):
        world.subscribe(name, "t")
    world.put("p1", "t", 6)
    world.get("s1", "t")
    world.get("s2", "t")
    world.trim("t", 4)
    world.finish()

    assert [line.message.offset for line in world.outputs["s1"]] == [0, 4, 5]
    assert_sound(world)


def test_a_loss_is_not_doubted_where_the_last_lines_of_a_killed_proxy_may_be_missing() -> None:
    world = SmallWorld()
    begin_with_a_loss(world)
    world.trim("t", 4)
    del world.lines[places(world, TrimmedLine)[0]]
    change(world, places(world, TrimmedLine)[0], pid=9)
    change(world, places(world, FoundEnd)[0], start=4)
    edit_log(world, "t", lambda seen: seen if seen.offset >= 4 else None)

    assert_sound(world)


def test_what_a_replaced_subscriber_still_shows_proves_nothing_and_is_reported() -> None:
    world = sound_world()
    old, new = places(world, Ok, op="get", process="s2")[:2]
    late = replace(line_at(world, old), at_ns=line_at(world, new).at_ns)
    world.lines.insert(new + 1, late)

    assert "1 gets of replaced processes" in " ".join(assert_sound(world).warnings)


def test_a_subscriber_without_memory_gets_what_was_not_acknowledged_again_unmarked() -> None:
    world = a_world_with_a_subscriber(4, remembers=False)
    world.get("s1", "t", 2)
    world.acknowledge("s1", "t")
    world.get("s1", "t")
    world.get("s1", "t")
    world.kill("s1")
    world.restart("s1")
    world.subscribe("s1", "t")
    world.finish()

    assert_sound(world)


def test_a_life_without_memory_does_not_move_because_the_one_before_meant_to() -> None:
    """The SUB of a rewind was in doubt when its process died."""
    world = SmallWorld()
    s1 = world.start_client("s1", "subscriber", remembers=False)
    world.subscribe("s1", "t")
    for cursor in (3, 0):
        world.write(
            ("s1", s1.pid), Invoke, op="subscribe", call=9, topic="t", epoch=1, cursor=cursor
        )
    world.kill("s1")
    world.restart("s1")
    world.subscribe("s1", "t")

    (subscription,) = index_run(world.run).streams[("s1", "t")].subscriptions

    assert not subscription.moved


@pytest.mark.parametrize("set_back", [True, False])
def test_only_of_a_set_back_proxy_a_further_place_is_taken_for_an_adopted_one(
    set_back: bool,
) -> None:
    """A late copy of a SUB that was set back began it again, after its place."""
    world = SmallWorld()
    s1 = world.start_client("s1", "subscriber")
    world.subscribe("s1", "t")
    if set_back:
        world.write(LAB, Event, what="rollback", target="proxy")
    facts = {"op": "subscribe", "call": 9, "topic": "t", "epoch": 1}
    world.write(("s1", s1.pid), Invoke, **facts, cursor=0)
    world.write(("s1", s1.pid), Ok, **facts, log="log-of-t", generation=1, cursor=5)

    subscriptions = index_run(world.run).streams[("s1", "t")].subscriptions

    assert [(one.start, one.adopted) for one in subscriptions] == (
        [(0, False), (5, True)] if set_back else [(0, False)]
    )


@pytest.mark.parametrize("told", [True, False])
def test_only_a_power_loss_may_take_what_was_written_lazily(told: bool) -> None:
    """Without it the same repeat is a fault."""
    world = a_world_with_a_subscriber(4)
    for _ in range(3):
        world.get("s1", "t")
    world.lose_power("s1")
    world.restart("s1")
    world.subscribe("s1", "t")
    world.finish()
    if told:
        assert_sound(world)
        return
    del world.lines[places(world, Event, what="power_loss")[0]]

    assert broken(check(world.run)) == {"V6"}


def test_an_output_without_a_journal_is_still_held_to_its_order() -> None:
    world = sound_world()
    lines = [line for line in world.outputs["s1"] if line.topic == "t"]

    assert broken(check(LabRun(lines=[], outputs={"s1": lines[:3]}))) == set()
    assert broken(check(LabRun(lines=[], outputs={"s1": [lines[0], lines[2]]}))) == {"V6"}


def test_what_came_in_the_place_of_an_output_that_was_cut_off_is_not_taken_for_it() -> None:
    """What was handed over, and what stands in the output, overlap."""
    world = a_world_with_a_subscriber(2, output=True)
    world.get("s1", "t", 2, record=False)
    world.kill("s1")
    world.set_back("t")
    world.start_client("p2", "publisher")
    world.put("p2", "t", 4)
    world.restart("s1")
    world.subscribe("s1", "t", start="earliest", at=0)
    world.finish()

    assert "V6" not in broken(check(world.run))


def test_what_was_not_recorded_is_cut_off_when_the_place_is_chosen_again() -> None:
    """The same offset was handed over by both subscriptions."""
    world = a_world_with_an_output()
    world.get("s1", "t", record=False)
    world.subscribe("s1", "t", start="offset 1", at=1)
    world.finish()

    assert offsets_in_output(world) == [0, 1, 2, 3, 4]
    assert_sound(world)


def test_what_a_killed_life_was_given_is_not_taken_for_what_a_later_subscription_got() -> None:
    """The same offset was given three times, and stands twice in the output."""
    world = a_world_with_a_subscriber(5, output=True)
    world.get("s1", "t", 5, record=False)
    world.kill("s1")
    world.restart("s1")
    world.subscribe("s1", "t")
    world.get("s1", "t", 4)
    world.unsubscribe("s1", "t")
    world.subscribe("s1", "t", start="newest 1", at=4)
    world.get("s1", "t")
    world.unsubscribe("s1", "t")
    world.subscribe("s1", "t", start="offset 1", at=1)
    world.finish()

    assert offsets_in_output(world) == [0, 1, 2, 3, 4, 1, 2, 3, 4]
    assert_sound(world)


def test_what_the_next_life_resumed_below_was_not_recorded() -> None:
    """Two later subscriptions begin at the same place."""
    world = a_world_with_a_subscriber(3, output=True)
    world.get("s1", "t", record=False)
    world.kill("s1")
    world.restart("s1")
    world.subscribe("s1", "t")
    world.subscribe("s1", "t", start="now", at=3)
    world.unsubscribe("s1", "t")
    for _ in range(2):
        world.subscribe("s1", "t", start="earliest", at=0)
        world.get("s1", "t")
    world.finish()

    assert offsets_in_output(world) == [0, 0, 1, 2]
    assert_sound(world)


def test_another_message_at_an_offset_that_was_handed_over_is_not_that_one_again() -> None:
    """The log was set back between, and the subscriber cannot know."""
    world = SmallWorld()
    s1 = world.start_client("s1", "subscriber")
    world.subscribe("s1", "t")
    world.start_client("p1", "publisher")
    world.put("p1", "t", 2)
    world.set_back("t")
    world.log["t"] = [Seen(0, "p1", 1, 7, 1_000)]  # fetched before
    world.get("s1", "t")
    world.log["t"].clear()
    world.kill("s1")
    s1.handed.clear()
    world.start_client("p2", "publisher")
    world.put("p2", "t", 2)
    world.restart("s1")
    facts = {"op": "subscribe", "call": 9, "topic": "t", "epoch": s1.epoch, "cursor": 0}
    world.write(("s1", s1.pid), Invoke, **facts)
    world.write(("s1", s1.pid), Ok, **facts, log="log-of-t", generation=1)
    world.finish()

    assert "V6" not in broken(check(world.run))


def test_losses_are_counted_by_subscriber_too() -> None:
    world = sound_world()
    lines = world.outputs["s1"]
    count = sum(line.topic == "t" for line in lines)
    del lines[1]

    assert list(check(world.run).losses) == [Losses("t", "s1", count, 0, 1, 0)]


@planted_in(__name__)
def test_a_planted_damage_breaks_its_rule_and_no_other(rules: set[str], damage: Damage) -> None:
    assert_found(damage, rules)


@pytest.mark.parametrize("is_same_process", [True, False])
def test_only_a_process_that_was_reset_continues_after_what_it_had_in_hand(
    is_same_process: bool,
) -> None:
    world = a_world_with_a_subscriber(5)
    client = world.clients["s1"]
    world.get("s1", "t", 2)
    in_hand = dict(client.in_hand)
    if is_same_process:  # an exception left a call, and the next one began again (R31)
        world.write(("s1", client.pid), Begin, role="subscriber", wall_ns=0)
    else:
        world.restart("s1")
    world.subscribe("s1", "t")
    client.in_hand.update(in_hand)
    world.get("s1", "t", 3)
    world.acknowledge("s1", "t")
    world.finish()

    assert ("V6" not in broken(check(world.run))) == is_same_process
