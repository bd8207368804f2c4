"""V3, V7 and V10: one value for an offset, nothing goes back, no fenced process has an effect."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from reliable_pubsub.common.core.journal import (
    ControlSeenLine,
    CreatedLine,
    Event,
    FoundEnd,
    GrantedLine,
    Invoke,
    Ok,
    PositionLine,
    StoredLine,
    Unknown,
)
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.core.indexing import index_run
from reliable_pubsub.lab.core.run import OutputLine

from .damage import assert_sound, batch, broken, change, edit_everywhere, edit_log, line_at, places
from .planted import Damage, assert_found, planted, planted_in
from .small_world import LAB, PROXY, SmallWorld, sound_world
from .worlds import begin_with_puts


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
    index = places(world, StoredLine, topic="u")[0]
    change(world, index, messages=(replace(line_at(world, index).messages[0], crc=5),))


@planted("V3")
def the_log_has_a_hole_that_was_not_acknowledged(world: SmallWorld) -> None:
    begin_with_puts(world, "p1", "p2", "p1")
    del world.lines[places(world, Ok, op="put", process="p2")[0]]
    del world.lines[places(world, StoredLine)[1]]
    edit_log(world, "t", lambda seen: None if seen.offset == 1 else seen)


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
    last = line_at(world, places(world, StoredLine, topic="t")[-1])
    again = tuple(replace(seen, timestamp_ns=0) for seen in last.messages)
    world.lines.append(replace(last, at_ns=world.at_ns, messages=again))


@planted("V3")
def the_proxy_left_out_an_offset_that_was_removed_since(world: SmallWorld) -> None:
    begin_with_puts(world, "p1", "p2", "p1")
    del world.lines[places(world, Ok, op="put", process="p2")[0]]
    del world.lines[places(world, StoredLine)[1]]
    world.trim("t", 3)
    world.audit_again()


@planted("V3")
def a_topic_is_created_twice(world: SmallWorld) -> None:
    world.write(PROXY, CreatedLine, topic="t", log="log-of-t")


@planted("V7")
def a_cursor_of_the_proxy_goes_back(world: SmallWorld) -> None:
    index = places(world, PositionLine, subscriber="s2")[-1]
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
    index = places(world, GrantedLine, client="s2")[-1]
    world.lines.insert(index + 1, replace(line_at(world, index), at_ns=line_at(world, index).at_ns))


@planted("V7")
def two_processes_have_the_same_epoch(world: SmallWorld) -> None:
    first, second = places(world, Ok, op="hello", process="s2")
    change(world, second, epoch=line_at(world, first).epoch)


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
    index = places(world, StoredLine, topic="t")[-1]
    change(world, index, epoch=1)


@planted("V10")
def the_proxy_stores_under_an_epoch_that_no_process_has(world: SmallWorld) -> None:
    change(world, places(world, StoredLine, topic="t")[-1], epoch=9)


@planted("V10")
def a_fenced_subscriber_moves_the_proxy(world: SmallWorld) -> None:
    change(world, places(world, PositionLine, subscriber="s2")[-1], epoch=1)


@planted("V10")
def the_proxy_lets_a_fenced_subscriber_leave(world: SmallWorld) -> None:
    world.write(PROXY, ControlSeenLine, subscriber="s2", epoch=1)


@planted("V10")
def the_proxy_stores_under_an_epoch_that_it_grants_later(world: SmallWorld) -> None:
    change(world, places(world, StoredLine, topic="t")[0], epoch=2)


@planted("V3")
def a_topic_is_another_log_for_a_reader(world: SmallWorld) -> None:
    for index in places(world, Ok, op="subscribe", process="s2"):
        change(world, index, log="another")


@planted("V3")
def the_log_ends_after_its_last_message(world: SmallWorld) -> None:
    change(world, places(world, FoundEnd, topic="u")[0], end=2)


@planted("V3")
def two_batches_have_one_time(world: SmallWorld) -> None:
    time_ns = world.log["t"][4].timestamp_ns
    edit_everywhere(world, "t", lambda s: replace(s, timestamp_ns=time_ns) if s.offset == 5 else s)


@planted("V7")
def a_process_gets_a_lower_epoch_than_before(world: SmallWorld) -> None:
    client = world.clients["p1"]
    client.epoch = 7
    world.restart("p1")
    for kind in (Invoke, Ok):
        world.write(("p1", client.pid), kind, op="hello", call=50, epoch=5)


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


@pytest.mark.parametrize(("match", "found"), [("glob ?", set()), ("", {"V10"})])
def test_a_fenced_subscriber_may_learn_of_a_topic_of_its_pattern_and_begins_none(
    match: str, found: set[str]
) -> None:
    """The answer to its FETCH, which shows the new topic, comes when it has been replaced."""
    world = SmallWorld()
    s1 = world.start_client("s1", "subscriber")
    old = ("s1", s1.pid)
    world.write(old, Invoke, op="match", call=2, epoch=1, match="glob ?")
    world.write(old, Ok, op="match", call=2, epoch=1)
    world.topic("t")
    place = {"topic": "t", "epoch": 1, "generation": 1, "cursor": 0}
    world.write(PROXY, PositionLine, subscriber="s1", active=True, **place)
    world.restart("s1")
    call = {"op": "subscribe", "call": 3}
    world.write(old, Invoke, topic="t", epoch=1, match=match, **call)
    world.write(old, Ok, log="log-of-t", **place, **call)

    assert broken(check(world.run)) == found


def test_an_epoch_that_a_rollback_took_replaces_no_process_after_it() -> None:
    """The answer to HELLO came when the store had been set back."""
    world = SmallWorld()
    s1 = world.start_client("s1", "subscriber", remembers=False)
    hello = {"op": "hello", "call": 9, "epoch": 2}
    world.write(("s1", s1.pid), Invoke, **hello)
    world.write(PROXY, GrantedLine, role="subscriber", client="s1", epoch=2)
    world.write(LAB, Event, what="rollback", target="proxy")
    world.write(("s1", s1.pid), Ok, **hello)
    world.kill("s1")
    s1.epoch = 0  # the proxy has forgotten it too
    world.restart("s1")
    world.subscribe("s1", "t")

    assert index_run(world.run).streams[("s1", "t")].subscriptions != []


def test_without_any_log_readers_are_held_against_each_other() -> None:
    world = sound_world()
    gets = [line_at(world, n) for n in places(world, Ok, op="get", process="s2")]
    world.lines = [*gets, *(replace(line, process="s3") for line in gets)]
    world.outputs.clear()
    assert_sound(world)

    change(world, 0, messages=(replace(batch(world, 0)[0], crc=1),))

    assert broken(check(world.run)) == {"V3"}


@planted_in(__name__)
def test_a_planted_damage_breaks_its_rule_and_no_other(rules: set[str], damage: Damage) -> None:
    assert_found(damage, rules)
