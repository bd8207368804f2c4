"""`unique`: processes of one program need no ids of their own, and use up no limit."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from reliable_pubsub import (
    Earliest,
    InDoubtError,
    InvalidNameError,
    Publisher,
    Subscriber,
    UsageError,
    aio,
)

from .harness import IMPATIENT, NOWHERE, Service


def of(service: Service) -> dict[str, Any]:
    return {"endpoint": service.publisher_endpoint}


def stored(service: Service, topic: str = "t") -> list[bytes]:
    with service.open_subscriber("judge") as judge:
        return [message.payload for message in judge.history(topic, max_messages=10_000)]


class TestAPublisherWithoutAnId:
    def test_that_ends_without_a_goodbye_uses_up_no_client_of_the_proxy(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RELIABLE_PUBSUB_CLIENTS_MAX", "6")
        monkeypatch.setenv("RELIABLE_PUBSUB_PUBLISHERS_PER_TOPIC_MAX", "2")
        service.start_proxy()
        for number in range(30):
            abandoned = Publisher.unique("web", **of(service))
            abandoned.put("t", b"%d" % number)
            if number % 2:
                with abandoned.transaction() as both:
                    both.put("u", b"%d" % number)
            abandoned._opened.asker.close()  # as by `kill -9`

        assert stored(service) == [b"%d" % number for number in range(30)]
        assert len(stored(service, "u")) == 15

    def test_is_made_by_many_threads_together(self, service: Service, tmp_path: Path) -> None:
        service.start_proxy()

        def put(number: int) -> str:
            with Publisher.unique("web", state_dir=tmp_path, **of(service)) as one:
                one.put("t", b"%d" % number)
                return one.client

        with ThreadPoolExecutor(8) as pool:
            ids = list(pool.map(put, range(40)))

        assert len(set(ids)) <= 8
        assert sorted(stored(service), key=int) == [b"%d" % number for number in range(40)]

    def test_with_a_state_continues_what_another_process_left_in_doubt(
        self, service: Service, tmp_path: Path
    ) -> None:
        first = Publisher.unique("web", state_dir=tmp_path, endpoint=NOWHERE, retry=IMPATIENT)
        second = Publisher.unique("web", state_dir=tmp_path, endpoint=NOWHERE)
        assert first.client != second.client
        service.start_proxy()
        second.close()
        first.close()

        with Publisher(first.client, state_dir=tmp_path, **of(service)) as one:
            one.put("t", b"1")
        cut_off = Publisher(first.client, state_dir=tmp_path, endpoint=NOWHERE, retry=IMPATIENT)
        cut_off._engine.session.connected = True  # its link breaks after its session began
        cut_off._engine.session.met.add("t")
        with pytest.raises(InDoubtError):
            cut_off.put("t", b"2")
        cut_off.close()
        clients = [Publisher.unique("web", state_dir=tmp_path, **of(service)) for _ in range(2)]
        assert {one.client for one in clients} == {first.client, second.client}
        for one in clients:
            one.resume()
            one.close()

        assert stored(service) == [b"1", b"2"]

    def test_says_how_long_its_name_may_be(self) -> None:
        with pytest.raises(InvalidNameError, match="at most 40 characters"):
            Publisher.unique("w" * 41)

    def test_is_made_for_asyncio_as_well(self, service: Service) -> None:
        service.start_proxy()

        async def program() -> str:
            async with aio.Publisher.unique("web", **of(service)) as one:
                await one.put("t", b"1")
                return one.client

        assert asyncio.run(program()).startswith("web.unique-")
        assert stored(service) == [b"1"]


class TestASubscriberWithoutAnId:
    def test_is_a_member_of_a_group(self, service: Service) -> None:
        service.start_proxy()
        members = [
            Subscriber.unique("worker", endpoint=service.subscriber_endpoint) for _ in range(2)
        ]
        for one in members:
            one.subscribe("t", group="workers", start=Earliest)
        with service.open_publisher("p") as publisher:
            publisher.put_many("t", [b"%d" % number for number in range(10)])

        taken = [message.payload for one in members for message in one.get("t", max_messages=5)]
        for one in members:
            one.close()

        assert sorted(taken) == [b"%d" % number for number in range(10)]

    def test_begins_no_subscription_that_would_be_kept_for_good(self) -> None:
        with (
            Subscriber.unique("viewer", endpoint=NOWHERE) as one,
            pytest.raises(UsageError, match="joins a group or begins a clean session"),
        ):
            one.subscribe("t")
