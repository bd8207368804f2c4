"""Subscriptions by pattern at QoS 0 against a real proxy: what is sent is received, each once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from reliable_pubsub import Publisher, Subscriber, aio, glob
from reliable_pubsub.lab.rig.service import RelayProcess

from .harness import BELIEVING, PATIENCE_S, Service, eventually

pytestmark = pytest.mark.filterwarnings("ignore::reliable_pubsub.QoSWarning")

HEAT = glob("site/*/heat")
TOPICS = tuple(f"site/{number}/heat" for number in range(3))


def open_publisher(service: Service) -> Publisher:
    return service.open_publisher("p", retry=BELIEVING)


def put_some(publisher: Publisher, first: int, *, count: int = 5) -> list[str]:
    """Put readings to each topic; return those that were sent."""
    sent = []
    for number in range(first, first + count):
        for topic in TOPICS:
            receipt = publisher.put(topic, f"{topic} {number}".encode(), qos=0)
            if receipt.fate == "sent":
                sent.append(f"{topic} {number}")
    return sent


def by_get(subscriber: Subscriber) -> list[str]:
    return [m.payload.decode() for m in subscriber.get(HEAT, max_messages=9, timeout_s=0.2)]


def by_loop(subscriber: Subscriber) -> list[str]:
    return [m.payload.decode() for m in subscriber.messages(HEAT, timeout_s=0.2)]


def collected(subscriber: Subscriber, count: int, read: Callable[..., list[str]]) -> list[str]:
    found: list[str] = []

    def look() -> bool:
        found.extend(read(subscriber))
        return len(found) >= count

    eventually(look, f"{count} messages")
    return found + read(subscriber)


@pytest.mark.parametrize("qos", [0, 2])
@pytest.mark.parametrize("push", [False, True])
@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("read", [by_get, by_loop])
def test_what_is_put_at_qos_0_comes_once_through_a_pattern(
    running: Service, qos: Any, push: bool, is_stored: bool, read: Callable[..., list[str]]
) -> None:
    with running.open_subscriber("s") as subscriber, open_publisher(running) as publisher:
        if is_stored:
            publisher.put(TOPICS[0], b"stored before")
        subscriber.subscribe(match=HEAT, qos=qos, push=push)

        sent = put_some(publisher, 0)
        found = collected(subscriber, 15, read)
        sent += put_some(publisher, 5)
        found += collected(subscriber, 15, read)

        assert len(sent) == 30
        assert sorted(found) == sorted(sent)
        assert sum(subscriber.unstored_counts(topic).taken for topic in TOPICS) == 30


@pytest.mark.parametrize("push", [False, True])
def test_a_topic_and_a_pattern_at_qos_0_get_each_message_once(running: Service, push: bool) -> None:
    with running.open_subscriber("s") as subscriber, open_publisher(running) as publisher:
        subscriber.subscribe(TOPICS[1], qos=0, push=push)
        subscriber.subscribe(match=HEAT, qos=0, push=push)

        sent = put_some(publisher, 0)
        found: list[str] = []

        def look() -> bool:
            found.extend(by_get(subscriber))
            some = subscriber.get(TOPICS[1], max_messages=9, timeout_s=0.1)
            found.extend(message.payload.decode() for message in some)
            return len(found) >= 15

        eventually(look, "15 messages")
        look()
        assert sorted(found) == sorted(sent)


def test_a_step_file_writes_what_a_pattern_gets_at_qos_0(running: Service) -> None:
    process = running.subscriber(
        "s",
        """
        steps:
        - {action: subscribe, match: site/*/heat, qos: 0}
        - {action: get, match: site/*/heat, number_of_times: 15, batch: 4}
        - {action: unsubscribe, match: site/*/heat}
        """,
    )
    with open_publisher(running) as publisher:
        publisher.wait_for_interest(TOPICS[0], timeout_s=PATIENCE_S)
        sent = put_some(publisher, 0)
    assert process.wait() == 0

    lines = running.output("s").read_bytes().splitlines()
    assert sorted(json.loads(line)["payload"] for line in lines) == sorted(sent)


def test_an_acknowledged_pattern_at_qos_0_that_ends_begins_with_new_messages(
    running: Service,
) -> None:
    with (
        running.open_subscriber("s") as subscriber,
        running.open_subscriber("other") as other,
        open_publisher(running) as publisher,
    ):
        subscriber.subscribe(match=HEAT, qos=0)
        other.subscribe(match=HEAT, qos=0)
        before = put_some(publisher, 0)
        collected(other, len(before), by_get)  # none of them is on its way to the proxy
        subscriber.get(HEAT, timeout_s=PATIENCE_S)
        subscriber.acknowledge(HEAT)
        subscriber.unsubscribe(HEAT)
        subscriber.subscribe(match=HEAT, qos=0)

        sent = put_some(publisher, 5)

        assert sorted(collected(subscriber, len(sent), by_get)) == sorted(sent)


def test_a_condition_holds_for_messages_at_qos_0(running: Service) -> None:
    with running.open_subscriber("s") as subscriber, open_publisher(running) as publisher:
        subscriber.subscribe(match=HEAT, where='unit = "C"', qos=0)
        for unit in ("C", "F", "C"):
            publisher.put(TOPICS[0], unit.encode(), headers={"unit": unit}, qos=0)

        assert collected(subscriber, 2, by_get) == ["C", "C"]


def test_a_message_that_no_pattern_matches_is_not_counted_as_sent(running: Service) -> None:
    """The proxy asks for a prefix, which includes more topics than the pattern."""
    with running.open_subscriber("s") as subscriber, open_publisher(running) as publisher:
        assert publisher.put("site/1/cold", b"x", qos=0).fate == "unwanted"
        subscriber.subscribe(match=HEAT, qos=0)
        eventually(lambda: publisher.put(TOPICS[1], b"x", qos=0).fate == "sent", "a listener")

        assert publisher.put("site/1/cold", b"x", qos=0).fate == "unwanted"

        subscriber.subscribe(match=glob("site/*/cold"), qos=0)
        eventually(lambda: publisher.put("site/1/cold", b"x", qos=0).fate == "sent", "a listener")
        subscriber.unsubscribe(HEAT)
        eventually(lambda: publisher.put(TOPICS[1], b"x", qos=0).fate == "unwanted", "none")


@pytest.mark.parametrize("push", [False, True])
def test_a_restart_of_the_proxy_ends_no_pattern_at_qos_0(running: Service, push: bool) -> None:
    with running.open_subscriber("s", retry=BELIEVING) as subscriber, open_publisher(running) as p:
        subscriber.subscribe(match=HEAT, qos=0, push=push)
        collected(subscriber, len(put_some(p, 0)), by_get)
        running.restart_proxy()

        def came() -> list[str]:
            p.put(TOPICS[2], b"again", qos=0)  # lost while the subscriber is not back yet
            return by_get(subscriber)

        assert set(eventually(came, "message of the new proxy")) == {"again"}


@pytest.mark.parametrize("push", [False, True])
def test_a_pattern_at_qos_0_is_delivered_through_a_relay(running: Service, push: bool) -> None:
    relay = RelayProcess(running, "r", "--upstream", running.subscriber_endpoint)
    with (
        running.open_subscriber("s", endpoint=relay.endpoint) as subscriber,
        open_publisher(running) as publisher,
    ):
        subscriber.subscribe(match=HEAT, qos=0, push=push)
        eventually(lambda: publisher.put(TOPICS[0], b"first", qos=0).fate == "sent", "a listener")
        sent = put_some(publisher, 0)

        found = collected(subscriber, 16, by_get)

        assert sorted(found) == sorted([*sent, "first"])


@pytest.mark.parametrize("push", [False, True])
def test_an_asyncio_client_gets_a_pattern_at_qos_0(running: Service, push: bool) -> None:
    async def read(publisher: Publisher) -> list[str]:
        async with aio.Subscriber("s", endpoint=running.subscriber_endpoint) as subscriber:
            await subscriber.subscribe(match=HEAT, qos=0, push=push)
            put_some(publisher, 0)
            return [
                message.payload.decode()
                async for message in subscriber.messages(HEAT, timeout_s=1.0)
            ]

    with open_publisher(running) as publisher:
        assert len(asyncio.run(read(publisher))) == 15
