"""What a sound history is, and that each damage to one is seen by its rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from reliable_pubsub.common.history import (
    Begin,
    ControlSeen,
    Created,
    DeadLettered,
    End,
    Event,
    Expired,
    Failed,
    Finished,
    Found,
    FoundEnd,
    Granted,
    Invoke,
    Ok,
    Position,
    Seen,
    Stored,
    Trimmed,
    Unknown,
)
from reliable_pubsub.lab.checker import check
from reliable_pubsub.lab.facts import gather
from reliable_pubsub.lab.run import OutputLine, Run
from reliable_pubsub.lab.verdict import Losses

from .damage import (
    append_found,
    assert_sound,
    batch,
    broken,
    change,
    edit_everywhere,
    edit_log,
    line_at,
    move_subscription,
    not_drained,
    places,
    texts,
)
from .small_world import LAB, PROXY, SmallWorld, sound_world

Damage = Callable[[SmallWorld], None]


# The planted histories: what is wrong, which rules see it, the damage.

PLANTED: list[tuple[str, set[str], Damage]] = []


def planted(*rules: str) -> Callable[[Damage], Damage]:
    def add(damage: Damage) -> Damage:
        PLANTED.append((damage.__name__, set(rules), damage))
        return damage

    return add


@planted("V1")
def an_acknowledged_message_that_nobody_read_is_gone_from_the_end(world: SmallWorld) -> None:
    edit_log(world, "u", lambda seen: None)
    for index in places(world, FoundEnd, topic="u"):
        change(world, index, end=0)
    for index in places(world, Stored, topic="u"):
        change(world, index, messages=())


@planted("V1")
def a_receipt_names_another_offset(world: SmallWorld) -> None:
    index = places(world, Ok, op="put", process="p1")[0]
    change(world, index, offset=line_at(world, index).offset + 2)


@planted("V1")
def a_receipt_says_removed_where_nothing_was_removed(world: SmallWorld) -> None:
    for index in places(world, Ok, op="put", process="p2", topic="u"):
        change(world, index, offset=None)
    edit_log(world, "u", lambda seen: None)
    for index in places(world, FoundEnd, topic="u"):
        change(world, index, end=0)
    for index in places(world, Stored, topic="u"):
        change(world, index, messages=())


@planted("V1")
def the_log_begins_later_without_a_word_of_the_proxy(world: SmallWorld) -> None:
    edit_log(world, "t", lambda seen: seen if seen.offset >= 2 else None)
    change(world, places(world, FoundEnd, topic="t")[0], start=2)


@planted("V1")
def a_receipt_says_removed_of_what_stands_there(world: SmallWorld) -> None:
    world.trim("t", 1)
    change(world, places(world, FoundEnd, topic="t")[0], start=1)
    edit_log(world, "t", lambda seen: seen if seen.offset else None)
    change(world, places(world, Ok, op="put", process="p1")[-1], offset=None)


@planted("V1")
def a_receipt_says_removed_of_what_was_never_stored(world: SmallWorld) -> None:
    begin_with_puts(world, "p1", "p1")
    world.trim("t", 2)
    world.put("p1", "t", stored=False)
    change(world, places(world, Ok, op="put")[-1], offset=None)
    world.audit_anew()


@planted("V1")
def a_put_is_acknowledged_before_it_is_durable(world: SmallWorld) -> None:
    index = places(world, Ok, op="put", process="p2", topic="u")[0]
    answer_first(world, index, places(world, Stored, topic="u")[0])


@planted("V1")
def an_epoch_is_heard_of_before_it_is_durable(world: SmallWorld) -> None:
    index = places(world, Ok, op="hello", process="s2")[1]
    answer_first(world, index, places(world, Granted, client="s2")[1])


@planted("V1")
def a_subscribe_is_answered_before_it_is_durable(world: SmallWorld) -> None:
    index = places(world, Ok, op="subscribe", process="s2")[1]
    answer_first(world, index, places(world, Position, subscriber="s2")[1])


@planted("V1")
def an_acknowledge_is_answered_before_it_is_durable(world: SmallWorld) -> None:
    index = places(world, Ok, op="acknowledge", process="s2")[0]
    answer_first(world, index, places(world, Position, subscriber="s2")[2])


@planted("V1")
def an_unsubscribe_is_answered_before_it_is_durable(world: SmallWorld) -> None:
    index = places(world, Ok, op="unsubscribe", process="s1")[0]
    answer_first(world, index, places(world, Position, subscriber="s1", active=False)[0])


def answer_first(world: SmallWorld, answer: int, line: int) -> None:
    """An answer and the line of the proxy on which it rests change places."""
    assert line < answer
    first, second = line_at(world, line), line_at(world, answer)
    world.lines[line] = replace(second, at_ns=first.at_ns)
    world.lines[answer] = replace(first, at_ns=second.at_ns)


@planted("V2", "V4")
def a_message_is_stored_a_second_time(world: SmallWorld) -> None:
    not_drained(world)
    first = line_at(world, places(world, Found, topic="t")[0]).messages[0]
    append_found(world, "t", first.publisher, first.sequence, first.crc)


@planted("V2")
def a_ghost_nobody_ever_put_it(world: SmallWorld) -> None:
    not_drained(world)
    last = max(s.sequence for s in world.log["t"] if s.publisher == "p1")
    append_found(world, "t", "p1", last + 1, 77)


@planted("V2")
def a_ghost_of_a_publisher_that_does_not_exist(world: SmallWorld) -> None:
    not_drained(world)
    append_found(world, "t", "nobody", 1, 77)


@planted("V2")
def a_put_that_failed_for_certain_is_stored(world: SmallWorld) -> None:
    index = places(world, Ok, op="put", process="p2", topic="u")[0]
    line = line_at(world, index)
    world.lines[index] = Failed(
        at_ns=line.at_ns, process="p2", pid=line.pid, op="put", call=line.call, code="CONFLICT"
    )


@planted("V2", "V12")
def a_message_of_the_plan_is_stored_under_two_numbers(world: SmallWorld) -> None:
    change(world, places(world, Invoke, op="put", process="p1", plan="0:4")[0], plan="0:0")


@planted("V2", "V12")
def the_plan_is_stored_in_another_order(world: SmallWorld) -> None:
    for index in places(world, Invoke, op="put", process="p2", plan="0:0"):
        change(world, index, plan="0:9")


@planted("V3")
def a_reader_saw_another_message_at_an_offset(world: SmallWorld) -> None:
    index = places(world, Ok, op="get", process="s2")[0]
    message = line_at(world, index).messages[0]
    change(world, index, messages=(replace(message, crc=message.crc ^ 1),))


@planted("V3")
def an_output_holds_another_message_at_an_offset(world: SmallWorld) -> None:
    line = world.outputs["s1"][2]
    world.outputs["s1"][2] = OutputLine("t", replace(line.message, sequence=40))


@planted("V3")
def the_proxy_stored_another_message_at_an_offset(world: SmallWorld) -> None:
    index = places(world, Stored, topic="u")[0]
    change(world, index, messages=(replace(line_at(world, index).messages[0], crc=5),))


@planted("V3")
def the_log_has_a_hole_that_nobody_acknowledged(world: SmallWorld) -> None:
    begin_with_puts(world, "p1", "p2", "p1")
    del world.lines[places(world, Ok, op="put", process="p2")[0]]
    del world.lines[places(world, Stored)[1]]
    edit_log(world, "t", lambda seen: None if seen.offset == 1 else seen)


@planted("V1", "V3", "V12")
def a_reader_saw_what_the_log_does_not_have(world: SmallWorld) -> None:
    end = len(world.log["t"])
    edit_log(world, "t", lambda seen: seen if seen.offset < end - 1 else None)
    change(world, places(world, FoundEnd, topic="t")[0], end=end - 1, positions={})


@planted("V3")
def two_readers_have_other_times_for_a_message(world: SmallWorld) -> None:
    index = places(world, Ok, op="get", process="s2")[0]
    message = line_at(world, index).messages[0]
    change(world, index, messages=(replace(message, timestamp_ns=7),))


@planted("V3")
def the_time_of_a_batch_goes_back(world: SmallWorld) -> None:
    edit_everywhere(world, "t", lambda s: replace(s, timestamp_ns=900) if s.offset == 5 else s)


@planted("V3")
def the_proxy_stores_an_offset_again(world: SmallWorld) -> None:
    last = line_at(world, places(world, Stored, topic="t")[-1])
    again = tuple(replace(seen, timestamp_ns=0) for seen in last.messages)
    world.lines.append(replace(last, at_ns=world.at_ns, messages=again))


@planted("V3")
def the_proxy_left_out_an_offset_that_was_removed_since(world: SmallWorld) -> None:
    begin_with_puts(world, "p1", "p2", "p1")
    del world.lines[places(world, Ok, op="put", process="p2")[0]]
    del world.lines[places(world, Stored)[1]]
    world.trim("t", 3)
    world.audit_anew()


@planted("V3")
def a_topic_is_created_twice(world: SmallWorld) -> None:
    world.write(PROXY, Created, topic="t", log="log-of-t")


@planted("V4")
def a_publisher_left_out_a_number(world: SmallWorld) -> None:
    def later(sequence: int) -> int:
        return sequence + 1 if sequence >= 5 else sequence

    for index, line in enumerate(world.lines):
        if isinstance(line, Invoke | Ok) and line.op == "put" and line.process == "p1":
            change(world, index, sequence=later(line.sequence))
    edit_everywhere(
        world,
        "t",
        lambda s: replace(s, sequence=later(s.sequence)) if s.publisher == "p1" else s,
    )


@planted("V4")
def a_later_number_stands_before_an_earlier_one(world: SmallWorld) -> None:
    begin_with_puts(world, "p1", "p1", "p1")
    swapped = {2: 3, 3: 2}
    for index, line in enumerate(world.lines):
        if isinstance(line, Invoke | Ok) and line.op == "put":
            change(world, index, sequence=swapped.get(line.sequence, line.sequence))
    edit_everywhere(world, "t", lambda s: replace(s, sequence=swapped.get(s.sequence, s.sequence)))


@planted("V5")
def a_put_stands_before_one_that_was_over_when_it_began(world: SmallWorld) -> None:
    begin_with_puts(world, "p1", "p2", "p1", "p2")
    swap_offsets(world, 0, 1)


@planted("V5")
def an_unknown_put_stands_before_one_that_was_over_when_it_began(world: SmallWorld) -> None:
    begin_with_puts(world, "p1", "p2")
    index = places(world, Ok, op="put", process="p2")[0]
    del world.lines[index]
    swap_offsets(world, 0, 1)


def begin_with_puts(world: SmallWorld, *names: str) -> None:
    """Begin anew: publishers put in turns, one message at a time."""
    fresh = SmallWorld()
    for name in dict.fromkeys(names):
        fresh.start_client(name, "publisher")
    for name in names:
        fresh.put(name, "t")
    fresh.audit()
    vars(world).update(vars(fresh))


def swap_offsets(world: SmallWorld, one: int, other: int) -> None:
    """Two messages change places, for everybody; no proxy tells when it stored them."""
    world.lines = [line for line in world.lines if not isinstance(line, Stored)]
    swapped = {one: world.log["t"][other], other: world.log["t"][one]}

    def content(seen: Seen) -> Seen:
        new = swapped.get(seen.offset, seen)
        return replace(seen, publisher=new.publisher, sequence=new.sequence, crc=new.crc)

    edit_everywhere(world, "t", content)
    for index in places(world, Ok, op="put"):
        offset = line_at(world, index).offset
        change(world, index, offset={one: other, other: one}.get(offset, offset))


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
def a_subscriber_resumes_behind_what_it_was_given(world: SmallWorld) -> None:
    index = places(world, Ok, op="subscribe", process="s1")[1]
    change(world, index, cursor=line_at(world, index).cursor + 2)


@planted("V7")
def a_cursor_of_the_proxy_goes_back(world: SmallWorld) -> None:
    index = places(world, Position, subscriber="s2")[-1]
    change(world, index, cursor=line_at(world, index).cursor - 7)


@planted("V7")
def a_recorded_cursor_goes_back(world: SmallWorld) -> None:
    index = places(world, Ok, op="record", process="s1")[1]
    change(world, index, cursor=line_at(world, index).cursor - 2)


@planted("V7")
def a_generation_goes_back(world: SmallWorld) -> None:
    index = places(world, Ok, op="subscribe", process="s1")[-1]
    change(world, index, generation=0)


@planted("V7")
def an_epoch_is_granted_again(world: SmallWorld) -> None:
    index = places(world, Granted, client="s2")[-1]
    world.lines.insert(index + 1, replace(line_at(world, index), at_ns=line_at(world, index).at_ns))


@planted("V7")
def two_processes_have_the_same_epoch(world: SmallWorld) -> None:
    first, second = places(world, Ok, op="hello", process="s2")
    change(world, second, epoch=line_at(world, first).epoch)


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
def an_output_goes_on_after_the_unsubscribe(world: SmallWorld) -> None:
    ended = line_at(world, places(world, Position, subscriber="s1", active=False)[0]).cursor
    place = next(n for n, line in enumerate(world.outputs["s1"]) if line.message.offset >= ended)
    world.outputs["s1"].insert(place, OutputLine("t", world.log["t"][ended]))


@planted("V10")
def a_put_of_a_fenced_process_is_accepted(world: SmallWorld) -> None:
    index = places(world, Ok, op="put", process="p1")[-1]
    change(world, index, epoch=1)
    change(world, places(world, Invoke, op="put", process="p1")[-1], epoch=1)


@planted("V10")
def a_subscribe_of_a_fenced_process_is_accepted(world: SmallWorld) -> None:
    change(world, places(world, Ok, op="subscribe", process="s1")[-1], epoch=1)


@planted("V10")
def the_proxy_stores_under_an_old_epoch(world: SmallWorld) -> None:
    index = places(world, Stored, topic="t")[-1]
    change(world, index, epoch=1)


@planted("V10")
def the_proxy_stores_under_an_epoch_that_nobody_has(world: SmallWorld) -> None:
    change(world, places(world, Stored, topic="t")[-1], epoch=9)


@planted("V10")
def a_fenced_subscriber_moves_the_proxy(world: SmallWorld) -> None:
    change(world, places(world, Position, subscriber="s2")[-1], epoch=1)


@planted("V10")
def the_proxy_lets_a_fenced_subscriber_leave(world: SmallWorld) -> None:
    world.write(PROXY, ControlSeen, subscriber="s2", epoch=1)


@planted("V10")
def the_proxy_stores_under_an_epoch_that_it_grants_later(world: SmallWorld) -> None:
    change(world, places(world, Stored, topic="t")[0], epoch=2)


@planted("V2", "V11")
def a_put_with_an_unknown_outcome_stands_twice(world: SmallWorld) -> None:
    not_drained(world)
    sequence = line_at(world, places(world, Unknown, op="put")[0]).sequence
    stored = next(s for s in world.log["t"] if (s.publisher, s.sequence) == ("p2", sequence))
    append_found(world, "t", "p2", sequence, stored.crc)


@planted("V11")
def a_finished_publisher_left_an_unknown_put_behind(world: SmallWorld) -> None:
    index = places(world, Finished, target="p2")[0]
    last = line_at(world, places(world, Invoke, op="put", process="p2")[-1])
    more = replace(last, call=last.call + 1, sequence=last.sequence + 1, crcs=(1,), plan="1:0")
    world.lines.insert(index - 1, replace(more, at_ns=line_at(world, index).at_ns))


@planted("V11")
def a_transaction_with_an_unknown_outcome_stands_in_part(world: SmallWorld) -> None:
    """Its message on `t` is there, the one on `u` is not."""
    sequence = line_at(world, places(world, Unknown, op="put")[0]).sequence
    index = places(world, Invoke, op="put", process="p2", sequence=sequence)[0]
    change(world, index, transaction=1)
    here = line_at(world, index)
    there = replace(here, topic="u", call=here.call + 1000, sequence=1, crcs=(1,), plan="")
    world.lines.insert(index, there)


@planted("V12")
def a_finished_publisher_left_out_a_message_of_its_plan(world: SmallWorld) -> None:
    for index in places(world, Invoke, op="put", process="p2"):
        if line_at(world, index).plan == "0:3":
            change(world, index, plan="0:4")


@planted("V12")
def a_finished_publisher_left_out_the_end_of_its_plan(world: SmallWorld) -> None:
    index = places(world, Finished, target="p2")[0]
    change(world, index, messages=line_at(world, index).messages + 1)


@planted("V3")
def a_topic_is_another_log_for_a_reader(world: SmallWorld) -> None:
    for index in places(world, Ok, op="subscribe", process="s2"):
        change(world, index, log="another")


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


@planted("V2", "V12")
def the_next_message_of_the_plan_repeats_the_last_one(world: SmallWorld) -> None:
    change(world, places(world, Invoke, op="put", process="p1", plan="0:5")[0], plan="0:4")


@planted("V2")
def a_put_that_was_told_twice_and_failed_is_stored(world: SmallWorld) -> None:
    place = places(world, Ok, op="put", process="p2", topic="u")[0]
    line = line_at(world, place)
    world.lines[place] = Failed(
        at_ns=line.at_ns, process="p2", pid=line.pid, op="put", call=line.call, code="CONFLICT"
    )
    invoke = places(world, Invoke, op="put", process="p2", topic="u")[0]
    world.lines.insert(invoke, replace(line_at(world, invoke), epoch=1))


@planted("V3")
def the_log_ends_behind_its_last_message(world: SmallWorld) -> None:
    change(world, places(world, FoundEnd, topic="u")[0], end=2)


@planted("V3")
def two_batches_have_one_time(world: SmallWorld) -> None:
    time_ns = world.log["t"][4].timestamp_ns
    edit_everywhere(world, "t", lambda s: replace(s, timestamp_ns=time_ns) if s.offset == 5 else s)


@planted("V4")
def an_unknown_put_left_out_a_number(world: SmallWorld) -> None:
    begin_with_puts(world, "p1", "p1")
    del world.lines[places(world, Ok, op="put")[-1]]
    change(world, places(world, Invoke, op="put")[-1], sequence=3)
    edit_everywhere(world, "t", lambda s: replace(s, sequence=3) if s.sequence == 2 else s)


@planted("V4")
def a_number_is_left_out_and_there_is_no_log(world: SmallWorld) -> None:
    a_publisher_left_out_a_number(world)
    world.lines = [line for line in world.lines if line.process == "p1"]
    world.outputs.clear()


def begin_with_a_replay(world: SmallWorld, start: str, at: int) -> None:
    """Begin anew: a replay, and the end."""
    replay(world, start, at)
    world.finish()


def replay(world: SmallWorld, start: str, at: int) -> None:
    """Begin anew: five messages, and a subscriber that asks for some of them again."""
    fresh = SmallWorld()
    fresh.start_client("p1", "publisher")
    fresh.start_client("s1", "subscriber")
    fresh.subscribe("s1", "t")
    fresh.put("p1", "t", 3)
    fresh.get("s1", "t", 3)
    fresh.put("p1", "t", 2)
    fresh.subscribe("s1", "t", start=start, at=at)
    fresh.put("p1", "t")
    fresh.get("s1", "t", 6)
    vars(world).update(vars(fresh))


@pytest.mark.parametrize(
    ("start", "at"),
    [("earliest", 0), ("offset 2", 2), ("newest 3", 2), ("time 1003", 3), ("age 1", 4), ("now", 5)],
)
def test_a_replay_from_where_it_was_asked_for_is_sound(start: str, at: int) -> None:
    world = SmallWorld()
    begin_with_a_replay(world, start, at)

    assert_sound(world)


def begin_after_one_more_than_was_given(world: SmallWorld, *, is_buried: bool) -> None:
    """A subscriber dies with two of three messages, and goes on after the third."""
    fresh = SmallWorld()
    fresh.start_client("p1", "publisher")
    fresh.start_client("s1", "subscriber")
    fresh.subscribe("s1", "t")
    fresh.put("p1", "t", 3)
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
def a_replay_begins_at_another_offset(world: SmallWorld) -> None:
    begin_with_a_replay(world, "offset 2", 3)


@planted("V8")
def a_replay_from_the_earliest_leaves_the_first_out(world: SmallWorld) -> None:
    begin_with_a_replay(world, "earliest", 1)


@planted("V8")
def a_replay_of_the_newest_leaves_one_out_at_the_wrong_end(world: SmallWorld) -> None:
    begin_with_a_replay(world, "newest 3", 1)


@planted("V8")
def a_replay_from_a_time_leaves_out_what_was_taken_then(world: SmallWorld) -> None:
    begin_with_a_replay(world, "time 1003", 5)


@planted("V8")
def a_replay_from_a_time_begins_before_it(world: SmallWorld) -> None:
    begin_with_a_replay(world, "time 1003", 2)


@planted("V8")
def a_replay_from_now_on_misses_what_is_put_then(world: SmallWorld) -> None:
    begin_with_a_replay(world, "now", 6)


@planted("V8")
def a_replay_of_the_newest_leaves_one_out(world: SmallWorld) -> None:
    begin_with_a_replay(world, "newest 3", 3)


@planted("V8")
def a_replay_from_now_on_gives_what_was_over_before(world: SmallWorld) -> None:
    begin_with_a_replay(world, "now", 4)


@planted("V8")
def a_replay_behind_the_last_received_leaves_some_out(world: SmallWorld) -> None:
    replay(world, "now", 5)
    world.acknowledge("s1", "t")
    world.unsubscribe("s1", "t")
    world.put("p1", "t", 2)
    world.subscribe("s1", "t", start="last", at=8)
    world.finish()


def refuse_a_start(world: SmallWorld, start: str, code: str) -> None:
    """A replay is refused; then the world goes on."""
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


def expire(world: SmallWorld, *, session: str = "persistent", silent_ms: int = 2001) -> None:
    """The subscription of s1 has been silent; what comes behind it is up to the test."""
    replay(world, "now", 5)
    facts = {"topic": "t", "subscriber": "s1", "generation": 2, "cursor": 6}
    world.write(PROXY, Expired, **facts, session=session, lease_ms=1000, silent_ms=silent_ms)


def test_a_persistent_session_that_expired_may_go_on() -> None:
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


def go_on_with_the_next(world: SmallWorld) -> None:
    """s1 brings its place to the subscription behind the one that it knew."""
    client = world.clients["s1"]
    client.generation["t"] = 3
    place = client.place["t"]
    who, call = ("s1", client.pid), 98
    world.write(who, Invoke, op="subscribe", call=call, topic="t", cursor=place)
    facts = {"generation": 3, "cursor": place, "epoch": client.epoch}
    world.write(PROXY, Position, topic="t", subscriber="s1", active=True, **facts)
    world.write(who, Ok, op="subscribe", call=call, topic="t", log="log-of-t", **facts)


@planted("V9")
def a_clean_session_goes_on_in_silence(world: SmallWorld) -> None:
    expire(world, session="clean")
    go_on_with_the_next(world)
    world.finish()


def test_who_began_a_clean_session_anew_and_died_before_saying_so_may_go_on() -> None:
    world = SmallWorld()
    expire(world, session="clean")
    who = ("s1", world.clients["s1"].pid)
    world.write(who, Invoke, op="subscribe", call=97, topic="t", start="now")
    world.kill("s1")
    world.restart("s1")
    go_on_with_the_next(world)
    world.finish()

    assert_sound(world)


@planted("V6")
def a_program_resumes_behind_what_it_was_given(world: SmallWorld) -> None:
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


def begin_with_deaths(world: SmallWorld) -> None:
    """Begin anew: a subscriber has done offset 0, has 1 in hand, dies, and is back."""
    fresh = SmallWorld()
    fresh.start_client("p1", "publisher")
    fresh.start_client("s1", "subscriber")
    fresh.subscribe("s1", "t")
    fresh.put("p1", "t", 5)
    fresh.get("s1", "t")
    fresh.get("s1", "t")
    fresh.kill("s1")
    fresh.restart("s1")
    fresh.subscribe("s1", "t")
    vars(world).update(vars(fresh))


@planted("V6")
def a_loss_of_nothing_is_told(world: SmallWorld) -> None:
    begin_with_a_loss(world)
    index = places(world, Failed)[0]
    line = line_at(world, index)
    world.lines.insert(index, replace(line, first=0, end=0))


@planted("V6")
def a_loss_is_told_before_it_is_durable(world: SmallWorld) -> None:
    begin_with_a_loss(world)
    change(world, places(world, Trimmed)[0], at_ns=world.at_ns)


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


def begin_with_a_loss(
    world: SmallWorld, *, had: int = 0, lost: int = 3, output: bool = False
) -> None:
    """Begin anew: a topic loses what a subscriber did not have yet, and says so."""
    fresh = SmallWorld()
    fresh.start_client("p1", "publisher")
    fresh.start_client("s1", "subscriber", output=output)
    fresh.subscribe("s1", "t")
    fresh.put("p1", "t", 5)
    if had:
        fresh.get("s1", "t", had)
    fresh.trim("t", lost)
    fresh.finish()
    vars(world).update(vars(fresh))


@planted("V7")
def a_process_gets_a_lower_epoch_than_before(world: SmallWorld) -> None:
    client = world.clients["p1"]
    client.epoch = 7
    world.restart("p1")
    for kind in (Invoke, Ok):
        world.write(("p1", client.pid), kind, op="hello", call=50, epoch=5)


@planted("V12")
def the_proxy_has_one_that_unsubscribed(world: SmallWorld) -> None:
    begin_with_deaths(world)
    world.unsubscribe("s1", "t")
    world.finish()
    change(world, places(world, FoundEnd)[-1], positions={"s1": 1})


def test_a_sound_run_has_no_violation_and_every_rule_is_judged() -> None:
    verdict = assert_sound(sound_world())

    assert verdict.holds
    assert [rule.rule for rule in verdict.rules] == [f"V{n}" for n in range(1, 13)]
    assert all(rule.checked for rule in verdict.rules)
    assert not verdict.warnings


@pytest.mark.parametrize(
    ("rules", "damage"), [(r, d) for _, r, d in PLANTED], ids=[name for name, _, _ in PLANTED]
)
def test_a_planted_damage_breaks_its_rule_and_no_other(rules: set[str], damage: Damage) -> None:
    world = sound_world()

    damage(world)

    assert broken(check(world.run)) == rules, texts(check(world.run))


def test_every_rule_has_at_least_two_planted_damages() -> None:
    assert len(PLANTED) >= 25
    for number in range(1, 13):
        assert sum(f"V{number}" in rules for _, rules, _ in PLANTED) >= 2, number


# Unusual, and sound.


def test_a_put_whose_publisher_was_killed_may_stand_or_not() -> None:
    for stored in (True, False):
        world = SmallWorld()
        world.start_client("p1", "publisher")
        world.put("p1", "t")
        world.put("p1", "t", outcome="killed", stored=stored)
        world.kill("p1")
        world.audit()

        (rule,) = [rule for rule in assert_sound(world).rules if rule.rule == "V11"]

        assert rule.checked == 1


def test_a_message_may_get_another_number_before_it_is_sent() -> None:
    world = SmallWorld()
    world.start_client("p1", "publisher")
    world.put("p1", "t", 2)
    world.put("p1", "t")
    index = places(world, Invoke, op="put")[-1]
    world.lines.insert(index, replace(line_at(world, index), sequence=1))
    world.finish()

    assert_sound(world)


def test_what_is_lost_and_told_is_no_gap() -> None:
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


def test_an_answer_from_memory_is_no_fault_of_a_proxy_that_says_so() -> None:
    world = sound_world()
    a_put_is_acknowledged_before_it_is_durable(world)
    change(world, places(world, Begin, role="proxy")[0], durability="snapshot")

    assert_sound(world)


def test_an_answer_is_not_doubted_where_its_line_may_be_missing() -> None:
    """The proxy that gave it was killed; another one tells of the same later."""
    world = sound_world()
    index = places(world, Position, subscriber="s2")[2]
    del world.lines[index]
    for place, line in enumerate(world.lines[index:], start=index):
        if line.process == "proxy":
            change(world, place, pid=9)

    assert_sound(world)


def test_a_loss_is_not_doubted_where_the_last_lines_of_a_killed_proxy_may_be_missing() -> None:
    world = SmallWorld()
    begin_with_a_loss(world)
    world.trim("t", 4)
    del world.lines[places(world, Trimmed)[0]]
    change(world, places(world, Trimmed)[0], pid=9)
    change(world, places(world, FoundEnd)[0], start=4)
    edit_log(world, "t", lambda seen: seen if seen.offset >= 4 else None)

    assert_sound(world)


def test_what_everybody_had_may_be_removed() -> None:
    world = SmallWorld()
    world.start_client("p1", "publisher")
    world.start_client("s1", "subscriber")
    world.subscribe("s1", "t")
    world.put("p1", "t", 2)
    world.put("p1", "t", outcome="killed")
    world.get("s1", "t", 3)
    world.acknowledge("s1", "t")
    world.trim("t", 3)
    world.restart("p1")
    world.put("p1", "t", duplicate=True)
    change(world, places(world, Ok, op="put")[-1], offset=None)
    world.put("p1", "t")
    world.finish()

    assert_sound(world)
    world.lines = [line for line in world.lines if not isinstance(line, Stored)]
    assert_sound(world)


def test_a_fenced_publisher_hears_that_it_is_and_changes_nothing() -> None:
    world = SmallWorld()
    world.start_client("p1", "publisher")
    world.put("p1", "t", outcome="killed", stored=False)
    old = line_at(world, places(world, Invoke, op="put")[0])
    world.restart("p1")
    world.put("p1", "t")
    answer = Unknown(
        at_ns=world.at_ns, process="p1", pid=old.pid, op="put", call=old.call, code="FENCED"
    )
    world.lines.append(answer)
    world.finish()

    assert_sound(world)


def test_what_a_replaced_subscriber_still_shows_proves_nothing_and_is_told() -> None:
    world = sound_world()
    old, new = places(world, Ok, op="get", process="s2")[:2]
    late = replace(line_at(world, old), at_ns=line_at(world, new).at_ns)
    world.lines.insert(new + 1, late)

    assert "1 gets of replaced processes" in " ".join(assert_sound(world).warnings)


def test_a_subscriber_without_memory_gets_what_was_not_acknowledged_again_unmarked() -> None:
    world = SmallWorld()
    world.start_client("p1", "publisher")
    world.start_client("s1", "subscriber", remembers=False)
    world.subscribe("s1", "t")
    world.put("p1", "t", 4)
    world.get("s1", "t", 2)
    world.acknowledge("s1", "t")
    world.get("s1", "t")
    world.get("s1", "t")
    world.kill("s1")
    world.restart("s1")
    world.subscribe("s1", "t")
    world.finish()

    assert_sound(world)


def test_a_message_that_was_refused_and_put_by_a_later_life_was_not_given_up() -> None:
    """Seed 2507627: a late put of the life before had taken its number."""
    world = SmallWorld()
    world.start_client("s1", "subscriber")
    world.subscribe("s1", "t")
    p1 = world.start_client("p1", "publisher", remembers=False)
    world.put("p1", "t", outcome="killed")
    for sequence, outcome in ((1, "CONFLICT"), (2, "ok")):
        world.kill("p1")
        world.restart("p1")
        p1.under_way = ("t", sequence, 1)
        world.put("p1", "t", outcome=outcome)
    world.finish()

    assert_sound(world)


def test_a_life_without_memory_does_not_move_because_the_one_before_meant_to() -> None:
    """Seed 2507208: the SUB of a rewind was in doubt when its process died."""
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

    (subscription,) = gather(world.run).streams[("s1", "t")].subscriptions

    assert not subscription.moved


def test_an_epoch_that_a_rollback_took_replaces_nobody_behind_it() -> None:
    """Seed 2825541: the answer to HELLO came when the store had been set back."""
    world = SmallWorld()
    s1 = world.start_client("s1", "subscriber", remembers=False)
    hello = {"op": "hello", "call": 9, "epoch": 2}
    world.write(("s1", s1.pid), Invoke, **hello)
    world.write(PROXY, Granted, role="subscriber", client="s1", epoch=2)
    world.write(LAB, Event, what="rollback", target="proxy")
    world.write(("s1", s1.pid), Ok, **hello)
    world.kill("s1")
    s1.epoch = 0  # the proxy has forgotten it too
    world.restart("s1")
    world.subscribe("s1", "t")

    assert gather(world.run).streams[("s1", "t")].subscriptions != []


@pytest.mark.parametrize("set_back", [True, False])
def test_only_of_a_set_back_proxy_a_further_place_is_taken_for_an_adopted_one(
    set_back: bool,
) -> None:
    """Seed 2617921: a late copy of a SUB that was set back began it anew, behind its place."""
    world = SmallWorld()
    s1 = world.start_client("s1", "subscriber")
    world.subscribe("s1", "t")
    if set_back:
        world.write(LAB, Event, what="rollback", target="proxy")
    facts = {"op": "subscribe", "call": 9, "topic": "t", "epoch": 1}
    world.write(("s1", s1.pid), Invoke, **facts, cursor=0)
    world.write(("s1", s1.pid), Ok, **facts, log="log-of-t", generation=1, cursor=5)

    subscriptions = gather(world.run).streams[("s1", "t")].subscriptions

    assert [(one.start, one.adopted) for one in subscriptions] == (
        [(0, False), (5, True)] if set_back else [(0, False)]
    )


def test_a_power_loss_may_take_what_was_written_lazily() -> None:
    world = SmallWorld()
    world.start_client("p1", "publisher")
    world.start_client("s1", "subscriber")
    world.subscribe("s1", "t")
    world.put("p1", "t", 4)
    for _ in range(3):
        world.get("s1", "t")
    world.lose_power("s1")
    world.restart("s1")
    world.subscribe("s1", "t")
    world.finish()

    assert_sound(world)


def test_without_the_power_loss_the_same_repeat_is_a_fault() -> None:
    world = SmallWorld()
    world.start_client("p1", "publisher")
    world.start_client("s1", "subscriber")
    world.subscribe("s1", "t")
    world.put("p1", "t", 4)
    for _ in range(3):
        world.get("s1", "t")
    world.lose_power("s1")
    world.restart("s1")
    world.subscribe("s1", "t")
    world.finish()
    del world.lines[places(world, Event, what="power_loss")[0]]

    assert broken(check(world.run)) == {"V6"}


# What cannot be judged, and what was told.


def test_where_nothing_can_be_judged_it_says_why() -> None:
    verdict = check(Run(lines=[], outputs={}))

    assert verdict.holds
    assert all(rule.checked == 0 and rule.reason for rule in verdict.rules)


def test_without_an_auditor_the_lines_of_the_proxy_are_the_log_with_a_warning() -> None:
    world = sound_world()
    world.lines = [line for line in world.lines if not isinstance(line, Found | FoundEnd)]

    verdict = assert_sound(world)

    assert "may be partial" in verdict.warnings[0]
    del world.lines[places(world, Stored)[-1]]
    assert "V1" in broken(check(world.run))


def test_without_any_log_readers_are_held_against_each_other() -> None:
    world = sound_world()
    gets = [line_at(world, n) for n in places(world, Ok, op="get", process="s2")]
    world.lines = [*gets, *(replace(line, process="s3") for line in gets)]
    world.outputs.clear()
    assert_sound(world)

    change(world, 0, messages=(replace(batch(world, 0)[0], crc=1),))

    assert broken(check(world.run)) == {"V3"}


def test_an_output_without_a_history_is_still_held_to_its_order() -> None:
    world = sound_world()
    lines = [line for line in world.outputs["s1"] if line.topic == "t"]

    assert broken(check(Run(lines=[], outputs={"s1": lines[:3]}))) == set()
    assert broken(check(Run(lines=[], outputs={"s1": [lines[0], lines[2]]}))) == {"V6"}


def test_what_came_in_the_place_of_an_output_that_was_cut_off_is_not_taken_for_it() -> None:
    """Seeds 4014409 and 4023794: what was handed over, and what stands in the output, overlap."""
    world = SmallWorld()
    world.start_client("s1", "subscriber", output=True)
    world.subscribe("s1", "t")
    world.start_client("p1", "publisher")
    world.put("p1", "t", 2)
    world.get("s1", "t", 2, record=False)
    world.kill("s1")
    world.set_back("t")
    world.start_client("p2", "publisher")
    world.put("p2", "t", 4)
    world.restart("s1")
    world.subscribe("s1", "t", start="earliest", at=0)
    world.finish()

    assert "V6" not in broken(check(world.run))


def a_world_with_an_output() -> SmallWorld:
    """One who reads, and five messages; the first of them is in its output."""
    world = SmallWorld()
    world.start_client("s1", "subscriber", output=True)
    world.subscribe("s1", "t")
    world.start_client("p1", "publisher")
    world.put("p1", "t", 5)
    world.get("s1", "t")
    return world


def offsets_in_output(world: SmallWorld) -> list[int]:
    return [line.message.offset for line in world.outputs["s1"]]


def test_what_was_given_up_is_not_in_the_output_and_is_no_loss() -> None:
    world = a_world_with_an_output()
    world.reject("s1", "t")
    world.finish()

    assert offsets_in_output(world) == [0, 2, 3, 4]
    assert_sound(world)


def test_what_was_given_up_comes_in_the_output_with_a_later_subscription() -> None:
    """Seed 6013051: the one in between has no line, because all that it was given was given up."""
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


def test_what_was_not_recorded_is_cut_off_when_the_place_is_chosen_anew() -> None:
    """Seeds around 5011000: the same offset was handed over by both subscriptions."""
    world = a_world_with_an_output()
    world.get("s1", "t", record=False)
    world.subscribe("s1", "t", start="offset 1", at=1)
    world.finish()

    assert offsets_in_output(world) == [0, 1, 2, 3, 4]
    assert_sound(world)


def test_what_a_killed_life_was_given_is_not_taken_for_what_a_later_subscription_got() -> None:
    """Seed 7026111: the same offset was given three times, and stands twice in the output."""
    world = SmallWorld()
    world.start_client("s1", "subscriber", output=True)
    world.subscribe("s1", "t")
    world.start_client("p1", "publisher")
    world.put("p1", "t", 5)
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
    """Seed 8013893: two later subscriptions begin at the same place."""
    world = SmallWorld()
    world.start_client("s1", "subscriber", output=True)
    world.subscribe("s1", "t")
    world.start_client("p1", "publisher")
    world.put("p1", "t", 3)
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


def test_a_subscription_whose_first_message_was_given_up_begins_behind_it() -> None:
    """Seed 9142526: what follows there was given to a dead life of the one before, too."""
    world = SmallWorld()
    world.start_client("s1", "subscriber", output=True)
    world.subscribe("s1", "t")
    world.start_client("p1", "publisher")
    world.put("p1", "t", 7)
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


def a_world_that_has_acknowledged() -> SmallWorld:
    """One who has acknowledged three messages of five."""
    world = SmallWorld()
    world.start_client("s1", "subscriber")
    world.subscribe("s1", "t")
    world.start_client("p1", "publisher")
    world.put("p1", "t", 5)
    world.get("s1", "t", 3)
    world.acknowledge("s1", "t")
    return world


def test_a_replay_gives_again_what_was_acknowledged_marked() -> None:
    world = a_world_that_has_acknowledged()
    world.subscribe("s1", "t", start="earliest", at=0)
    world.get("s1", "t", 5)
    world.finish()

    assert_sound(world)


def test_a_replay_that_is_not_marked_is_a_fault() -> None:
    world = a_world_that_has_acknowledged()
    world.subscribe("s1", "t", start="earliest", at=0)
    world.clients["s1"].handed.clear()
    world.get("s1", "t", 5)
    world.finish()

    assert "V8" in broken(check(world.run))


def test_who_goes_on_begins_behind_what_was_acknowledged() -> None:
    world = a_world_that_has_acknowledged()
    world.subscribe("s1", "t", start="earliest", at=3, cursor=3)
    world.get("s1", "t", 2)
    world.finish()

    assert_sound(world)


def test_who_goes_on_below_what_was_acknowledged_is_a_fault() -> None:
    world = a_world_that_has_acknowledged()
    world.subscribe("s1", "t", start="earliest", at=0, cursor=3)
    world.get("s1", "t", 5)
    world.finish()

    assert "V8" in broken(check(world.run))


def a_world_without_room_for_letters() -> SmallWorld:
    """One who got three messages, and could not give up the second."""
    world = SmallWorld()
    world.start_client("s1", "subscriber")
    world.subscribe("s1", "t")
    world.start_client("p1", "publisher")
    world.put("p1", "t", 3)
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
    (line,) = [line for line in world.lines if isinstance(line, DeadLettered)]
    again = replace(line.letter, offset=1, sequence=2)
    world.log["t.dead"].append(again)
    world.lines.append(replace(line, letter=again))
    world.finish()

    assert "V2" in broken(check(world.run))


def test_another_message_at_an_offset_that_was_handed_over_is_not_that_one_again() -> None:
    """Seed 4053727: the log was set back between, and the subscriber cannot know."""
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


def test_a_rolled_back_log_is_a_loss_even_if_everybody_was_told() -> None:
    world = SmallWorld()
    world.start_client("p1", "publisher")
    world.start_client("s1", "subscriber")
    world.subscribe("s1", "t")
    world.put("p1", "t", 5)
    world.get("s1", "t", 5)
    del world.log["t"][3:]
    world.write(LAB, Event, what="rollback", target="proxy")
    for name in ("p1", "s1"):
        client = world.clients[name]
        world.write((name, client.pid), End, code="LOG_CHANGED")
    world.audit()

    verdict = check(world.run)

    assert {"V1", "V3"} <= broken(verdict)
    (text,) = [violation.text for violation in verdict.rules[0].violations]
    assert "sequence 4 to 5 acknowledged at offset 3 to 4" in text
    assert "and it was told: p1, s1 got LOG_CHANGED" in text


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        ({0, 1}, Losses("t", "p1", 6, prefix=2, middle=0, suffix=0)),
        ({2}, Losses("t", "p1", 6, prefix=0, middle=1, suffix=0)),
        ({4, 5}, Losses("t", "p1", 6, prefix=0, middle=0, suffix=2)),
        ({0, 3, 5}, Losses("t", "p1", 6, prefix=1, middle=1, suffix=1)),
        (set(range(6)), Losses("t", "p1", 6, prefix=0, middle=0, suffix=6)),
    ],
)
def test_losses_are_counted_by_where_they_stood(gone: set[int], expected: Losses) -> None:
    world = SmallWorld()
    begin_with_puts(world, *["p1"] * 6)
    edit_log(world, "t", lambda seen: None if seen.offset in gone else seen)

    verdict = check(world.run)

    assert list(verdict.losses) == [expected]
    assert verdict.first is not None
    assert verdict.first.message is not None


def test_losses_are_counted_by_subscriber_too() -> None:
    world = sound_world()
    lines = world.outputs["s1"]
    count = sum(line.topic == "t" for line in lines)
    del lines[1]

    assert list(check(world.run).losses) == [Losses("t", "s1", count, 0, 1, 0)]


# The same with whatever a small world can do.

STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(["p1", "p2"]), st.integers(1, 3)),
    st.tuples(st.just("put in doubt"), st.sampled_from(["p1", "p2"]), st.booleans()),
    st.tuples(st.just("get"), st.sampled_from(["s1", "s2", "s3"]), st.integers(1, 3)),
    st.tuples(st.just("move"), st.sampled_from(["s1", "s2", "s3"]), st.booleans()),
    st.tuples(st.just("die"), st.sampled_from(["p1", "p2", "s1", "s2", "s3"]), st.booleans()),
    st.tuples(st.just("acknowledge"), st.sampled_from(["s1", "s2", "s3"]), st.just(0)),
    st.tuples(st.just("trim"), st.just(""), st.integers(1, 5)),
)


def world_of(steps: list[tuple[str, str, Any]]) -> SmallWorld:
    """Two publishers, a subscriber with an output, one without, and one without memory."""
    world = SmallWorld()
    world.start_client("p1", "publisher")
    world.start_client("p2", "publisher")
    world.start_client("s1", "subscriber", output=True)
    world.start_client("s2", "subscriber")
    world.start_client("s3", "subscriber", remembers=False)
    world.subscribe("s1", "t")
    for step in steps:
        take(world, *step)
    world.finish()
    return world


def take(world: SmallWorld, what: str, name: str, how: Any) -> None:
    client = world.clients.get(name)
    if what == "trim":
        world.trim("t", min(world.start.get("t", 0) + how, len(world.log["t"])))
        return
    assert client is not None
    if what == "put":
        settle(world, name)
        world.put(name, "t", how)
    elif what == "put in doubt":
        settle(world, name)
        world.put(name, "t", outcome="unknown", stored=how)
    elif what == "die":
        if how and client.role == "subscriber":
            world.lose_power(name)
        else:
            world.kill(name)
        world.restart(name)
        if "t" in client.place:
            world.subscribe(name, "t")
    elif "t" not in client.place:
        world.subscribe(name, "t")
    elif what == "get":
        world.get(name, "t", how, record=how < 3)
        if client.output and how == 3:
            world.kill(name)
            world.restart(name)
            world.subscribe(name, "t")
    elif what == "move" and not client.in_hand:
        world.unsubscribe(name, "t")
    else:
        world.acknowledge(name, "t")


def settle(world: SmallWorld, name: str) -> None:
    """A publisher first sends again what is in doubt."""
    client = world.clients[name]
    if client.under_way is not None:
        sequence = client.under_way[1]
        stored = any((seen.publisher, seen.sequence) == (name, sequence) for seen in world.log["t"])
        world.put(name, "t", duplicate=stored)


@given(st.lists(STEPS, max_size=40))
def test_a_run_of_a_small_world_is_sound(steps: list[tuple[str, str, Any]]) -> None:
    assert_sound(world_of(steps))


@given(st.lists(STEPS, max_size=25), st.data())
def test_any_damage_to_one_line_of_an_output_is_caught(
    steps: list[tuple[str, str, Any]], data: st.DataObject
) -> None:
    steps = [*steps, ("put", "p1", 2), ("put", "p2", 1), ("move", "s1", True)]
    world = world_of([*steps, ("put", "p1", 3), ("get", "s1", 1)])
    lines = world.outputs["s1"]
    if len(lines) < 2:
        return
    place = data.draw(st.integers(0, len(lines) - 2))
    damage = data.draw(st.sampled_from(["remove", "remove last", "duplicate", "swap"]))
    if damage == "remove":
        del lines[place]
    elif damage == "remove last":
        del lines[-1]
    elif damage == "duplicate":
        lines.insert(place, lines[place])
    else:
        lines[place], lines[place + 1] = lines[place + 1], lines[place]

    assert not check(world.run).holds


@given(st.lists(STEPS, max_size=25), st.data())
def test_any_damage_to_one_message_of_the_log_is_caught(
    steps: list[tuple[str, str, Any]], data: st.DataObject
) -> None:
    world = world_of([*steps, ("put", "p1", 2), ("put", "p2", 1)])
    index = data.draw(st.sampled_from(places(world, Found)))
    messages = list(batch(world, index))
    place = data.draw(st.integers(0, len(messages) - 1))
    damage = data.draw(st.sampled_from(["remove", "duplicate", "change", "swap"]))
    if damage == "remove":
        del messages[place]
    elif damage == "duplicate":
        messages.insert(place, messages[place])
    elif damage == "change":
        messages[place] = replace(messages[place], crc=messages[place].crc ^ 1)
    elif len(messages) > 1:
        messages.append(messages.pop(0))
    else:
        return
    change(world, index, messages=tuple(messages))

    assert not check(world.run).holds


class TestATransaction:
    def a_world(self) -> SmallWorld:
        """One transaction over two topics, then a put."""
        world = SmallWorld()
        world.start_client("p1", "publisher")
        world.put("p1", "t", 2)
        world.put("p1", "u")
        for index in places(world, Invoke, op="put"):
            change(world, index, transaction=1)
        world.put("p1", "t")
        return world

    def test_that_is_whole_is_counted_once(self) -> None:
        world = self.a_world()
        world.finish()

        (rule,) = [rule for rule in assert_sound(world).rules if rule.rule == "V11"]

        assert rule.checked == 1

    def test_that_failed_may_give_its_number_to_the_next(self) -> None:
        world = self.a_world()
        first = places(world, Invoke, op="put", transaction=1)[0]
        line = replace(line_at(world, first), call=1000, crcs=(1,))
        world.lines[first:first] = [
            line,
            Failed(
                at_ns=line.at_ns,
                process="p1",
                pid=line.pid,
                op="put",
                call=1000,
                code="LIMIT",
                topic="t",
            ),
        ]
        world.finish()

        assert_sound(world)
