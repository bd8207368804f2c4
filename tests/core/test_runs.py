"""A run of steps against the broker: requests, messages and pauses are those that the steps say."""

from __future__ import annotations

from pathlib import Path

from reliable_pubsub.common.core.plan_mark import begin_plan
from reliable_pubsub.common.core.requests import Put
from reliable_pubsub.common.core.step_file import parse_publisher_steps, parse_subscriber_steps
from reliable_pubsub.common.core.wire import decode_request
from reliable_pubsub.common.yaml_file import parse_yaml
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.publisher.runner import PublisherPlan, run_publisher
from reliable_pubsub.subscriber.client import Subscriber
from reliable_pubsub.subscriber.output import Shown
from reliable_pubsub.subscriber.runner import SubscriberRun
from tests.fakes import FakeClock, FakeTransport, Link, MemoryProxy, a_broker, a_world

PUTS = """
steps:
  - {topic: a, message: m, number_of_times: 5, batch: 2, sleep_between_messages: 1, sleep_after: 3}
  - {topic: b, message: n, number_of_times: 2, numbered: false, sleep_after: 4}
"""
GETS = """
steps:
  - {action: subscribe, topic: t, from: earliest, sleep_after: 1}
  - {action: get, topic: t, number_of_times: 5, batch: 2, sleep_between: 2, sleep_after: 3}
  - {action: get, topic: t, number_of_times: 2, on_empty: skip, sleep_after: 4}
  - {action: unsubscribe, topic: t, sleep_after: 5}
"""


class Run:
    """What a run of one client did."""

    def __init__(self, proxy: MemoryProxy) -> None:
        self.clock = FakeClock()
        self.transport = FakeTransport(Link(proxy), self.clock)
        self.world = a_world(self.transport, self.clock)
        self.pauses: list[float] = []  # between requests, not in them

    def publish(self, text: str) -> None:
        plan = PublisherPlan(parse_publisher_steps(parse_yaml(text, "f.yaml")), Path("f.yaml"))
        mark = begin_plan(None, plan.digest, steps=len(plan.steps), again=False, file="f.yaml")
        with Publisher("p", _world=self.world) as publisher:
            run_publisher(
                publisher, plan, mark, sleep=self.pauses.append, advance=lambda count, what: None
            )

    def subscribe(self, text: str) -> list[str]:
        """Gives what was shown."""
        steps = parse_subscriber_steps(parse_yaml(text, "f.yaml"))
        mark = begin_plan(None, "digest", steps=len(steps), again=False, file="f.yaml")
        shown: list[str] = []
        with Subscriber("s", _world=self.world) as subscriber:
            SubscriberRun(
                subscriber,
                steps,
                Shown(shown.append, 0),
                sleep=self.pauses.append,
                advance=lambda count, what: None,
                warn=lambda error: None,
            ).run(mark)
        return shown

    def puts(self) -> list[tuple[str, int]]:
        """Topic and number of messages of each PUT."""
        requests = (decode_request(frames)[0] for frames in self.transport.sent)
        return [(one.topic, one.count) for one in requests if isinstance(one, Put)]


def test_a_publisher_puts_what_its_steps_say_in_requests_and_with_pauses_that_they_say() -> None:
    """Row 1.6."""
    run = Run(a_broker())

    run.publish(PUTS)

    assert run.puts() == [("a", 2), ("a", 2), ("a", 1), ("b", 1), ("b", 1)]
    assert run.pauses == [1, 1, 3, 4]


def test_a_subscriber_gets_as_many_at_once_and_pauses_as_long_as_its_steps_say() -> None:
    """Row 1.7: a get that may skip ends without a message if none is there."""
    proxy = a_broker()
    for sequence in range(1, 6):
        proxy.put(sequence)
    run = Run(proxy)

    shown = run.subscribe(GETS)

    assert [line.partition(": ")[2] for line in shown] == ["m1", "m2", "m3", "m4", "m5"]
    assert run.pauses == [1, 2, 2, 3, 4, 5]
    assert proxy.state.topics["t"].subscriptions["s"].active is False


def test_the_messages_of_a_topic_are_numbered_through_all_steps_that_put_to_it() -> None:
    """Row 1.10."""
    run = Run(a_broker())

    run.publish(
        "steps: [{topic: t, message: a, number_of_times: 2}, {topic: other, message: o}, "
        "{topic: t, message: b}]"
    )

    shown = run.subscribe(
        "steps: [{action: subscribe, topic: t, from: earliest}, "
        "{action: get, topic: t, number_of_times: 3}]"
    )
    assert [line.partition(": ")[2] for line in shown] == ["a_1", "a_2", "b_3"]
