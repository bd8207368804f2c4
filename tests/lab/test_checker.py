"""The checker as a whole: sound runs, what cannot be judged, and any damage to a small run.

Each rule has a file of its own beside this one.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from reliable_pubsub.common.core.journal import End, Event, Found, FoundEnd, StoredLine
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.core.run import LabRun

from .damage import assert_sound, batch, broken, change, places
from .planted import all_planted
from .small_world import LAB, SmallWorld, sound_world
from .worlds import a_world_with_a_subscriber


def test_a_sound_run_has_no_violation_and_every_rule_is_judged() -> None:
    verdict = assert_sound(sound_world())

    assert verdict.holds
    assert [rule.rule for rule in verdict.rules] == [f"V{n}" for n in range(1, 14)]
    *judged, of_groups = verdict.rules  # that world has no group: see test_rules_of_groups.py
    assert all(rule.checked for rule in judged)
    assert of_groups.reason == "no client was in a group"
    assert not verdict.warnings


def test_every_rule_has_at_least_two_planted_damages() -> None:
    for number in range(1, 13):
        assert sum(f"V{number}" in rules for rules, _ in all_planted()) >= 2, number


def test_where_nothing_can_be_judged_it_says_why() -> None:
    verdict = check(LabRun(lines=[], outputs={}))

    assert verdict.holds
    assert all(rule.checked == 0 and rule.reason for rule in verdict.rules)


def test_without_an_auditor_the_lines_of_the_proxy_are_the_log_with_a_warning() -> None:
    world = sound_world()
    world.lines = [line for line in world.lines if not isinstance(line, Found | FoundEnd)]

    verdict = assert_sound(world)

    assert "may be partial" in verdict.warnings[0]
    del world.lines[places(world, StoredLine)[-1]]
    assert "V1" in broken(check(world.run))


def test_a_rolled_back_log_is_a_loss_even_if_it_was_reported_to_all() -> None:
    world = a_world_with_a_subscriber(5)
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
    assert "and it was reported: p1, s1 got LOG_CHANGED" in text


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
