"""A bound of what waits for one subscription, against a real proxy."""

from __future__ import annotations

import pytest

from reliable_pubsub import LostError, TryLaterError

from .harness import IMPATIENT, PATIENCE_S, Service


def start(service: Service, on_bound: str) -> None:
    """A proxy in which three messages may wait for a subscription of topic t."""
    settings = f"topics: {{t: {{waiting_messages_max: 3, on_bound: {on_bound}}}}}\n"
    journal = service.directory / "journals"
    journal.mkdir()
    service.start_proxy(
        "-f", service.file("proxy.yaml", settings), "--journal", journal / "proxy.jsonl"
    )


def test_a_slow_subscriber_learns_what_it_lost_and_the_checker_agrees(service: Service) -> None:
    start(service, "lose_oldest")
    folder = service.directory / "journals"
    with (
        service.open_subscriber("s", journal=folder / "s.jsonl") as subscriber,
        service.open_publisher("p", journal=folder / "p.jsonl") as publisher,
    ):
        subscriber.subscribe("t")
        for number in range(5):
            publisher.put("t", b"%d" % number)
        service.restart_proxy()
        with pytest.raises(LostError, match="more than the 3 that may wait") as lost:
            subscriber.get("t")
        assert (lost.value.first, lost.value.end, lost.value.waiting_max) == (0, 2, 3)
        messages = subscriber.get("t", max_messages=9, timeout_s=PATIENCE_S)
        assert [message.payload for message in messages] == [b"2", b"3", b"4"]
    check = service.run("", "lab", "check", folder)
    assert check.wait() == 0, check.stdout


def test_a_publisher_waits_for_a_slow_subscriber(service: Service) -> None:
    start(service, "reject")
    with (
        service.open_subscriber("s") as subscriber,
        service.open_publisher("p", retry=IMPATIENT) as publisher,
    ):
        subscriber.subscribe("t")
        for number in range(3):
            publisher.put("t", b"%d" % number)
        with pytest.raises(TryLaterError, match="messages wait for 's'") as full:
            publisher.put("t", b"3")
        assert full.value.code == "FULL"
        subscriber.get("t", timeout_s=PATIENCE_S)
        subscriber.acknowledge("t")
        publisher.resume()
    assert service.payloads("t") == [b"0", b"1", b"2", b"3"]
