"""A task of a batch that is not atomic: each row once, however often it is tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest

from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.errors import ConflictError, LimitError
from reliable_pubsub.common.core.wire import decode_batch
from reliable_pubsub.pipeline import batch_parts
from reliable_pubsub.pipeline.batch_parts import PartWriter
from reliable_pubsub.proxy.transactions.staging import Staging
from reliable_pubsub.publisher.core.outbox import Encoded, encoded_batch
from reliable_pubsub.publisher.writer import TransactionWriter
from tests.fakes import Link, MemoryProxy, a_world

ROWS = [b"row %d" % n for n in range(7)]
TWO_ROWS = 2 * len(
    encoded_batch("t", Batch([ROWS[0]])).body
)  # bytes of a part: two batches of one row


class Killed(Exception):
    """Ends a task in the middle of its rows."""


class Task:
    """Tries of one task over a proxy in memory; each is a process of its own."""

    def __init__(self) -> None:
        self.link = Link(MemoryProxy())
        self._tries = 0

    def write(
        self,
        rows: Sequence[bytes],
        *,
        version: int = 0,
        dies_at: int = -1,
        ends_at: int | None = None,
    ) -> None:
        """One try, in parts of two rows.

        Args:
            dies_at: it dies before this row.
            ends_at: its rows end before this one, and Spark knows that it has failed.
        """

        def full() -> Iterator[Encoded]:
            for place, row in enumerate(rows[:ends_at]):
                if place == dies_at:
                    raise Killed
                last.append(encoded_batch("t", Batch([row])))
                if len(last) == 2:
                    yield last.pop(0)

        last: list[Encoded] = []
        self._tries += 1
        writer = TransactionWriter("w-part-0", _world=a_world(self.link))
        task = PartWriter(writer, version=version, attempt=b"attempt%d" % self._tries)
        end = task.write(full(), last, part_bytes=TWO_ROWS)
        if ends_at is None:
            end.commit(writer)

    @property
    def stored(self) -> list[bytes]:
        proxy = self.link.proxy
        if "t" not in proxy.state.topics:
            return []
        batches = proxy.log.read(1, 0, messages_max=99, bytes_max=99_999)
        return [row for one in batches for row in decode_batch(one.body, one.count).payloads]


@pytest.fixture
def task() -> Task:
    return Task()


def test_stores_all_rows_in_their_order_in_parts_of_a_bounded_size(task: Task) -> None:
    task.write(ROWS)

    assert task.stored == ROWS
    assert task.link.proxy.state.part(Staging).batches == 0


@pytest.mark.parametrize("dies_at", range(len(ROWS)))
def test_a_try_continues_where_another_one_died(task: Task, dies_at: int) -> None:
    with pytest.raises(Killed):
        task.write(ROWS, dies_at=dies_at)
    before = task.stored
    task.write(ROWS)

    assert before == ROWS[: len(before)]
    assert task.stored == ROWS


@pytest.mark.parametrize("dies_at", range(len(ROWS)))
def test_a_try_continues_after_a_restart_of_the_proxy(task: Task, dies_at: int) -> None:
    with pytest.raises(Killed):
        task.write(ROWS, dies_at=dies_at)
    task.link.proxy = task.link.proxy.restarted()
    task.write(ROWS)

    assert task.stored == ROWS


@pytest.mark.parametrize("ends_at", range(len(ROWS)))
def test_a_try_whose_rows_end_because_spark_fails_does_not_end_the_write(
    task: Task, ends_at: int
) -> None:
    task.write(ROWS, ends_at=ends_at)
    task.write(ROWS)

    assert task.stored == ROWS


def test_again_stores_nothing(task: Task) -> None:
    task.write(ROWS)
    task.write(ROWS)

    assert task.stored == ROWS


def test_another_version_is_stored_and_an_earlier_one_is_not_again(task: Task) -> None:
    task.write(ROWS, version=3)
    task.write(ROWS[:3], version=4)
    task.write(ROWS, version=3)

    assert task.stored == ROWS + ROWS[:3]


@pytest.mark.parametrize("dies_at", [-1, 6])
@pytest.mark.parametrize(
    "others",
    [[b"other", *ROWS[1:]], [*ROWS[:1]], [*ROWS[:2]], [], [ROWS[1], ROWS[0], *ROWS[2:]]],
    ids=["another first row", "one row", "one part", "none", "another order"],
)
def test_other_rows_under_the_same_version_are_refused_and_nothing_is_stored(
    task: Task, dies_at: int, others: list[bytes]
) -> None:
    with suppress(Killed):
        task.write(ROWS, dies_at=dies_at)
    before = task.stored
    with pytest.raises(ConflictError, match="has stored other rows"):
        task.write(others)

    assert task.stored == before
    assert before


def test_more_rows_than_the_complete_write_had_are_refused(task: Task) -> None:
    task.write(ROWS)
    with pytest.raises(ConflictError, match="has stored other rows"):
        task.write([*ROWS, b"more", b"and more", b"and more still"])

    assert task.stored == ROWS


def test_no_answer_that_is_lost_makes_a_row_come_twice(task: Task) -> None:
    task.link = Link(task.link.proxy, "<.<<.<.." * 4)
    task.write(ROWS)

    assert task.stored == ROWS


def test_a_task_without_end_is_refused_with_advice(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_parts, "PARTS_MAX", 4)
    with pytest.raises(LimitError, match="into more tasks"):
        task.write([*ROWS, *ROWS])
