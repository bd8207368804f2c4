"""Rows that become messages: options and columns of the sink, batches, tries of a task."""

from __future__ import annotations

import pyarrow as pa
import pytest

from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.errors import (
    InDoubtError,
    InvalidNameError,
    StageLostError,
    TooLargeError,
    UsageError,
)
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.settings import PUBLISHER_ENDPOINT
from reliable_pubsub.common.core.transaction_messages import Part
from reliable_pubsub.common.core.wire import decode_batch
from reliable_pubsub.pipeline.core.columns import COLUMNS
from reliable_pubsub.pipeline.core.outgoing import BATCH_BYTES, OutgoingRows
from reliable_pubsub.pipeline.core.sink_options import (
    SINK_OPTIONS,
    SinkOptions,
    check_columns,
    parse_sink_options,
)
from reliable_pubsub.publisher.core.outbox import Encoded
from reliable_pubsub.publisher.writer import TransactionWriter
from tests.fakes import Link, MemoryProxy, a_world

STRING_MAP = pa.map_(pa.string(), pa.string())
RUN = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


def parsed(*, streaming: bool = False, **given: str) -> SinkOptions:
    return parse_sink_options({"topic": "t", **given}, streaming=streaming)


def batches_of(outgoing: OutgoingRows, *many: pa.RecordBatch) -> list[tuple[str, Batch]]:
    encoded = [one for rows in many for one in outgoing.add(rows)] + list(outgoing.rest())
    return [(one.topic, decode_batch(one.body, one.count)) for one in encoded]


class TestEventTimes:
    def test_are_those_of_a_column_to_the_nanosecond_or_the_microsecond(self) -> None:
        exact = pa.record_batch({"value": [b"1", b"2"], "event_time_ns": [1_234_567, None]})
        micros = pa.record_batch(
            {"value": [b"1"], "event_time": pa.array([1234], pa.timestamp("us", "UTC"))}
        )

        assert batches_of(OutgoingRows("t"), exact) == [
            ("t", Batch([b"1", b"2"], None, None, [1_234_567, None]))
        ]
        assert batches_of(OutgoingRows("t"), micros) == [
            ("t", Batch([b"1"], None, None, [1_234_000]))
        ]


def test_a_codec_sets_the_content_type_where_a_row_has_none() -> None:
    headers = pa.array(
        [None, [("a", "b")], [("Content-Type", "x/y")]], pa.map_(pa.string(), pa.string())
    )
    rows = pa.record_batch({"value": [b"1", b"2", b"3"], "headers": headers})

    ((_, batch),) = batches_of(OutgoingRows("t", parsed(codec="json").content_type), rows)

    assert batch.headers == [
        {"content-type": "application/json"},
        {"a": "b", "content-type": "application/json"},
        {"Content-Type": "x/y"},
    ]


def test_the_columns_of_a_source_are_taken_as_they_are_if_the_topic_is_named() -> None:
    check_columns(COLUMNS, parsed())
    with pytest.raises(UsageError, match="would be put back on them"):
        check_columns(COLUMNS, parse_sink_options({}, streaming=True))


class TestOptions:
    def test_name_a_topic_and_a_publisher_of_the_query(self) -> None:
        options = parsed()

        assert (options.endpoint, options.topic) == (PUBLISHER_ENDPOINT, "t")
        assert options.writer_of(RUN) == f"spark-{RUN}"
        assert parsed(sinkId="enrich").writer_of(RUN) == f"enrich-{RUN}"

    def test_take_the_topic_from_save_too(self) -> None:
        assert parse_sink_options({"path": "u"}, streaming=False).topic == "u"

    def test_leave_alone_what_is_sparks_own(self) -> None:
        assert parsed(checkpointlocation="/x", queryName="q").topic == "t"

    def test_that_do_not_exist_are_reported_with_the_closest_name(self) -> None:
        with pytest.raises(UsageError, match="did you mean 'txnAppId'"):
            parsed(txnApp="x")
        with pytest.raises(UsageError, match=", ".join(SINK_OPTIONS)):
            parsed(qqqq="1")

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"path": "u"}, "named twice"),
            ({"txnAppId": "a"}, "given together"),
            ({"txnAppId": "a", "txnVersion": "1", "sinkId": "b"}, "a stream has sinkId"),
            ({"sinkId": "x" * 28}, "longer than 27 characters"),
            ({"txnAppId": "a", "txnVersion": "-1"}, "a whole number from 0"),
            ({"endpoint": "tcp://far.example:5555"}, "allow"),
            ({"sinkId": "x" * 16, "atomic": "false"}, "longer than 15 characters"),
            (
                {"txnAppId": "x" * 53, "txnVersion": "0", "atomic": "false"},
                "longer than 52 characters",
            ),
            ({"txnAppId": "a", "txnVersion": str(2**62), "atomic": "false"}, "at most"),
        ],
    )
    def test_that_cannot_be_are_refused(self, given: dict[str, str], text: str) -> None:
        with pytest.raises(UsageError, match=text):
            parse_sink_options({"topic": "t", **given}, streaming=False)

    def test_of_a_stream_have_no_version(self) -> None:
        with pytest.raises(UsageError, match="the batches of its checkpoint"):
            parsed(streaming=True, txnAppId="a", txnVersion="1")
        with pytest.raises(UsageError, match="maxOffsetsPerTrigger"):
            parsed(streaming=True, atomic="false")

    def test_have_names_that_are_names(self) -> None:
        with pytest.raises(InvalidNameError):
            parsed(sinkId="a_b")


class TestColumns:
    def test_may_be_value_and_more(self) -> None:
        check_columns({"value": "string"}, parsed())
        kinds = {"topic": "string", "key": "binary", "value": "binary"}
        check_columns({**kinds, "headers": "map<string,string>"}, parsed())

    @pytest.mark.parametrize(
        ("columns", "text"),
        [
            ({"key": "binary"}, "no column 'value'"),
            ({"value": "bigint"}, "'value' bigint is not one of this sink"),
            ({"value": "binary", "offset": "string"}, "'offset' string.*select these"),
        ],
    )
    def test_that_no_message_has_are_refused(self, columns: dict[str, str], text: str) -> None:
        with pytest.raises(UsageError, match=text):
            check_columns(columns, parsed())

    def test_have_to_say_where_to(self) -> None:
        with pytest.raises(UsageError, match="where to"):
            check_columns({"value": "binary"}, parse_sink_options({}, streaming=False))


class TestRows:
    def test_become_one_batch_for_each_topic_in_their_order(self) -> None:
        rows = pa.record_batch({"topic": ["a", "b", "a"], "value": [b"1", b"2", b"3"]})

        assert batches_of(OutgoingRows(), rows, rows) == [
            ("a", Batch([b"1", b"3", b"1", b"3"])),
            ("b", Batch([b"2", b"2"])),
        ]

    def test_go_where_the_option_says(self) -> None:
        rows = pa.record_batch({"topic": ["a", None], "value": ["1", "2"]})

        assert batches_of(OutgoingRows("t"), rows) == [("t", Batch([b"1", b"2"]))]

    def test_keep_keys_and_headers(self) -> None:
        rows = pa.record_batch(
            {
                "value": pa.array([b"1", b"2"]),
                "key": pa.array(["k", None]),
                "headers": pa.array([[("h", "v")], None], STRING_MAP),
            }
        )

        assert batches_of(OutgoingRows("t"), rows) == [
            ("t", Batch([b"1", b"2"], [b"k", None], [{"h": "v"}, None]))
        ]

    @pytest.mark.parametrize("size", [1, 100, 5_000, BATCH_BYTES, 2 * BATCH_BYTES])
    def test_are_cut_into_batches_without_loss(self, size: int) -> None:
        values = [
            b"%08d" % number + b"x" * size for number in range(3 * BATCH_BYTES // size)[:30_000]
        ]
        values = values or [b"x" * size] * 3
        many = [
            pa.record_batch({"value": pa.array(values[n : n + 1000], pa.binary())})
            for n in range(0, len(values), 1000)
        ]

        batches = batches_of(OutgoingRows("t"), *many)

        assert [value for _, batch in batches for value in batch.payloads] == values
        sizes = [sum(map(len, batch.payloads)) for _, batch in batches]
        assert all(
            n <= BATCH_BYTES or len(b.payloads) == 1
            for n, (_, b) in zip(sizes, batches, strict=True)
        )

    def test_without_value_or_topic_are_refused(self) -> None:
        for rows, text in (
            (pa.record_batch({"value": pa.array([None], pa.binary())}), "no value"),
            (
                pa.record_batch({"value": [b"1"], "topic": pa.array([None], pa.string())}),
                "no topic",
            ),
        ):
            with pytest.raises(UsageError, match=text):
                batches_of(OutgoingRows(), rows)

    def test_that_are_too_long_are_refused(self) -> None:
        with pytest.raises(TooLargeError):
            batches_of(OutgoingRows("t"), pa.record_batch({"value": [b"x" * (1 << 20)]}))


class TestAWriter:
    """A `TransactionWriter` over a proxy in memory."""

    BATCH = Encoded("t", 1, 0, b"")

    def writer(self, link: Link, retries: int = 2) -> TransactionWriter:
        return TransactionWriter("w", retry=RetryPolicy(retries_max=retries), _world=a_world(link))

    def batch(self, text: bytes) -> Encoded:
        rows = pa.record_batch({"value": [text]})
        outgoing = OutgoingRows("t")
        return [*outgoing.add(rows), *outgoing.rest()][0]

    def test_commits_what_tasks_of_other_processes_have_staged(self) -> None:
        link = Link(MemoryProxy())
        for task in (0, 1):
            assert self.writer(link).stage(1, task, b"attempt%d" % task, 0, self.batch(b"x"))

        parts = [Part(1, b"attempt1", 1), Part(0, b"attempt0", 1)]
        first = self.writer(link).commit(1, parts)
        again = self.writer(link).commit(1, parts)

        assert (first.already, again.already) == (False, True)
        assert link.proxy.state.topics["t"].durable_end == 2

    def test_begins_a_session_if_its_writer_has_none(self) -> None:
        link = Link(MemoryProxy())

        assert self.writer(link).stage(1, 0, b"attempt0", 0, self.batch(b"x"))

        assert link.proxy.state.sessions["publisher", "w"].epoch == 1

    def test_hears_at_a_stage_that_the_transaction_is_over(self) -> None:
        link = Link(MemoryProxy())
        writer = self.writer(link)
        writer.stage(1, 0, b"attempt0", 0, self.batch(b"x"))
        writer.commit(1, [Part(0, b"attempt0", 1)])

        assert not self.writer(link).stage(1, 0, b"attempt1", 0, self.batch(b"x"))

    def test_asks_again_where_answers_are_lost(self) -> None:
        link = Link(MemoryProxy(), "<<.<<")
        writer = self.writer(link)
        writer.stage(1, 0, b"attempt0", 0, self.batch(b"x"))

        writer.commit(1, [Part(0, b"attempt0", 1)])

        assert link.proxy.state.topics["t"].durable_end == 1

    def test_learns_what_a_restart_of_the_proxy_has_taken(self) -> None:
        link = Link(MemoryProxy())
        self.writer(link).stage(1, 0, b"attempt0", 0, self.batch(b"x"))
        link.proxy = link.proxy.restarted()

        with pytest.raises(StageLostError, match="stage the transaction again"):
            self.writer(link).commit(1, [Part(0, b"attempt0", 1)])
        with pytest.raises(StageLostError):
            self.writer(link).stage(1, 0, b"attempt0", 1, self.batch(b"y"))

    def test_drops_what_is_staged_and_not_what_is_committed(self) -> None:
        link = Link(MemoryProxy())
        writer = self.writer(link)
        writer.stage(1, 0, b"attempt0", 0, self.batch(b"x"))
        assert writer.abort(1) == 1
        writer.stage(1, 0, b"attempt0", 0, self.batch(b"x"))
        writer.commit(1, [Part(0, b"attempt0", 1)])

        assert writer.abort(1) == 0
        assert link.proxy.state.topics["t"].durable_end == 1

    def test_gives_up_in_doubt(self) -> None:
        with pytest.raises(InDoubtError):
            self.writer(Link(MemoryProxy(), ">>>"), retries=0).commit(1, [])
