"""A run that is cut by topics is judged as a whole one: the verdicts of its parts add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from reliable_pubsub.common.core.journal import (
    AdministeredLine,
    Begin,
    CreatedLine,
    Failed,
    Found,
    FoundEnd,
    GrantedLine,
    Invoke,
    Ok,
    Seen,
    StoredLine,
)
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.core.parts import PARTS_MAX, Sketch, cut, together, topic_of_line
from reliable_pubsub.lab.core.run import LabRun, OutputLine
from reliable_pubsub.lab.core.verdict import Verdict

from .planted import Damage, all_planted, with_each
from .side_by_side import side_by_side
from .small_world import AUDITOR, PROXY, SmallWorld, sound_world


def sketches_of(run: LabRun) -> list[Sketch]:
    """A file for each process, and one for each output."""
    sketches: dict[str, Sketch] = {}
    for line in run.lines:
        sketches.setdefault(line.process, Sketch()).take(line)
    for name, lines in run.outputs.items():
        sketch = sketches.setdefault(f"{name}.out", Sketch())
        sketch.take_output(name, Counter(line.topic for line in lines))
    return list(sketches.values())


def parts_of(run: LabRun) -> Mapping[str, int]:
    shared = [line for line in run.lines if not topic_of_line(line)]
    return cut(shared, sketches_of(run), {})


def by_parts(run: LabRun) -> Verdict:
    """The verdict that parts give together."""
    parts = parts_of(run)
    shared = [line for line in run.lines if not topic_of_line(line)]
    nothing: dict[str, Sequence[OutputLine]] = dict.fromkeys(run.outputs, ())
    verdicts = []
    for part in sorted(set(parts.values())):
        lines = [line for line in run.lines if parts.get(topic_of_line(line), part) == part]
        outputs = {
            name: [entry for entry in some if parts[entry.topic] == part]
            for name, some in run.outputs.items()
        }
        verdicts.append(check(LabRun(lines=lines, outputs=outputs)))
    return together(check(LabRun(lines=shared, outputs=nothing)), verdicts)


def in_any_order(verdict: Verdict) -> list[Any]:
    rules = [
        (one.rule, one.title, one.checked, one.reason, sorted(map(repr, one.violations)))
        for one in verdict.rules
    ]
    return [rules, sorted(map(repr, verdict.losses)), sorted(verdict.warnings)]


@with_each(all_planted())
def test_parts_judge_each_planted_damage_as_one_checker_does(
    rules: set[str], damage: Damage
) -> None:
    world = sound_world()
    damage(world)
    run = side_by_side([sound_world(), world]).run

    assert in_any_order(by_parts(run)) == in_any_order(check(run))


def two_topics() -> SmallWorld:
    """A publisher puts on each; no one says who was expected to finish."""
    world = SmallWorld()
    for name, topic in (("p1", "t"), ("p2", "u")):
        world.start_client(name, "publisher")
        world.put(name, topic, 2)
    return world


def test_topics_of_which_nothing_is_said_together_are_parts_of_their_own() -> None:
    world = two_topics()
    world.audit()

    assert sorted(parts_of(world.run).values()) == [0, 1]


def test_topics_of_one_output_are_together_so_that_a_story_can_number_its_lines() -> None:
    world = two_topics()
    world.outputs["s"] = [OutputLine(topic, world.log[topic][0]) for topic in ("t", "u")]
    world.audit()

    assert set(parts_of(world.run).values()) == {0}


def test_there_are_no_more_parts_than_a_bound_and_they_are_about_as_large_as_each_other() -> None:
    world = SmallWorld()
    world.start_client("p", "publisher")
    for number in range(PARTS_MAX + 50):
        world.put("p", f"t{number}")
    world.put("p", "large", 500)

    parts = parts_of(world.run)

    assert set(parts.values()) == set(range(PARTS_MAX))
    assert sum(part == parts["large"] for part in parts.values()) == 1
    assert max(Counter(parts.values()).values()) == 2


def a_plan_over_both(world: SmallWorld) -> None:
    world.put("p1", "u")
    world.finish()


def a_plan_on_each_of_which_one_is_not_whole(world: SmallWorld) -> None:
    world.clients["p1"].planned += 1
    world.finish()


def a_transaction(world: SmallWorld) -> None:
    """It is stored in part: on one topic, and not on the other."""
    client = world.clients["p1"]
    for topic, sequence in (("t", 3), ("u", 1)):
        who, facts = ("p1", client.pid), {"op": "put", "call": 9, "transaction": 1}
        world.write(who, Invoke, **facts, topic=topic, epoch=1, sequence=sequence, crcs=(5,))
    seen = Seen(2, "p1", 3, 5, 2_000)
    world.log["t"].append(seen)
    world.write(PROXY, StoredLine, topic="t", epoch=1, messages=(seen,))
    world.audit()


def a_topic_without_a_log(world: SmallWorld) -> None:
    world.put("p1", "v", 3)
    world.lines = [
        line
        for line in world.lines
        if not (isinstance(line, StoredLine | CreatedLine | Found) and line.topic == "v")
    ]
    for topic in ("t", "u"):
        seen = tuple(world.log[topic])
        world.write(AUDITOR, Found, topic=topic, messages=seen)
        world.write(AUDITOR, FoundEnd, topic=topic, start=0, end=len(seen), positions={})


def an_epoch_that_was_used_before(world: SmallWorld) -> None:
    for topic in ("t", "u"):
        seen = Seen(2, "p1", 3, 5, 2_000)
        world.write(PROXY, StoredLine, topic=topic, epoch=2, messages=(seen,))
    world.write(PROXY, GrantedLine, role="publisher", client="p1", epoch=2)


def a_told_change_of_the_log(world: SmallWorld) -> None:
    world.write(("s", 9), Begin, role="subscriber", wall_ns=0)
    facts = {"op": "get", "call": 1, "topic": "t", "code": "LOG_CHANGED"}
    world.write(("s", 9), Failed, **facts)
    world.put("p2", "u")
    world.log["u"].pop()
    world.audit()


def an_action_of_an_operator(world: SmallWorld) -> None:
    world.write(PROXY, AdministeredLine, number=1, action="pause")
    world.put("p2", "u")
    world.audit()


def an_operator_who_removes_one_topic_and_not_the_other(world: SmallWorld) -> None:
    world.write(PROXY, AdministeredLine, number=1, action="truncate", topic="t", end=1)
    world.trim("t", 1)
    world.put("p2", "u")
    world.audit()


def a_life_whose_begin_is_missing(world: SmallWorld) -> None:
    world.lines = [line for line in world.lines if not isinstance(line, Begin)]
    a_put_on_one_topic_that_stands_in_another(world)


def a_proxy_that_has_granted_nothing(world: SmallWorld) -> None:
    """And of one topic it does not say that it begins later than it did."""
    world.lines = [line for line in world.lines if not isinstance(line, GrantedLine | StoredLine)]
    world.trim("u", 1)
    world.start["t"] = 1
    world.audit()


def a_letter(world: SmallWorld) -> None:
    world.start_client("s", "subscriber")
    world.subscribe("s", "t", start="offset 0", at=0)
    world.reject("s", "t")
    world.log["t.dead"].clear()
    world.audit()


def a_put_on_one_topic_that_stands_in_another(world: SmallWorld) -> None:
    world.log["u"].append(Seen(2, "p1", 3, 5, 2_000))
    world.audit()


def an_answer_without_its_put(world: SmallWorld) -> None:
    for topic, name in (("t", "p1"), ("u", "p2")):
        facts = {"op": "put", "call": 77, "topic": topic, "sequence": 9, "count": 1}
        world.write((name, world.clients[name].pid), Ok, **facts)


@pytest.mark.parametrize(
    "tells",
    [
        a_plan_over_both,
        a_plan_on_each_of_which_one_is_not_whole,
        a_transaction,
        a_topic_without_a_log,
        an_epoch_that_was_used_before,
        a_told_change_of_the_log,
        an_action_of_an_operator,
        an_operator_who_removes_one_topic_and_not_the_other,
        a_life_whose_begin_is_missing,
        a_proxy_that_has_granted_nothing,
        a_letter,
        a_put_on_one_topic_that_stands_in_another,
        an_answer_without_its_put,
    ],
)
def test_what_is_said_of_several_topics_is_judged_as_by_one_checker(
    tells: Callable[[SmallWorld], None],
) -> None:
    world = two_topics()
    tells(world)

    assert in_any_order(by_parts(world.run)) == in_any_order(check(world.run))
