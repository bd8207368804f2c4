"""Publishers that ask whether there is a listener, of a real proxy and through a relay."""

from __future__ import annotations

import sys
import threading

import pytest
import zmq

from reliable_pubsub import InDoubtError, Interest, InterestChange, glob
from reliable_pubsub.common.core.limits import SUBSCRIPTIONS_ROWS_MAX
from reliable_pubsub.lab.rig.service import RelayProcess
from reliable_pubsub.publisher.core.receipt import OfferCounts

from .harness import BELIEVING, IMPATIENT, PATIENCE_S, REPOSITORY, Service, eventually
from .relay_tree import Leaf, exact

EXAMPLE = REPOSITORY / "examples" / "on_demand.py"


class TestInterest:
    def test_counts_the_subscriptions_of_a_topic_while_they_last(self, running: Service) -> None:
        with running.open_publisher("p") as publisher:
            assert not publisher.interest("t")
            with running.open_subscriber("s1") as one, running.open_subscriber("s2") as two:
                one.subscribe("t")
                two.subscribe("t", qos=0)
                two.subscribe("other")
                assert publisher.interest("t") == Interest(2, False)
                one.unsubscribe("t")
                assert publisher.interest("t") == Interest(1, False)

    def test_knows_of_subscriptions_through_a_relay(self, running: Service) -> None:
        relay = RelayProcess(running, "r", "--upstream", running.subscriber_endpoint)
        with (
            running.open_publisher("p") as publisher,
            running.open_subscriber("s", endpoint=relay.endpoint) as subscriber,
        ):
            subscriber.subscribe("t")
            assert publisher.interest("t").subscriptions == 1
            subscriber.unsubscribe("t")
            assert not publisher.interest("t")

    def test_knows_of_a_subscriber_that_is_only_pushed_to_through_a_relay(
        self, running: Service, context: zmq.Context[zmq.Socket[bytes]]
    ) -> None:
        relay = RelayProcess(running, "r", "--upstream", running.subscriber_endpoint)
        with running.open_publisher("p") as publisher:
            leaf = Leaf(context, relay.endpoint)
            leaf.want(exact("t"))
            assert publisher.wait_for_interest("t", timeout_s=PATIENCE_S) == Interest(0, True)
            leaf.want(frozenset())
            eventually(lambda: not publisher.interest("t"), "end of interest")


READER = """
import sys
from reliable_pubsub import Subscriber

endpoint, state_dir, call, topic = sys.argv[1:]
with Subscriber("other", endpoint=endpoint, state_dir=state_dir) as subscriber:
    getattr(subscriber, call)(topic)
"""


def begins(topic: str) -> InterestChange:
    return InterestChange("begins", topic, "", 2, 1)


def ends(topic: str) -> InterestChange:
    return InterestChange("ends", topic, "", 2, 0)


class TestAFeed:
    def other(self, running: Service, call: str, topic: str) -> None:
        """Call a method of a subscriber in a process of its own, which then ends."""
        command = [sys.executable, "-c", READER, running.subscriber_endpoint]
        arguments = [str(running.state_dir), call, topic]
        running.run_command(call, [*command, *arguments]).done()

    def test_sees_subscriptions_of_other_processes_begin_and_end(self, running: Service) -> None:
        with running.open_publisher("p") as publisher:
            feed = publisher.interests(every_s=0.05, timeout_s=PATIENCE_S)
            self.other(running, "subscribe", "a")
            assert next(feed) == begins("a")
            self.other(running, "subscribe", "b")
            assert next(feed) == begins("b")
            self.other(running, "unsubscribe", "a")
            assert next(feed) == ends("a")

    def test_sees_all_that_changed_around_a_kill_of_the_proxy(self, running: Service) -> None:
        with running.open_publisher("p") as publisher:
            feed = publisher.interests(every_s=0.05, timeout_s=PATIENCE_S)
            self.other(running, "subscribe", "a")
            self.other(running, "subscribe", "b")
            assert [next(feed), next(feed)] == [begins("a"), begins("b")]
            self.other(running, "unsubscribe", "a")

            running.restart_proxy()
            self.other(running, "subscribe", "c")

            assert [next(feed), next(feed)] == [ends("a"), begins("c")]
            assert list(publisher.interests(timeout_s=0)) == [begins("b"), begins("c")]

    def test_continues_after_the_proxy_was_away_for_longer_than_it_is_asked(
        self, running: Service
    ) -> None:
        with (
            running.open_publisher("p", retry=IMPATIENT) as publisher,
            running.open_subscriber("s") as subscriber,
        ):
            subscriber.subscribe("a")
            feed = publisher.interests(every_s=0.05, timeout_s=20)
            assert next(feed) == begins("a")
            subscriber.unsubscribe("a")
            running.proxy.kill()
            with pytest.raises(InDoubtError):
                next(feed)

            running.start_proxy()

            assert next(feed) == ends("a")

    def test_sees_patterns_and_groups_through_a_relay(self, running: Service) -> None:
        relay = RelayProcess(running, "r", "--upstream", running.subscriber_endpoint)
        match = glob("sensor/*/heat")
        with (
            running.open_publisher("p") as publisher,
            running.open_subscriber("s", endpoint=relay.endpoint) as subscriber,
        ):
            subscriber.subscribe(match=match)
            subscriber.subscribe("sensor/jobs", group="workers")
            feed = publisher.interests(glob("sensor/*"), timeout_s=0)

            assert list(feed) == [
                InterestChange("begins", "sensor/jobs", "workers", 2, 1),
                InterestChange("begins", match, "", 2, 1),
            ]
            publisher.put("sensor/1/heat", b"hot")
            assert list(feed) == [begins("sensor/1/heat")]

    def test_has_more_topics_than_one_answer_holds(self, running: Service) -> None:
        topics = [f"t{number:03}" for number in range(SUBSCRIPTIONS_ROWS_MAX + 5)]
        with (
            running.open_publisher("p") as publisher,
            running.open_subscriber("s") as subscriber,
        ):
            for topic in topics:
                subscriber.subscribe(topic)

            assert list(publisher.interests(timeout_s=0)) == list(map(begins, topics))


class TestWaitingForInterest:
    def test_ends_with_nothing_when_the_time_is_over(self, running: Service) -> None:
        with running.open_publisher("p") as publisher:
            assert not publisher.wait_for_interest("t", timeout_s=0.2)
            assert publisher.offer_counts == OfferCounts()

    @pytest.mark.parametrize("through_a_relay", [False, True])
    def test_ends_with_a_subscription_and_the_next_put_at_level_0_is_sent(
        self, running: Service, through_a_relay: bool
    ) -> None:
        endpoint = running.subscriber_endpoint
        if through_a_relay:
            endpoint = RelayProcess(running, "r", "--upstream", endpoint).endpoint
        found: list[object] = []

        def wait() -> None:
            with running.open_publisher("p", retry=BELIEVING) as publisher:
                found.append(publisher.wait_for_interest("t", timeout_s=PATIENCE_S))
                found.append(publisher.put("t", b"x", qos=0).fate)

        waiting = threading.Thread(target=wait)
        waiting.start()
        with running.open_subscriber("s", endpoint=endpoint) as subscriber:
            subscriber.subscribe("t", qos=0)
            assert [m.payload for m in subscriber.get("t", timeout_s=PATIENCE_S)] == [b"x"]
        waiting.join()
        assert found == [Interest(1, False), "sent"]

    def test_asks_nothing_while_nothing_changes(self, running: Service) -> None:
        with running.open_publisher("p") as publisher:
            publisher.wait_for_interest("t", timeout_s=0.01)
            before = running.status().requests_count
            assert not publisher.wait_for_interest("t", timeout_s=1.5)
            assert running.status().requests_count - before <= 12


def test_the_example_computes_only_while_there_is_a_listener(running: Service) -> None:
    command = [
        sys.executable,
        str(EXAMPLE),
        "--endpoint",
        running.publisher_endpoint,
        "--results",
        "2",
    ]
    idle = running.run_command("example", [*command, "--patience", "0.2"])
    idle.done()
    assert idle.stdout == "no listener: nothing was computed\n"

    with running.open_subscriber("s") as subscriber:
        subscriber.subscribe("primes", qos=0)
        busy = running.run_command("example", command)
        busy.done()
        found = [subscriber.get("primes", timeout_s=PATIENCE_S)[0].payload for _ in range(2)]
    assert found == [b"1000000007", b"1000000009"]
    assert busy.stdout == "computed 1000000007: sent\ncomputed 1000000009: sent\n"
