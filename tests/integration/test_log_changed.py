"""A proxy that is not the one it was: replaced by an empty one, or set back to an older copy.

Never a guess (rule R14): stop, or do what the caller chose, and say so.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Literal

import pytest

from reliable_pubsub import LogChangedError, Publisher, RetryPolicy, Subscriber

from .harness import BELIEVING, PATIENCE_S, STUBBORN, Service

Choice = Literal["stop", "rewind", "adopt"]
Spoil = Callable[[Service], None]


def replaced(service: Service) -> None:
    """Another, empty data directory at the same address; another publisher has put two messages."""
    assert service.proxy.terminate() == 0
    shutil.rmtree(service.data_dir)
    service.start_proxy()
    with service.open_publisher("other") as other:
        other.put_many("t", [b"o1", b"o2"])


def set_back(service: Service) -> None:
    """The copy that was made when there were two messages."""
    assert service.proxy.terminate() == 0
    shutil.rmtree(service.data_dir)
    shutil.copytree(service.directory / "copy", service.data_dir)
    service.start_proxy()


def set_back_and_overtaken(service: Service) -> None:
    """The same, and by now other messages stand at the offsets that are gone."""
    set_back(service)
    with service.open_publisher("other") as other:
        other.put_many("t", [b"o%d" % number for number in range(9)])


CHANGES = [replaced, set_back, set_back_and_overtaken]


@pytest.fixture
def grown(service: Service) -> Service:
    """A topic of five messages, a copy of the store with two; `p` put and `s` got all of them."""
    service.start_proxy()
    with an_s(service, "stop") as subscriber, a_p(service, "stop") as publisher:
        subscriber.subscribe("t")
        publisher.put_many("t", [b"1", b"2"])
        assert service.proxy.terminate() == 0
        shutil.copytree(service.data_dir, service.directory / "copy")
        service.start_proxy()
        for number in (3, 4, 5):
            publisher.put("t", b"%d" % number)
        assert len(subscriber.get("t", max_messages=2, timeout_s=PATIENCE_S)) == 2
        assert len(subscriber.get("t", max_messages=9, timeout_s=PATIENCE_S)) == 3
    return service


def an_s(service: Service, choice: Choice) -> Subscriber:
    return service.open_subscriber("s", state_dir=service.state_dir, on_log_changed=choice)


def a_p(service: Service, choice: Choice, retry: RetryPolicy = STUBBORN) -> Publisher:
    return service.open_publisher(
        "p", state_dir=service.state_dir, on_log_changed=choice, retry=retry
    )


@pytest.mark.parametrize("change", CHANGES)
def test_a_publisher_stops_and_sends_nothing(change: Spoil, grown: Service) -> None:
    change(grown)
    before = grown.payloads("t")

    with a_p(grown, "stop") as publisher, pytest.raises(LogChangedError) as stopped:
        publisher.put("t", b"6")

    assert "adopt" in str(stopped.value)
    assert grown.payloads("t") == before


@pytest.mark.parametrize("change", CHANGES)
def test_a_publisher_that_adopts_continues_with_the_numbers_of_the_proxy(
    change: Spoil, grown: Service
) -> None:
    change(grown)
    before = grown.payloads("t")

    with a_p(grown, "adopt") as publisher:
        receipt = publisher.put("t", b"6")
        assert receipt.first_sequence == (1 if change is replaced else 3)
        assert publisher.put("t", b"7").offset == len(before) + 1

    assert grown.payloads("t") == [*before, b"6", b"7"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_running_publisher_notices_a_change_under_its_feet(change: Spoil, grown: Service) -> None:
    with a_p(grown, "stop") as publisher:
        publisher.put("t", b"6")
        change(grown)
        before = grown.payloads("t")
        with pytest.raises(LogChangedError):
            publisher.put("t", b"7")

    assert grown.payloads("t") == before


@pytest.mark.parametrize("change", CHANGES)
def test_a_subscriber_stops(change: Spoil, grown: Service) -> None:
    change(grown)

    with an_s(grown, "stop") as subscriber:
        with pytest.raises(LogChangedError) as stopped:
            subscriber.get("t")
        assert "rewind" in str(stopped.value)
        assert "adopt" in str(stopped.value)
        with pytest.raises(LogChangedError):  # and again: stopping decides nothing
            subscriber.subscribe("t")


@pytest.mark.parametrize("change", CHANGES)
def test_a_subscriber_that_rewinds_reads_the_log_from_its_start(
    change: Spoil, grown: Service
) -> None:
    change(grown)
    stored = grown.payloads("t")

    with an_s(grown, "rewind") as subscriber:
        messages = subscriber.get("t", max_messages=100)

        assert [message.payload for message in messages] == stored
        assert [message.offset for message in messages] == list(range(len(stored)))
        assert subscriber.get("t") == []


@pytest.mark.parametrize("change", CHANGES)
def test_a_subscriber_that_adopts_continues_after_the_end(change: Spoil, grown: Service) -> None:
    change(grown)
    end = len(grown.payloads("t"))

    with an_s(grown, "adopt") as subscriber:
        assert subscriber.get("t") == []
        with grown.open_publisher("other") as other:
            other.put("t", b"new")
        (message,) = subscriber.get("t", timeout_s=PATIENCE_S)
        assert (message.offset, message.payload) == (end, b"new")


@pytest.mark.parametrize("change", CHANGES)
def test_a_running_subscriber_notices_a_change_under_its_feet(
    change: Spoil, grown: Service
) -> None:
    with an_s(grown, "stop") as subscriber:
        assert subscriber.get("t") == []
        change(grown)
        with pytest.raises(LogChangedError):
            subscriber.get("t", timeout_s=1)


@pytest.fixture
def outdated(grown: Service) -> Service:
    """The state of both clients is a copy from before the sixth message."""
    copy = grown.directory / "old-state"
    shutil.copytree(grown.state_dir, copy)
    with an_s(grown, "stop") as subscriber, a_p(grown, "stop") as publisher:
        publisher.put("t", b"6")
        subscriber.get("t", timeout_s=PATIENCE_S)
    shutil.rmtree(grown.state_dir)
    shutil.copytree(copy, grown.state_dir)
    return grown


@pytest.mark.parametrize("payload", [b"6", b"another"])
def test_a_publisher_whose_state_is_an_older_copy_loses_nothing_that_is_put_then(
    outdated: Service, payload: bytes
) -> None:
    """Equal content too: under the number that the old state would give it, it is a duplicate."""
    before = outdated.payloads("t")
    with a_p(outdated, "stop", BELIEVING) as publisher:
        receipt = publisher.put("t", payload)

    assert (receipt.first_sequence, receipt.duplicate) == (7, False)
    assert outdated.payloads("t") == [*before, payload]


def test_a_subscriber_whose_state_is_an_older_copy_stops(outdated: Service) -> None:
    with an_s(outdated, "stop") as subscriber, pytest.raises(LogChangedError):
        subscriber.get("t")
    with an_s(outdated, "adopt") as subscriber:
        assert subscriber.get("t") == []


def test_the_commands_stop_with_exit_code_4_and_adopt_when_asked_to(grown: Service) -> None:
    replaced(grown)
    put_one = "steps: [{topic: t, message: new}]"
    get_one = "steps: [{action: subscribe, topic: t}, {action: get, topic: t}]"

    for process in (grown.publisher("p", put_one), grown.subscriber("s", get_one)):
        assert process.wait() == 4
        assert "LOG_CHANGED" in process.stderr
        assert "adopt" in process.stderr
    subscriber = grown.subscriber("s", get_one, "--on-log-changed", "rewind")
    subscriber.done()
    grown.publisher("p", put_one, "--on-log-changed", "adopt").done()

    assert '"payload":"o1"' in grown.output("s").read_text()
    assert grown.payloads("t") == [b"o1", b"o2", b"new_1"]
