"""V1, V2, V4, V5 and V11: the outcome of puts, in sound journals and in damaged ones."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from reliable_pubsub.common.core.journal import (
    Failed,
    Finished,
    Found,
    FoundEnd,
    Invoke,
    Ok,
    Seen,
    StoredLine,
    Unknown,
)
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.core.verdict import Losses

from .damage import (
    append_found,
    assert_sound,
    change,
    edit_everywhere,
    edit_log,
    line_at,
    not_drained,
    places,
)
from .planted import Damage, assert_found, planted, planted_in
from .small_world import SmallWorld
from .worlds import a_world_with_a_subscriber, begin_with_puts


@planted("V1")
def an_acknowledged_message_that_was_not_read_is_gone_from_the_end(world: SmallWorld) -> None:
    edit_log(world, "u", lambda seen: None)
    for index in places(world, FoundEnd, topic="u"):
        change(world, index, end=0)
    for index in places(world, StoredLine, topic="u"):
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
    for index in places(world, StoredLine, topic="u"):
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
    world.audit_again()


@planted("V2", "V4")
def a_message_is_stored_a_second_time(world: SmallWorld) -> None:
    not_drained(world)
    first = line_at(world, places(world, Found, topic="t")[0]).messages[0]
    append_found(world, "t", first.publisher, first.sequence, first.crc)


@planted("V2")
def a_ghost_no_publisher_put_it(world: SmallWorld) -> None:
    not_drained(world)
    last = max(s.sequence for s in world.log["t"] if s.publisher == "p1")
    append_found(world, "t", "p1", last + 1, 77)


@planted("V2")
def a_ghost_of_a_publisher_that_does_not_exist(world: SmallWorld) -> None:
    not_drained(world)
    append_found(world, "t", "unknown", 1, 77)


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


@planted("V1", "V3", "V12")
def a_reader_saw_what_the_log_does_not_have(world: SmallWorld) -> None:
    end = len(world.log["t"])
    edit_log(world, "t", lambda seen: seen if seen.offset < end - 1 else None)
    change(world, places(world, FoundEnd, topic="t")[0], end=end - 1, positions={})


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


def swap_offsets(world: SmallWorld, one: int, other: int) -> None:
    """Two messages change places, for every reader; no proxy tells when it stored them."""
    world.lines = [line for line in world.lines if not isinstance(line, StoredLine)]
    swapped = {one: world.log["t"][other], other: world.log["t"][one]}

    def content(seen: Seen) -> Seen:
        new = swapped.get(seen.offset, seen)
        return replace(seen, publisher=new.publisher, sequence=new.sequence, crc=new.crc)

    edit_everywhere(world, "t", content)
    for index in places(world, Ok, op="put"):
        offset = line_at(world, index).offset
        change(world, index, offset={one: other, other: one}.get(offset, offset))


@planted("V2", "V11")
def a_put_with_an_unknown_outcome_stands_twice(world: SmallWorld) -> None:
    not_drained(world)
    sequence = line_at(world, places(world, Unknown, op="put")[0]).sequence
    stored = next(s for s in world.log["t"] if (s.publisher, s.sequence) == ("p2", sequence))
    append_found(world, "t", "p2", sequence, stored.crc)


@planted("V11")
def a_finished_publisher_left_an_unknown_put(world: SmallWorld) -> None:
    index = places(world, Finished, target="p2")[0]
    last = line_at(world, places(world, Invoke, op="put", process="p2")[-1])
    more = replace(last, call=last.call + 1, sequence=last.sequence + 1, crcs=(1,), plan="1:0")
    world.lines.insert(index - 1, replace(more, at_ns=line_at(world, index).at_ns))


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


def test_what_all_subscribers_had_may_be_removed() -> None:
    world = a_world_with_a_subscriber(2)
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
    world.lines = [line for line in world.lines if not isinstance(line, StoredLine)]
    assert_sound(world)


def test_a_message_that_was_refused_and_put_by_a_later_life_was_not_given_up() -> None:
    """A late put of the life before had taken its number."""
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


@planted_in(__name__)
def test_a_planted_damage_breaks_its_rule_and_no_other(rules: set[str], damage: Damage) -> None:
    assert_found(damage, rules)
