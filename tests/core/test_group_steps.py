"""Groups in step files: keys, and a plan that dies anywhere between a message and its end."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.plan_mark import PlanMark, mark_of
from reliable_pubsub.common.core.step_file import parse_subscriber_steps
from reliable_pubsub.common.core.steps import SubscriberStep, describe
from reliable_pubsub.common.yaml_file import parse_yaml
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.client import Subscriber
from reliable_pubsub.subscriber.output import OutputFile
from reliable_pubsub.subscriber.runner import SubscriberRun
from tests.fakes import Disk, FakeClock, FakeTransport, Link, MemoryProxy, a_world, groups_of

JOIN = "{action: subscribe, topic: jobs, group: workers, lease: 10, from: earliest}"


def steps_of(*steps: str) -> tuple[SubscriberStep, ...]:
    text = "steps:\n" + "".join(f"- {step}\n" for step in steps)
    return parse_subscriber_steps(parse_yaml(text, "x.yaml"))


def test_a_step_joins_a_group_and_others_say_how_its_messages_are_settled() -> None:
    join, back, bury, leave = steps_of(
        "{action: subscribe, topic: t, group: g, lease: 5, max_deliveries: 3, ordered_by: key}",
        "{action: get, topic: t, settle: nack, delay: 2}",
        "{action: get, topic: t, settle: reject, on_empty: skip}",
        "{action: unsubscribe, topic: t, ends_group: true}",
    )

    assert (join.group, join.ordered_by, join.lease_s, join.max_deliveries) == ("g", "key", 5, 3)
    assert [row.detail for row in describe([join, back, bury, leave])] == [
        "group g, ordered by key, lease 5 s, max_deliveries 3",
        "wait, nack for 2 s",
        "skip, reject",
        "ends the group",
    ]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (["{action: subscribe, topic: t, group: a_b}"], "group: found 'a_b'"),
        (["{action: subscribe, topic: t, ordered_by: key}"], "found without group"),
        (["{action: subscribe, topic: t, group: g, qos: 1}"], "qos: found beside group"),
        (["{action: subscribe, topic: t, group: g, push: true}"], "push: found beside group"),
        (["{action: subscribe, topic: t, group: g, session: clean}"], "session: found beside"),
        (["{action: get, topic: t, settle: nack}"], "settle: found without a group"),
        (
            [
                "{action: subscribe, topic: t, group: g}",
                "{action: subscribe, topic: t}",
                "{action: unsubscribe, topic: t, ends_group: true}",
            ],
            "ends_group: found without a group",
        ),
        (
            ["{action: subscribe, topic: t, group: g}", "{action: get, topic: t, delay: 1}"],
            "delay: found without settle: nack",
        ),
    ],
)
def test_what_does_not_fit_together_is_named(steps: list[str], expected: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        steps_of(*steps)

    assert expected in str(caught.value)


class Killed(Exception):
    """The process dies here."""


class House:
    """A proxy with messages, and processes that run one plan each."""

    def __init__(self, folder: Path, *payloads: bytes) -> None:
        self.folder = folder
        self.proxy = MemoryProxy()
        self.clock = self.proxy.clock = FakeClock()
        self.proxy.tick(now_s=0.0)
        self.disks: dict[str, Disk] = {}
        Publisher("p", _world=a_world(Link(self.proxy))).put_many("jobs", payloads)

    def run(self, name: str, *steps: str, dies_at: int | None = None, finishes: bool = True) -> int:
        """Run a plan, from where it was; die in the pause that comes as the n-th."""
        disk = self.disks.setdefault(name, Disk())
        transport = FakeTransport(Link(self.proxy), self.clock)
        subscriber = Subscriber(name, _world=a_world(transport, self.clock, disk))
        plan = steps_of(*steps)
        mark = mark_of(subscriber.note) or PlanMark("digest", len(plan))
        output = OutputFile(self.folder / name, mark.output_bytes)
        pauses = 0

        def sleep(seconds: float) -> None:
            nonlocal pauses
            pauses += 1
            if pauses == dies_at:
                raise Killed
            self.pass_time(seconds)

        told: list[str] = []
        try:
            SubscriberRun(
                subscriber,
                plan,
                output,
                sleep=sleep,
                advance=lambda count, what: None,
                warn=lambda error: told.append(error.code),
            ).run(mark)
            subscriber.close()
        except Killed:
            subscriber.abandon()
        finally:
            output.close()
        assert told == []
        return pauses

    def pass_time(self, seconds: float) -> None:
        self.clock.time_s += seconds
        self.proxy.tick(now_s=self.proxy.now_s + seconds)

    def written(self, name: str) -> list[int]:
        lines = (self.folder / name).read_bytes().splitlines()
        return [msgspec.json.decode(line)["offset"] for line in lines]

    @property
    def cursor(self) -> int:
        return self.proxy.state.topics["jobs"].subscriptions["group:workers"].cursor


def test_a_member_writes_its_messages_before_it_acknowledges_them(tmp_path: Path) -> None:
    house = House(tmp_path, b"a", b"b", b"c")
    get = "{action: get, topic: jobs, number_of_times: 3, sleep_between: 1}"
    house.run("w1", JOIN, get, dies_at=2)
    assert (house.written("w1"), house.cursor) == ([0, 1], 1)  # b is written, and still held

    house.pass_time(10.0)
    house.run("w2", JOIN, "{action: get, topic: jobs, number_of_times: 2}")

    assert (house.written("w2"), house.cursor) == ([1, 2], 3)


def test_a_plan_that_continues_is_a_member_again(tmp_path: Path) -> None:
    house = House(tmp_path, b"a", b"b")
    plan = (JOIN, "{action: get, topic: jobs, number_of_times: 3, sleep_between: 1}")
    house.run("w1", *plan, dies_at=1)

    house.run("w1", *plan)

    assert house.written("w1") == [0, 0, 1]  # a was held, and its end not known
    assert house.cursor == 2


def test_messages_are_given_back_and_rejected_unwritten(tmp_path: Path) -> None:
    house = House(tmp_path, b"a", b"b")
    house.run(
        "w1",
        JOIN,
        "{action: get, topic: jobs, settle: nack}",
        "{action: get, topic: jobs, settle: reject}",
        "{action: get, topic: jobs}",
        "{action: unsubscribe, topic: jobs, ends_group: true}",
    )

    assert house.written("w1") == [1]
    assert house.proxy.state.topics["jobs.dead"].end == 1
    assert not groups_of(house.proxy.state, "jobs")
