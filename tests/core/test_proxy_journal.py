"""What the proxy's journal says of each record, and when."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.message_base import Terms
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.proxy.core.journal import ProxyJournal
from reliable_pubsub.proxy.core.records import Granted, TopicCreated, Trimmed
from reliable_pubsub.proxy.core.state import Record
from reliable_pubsub.proxy.core.subscription_records import (
    CursorMoved,
    Expired,
    Subscribed,
    Unsubscribed,
)
from tests.fakes import LOG, NONCE, NOW_NS, an_append
from tests.journal_lines import JournalLines, Told, stamp

M1, M2 = (crc32(payload) for payload in (b"m1", b"m2"))
CLEAN = Terms(session="clean", lease_ms=1000)
POSITION = {"type": "position", "topic": "t", "subscriber": "s", "generation": 2}


@pytest.fixture
def lines() -> JournalLines:
    return JournalLines("proxy")


def a_history(lines: JournalLines) -> ProxyJournal:
    """The journal of a proxy whose store holds topic 1."""
    return ProxyJournal(Recorder(lines), [(1, "t")])


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (
            an_append(4, count=2, sequence=1, body=None),
            {"type": "stored", "topic": "t", "epoch": 1},
        ),
        (
            Granted("publisher", "p", 3, NONCE),
            {"type": "granted", "role": "publisher", "client": "p", "epoch": 3},
        ),
        (
            Subscribed(1, "s", 2, 7, 5, NONCE, 1),
            {**POSITION, "cursor": 7, "active": True, "epoch": 5},
        ),
        (
            Unsubscribed(1, "s", 2, 7, 5, NONCE, 2),
            {**POSITION, "cursor": 7, "active": False, "epoch": 5},
        ),
        (CursorMoved(1, "s", 2, 9, True), {**POSITION, "cursor": 9, "active": True}),
        (
            Unsubscribed(1, "s", 2, 7, 5, NONCE, 2, CLEAN),
            {**POSITION, "cursor": 7, "active": False, "epoch": 5, "session": "clean"},
        ),
        (
            Expired(1, "s", 2, 7, CLEAN, 2001),
            {
                **POSITION,
                "type": "expired",
                "cursor": 7,
                "session": "clean",
                "lease_ms": 1000,
                "silent_ms": 2001,
            },
        ),
        (Trimmed(1, 6, 9, NOW_NS), {"type": "trimmed", "topic": "t", "start": 6}),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict) else value["type"],
)
def test_each_record_that_the_rules_speak_of_is_a_line(
    record: Record, told: Told, lines: JournalLines
) -> None:
    journal = a_history(lines)
    journal.submitted([record], 1)
    journal.durable(1)

    (line,) = lines.written
    line.pop("messages", None)
    assert line == {**told, **stamp("proxy", 0)}


def test_a_batch_is_written_message_by_message(lines: JournalLines) -> None:
    journal = a_history(lines)
    journal.submitted([an_append(0, count=2)], 1)
    journal.durable(1)

    assert lines.written[0]["messages"] == [
        [0, "p", 1, M1, NOW_NS, 1, 2],
        [1, "p", 2, M2, NOW_NS, 1, 2],
    ]


def test_a_batch_that_cannot_be_read_has_messages_without_checksum(lines: JournalLines) -> None:
    """The proxy stores what a foreign publisher encoded wrongly; it never reads it."""
    journal = a_history(lines)
    journal.submitted([an_append(0, count=2, body=b"\xc1")], 1)
    journal.durable(1)

    assert [message[:4] for message in lines.written[0]["messages"]] == [
        [0, "p", 1, 0],
        [1, "p", 2, 0],
    ]


def test_a_topic_has_its_name_from_the_moment_it_is_there(lines: JournalLines) -> None:
    journal = a_history(lines)
    journal.submitted([TopicCreated(2, "new", LOG), an_append(0, topic_id=2)], 2)
    journal.durable(2)

    assert [line["topic"] for line in lines.written] == ["new", "new"]


def test_nothing_is_written_before_it_is_durable(lines: JournalLines) -> None:
    journal = a_history(lines)
    for number in range(3):
        journal.submitted([an_append(number)], number + 1)

    journal.durable(2)

    assert [line["messages"][0][0] for line in lines.written] == [0, 1]


def test_what_fell_with_a_failed_commit_is_never_written(lines: JournalLines) -> None:
    journal = a_history(lines)
    journal.submitted([an_append(0)], 1)
    journal.forgotten()
    journal.submitted([an_append(0, publisher="q")], 2)

    journal.durable(2)

    assert [line["messages"][0][1] for line in lines.written] == ["q"]
