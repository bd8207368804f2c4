"""`reliable-pubsub status` for people: what a table shows on a narrow terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from msgspec.structs import replace
from rich.console import Console

from reliable_pubsub.common.core.message_base import Terms
from reliable_pubsub.common.core.status import (
    ConnectionsStatus,
    PublisherStatus,
    PushStatus,
    StatusReport,
    SubscriptionStatus,
    TopicStatus,
)
from reliable_pubsub.proxy.status_command import view


def report(name: str) -> StatusReport:
    subscription = SubscriptionStatus(
        subscriber=f"{name}-subscriber",
        generation=1,
        terms=Terms(session="clean", lease_ms=60_000),
        state="suspended",
        silent_s=3_600.0,
        cursor=1_234_567_890,
        lag_messages=1_234_567,
        lag_s=86_400.0,
    )
    publisher = PublisherStatus(
        publisher=f"{name}-publisher", qos=2, last_sequence=1_234_567_890, last_offset=1_234_567_889
    )
    topic = TopicStatus(
        topic=f"{name}-topic",
        log="log",
        start=0,
        end=1_234_567_890,
        stored_bytes=2**31,
        subscriptions=(subscription,),
        subscriptions_left_out=0,
        publishers=(publisher,),
        publishers_left_out=0,
    )
    return StatusReport(
        client="",
        epoch=0,
        request=0,
        durability="sync",
        boot="b",
        topics=(topic,),
        topics_count=1,
        sessions_count=2,
        dropped_requests=0,
    )


@pytest.mark.parametrize("name", ["a", "sensors.hall-7.temperature.second-floor"])
def test_no_word_and_no_number_is_broken_at_80_columns(name: str) -> None:
    page = StringIO()
    Console(width=80, file=page).print(view(report(name)))

    shown = page.getvalue()
    for words in (
        ["subscriber", "cursor", "lag s", "QoS", "state", "start", "stored"],
        ["2 clean", "suspended 3600 s", "1,234,567", "1234567890", "86400.0"],
        ["last sequence", "last offset", "at QoS 0", "2.0 GiB"],
    ):
        for word in words:
            assert word in shown, shown
    assert max(map(len, shown.splitlines())) <= 80


CONNECTIONS = ConnectionsStatus(
    connections=12,
    connections_max=20_000,
    connections_per_s_max=100,
    came=3_456,
    kept_out=0,
    closed_s=0.0,
)


def shown_of(connections: ConnectionsStatus) -> str:
    page = StringIO()
    Console(width=200, file=page).print(view(replace(report("a"), connections=connections)))
    return page.getvalue()


def test_connections_are_shown_beside_their_bounds() -> None:
    shown = shown_of(CONNECTIONS)

    assert "connections: 12 of 20,000, 3,456 came" in shown
    assert "KEPT OUT" not in shown


def test_connections_that_are_kept_out_are_shown_with_the_bound_and_since_when() -> None:
    closed = replace(CONNECTIONS, kept_out=7, closed_by="connections_per_s_max", since_s=42.0)

    words = "CONNECTIONS ARE KEPT OUT, since 42 s (connections_per_s_max); 7 were kept out"
    assert words in shown_of(closed)


@pytest.mark.parametrize("push", ["tcp://0.0.0.0:5557", "tcp://127.0.0.1:5557"])
@pytest.mark.parametrize("is_plain", [True, False])
def test_warns_of_plaintext_that_other_machines_reach(push: str, *, is_plain: bool) -> None:
    page = StringIO()
    endpoint = PushStatus(endpoint=push, links=0, plain=0, sent=0, dropped=0, queued=0)
    found = replace(report("a"), push=endpoint)
    Console(width=200, file=page).print(view(found, is_plain=is_plain))

    is_warned = f"endpoint {push} is not a loopback address" in page.getvalue()
    assert is_warned == (is_plain and "0.0.0.0" in push)
