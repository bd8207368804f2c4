"""How long a run of the lab is borne in which nothing moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.common.core.steps import PublisherStep
from reliable_pubsub.lab.core.scenario import (
    AT_ONCE,
    PROXY,
    After,
    Scenario,
    ScenarioClient,
    ScenarioEvent,
)
from reliable_pubsub.lab.core.working_time import WorkingTime
from reliable_pubsub.lab.rig.director import Director

PUBLISHER = ScenarioClient(
    name="p", role="publisher", id="p", steps=(PublisherStep(topic="t"),), plan=None, start=AT_ONCE
)
SCENARIO = Scenario(
    title="it is killed, and takes long to start again",
    patience_s=4.0,
    clients={"p": PUBLISHER},
    events=(ScenarioEvent(when=After("p", 100), what="kill", targets=(PROXY,)),),
)


def a_member(name: str, role: str) -> Any:
    """A process that lives, has not begun, and has put nothing."""
    return SimpleNamespace(
        name=name,
        role=role,
        lives=1,
        waited_s=0.0,
        runs=True,
        has_begun=False,
        count=0,
        exit_code=None,
        links=(),
        look=lambda: None,
        signal=lambda _number: None,
    )


def test_a_process_that_becomes_ready_has_moved() -> None:
    """On a busy machine a proxy needs seconds for that, and its clients begin only then."""
    members = {PROXY: a_member(PROXY, "proxy"), "p": a_member("p", "publisher")}
    processes: Any = SimpleNamespace(
        members=members,
        proxy=members[PROXY],
        clients={"p": PUBLISHER},
        disk=None,
        look_for_doors=lambda: True,
    )
    moments = [(0.0, False), (1.0, False), (4.0, True), (7.0, True), (9.0, True)]
    times = iter([0.0, 0.0, *(at_s for at_s, _ in moments)])
    director = Director(
        SCENARIO, processes, Recorder(), clock=lambda: next(times), tell=lambda _text: None
    )
    phases = []
    for _, has_begun in moments:
        members[PROXY].has_begun = has_begun
        director.turn()
        phases.append(director.phase)

    assert phases == ["events", "events", "events", "events", "quiet"]


def test_time_in_which_a_process_waits_for_a_core_counts_neither_as_patience_nor_as_delay() -> None:
    """`everything-dies` on a machine with a load of 15: a start alone takes longer than that."""
    proxy = a_member(PROXY, "proxy")
    members = {PROXY: proxy, "p": a_member("p", "publisher")}
    processes: Any = SimpleNamespace(
        members=members,
        proxy=proxy,
        clients={"p": PUBLISHER},
        disk=None,
        look_for_doors=lambda: True,
    )
    moments = [(0.0, 0.0), (60.0, 58.0), (300.0, 297.0), (304.0, 297.0)]
    times = iter([0.0, 0.0, *(at_s for at_s, _ in moments)])
    director = Director(
        SCENARIO, processes, Recorder(), clock=lambda: next(times), tell=lambda _text: None
    )
    phases = []
    for _, proxy.waited_s in moments:
        director.turn()
        phases.append(director.phase)

    assert phases == ["events", "events", "events", "quiet"]


def test_what_a_new_life_has_waited_is_counted_from_its_start() -> None:
    working = WorkingTime(10.0)

    assert working.advance(14.0, {("p", 1): 3.0, ("q", 1): 1.0}) == 1.0
    assert working.advance(18.0, {("p", 2): 2.0, ("q", 1): 1.0}) == 3.0
    assert working.advance(20.0, {}) == 5.0
