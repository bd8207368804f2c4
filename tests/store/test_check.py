"""Start-up: damage is refused and named, and given up only by a separate, reported act (P6)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from reliable_pubsub.common.core.answers import AnyReply, Lost, NoMessagesYet, PutAck
from reliable_pubsub.common.core.errors import DamagedError
from reliable_pubsub.common.core.limits import KIB
from reliable_pubsub.proxy.check import BadRange, Checked, check_store
from reliable_pubsub.proxy.core.applying import apply, committed
from reliable_pubsub.proxy.core.state import Record, State
from reliable_pubsub.proxy.core.subscription_records import Subscribed
from reliable_pubsub.proxy.log_reader import StoreReader
from reliable_pubsub.proxy.store import Store
from reliable_pubsub.proxy.stored_state import FILE_NAME, open_reader, read_state
from reliable_pubsub.proxy.transactions.records import TransactionCommitted
from tests.fakes import (
    LOG,
    NONCE,
    NOW_NS,
    a_beginning,
    a_get,
    a_put,
    a_setup,
    a_sub,
    an_append,
    decide,
    put_body,
    shown,
)

BATCHES = 6  # in topic "t", of two messages each: offsets 0 to 11


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A sound store: six batches of two messages, and a subscriber at offset 0."""
    store = Store(tmp_path, "os")
    store.commit([*a_beginning(), Subscribed(1, "s", 1, 0, 1, NONCE, 1)])
    store.commit([TransactionCommitted("p", 7, b"", ())])
    store.commit([an_append(2 * n, count=2) for n in range(BATCHES)])
    store.close()
    return tmp_path


def damage(directory: Path, sql: str) -> None:
    """Change the file without the proxy's knowledge."""
    connection = sqlite3.connect(directory / FILE_NAME)
    changed = connection.execute(sql).rowcount
    assert changed > 0, sql
    connection.commit()
    connection.close()


def commit(directory: Path, *records: Record) -> None:
    store = Store(directory, "os")
    store.commit(records)
    store.close()


def check(directory: Path) -> Checked:
    """Start, and stop again."""
    store = Store(directory, "os")
    try:
        return check_store(store.connection)
    finally:
        store.close()


def refusal(directory: Path) -> str:
    """Why a start is refused."""
    with pytest.raises(DamagedError) as caught:
        check(directory)
    return str(caught.value)


def accept_loss(directory: Path) -> list[BadRange]:
    """Start with --accept-loss; return what was reported."""
    reported: list[BadRange] = []
    store = Store(directory, "os")
    try:
        check_store(store.connection, accept_loss=True, report=reported.append)
    finally:
        store.close()
    return reported


class RunningProxy:
    """A broker over the real store and the real reader."""

    def __init__(self, directory: Path) -> None:
        self._store = Store(directory, "os")
        segments = check_store(self._store.connection).segments
        self._reader = StoreReader(open_reader(self._store.path))
        stored = read_state(self._store.connection, segments)
        self._state = State(stored, a_setup(self._reader))

    def ask(self, *requests: tuple[object, bytes]) -> list[AnyReply]:
        """Answer requests, durably, and stop."""
        replies = []
        for request, body in requests:
            decision = decide(self._state, request, body, now_ns=2 * NOW_NS)  # type: ignore[arg-type]
            apply(self._state, decision.records)
            self._store.commit(decision.records)
            self._reader.add(committed(self._state, self._state.lsn))
            replies.append(decision.reply)
        self._reader.close()
        self._store.close()
        return replies


class TestASoundStore:
    def test_is_counted(self, directory: Path) -> None:
        checked = check(directory)

        (segment,) = checked.segments[1]
        assert (segment.base, segment.end, segment.batches) == (0, 12, BATCHES)
        assert segment.body_bytes == sum(len(an_append(2 * n, count=2).body) for n in range(6))
        assert checked.messages == 12

    def test_tells_how_far_the_check_is(self, directory: Path) -> None:
        commit(directory, *(an_append(12 + 500 * n, count=500) for n in range(9)))
        told: list[int] = []

        store = Store(directory, "os")
        check_store(store.connection, progress=told.append)
        store.close()

        assert told == sorted(told)
        assert len(told) > 3

    def test_is_not_changed_by_the_check(self, directory: Path) -> None:
        first = check(directory)

        assert check(directory) == first
        assert accept_loss(directory) == []


class TestDamage:
    def test_of_a_body_on_the_disk_is_found_and_named(self, directory: Path) -> None:
        """P6, H15: one flipped bit, found at the start, with topic and offsets."""
        file = directory / FILE_NAME
        content = bytearray(file.read_bytes())
        place = content.index(put_body(5, 2))
        content[place + 4] ^= 1
        file.write_bytes(content)

        text = refusal(directory)

        assert "topic 't' offsets 4 to 5" in text
        assert "--accept-loss" in text

    @pytest.mark.parametrize(
        "change",
        ["body = x'00'", "crc = crc + 1", "timestamp_ns = 1", "publisher = 'q'", "epoch = 9"],
    )
    def test_of_any_column_of_a_batch_is_found_and_named(
        self, directory: Path, change: str
    ) -> None:
        damage(directory, f"UPDATE batch SET {change} WHERE base = 4")

        assert "topic 't' offsets 4 to 5" in refusal(directory)

    def test_is_named_wherever_it_is(self, directory: Path) -> None:
        damage(directory, "UPDATE batch SET body = x'00' WHERE base IN (0, 4, 10)")

        text = refusal(directory)

        assert all(f"offsets {n} to {n + 1}" in text for n in (0, 4, 10))

    def test_is_named_ten_times_at_most(self, tmp_path: Path) -> None:
        commit(tmp_path, *a_beginning(), *(an_append(n) for n in range(30)))
        damage(tmp_path, "UPDATE batch SET body = x'00' WHERE base % 2 = 0")

        assert "and 5 more" in refusal(tmp_path)

    @pytest.mark.parametrize(
        ("table", "change"),
        [
            ("meta", "value = 'another'"),
            ("topic", "log = 'another.1'"),
            ("publisher", "first_sequence = 1"),
            ("subscription", "cursor = 12"),
            ("session", "epoch = 7"),
            ("last_transaction", "number = 1"),
        ],
    )
    def test_of_a_small_row_is_found_and_named(
        self, directory: Path, table: str, change: str
    ) -> None:
        """A cursor or a number that is wrong would lose or repeat messages in silence."""
        damage(directory, f"UPDATE {table} SET {change}")

        assert f"table {table}" in refusal(directory)

    def test_of_the_structure_is_found(self, tmp_path: Path) -> None:
        commit(tmp_path, *a_beginning(), *(an_append(n, body=b"x" * KIB) for n in range(50)))
        file = tmp_path / FILE_NAME
        content = bytearray(file.read_bytes())
        content[-8192:-4096] = b"\xff" * 4096
        file.write_bytes(content)

        assert "damaged" in refusal(tmp_path)

    @pytest.mark.parametrize(
        ("text", "other"),
        [
            (b"publisher TEXT", b"publisher TEXU"),  # would keep the id 007 as the number 7
            (b"row_crc INTEGER", b"row_csc INTEGER"),
            (b"CREATE TABLE batch", b"CREATE TABLE b\xfftch"),
            (b"CREATE UNIQUE INDEX", b"CREATE UNIQUD INDEX"),
        ],
        ids=["type", "column", "no text", "no statement"],
    )
    def test_of_the_tables_themselves_is_found(
        self, directory: Path, text: bytes, other: bytes
    ) -> None:
        """SQLite takes most of them as they are."""
        file = directory / FILE_NAME
        content = file.read_bytes()
        assert text in content
        file.write_bytes(content.replace(text, other))

        assert FILE_NAME in refusal(directory)

    def test_of_an_index_is_found(self, directory: Path) -> None:
        """A number that the index does not find would be taken a second time."""
        file = directory / FILE_NAME
        with closing(sqlite3.connect(file)) as connection:
            (page,) = connection.execute(
                "SELECT rootpage FROM sqlite_master WHERE name = 'batch_once'"
            ).fetchone()
        content = bytearray(file.read_bytes())
        content[content.rindex(b"p", 0, page * 4096)] = ord("q")
        file.write_bytes(content)

        assert "index batch_once" in refusal(directory)

    def test_changes_nothing(self, directory: Path) -> None:
        damage(directory, "UPDATE batch SET body = x'00' WHERE base = 4")

        first, second = refusal(directory), refusal(directory)

        assert first == second
        assert "Nothing was changed" in first


class TestMissingBatches:
    def test_in_the_middle_are_found_and_named(self, directory: Path) -> None:
        damage(directory, "DELETE FROM batch WHERE base IN (4, 6)")

        assert "topic 't' offsets 4 to 7: these batches are missing" in refusal(directory)

    def test_at_the_beginning_are_found_and_named(self, directory: Path) -> None:
        damage(directory, "DELETE FROM batch WHERE base = 0")

        assert "topic 't' offsets 0 to 1: these batches are missing" in refusal(directory)

    def test_at_the_end_are_found_and_named(self, directory: Path) -> None:
        """H13: a log that lost its newest batches would give their offsets away again."""
        damage(directory, "DELETE FROM batch WHERE base >= 8")

        assert "topic 't' offsets 8 to 11: the newest batches are missing" in refusal(directory)


class TestAcceptedLoss:
    def test_is_reported(self, directory: Path) -> None:
        damage(directory, "UPDATE batch SET body = x'00' WHERE base = 4")

        (bad,) = accept_loss(directory)

        assert (bad.topic, bad.first, bad.end) == ("t", 4, 6)
        assert "4 to 5" in str(bad)

    def test_is_accepted_once_and_not_asked_for_again(self, directory: Path) -> None:
        damage(directory, "DELETE FROM batch WHERE base = 4")
        accept_loss(directory)

        checked = check(directory)

        assert checked.messages == 10

    def test_is_reported_to_subscribers_that_had_not_read_it(self, directory: Path) -> None:
        """H17: the subscriber hears of the gap, and continues after it."""
        damage(directory, "UPDATE batch SET body = x'00' WHERE base IN (4, 6)")
        accept_loss(directory)

        _, before, at, later = RunningProxy(directory).ask(
            (a_sub(2, log=LOG, cursor=0), b""),
            (a_get(2), b""),
            (a_get(4), b""),
            (a_get(8), b""),
        )

        assert shown(before) == [(2, 2)]
        assert isinstance(at, Lost)
        assert (at.first, at.end) == (4, 8)
        assert shown(later) == [(8, 2)]

    def test_is_never_jumped_over_inside_one_answer(self, directory: Path) -> None:
        """A subscriber takes direct followers only; it would refuse such an answer forever."""
        damage(directory, "UPDATE batch SET body = x'00' WHERE base = 4")
        accept_loss(directory)

        _, reply = RunningProxy(directory).ask(
            (a_sub(2, log=LOG, cursor=0), b""), (a_get(0, messages_max=100), b"")
        )

        assert shown(reply) == [(0, 2), (2, 2)]

    def test_of_the_newest_batches_gives_no_offset_away_again(self, directory: Path) -> None:
        """H13, H16: what was acknowledged keeps its place, also when it is gone."""
        damage(directory, "DELETE FROM batch WHERE base >= 8")
        accept_loss(directory)

        _, lost, end, put = RunningProxy(directory).ask(
            (a_sub(2, log=LOG, cursor=0), b""),
            (a_get(8), b""),
            (a_get(12), b""),
            (a_put(13), put_body(13)),
        )

        assert isinstance(lost, Lost)
        assert (lost.first, lost.end) == (8, 12)
        assert isinstance(end, NoMessagesYet)
        assert isinstance(put, PutAck)
        assert put.offset == 12
        assert check(directory).messages == 9

    def test_gives_up_what_is_damaged_and_no_more(self, directory: Path) -> None:
        """A damaged count says nothing about the batches that follow it."""
        damage(directory, "UPDATE batch SET count = 8 WHERE base = 4")

        accept_loss(directory)

        assert check(directory).messages == 10

    def test_of_a_row_that_went_astray_covers_no_offset_that_was_not_lost(
        self, directory: Path
    ) -> None:
        """A damaged base says nothing about the end of the topic."""
        damage(directory, "UPDATE batch SET base = 500 WHERE base = 4")

        reported = accept_loss(directory)

        assert [(bad.first, bad.end) for bad in reported] == [(4, 6)]

    def test_does_not_cover_a_later_loss_after_it(self, directory: Path) -> None:
        """P6: the hole 4 to 5 was accepted; that 6 to 7 is gone too is news."""
        damage(directory, "DELETE FROM batch WHERE base = 4")
        accept_loss(directory)
        damage(directory, "DELETE FROM batch WHERE base = 6")

        assert "6 to 7" in refusal(directory)

    def test_of_the_newest_does_not_cover_what_came_after(self, directory: Path) -> None:
        """P6: put after the accepted loss, acknowledged, and lost in its turn."""
        damage(directory, "DELETE FROM batch WHERE base = 10")
        accept_loss(directory)
        commit(directory, an_append(12))
        damage(directory, "DELETE FROM batch WHERE base = 12")

        assert "12 to 12" in refusal(directory)
