"""Several proxies on one PostgreSQL database: one serves, and the next one takes over."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import closing

import pytest

from reliable_pubsub.common.core.status import Status
from reliable_pubsub.common.core.wire import encode
from reliable_pubsub.common.transport import ReqTransport
from tests.postgres import needs_postgresql, shared_server

from .harness import PATIENCE_S, Process, Service, eventually

pytestmark = needs_postgresql
MESSAGES = 400
OPTIONS = ("--ack-timeout", "0.4", "--send-retries", "1000", "--quiet")


class Pair:
    """Two proxies on one database; clients know both."""

    def __init__(self, service: Service, dsn: str) -> None:
        self.service = service
        self.dsn = dsn
        self.endpoints = [
            [service.own_endpoint() for _ in range(4)],
            [service.own_endpoint() for _ in range(4)],
        ]
        service.publisher_endpoint = ",".join(one[0] for one in self.endpoints)
        service.subscriber_endpoint = ",".join(one[1] for one in self.endpoints)

    def start(self, number: int, *options: str) -> Process:
        publishers, subscribers, push, ingress = self.endpoints[number]
        return self.service.run(
            "proxy",
            *("--data-dir", self.service.directory / f"data{number}", "--store", self.dsn),
            *("--publisher-endpoint", publishers, "--subscriber-endpoint", subscribers),
            *("--push-endpoint", push, "--ingress-endpoint", ingress, *options),
            prefix=["env"],  # a process of its own, which may replace itself
        )

    def start_both(self) -> tuple[Process, Process]:
        """The first one serves, the second one stands by."""
        first = self.start(0)
        first.ready()
        second = self.start(1)
        eventually(lambda: "standby: proxy" in second.stdout, "standby")
        return first, second

    def add_relay(self) -> None:
        """Let subscribers come in at a relay, which knows both."""
        own, push = self.service.own_endpoint(), self.service.own_endpoint()
        relay = self.service.run(
            "relay",
            *("--upstream", self.service.subscriber_endpoint),
            *("--endpoint", own, "--push-endpoint", push, "-i", "r"),
        )
        relay.ready()
        self.service.subscriber_endpoint = own

    def publish_and_get(self) -> tuple[Process, Process]:
        """A publisher and a subscriber that need more than a second."""
        subscriber = self.service.subscriber(
            "s",
            f"""
            steps:
              - {{action: subscribe, topic: t}}
              - {{action: get, topic: t, number_of_times: {MESSAGES}, batch: 5}}
            """,
            options=OPTIONS,
        )
        self.service.subscribed("t", "s")
        publisher = self.service.publisher(
            "p",
            f"""
            steps:
              - {{topic: t, message: m, number_of_times: {MESSAGES},
                 sleep_between_messages: 0.005}}
            """,
            options=OPTIONS,
        )
        eventually(lambda: self.service.line_count("s") > MESSAGES // 10, "deliveries")
        return publisher, subscriber

    def judge(self, publisher: Process, subscriber: Process) -> None:
        """Both ended well; every message is in the log once and came once, in order."""
        publisher.done()
        subscriber.done()
        expected = [b"m_%d" % number for number in range(1, MESSAGES + 1)]
        assert self.service.payloads("t") == expected
        assert self.service.line_count("s") == MESSAGES


@pytest.fixture
def pair(service: Service) -> Pair:
    return Pair(service, shared_server().new_schema())


ASKED = Status(client="asker", epoch=0, request=1)


def status_of(asking: ReqTransport, timeout_s: float) -> Sequence[bytes] | None:
    asking.send(encode(ASKED))
    return asking.receive(timeout_s)


def test_after_kill_9_of_the_one_that_serves_the_other_continues_exactly_once(pair: Pair) -> None:
    first, second = pair.start_both()
    pair.add_relay()
    clients = pair.publish_and_get()

    first.kill()

    second.ready()
    pair.judge(*clients)


def test_one_that_stands_by_reloads_when_it_serves(pair: Pair) -> None:
    settings = pair.service.file("proxy.yaml", "waiting_messages_max: 100\n")
    first = pair.start(0)
    first.ready()
    second = pair.start(1, "-f", str(settings))
    eventually(lambda: "standby: proxy" in second.stdout, "standby")

    settings.write_text("waiting_messages_max: 2\n")
    second.signal(signal.SIGHUP)
    first.kill()

    second.ready()
    eventually(lambda: "reloaded: waiting_messages_max 100 -> 2" in second.stderr, "reload")


def test_a_proxy_that_wakes_up_late_stores_nothing(pair: Pair) -> None:
    first, second = pair.start_both()
    clients = pair.publish_and_get()

    first.pause()
    second.ready()
    first.signal(signal.SIGCONT)

    eventually(lambda: "NOT_SERVING" in first.stderr, "that it notices")
    pair.judge(*clients)
    eventually(lambda: "standby: proxy" in first.stdout, "that it stands by")
    assert first.stdout.count("ready:") == 1


def test_a_proxy_that_wakes_up_late_answers_nothing(pair: Pair) -> None:
    """Not even from its memory: a question that needs no commit."""
    first, second = pair.start_both()
    with closing(ReqTransport(pair.endpoints[0][1])) as asking:
        assert status_of(asking, PATIENCE_S) is not None
        first.pause()
        asking.send(encode(ASKED))
        second.ready()
        first.signal(signal.SIGCONT)

        assert asking.receive(1.0) is None
