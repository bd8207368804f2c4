"""Reading the log: from memory or from disk, the answer is the same, and never a damaged one."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliable_pubsub.common.core.errors import DamagedError
from reliable_pubsub.common.core.limits import KIB, REPLY_BATCHES_MAX
from reliable_pubsub.proxy.core.batches import LogBatch
from reliable_pubsub.proxy.core.records import Appended, Trimmed
from reliable_pubsub.proxy.features import SCHEMA
from reliable_pubsub.proxy.log_reader import StoreReader
from reliable_pubsub.proxy.store import Store
from reliable_pubsub.proxy.stored_state import FILE_NAME, open_reader
from tests.fakes import NOW_NS, MemoryLog, a_beginning, an_append

MANY = 1 << 20


def in_a_row(counts: list[int], *, body: bytes | None = None) -> list[Appended]:
    """Batches that follow each other, of this many messages."""
    batches, base = [], 0
    for count in counts:
        batches.append(an_append(base, count=count, body=body))
        base += count
    return batches


@contextmanager
def a_reader(
    directory: Path, batches: Sequence[Appended], *, cache: int = 0
) -> Iterator[StoreReader]:
    """A reader over a store that holds these batches."""
    store = Store(directory, "os")
    store.commit([*a_beginning(), *batches])
    reader = StoreReader(open_reader(store.path), cache_bytes_max=cache)
    try:
        yield reader
    finally:
        reader.close()
        store.close()


def bases(batches: Sequence[LogBatch]) -> list[int]:
    return [batch.base for batch in batches]


class TestRead:
    def test_gives_what_was_written(self, tmp_path: Path) -> None:
        batches = in_a_row([1, 2, 1])

        with a_reader(tmp_path, batches) as reader:
            assert reader.read(1, 0, messages_max=100, bytes_max=MANY) == batches

    def test_begins_with_the_batch_that_holds_the_offset(self, tmp_path: Path) -> None:
        with a_reader(tmp_path, in_a_row([3, 3])) as reader:
            assert bases(reader.read(1, 2, messages_max=1, bytes_max=MANY)) == [0]
            assert bases(reader.read(1, 2, messages_max=2, bytes_max=MANY)) == [0, 3]

    def test_gives_one_batch_at_least_and_then_keeps_to_the_bytes(self, tmp_path: Path) -> None:
        batches = in_a_row([1, 1, 1], body=b"x" * KIB)

        with a_reader(tmp_path, batches) as reader:
            assert bases(reader.read(1, 0, messages_max=9, bytes_max=0)) == [0]
            assert bases(reader.read(1, 0, messages_max=9, bytes_max=2 * KIB)) == [0, 1]

    def test_gives_so_many_batches_at_most(self, tmp_path: Path) -> None:
        batches = in_a_row([1] * (REPLY_BATCHES_MAX + 5))

        with a_reader(tmp_path, batches, cache=MANY) as reader:
            cold = reader.read(1, 0, messages_max=65_536, bytes_max=MANY)
            reader.add(batches)
            warm = reader.read(1, 0, messages_max=65_536, bytes_max=MANY)

        assert len(cold) == len(warm) == REPLY_BATCHES_MAX

    def test_gives_nothing_after_the_end_and_in_an_unknown_topic(self, tmp_path: Path) -> None:
        with a_reader(tmp_path, in_a_row([2])) as reader:
            assert reader.read(1, 2, messages_max=1, bytes_max=MANY) == []
            assert reader.read(9, 0, messages_max=1, bytes_max=MANY) == []

    def test_gives_the_next_one_where_the_holder_is_gone(self, tmp_path: Path) -> None:
        """The broker needs it to say which offsets are lost."""
        with a_reader(tmp_path, in_a_row([1, 1, 1])) as reader:
            with sqlite3.connect(tmp_path / FILE_NAME) as other:
                other.execute("DELETE FROM batch WHERE base < 2")
            other.close()

            assert bases(reader.read(1, 0, messages_max=1, bytes_max=MANY)) == [2]

    @given(
        counts=st.lists(st.integers(1, 4), min_size=1, max_size=8),
        cached=st.integers(0, 8),
        offset=st.integers(0, 30),
        messages_max=st.integers(1, 12),
        bytes_max=st.integers(0, 200),
    )
    @settings(max_examples=60)
    def test_is_the_same_from_memory_and_from_disk(
        self, counts: list[int], cached: int, offset: int, messages_max: int, bytes_max: int
    ) -> None:
        """And the same as the reader that the tests of the broker use."""
        batches = in_a_row(counts)
        plain = MemoryLog()
        plain.add(batches)

        with (
            tempfile.TemporaryDirectory() as directory,
            a_reader(Path(directory), batches, cache=MANY) as reader,
        ):
            cold = reader.read(1, offset, messages_max=messages_max, bytes_max=bytes_max)
            reader.add(batches[-cached:] if cached else [])
            warm = reader.read(1, offset, messages_max=messages_max, bytes_max=bytes_max)

        assert cold == warm
        assert cold == plain.read(1, offset, messages_max=messages_max, bytes_max=bytes_max)


class TestMemory:
    def test_spares_the_disk(self, tmp_path: Path) -> None:
        batches = in_a_row([1, 1])

        with a_reader(tmp_path, batches, cache=MANY) as reader:
            reader.add(batches)
            damage_all(tmp_path)

            assert reader.read(1, 0, messages_max=2, bytes_max=MANY) == batches

    def test_is_bounded_and_keeps_the_newest(self, tmp_path: Path) -> None:
        """P7: the memory of the proxy does not grow with its log."""
        batches = in_a_row([1] * 10, body=b"x" * KIB)

        with a_reader(tmp_path, batches, cache=4 * KIB) as reader:
            reader.add(batches)
            damage_all(tmp_path)

            assert bases(reader.read(1, 8, messages_max=9, bytes_max=MANY)) == [8, 9]
            with pytest.raises(DamagedError):
                reader.read(1, 0, messages_max=9, bytes_max=MANY)

    def test_can_be_forgotten(self, tmp_path: Path) -> None:
        """H30: after a failed commit other batches will have these offsets."""
        batches = in_a_row([1])

        with a_reader(tmp_path, batches, cache=MANY) as reader:
            reader.add([an_append(1, body=b"never committed")])
            reader.clear()

            assert reader.read(1, 1, messages_max=1, bytes_max=MANY) == []


class TestFirstSince:
    """The first batch of a range that was taken at a time or later."""

    @pytest.mark.parametrize("cache", [0, MANY])
    @pytest.mark.parametrize(
        ("base", "end", "taken", "found"),
        [
            (0, 9, NOW_NS - 1, 0),
            (0, 9, NOW_NS, 0),
            (0, 9, NOW_NS + 1, 2),
            (3, 9, NOW_NS, 4),
            (0, 2, NOW_NS + 1, None),
            (0, 9, NOW_NS + 5, None),
        ],
    )
    def test_is_found_by_its_time(
        self, tmp_path: Path, cache: int, base: int, end: int, taken: int, found: int | None
    ) -> None:
        batches = in_a_row([2, 2, 1])  # at offsets 0, 2, 4, taken this many ns later

        with a_reader(tmp_path, batches, cache=cache) as reader:
            reader.add(batches)

            assert reader.first_since(1, base, end, taken) == found

    def test_is_found_where_it_is_not_written_yet(self, tmp_path: Path) -> None:
        """Durability `snapshot` shows it all the same."""
        written, newest = in_a_row([2, 2])

        with a_reader(tmp_path, [written], cache=MANY) as reader:
            reader.add([newest])

            assert reader.first_since(1, 0, 4, NOW_NS + 1) == 2


class TestFind:
    def test_gives_the_batch_in_which_a_sequence_stands(self, tmp_path: Path) -> None:
        batches = in_a_row([2, 3])

        with a_reader(tmp_path, batches) as reader:
            found = [reader.find(1, "p", sequence) for sequence in range(1, 7)]

        assert found == [batches[0]] * 2 + [batches[1]] * 3 + [None]

    def test_knows_publishers_and_topics_apart(self, tmp_path: Path) -> None:
        with a_reader(tmp_path, in_a_row([2])) as reader:
            assert reader.find(1, "q", 1) is None
            assert reader.find(2, "p", 1) is None

    def test_gives_none_for_what_retention_has_removed(self, tmp_path: Path) -> None:
        store = Store(tmp_path, "os")
        store.commit([*a_beginning(), *in_a_row([1, 1]), Trimmed(1, 1, 2, NOW_NS + 1)])
        reader = StoreReader(open_reader(store.path))

        found = [reader.find(1, "p", 1), reader.find(1, "p", 2)]

        reader.close()
        store.close()
        assert found == [None, an_append(1)]


def damage_all(directory: Path) -> None:
    """Spoil every body on the disk."""
    with sqlite3.connect(directory / FILE_NAME) as other:
        other.execute("UPDATE batch SET body = x'00'")
    other.close()


def test_damage_that_shows_only_while_reading_is_reported_and_not_delivered(tmp_path: Path) -> None:
    """P6: a disk may go bad after the start; what it gives back is checked each time."""
    with a_reader(tmp_path, in_a_row([2, 1])) as reader:
        damage_all(tmp_path)

        with pytest.raises(DamagedError, match="offsets 0 to 1"):
            reader.read(1, 0, messages_max=1, bytes_max=MANY)
        with pytest.raises(DamagedError, match="offsets 2 to 2"):
            reader.find(1, "p", 3)


def test_the_middle_of_a_batch_that_is_not_written_yet_can_be_read() -> None:
    """Durability `snapshot`: it was reported as LOST, without any crash."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCHEMA)
    reader = StoreReader(connection)
    batch = an_append(4, count=3)
    reader.add([batch])

    found = reader.read(1, 5, messages_max=1, bytes_max=0)

    assert found == [batch]


def test_a_read_error_of_the_system_is_no_traceback() -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCHEMA)
    reader = StoreReader(connection)
    connection.close()

    with pytest.raises(DamagedError):
        reader.read(1, 0, messages_max=1, bytes_max=0)
