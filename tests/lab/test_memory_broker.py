"""`MemoryBroker`: the ordinary clients work with it, and its faults are those of the real one."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from reliable_pubsub import (
    Admin,
    InDoubtError,
    LeaseLostError,
    Publisher,
    RetryPolicy,
    Subscriber,
    UsageError,
    aio,
)
from reliable_pubsub.testing import MemoryBroker


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    with MemoryBroker() as broker, broker.serving():
        yield broker


def payloads(subscriber: Subscriber, topic: str = "t") -> list[bytes]:
    return [message.payload for message in subscriber.messages(topic, timeout_s=60)]


def test_ordinary_clients_put_and_get_without_an_endpoint(broker: MemoryBroker) -> None:
    with Publisher("p") as publisher, Subscriber.unique("s") as subscriber:
        subscriber.subscribe("t", session="clean")
        publisher.put_many("t", [b"a", b"b"])
        with publisher.transaction() as both:
            both.put("t", b"c")
            both.put("u", b"d")
        with publisher.stream() as stream:
            stream.put("t", b"e")

        assert payloads(subscriber) == [b"a", b"b", b"c", b"e"]
        assert subscriber.topics() == ("t", "u")


def test_a_wait_takes_no_time_but_that_of_the_broker(broker: MemoryBroker) -> None:
    begin_s = broker.now_s()

    with Subscriber("s") as subscriber:
        subscriber.subscribe("t")
        assert subscriber.get("t", timeout_s=60) == []

    assert broker.now_s() - begin_s >= 60


@pytest.mark.parametrize("loss", ["request", "answer"])
def test_a_put_is_stored_once_if_its_request_or_answer_is_lost(
    broker: MemoryBroker, loss: str
) -> None:
    with Publisher("p") as publisher, Subscriber("s") as subscriber:
        subscriber.subscribe("t")
        (broker.lose_next_answer if loss == "answer" else broker.lose_next_request)("PUT")

        assert publisher.put("t", b"a").duplicate is (loss == "answer")

        assert payloads(subscriber) == [b"a"]


def test_a_put_that_is_repeated_after_a_year_is_stored_once(
    broker: MemoryBroker, tmp_path: Path
) -> None:
    with suppress(InDoubtError), Publisher("p", state_dir=tmp_path) as publisher:
        publisher.put("t", b"before")
        broker.lose_next_answer("PUT")
        publisher.put("t", b"a", timeout_s=1)
    broker.advance(366 * 24 * 3600)
    broker.restart()

    with Publisher("p", state_dir=tmp_path) as publisher:
        receipt = publisher.resume()

    assert receipt is not None
    assert (receipt.offset, receipt.duplicate) == (1, True)


def test_a_call_whose_answers_are_all_lost_is_in_doubt(broker: MemoryBroker) -> None:
    with Publisher("p", retry=RetryPolicy(retries_max=1)) as publisher:
        broker.lose_next_answer("PUT")
        broker.lose_next_answer("PUT")

        with pytest.raises(InDoubtError):
            publisher.put("t", b"a")


def test_a_verb_that_does_not_exist_is_refused_with_the_closest_one(broker: MemoryBroker) -> None:
    with pytest.raises(UsageError, match="PUT"):
        broker.lose_next_answer("PUTT")


def test_what_was_acknowledged_outlives_a_restart(broker: MemoryBroker) -> None:
    with Publisher("p") as publisher, Subscriber("s") as subscriber:
        subscriber.subscribe("t")
        subscriber.subscribe("jobs", group="g", max_deliveries=3)
        publisher.put_many("t", [b"a", b"b"])
        publisher.put("jobs", b"c")
        (first,) = subscriber.get("t")
        broker.restart()

        assert first.payload == b"a"
        assert payloads(subscriber) == [b"b"]
        assert payloads(subscriber, "jobs") == [b"c"]
        assert publisher.put("t", b"d").offset == 2


def test_a_client_that_died_resumes_from_its_state(broker: MemoryBroker, tmp_path: Path) -> None:
    with Publisher("p") as publisher:
        with suppress(ZeroDivisionError), Subscriber("s", state_dir=tmp_path) as dying:
            dying.subscribe("t")
            publisher.put_many("t", [b"a", b"b"])
            assert dying.get("t")
            raise ZeroDivisionError

        with Subscriber("s", state_dir=tmp_path) as subscriber:
            (again,) = subscriber.get("t")

    assert (again.payload, again.redelivered) == (b"a", True)


def test_an_acknowledgement_after_the_lease_is_fenced(broker: MemoryBroker) -> None:
    with Publisher("p") as publisher, Subscriber("s1") as late, Subscriber("s2") as other:
        for member in (late, other):
            member.subscribe("jobs", group="g", lease_s=30)
        publisher.put("jobs", b"a")
        assert late.get("jobs")
        broker.advance(31)
        assert other.get("jobs", timeout_s=60)

        with pytest.raises(LeaseLostError):
            late.acknowledge("jobs")


def test_a_thread_gets_what_another_puts(broker: MemoryBroker) -> None:
    got: list[bytes] = []
    with Publisher("p") as publisher, Subscriber("s") as subscriber:
        subscriber.subscribe("t")
        taking = threading.Thread(
            target=lambda: got.extend(one.payload for one in subscriber.get("t", timeout_s=600))
        )
        taking.start()
        publisher.put("t", b"a")
        taking.join()

    assert got == [b"a"]


def test_the_clients_of_asyncio_work_too(broker: MemoryBroker) -> None:
    async def main() -> list[bytes]:
        async with aio.Publisher("p") as publisher, aio.Subscriber("s") as subscriber:
            await subscriber.subscribe("t")
            taking = asyncio.create_task(subscriber.get("t", timeout_s=600))
            await asyncio.sleep(0)
            await publisher.put("t", b"a")
            broker.restart()
            await publisher.put("t", b"b")
            first = [message.payload for message in await taking]
            rest = subscriber.messages("t", timeout_s=0)
            return [*first, *[message.payload async for message in rest]]

    assert asyncio.run(main()) == [b"a", b"b"]


def test_an_operator_can_act_on_it(broker: MemoryBroker) -> None:
    with Publisher("p") as publisher, Admin() as admin:
        publisher.put("t", b"a")

        assert [topic.topic for topic in admin.topics()] == ["t"]


def test_what_needs_a_socket_is_refused_with_the_way_out(broker: MemoryBroker) -> None:
    with Publisher("p") as publisher, Subscriber("s") as subscriber:
        with pytest.raises(UsageError, match="ProcessBroker"):
            subscriber.subscribe("t", push=True)
        with pytest.raises(UsageError, match="ProcessBroker"):
            publisher.put("t", b"a", qos=0)


def test_clients_reach_the_real_broker_again_after_the_block() -> None:
    with MemoryBroker() as broker, broker.serving():
        pass

    with (
        Publisher("p", endpoint="tcp://127.0.0.1:1") as publisher,
        pytest.raises(InDoubtError),
    ):
        publisher.put("t", b"a", timeout_s=0.01)


def test_the_example_of_the_page_passes(broker: MemoryBroker) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "testing.md"
    (block,) = re.findall(r"(?ms)^```python\n(.*?)^```", page.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    exec(block, names)

    names["test_a_message_is_stored_once_if_the_answer_is_lost"](broker)
