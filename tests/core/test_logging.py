"""What the library says of itself through `logging`: names, levels, and facts as attributes."""

from __future__ import annotations

import logging

import pytest

from reliable_pubsub import Earliest, ProxyUnreachableError, Publisher, RetryPolicy, Subscriber
from reliable_pubsub.common.core.answers import Busy
from reliable_pubsub.common.core.errors import TryLaterError
from reliable_pubsub.common.core.wire import decode_request, encode
from tests.fakes import Disk, FakeClock, FakeTransport, Link, MemoryProxy, a_world

PUBLISHERS = "tcp://127.0.0.1:5555"  # the default
ONCE = RetryPolicy(retries_max=1)
Logged = pytest.LogCaptureFixture


def a_publisher(link: Link, *, state: Disk | None = None, adopts: bool = False) -> Publisher:
    return Publisher(
        "p",
        retry=ONCE,
        on_log_changed="adopt" if adopts else "stop",
        _world=a_world(link, state=state),
    )


def a_subscriber(link: Link, *, state: Disk | None = None) -> Subscriber:
    clock = FakeClock()
    transport = FakeTransport(link, clock)
    return Subscriber(
        "s",
        _world=a_world(transport, clock, state),
        on_lower_qos=lambda *_: None,
        on_log_changed="rewind",
    )


def levels(caplog: Logged) -> set[str]:
    return {record.levelname for record in caplog.records}


def test_a_put_that_goes_well_is_logged_at_debug_and_its_session_at_info(caplog: Logged) -> None:
    with caplog.at_level(logging.DEBUG, "reliable_pubsub"):
        a_publisher(Link(MemoryProxy())).put("t", b"a")

    assert {record.name for record in caplog.records} == {"reliable_pubsub.publisher"}
    assert levels(caplog) == {"DEBUG", "INFO"}
    asks, answered = (record for record in caplog.records if record.__dict__.get("verb") == "PUT")
    facts = {"client": "p", "topic": "t", "epoch": 1, "endpoint": PUBLISHERS, "attempt": 0}
    assert facts.items() <= asks.__dict__.items()
    assert "PUT on 't', request" in asks.getMessage()
    assert answered.getMessage().endswith("is answered PutAck")
    assert "p: begins session 1" in caplog.messages


def test_nothing_is_logged_above_info_of_what_goes_well(caplog: Logged) -> None:
    link = Link(MemoryProxy())
    with caplog.at_level(logging.WARNING, "reliable_pubsub"):
        subscriber = a_subscriber(link)
        subscriber.subscribe("t")
        a_publisher(link).put("t", b"a")
        subscriber.get("t")
        subscriber.close()

    assert not caplog.records


def test_an_outage_is_one_warning_and_its_end_another(caplog: Logged) -> None:
    link = Link(MemoryProxy())
    publisher = a_publisher(link)
    publisher.put("t", b"a")

    with caplog.at_level(logging.INFO, "reliable_pubsub"):
        link.script(">>")
        with pytest.raises(ProxyUnreachableError):
            publisher.put("t", b"b")
        link.script(">")
        publisher.resume()

    warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert warned == [
        f"p: no answer from {PUBLISHERS} to PUT for 2 s; the call keeps asking for up to 2 s more. "
        "Is the proxy running? `reliable-pubsub proxy` starts it",
        f"p: {PUBLISHERS} answers again",
    ]
    tried = [r.__dict__ for r in caplog.records if "is not answered" in r.getMessage()]
    assert [(one["verb"], one["attempt"], one["attempts"]) for one in tried] == [
        *(("PUT", 1, 2), ("PUT", 2, 2), ("PUT", 1, 2)),
    ]


def test_an_outage_that_the_program_reports_itself_is_no_warning(caplog: Logged) -> None:
    heard: list[int] = []
    publisher = Publisher(
        "p",
        retry=ONCE,
        on_silence=lambda _endpoint, attempt, _attempts: heard.append(attempt),
        _world=a_world(Link(MemoryProxy(), "..>")),
    )
    with caplog.at_level(logging.WARNING, "reliable_pubsub"):
        publisher.put("t", b"a")

    assert heard == [1, 0]
    assert not caplog.records


def test_short_attempts_are_an_outage_together(caplog: Logged) -> None:
    quick = RetryPolicy(timeout_s=0.5, retries_max=9, pause_s=0.0)
    publisher = Publisher("p", retry=quick, _world=a_world(Link(MemoryProxy(), ">" * 3)))
    with caplog.at_level(logging.WARNING, "reliable_pubsub"):
        publisher.connect()
        assert not caplog.records

        publisher = Publisher("q", retry=quick, _world=a_world(Link(MemoryProxy(), ">" * 4)))
        publisher.connect()

    assert len(caplog.records) == 2


def test_a_long_attempt_is_an_outage_before_it_ends(caplog: Logged) -> None:
    patient = RetryPolicy(timeout_s=60.0, retries_max=0)
    clock = FakeClock()
    publisher = Publisher("p", retry=patient, _world=a_world(lambda _: None, clock))
    waits: list[float] = []
    logging.getLogger("reliable_pubsub.publisher").addFilter(
        keep := lambda record: waits.append(clock.time_s) or True  # type: ignore[func-returns-value]
    )
    with caplog.at_level(logging.WARNING, "reliable_pubsub"), pytest.raises(ProxyUnreachableError):
        publisher.connect()
    logging.getLogger("reliable_pubsub.publisher").removeFilter(keep)

    assert waits == [2.0]


def test_a_proxy_that_answers_not_now_for_long_is_one_warning(caplog: Logged) -> None:
    def full(frames: object) -> list[bytes]:
        request, _ = decode_request(frames)  # type: ignore[arg-type]
        client, epoch, number = request.client, request.epoch, request.request
        busy = Busy(client=client, epoch=epoch, request=number, boot="boot-1", text="no room")
        return list(encode(busy, None))

    often = RetryPolicy(retries_max=8)
    publisher = Publisher("p", retry=often, _world=a_world(full, FakeClock()))
    with caplog.at_level(logging.INFO, "reliable_pubsub"), pytest.raises(TryLaterError):
        publisher.connect()

    warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len(warned) == 1
    assert "answers HELLO with BUSY (no room)" in warned[0]
    assert [r.__dict__["attempt"] for r in caplog.records if "is answered" in r.getMessage()] == [
        *range(1, 10)
    ]


def test_a_proxy_that_forgot_the_session_is_logged_at_info(caplog: Logged) -> None:
    link = Link(MemoryProxy())
    publisher = a_publisher(link)
    publisher.put("t", b"a")
    link.proxy = MemoryProxy()

    with caplog.at_level(logging.INFO, "reliable_pubsub"), pytest.raises(Exception, match="log"):
        publisher.put("t", b"b")

    assert any("is forgotten by the proxy" in message for message in caplog.messages)


def test_adopted_numbering_is_a_warning(caplog: Logged) -> None:
    disk, link = Disk(), Link(MemoryProxy())
    publisher = a_publisher(link, state=disk)
    publisher.put_many("t", [b"a", b"b"])

    with caplog.at_level(logging.WARNING, "reliable_pubsub"):
        a_publisher(Link(MemoryProxy()), state=disk, adopts=True).put("t", b"c")

    (record,) = caplog.records
    assert "adopts the numbering of the proxy: sequence 2 was the last" in record.getMessage()
    assert record.__dict__["topic"] == "t"


def test_a_lower_level_than_asked_for_is_logged_beside_its_python_warning(caplog: Logged) -> None:
    link = Link(MemoryProxy())
    a_publisher(link).put("t", b"a", qos=1)
    subscriber = a_subscriber(link)
    subscriber.subscribe("t", start=Earliest)

    with caplog.at_level(logging.INFO, "reliable_pubsub"):
        subscriber.get("t")

    (record,) = (one for one in caplog.records if "puts at QoS 1" in one.getMessage())
    assert record.name == "reliable_pubsub.subscriber"
    assert "'p' puts at QoS 1" in record.getMessage()


def test_a_place_taken_in_another_log_is_a_warning(caplog: Logged) -> None:
    link = Link(MemoryProxy())
    a_publisher(link).put("t", b"a")
    subscriber = a_subscriber(link, state=Disk())
    subscriber.subscribe("t", start=Earliest)
    link.proxy = MemoryProxy()
    a_publisher(link).put("other", b"a")
    a_publisher(link).put("t", b"b")

    with caplog.at_level(logging.WARNING, "reliable_pubsub"):
        subscriber.get("t", max_messages=9)

    assert "begins at earliest (rewind)" in caplog.text
