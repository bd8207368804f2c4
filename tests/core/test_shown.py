"""What the commands show while they work: each message that was put, and what a get waits for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reliable_pubsub import ProxyUnreachableError, RetryPolicy, Subscriber
from reliable_pubsub.common.core.plan_mark import PlanMark
from reliable_pubsub.common.core.steps import SubscriberStep
from reliable_pubsub.publisher.core.receipt import Receipt
from reliable_pubsub.publisher.runner import SENT_EVERY, SENT_LINES_MAX, Sent
from reliable_pubsub.subscriber.output import Shown
from reliable_pubsub.subscriber.runner import SILENT_S, SubscriberRun
from tests.fakes import Disk, FakeClock, FakeTransport, Link, MemoryProxy, a_world


def a_receipt(first: int, count: int, **more: object) -> Receipt:
    return Receipt("topic1", "fig3", first, count, first - 1, "sync", False, **more)  # type: ignore[arg-type]


class TestWhatWasPut:
    def test_is_shown_message_by_message_as_a_subscriber_shows_it(self) -> None:
        lines: list[str] = []
        sent = Sent(lines.append, total=3)

        sent.put(a_receipt(1, 2), [b"Topic1 Msg_1", b"\x1b[31m"])
        sent.put(a_receipt(3, 1, qos=0, fate="unwanted"), [b"x" * 300])

        assert lines == [
            "sent topic1 0 fig3_1: Topic1 Msg_1",
            "sent topic1 1 fig3_2: U+001B[31m",
            f"unwanted topic1 2 fig3_3: {'x' * 200}...",
        ]

    def test_is_counted_after_the_first_messages(self) -> None:
        lines: list[str] = []
        sent = Sent(lines.append, total=1_000_000)

        for first in range(0, 3 * SENT_EVERY, 1_000):
            sent.put(a_receipt(first + 1, 1_000), [b"x"] * 1_000)

        assert len(lines) == SENT_LINES_MAX + 3
        assert lines[-1] == "sent 30,000 of 1,000,000 messages"


class TestAGetThatFindsNothing:
    STEPS = (
        SubscriberStep(action="subscribe", topic="t"),
        SubscriberStep(action="get", topic="t", number_of_times=2, timeout_s=60.0),
    )

    def run(self, retry: RetryPolicy | None = None, script: str = "") -> Sequence[str]:
        clock = FakeClock()
        told: list[str] = []
        transport = FakeTransport(Link(MemoryProxy(), script), clock)
        subscriber = Subscriber("s", retry=retry, _world=a_world(transport, clock, Disk()))
        at: list[float] = []

        def tell(line: str) -> None:
            told.append(line)
            at.append(clock.time_s)

        run = SubscriberRun(
            subscriber,
            self.STEPS,
            Shown(print, 0),
            sleep=clock.sleep,
            advance=lambda *_: None,
            warn=print,
            tell=tell,
        )
        with pytest.raises(Exception, match=r"no message on topic|no answer"):
            run.run(PlanMark("digest"))
        assert all(SILENT_S <= moment_s <= SILENT_S + 5 for moment_s in at)
        return told

    def test_says_once_what_it_waits_for(self) -> None:
        (line,) = self.run()

        assert line.startswith(
            "waiting: steps[1] waits for message 1 of 2 of topic 't' (on_empty: wait)"
        )

    def test_gives_up_after_the_retries_of_the_command_however_long_it_waits(self) -> None:
        subscriber_retry = RetryPolicy(retries_max=1)

        assert self.run(subscriber_retry, "..." + ">" * 9) == []


def test_the_error_of_such_a_get_is_the_one_of_the_retries() -> None:
    clock = FakeClock()
    transport = FakeTransport(Link(MemoryProxy(), "...>>"), clock)
    once = RetryPolicy(retries_max=1)
    subscriber = Subscriber("s", retry=once, _world=a_world(transport, clock, Disk()))
    subscriber.subscribe("t")
    subscriber.get("t")

    with pytest.raises(ProxyUnreachableError) as error:
        subscriber._get_by_retries("t", 1, float("inf"))
    assert (error.value.attempts, error.value.timeout_s) == (2, None)
