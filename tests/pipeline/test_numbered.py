"""Records as batches, and batches cut again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from reliable_pubsub.common.core.batch import Batch, column, message_bytes
from reliable_pubsub.pipeline.core.outgoing import BATCH_BYTES
from reliable_pubsub.pipeline.numbered import cut_again


class SourceRecord(NamedTuple):
    value: bytes
    key: bytes | None = None
    headers: Mapping[str, str] | None = None
    event_time_ns: int | None = None


records = st.builds(
    SourceRecord,
    value=st.binary(max_size=3),
    key=st.none() | st.binary(max_size=1),
    headers=st.none() | st.just({"name": "value"}),
    event_time_ns=st.none() | st.integers(-9, 9),
)


def batch_of(run: Sequence[SourceRecord]) -> Batch:
    return Batch(
        [one.value for one in run],
        column([one.key for one in run]),
        column([one.headers for one in run]),
        column([one.event_time_ns for one in run]),
    )


def records_in(batches: Sequence[Batch]) -> list[SourceRecord]:
    found: list[SourceRecord] = []
    for one in batches:
        none = [None] * len(one.payloads)
        columns = (one.keys or none, one.headers or none, one.event_times_ns or none)
        found += map(SourceRecord, one.payloads, *columns)
    return found


@given(runs=st.lists(st.lists(records, max_size=5)), records_max=st.integers(1, 7))
def test_records_stay_the_same_in_their_order_however_their_batches_are_cut(
    runs: list[list[SourceRecord]], records_max: int
) -> None:
    found = [*cut_again((batch_of(run) for run in runs if run), records_max)]

    assert records_in(found) == [one for run in runs for one in run]
    assert all(len(one.payloads) == records_max for one in found[:-1])
    assert all(1 <= len(one.payloads) <= records_max for one in found)


def test_a_batch_has_no_more_bytes_than_it_should_and_is_filled_up() -> None:
    half = SourceRecord(bytes(BATCH_BYTES // 2 - message_bytes(b"")))
    large, small = SourceRecord(bytes(2 * BATCH_BYTES)), SourceRecord(b"")
    run = [half, half, small, large, half, half]
    cut = [[half, half], [small], [large], [half, half]]

    one_by_one = (batch_of([record]) for record in run)
    assert [records_in([one]) for one in cut_again(one_by_one)] == cut
    assert [records_in([one]) for one in cut_again([batch_of(run)])] == cut


def test_a_column_that_no_record_of_a_batch_uses_is_left_out() -> None:
    run = [
        SourceRecord(b"a", b"key"),
        SourceRecord(b"b"),
        SourceRecord(b"c", None, {"name": "value"}, 5),
    ]

    first, second, third = cut_again([batch_of(run)], 1)

    assert (first.keys, first.headers, first.event_times_ns) == ([b"key"], None, None)
    assert second == Batch([b"b"])
    assert (third.keys, third.headers, third.event_times_ns) == (None, [{"name": "value"}], [5])
