"""A streaming query without Spark: what its source answers, over a proxy in memory."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pytest

from reliable_pubsub.common.core.answers import PutAck
from reliable_pubsub.common.core.batch import Batch, crc32
from reliable_pubsub.common.core.errors import ProxyUnreachableError, UsageError
from reliable_pubsub.common.core.wire import encode_batch
from reliable_pubsub.common.status_client import StatusClient
from reliable_pubsub.pipeline.core.loss import DataLossError
from reliable_pubsub.pipeline.core.options import SourceOptions, parse_options
from reliable_pubsub.pipeline.core.planning import MessageRange
from reliable_pubsub.pipeline.core.progress import lag
from reliable_pubsub.pipeline.proxy_topics import EXTENTS_S, ProxyTopics
from reliable_pubsub.pipeline.reading import arrow_batches
from reliable_pubsub.pipeline.stream import QueryStream, batch_ranges
from reliable_pubsub.proxy.core.state import BrokerSettings
from reliable_pubsub.proxy.core.topic_log import Retention
from reliable_pubsub.subscriber.external_cursor import ExternalCursor
from reliable_pubsub.subscriber.reader import LogReader
from tests.fakes import (
    LOG,
    PATIENT,
    FakeClock,
    FakeTransport,
    Link,
    MemoryProxy,
    a_broker,
    a_put,
    a_sub,
    a_world,
    an_ack,
)

KEEP_NOTHING = BrokerSettings(retention=Retention(history_bytes=0))
MANY = 1_000_000


class Job:
    """One run of a query: its driver and its tasks, on a link to a proxy."""

    def __init__(self, link: Link, **given: str) -> None:
        self.link = link
        self.clock = FakeClock()
        self.options: SourceOptions = parse_options({"subscribePattern": ".*", **given})
        self.topics = ProxyTopics(
            self.options,
            status=StatusClient("", PATIENT, _world=a_world(self.transport(), self.clock)),
            reader=self.reader(),
            kept=(
                ExternalCursor(
                    self.options.subscriber, _world=a_world(self.transport(), self.clock)
                )
                if self.options.subscriber
                else None
            ),
            clock=self.clock,
        )
        self.stream = QueryStream(self.options, self.topics, self.clock)

    def transport(self) -> FakeTransport:
        return FakeTransport(self.link, self.clock)

    def reader(self) -> LogReader:
        return LogReader(retry=PATIENT, _world=a_world(self.transport(), self.clock))

    def latest(self, start: dict[str, Any], rows_max: int | None = MANY) -> dict[str, Any]:
        self.clock.time_s += 2 * EXTENTS_S
        return self.stream.latest(start, rows_max)

    def read(self, wanted: MessageRange) -> list[bytes]:
        schema = pa.schema([("value", pa.binary())])
        batches = arrow_batches(
            wanted,
            self.reader(),
            schema,
            fail_on_data_loss=self.options.fail_on_data_loss,
        )
        return [value for batch in batches for value in batch.column(0).to_pylist()]

    def values(self, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
        """Everything that the tasks of a batch read."""
        return [value for one in self.stream.ranges(start, end) for value in self.read(one)]


def a_status(link: Link) -> StatusClient:
    clock = FakeClock()
    return StatusClient("", PATIENT, _world=a_world(FakeTransport(link, clock), clock))


def a_log(*counts: int, settings: BrokerSettings = BrokerSettings()) -> MemoryProxy:  # noqa: B008
    proxy = a_broker(settings=settings)
    put(proxy, *counts)
    return proxy


def put(proxy: MemoryProxy, *counts: int, topic: str = "t") -> None:
    """Batches of this many messages; payloads continue as m1, m2, ..."""
    for count in counts:
        log = proxy.state.topics.get(topic)
        mark = log.publishers.get("p") if log else None
        sequence = mark.last_sequence + 1 if mark else 1
        assert isinstance(proxy.put(sequence, count=count, topic=topic), PutAck)


def messages(first: int, last: int) -> list[bytes]:
    return [b"m%d" % number for number in range(first, last + 1)]


def reached(offsets: dict[str, Any]) -> dict[str, int]:
    return {topic: place["offset"] for topic, place in offsets["topics"].items()}


class TestAStream:
    def test_reads_each_message_once_batch_by_batch(self) -> None:
        proxy = a_log(3, 4)
        job = Job(Link(proxy))
        start = job.stream.initial()

        first = job.latest(start, 5)
        put(proxy, 2)
        second = job.latest(first, 5)

        assert job.values(start, first) == messages(1, 5)
        assert job.values(first, second) == messages(6, 9)

    def test_says_where_it_was_when_nothing_is_new(self) -> None:
        job = Job(Link(a_log(3)))
        end = job.latest(job.stream.initial())

        assert job.latest(end) == end
        assert job.stream.ranges(end, end) == []

    def test_begins_where_it_began_however_often_it_is_asked(self) -> None:
        proxy = a_log(3)
        job = Job(Link(proxy), startingOffsets="latest")
        start = job.stream.initial()
        put(proxy, 2)
        job.clock.time_s += 1

        assert job.stream.initial() == start
        assert job.values(start, job.latest(start)) == messages(4, 5)

    def test_asks_the_proxy_ten_times_a_second_at_most(self) -> None:
        job = Job(Link(a_log(3)))
        start = job.latest(job.stream.initial())
        asked = len(job.link.answers)

        for _ in range(50):
            job.stream.latest(start, MANY)

        assert len(job.link.answers) == asked

    def test_meets_topics_that_appear_later_from_their_first_message(self) -> None:
        proxy = a_log(1)
        job = Job(Link(proxy))
        start = job.latest(job.stream.initial())

        put(proxy, 2, topic="u")
        end = job.latest(start)

        assert job.values(start, end) == messages(1, 2)
        assert reached(end) == {"t": 1, "u": 2}

    def test_ends_where_endingoffsets_say(self) -> None:
        proxy = a_log(3)
        job = Job(Link(proxy), endingOffsets='{"t": 5}')
        first = job.latest(job.stream.initial())
        put(proxy, 9)

        second = job.latest(first)

        assert reached(second) == {"t": 5}
        assert job.latest(second) == second

    def test_begins_and_ends_by_the_time_at_which_the_proxy_took_messages(self) -> None:
        proxy = a_broker()
        for second in range(6):
            proxy.now_ns = (1_700_000_000 + second) * 1_000_000_000
            put(proxy, 2)
        job = Job(Link(proxy), startingTimestamp="1700000001500", endingTimestamp="1700000004000")
        later = Job(Link(proxy), startingTimestamp="1700000005001")
        start = job.stream.initial()

        assert job.values(start, job.latest(start)) == messages(5, 8)
        assert reached(later.stream.initial()) == {"t": 12}

    def test_bears_witness_of_where_it_is(self) -> None:
        proxy = a_log(3, 4)
        job = Job(Link(proxy))

        end = job.latest(job.stream.initial(), 5)

        (_, second) = proxy.log.read(1, 0, messages_max=9, bytes_max=9_999)
        assert end["topics"]["t"] == {
            "log": LOG,
            "offset": 5,
            "witness_ns": second.timestamp_ns,
        }

    def test_reports_the_lag_topic_by_topic(self) -> None:
        job = Job(Link(a_log(10)))
        job.latest(job.stream.initial(), 4)
        source = {"latestOffset": job.stream.ends()}

        assert lag({"sources": [source, {"latestOffset": None}, {"latestOffset": "{}"}]}) == {
            "t": 6
        }
        assert lag(None) == {}

    def test_shows_the_lag_in_messages_beside_the_ends_of_the_topics(self) -> None:
        job = Job(Link(a_log(10)))
        job.latest(job.stream.initial(), 4)

        assert job.stream.ends()["lag_messages"] == {"t": 6}


class TestAvailableNow:
    def test_ends_at_what_was_stored_when_it_began(self) -> None:
        proxy = a_log(6)
        job = Job(Link(proxy))
        job.stream.prepare_available_now()
        start = job.stream.initial()
        put(proxy, 5)
        put(proxy, 5, topic="u")

        first = job.latest(start, 4)
        second = job.latest(first, 4)

        assert reached(second) == {"t": 6}
        assert job.latest(second, 4) == second

    def test_does_not_judge_a_batch_that_was_planned_before(self) -> None:
        """The target may lie below what an earlier run had planned (SPARK-53560)."""
        proxy = a_log(6)
        planned = Job(Link(proxy)).latest(Job(Link(proxy)).stream.initial())
        later = Job(Link(proxy), endingOffsets='{"t": 2}')
        later.stream.prepare_available_now()

        assert later.values({"topics": {}, "v": 1}, planned) == messages(1, 6)
        assert later.latest(planned) == planned


class TestMessagesThatAreGone:
    def trimmed(self) -> tuple[MemoryProxy, dict[str, Any]]:
        """A topic from which retention has taken offsets 0 to 5, and where a query was before."""
        proxy = a_broker(settings=KEEP_NOTHING)
        proxy.ask(a_sub(cursor=0))
        put(proxy, 6)
        start = Job(Link(proxy)).stream.initial()
        proxy.ask(an_ack(6))
        proxy.tick()
        put(proxy, 6)
        return proxy, start

    def test_stop_the_query_with_topic_and_offsets(self) -> None:
        proxy, start = self.trimmed()

        with pytest.raises(DataLossError, match=r"topic 't': offsets 0 to 5 \(6 messages\)"):
            Job(Link(proxy)).latest(start)

    def test_are_left_out_if_the_query_may_and_that_is_reported(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        proxy, start = self.trimmed()
        job = Job(Link(proxy), failOnDataLoss="false")

        end = job.latest(start)

        assert job.values(start, end) == messages(7, 12)
        assert "skipped offsets 0 to 5" in caplog.text
        assert job.stream.ends()["skipped"] == {"t": 6}
        assert job.latest(end) == end

    def test_stop_a_task_that_finds_them_gone(self) -> None:
        proxy, _ = self.trimmed()
        wanted = MessageRange("t", LOG, 3, 12)

        with pytest.raises(DataLossError, match=r"offsets 3 to 5 .* first that is left is 6"):
            Job(Link(proxy)).read(wanted)
        assert Job(Link(proxy), failOnDataLoss="false").read(wanted) == messages(7, 12)

    def test_are_noticed_when_the_range_is_longer_than_the_log(self) -> None:
        wanted = MessageRange("t", LOG, 1, 9)

        with pytest.raises(DataLossError, match=r"offsets 3 to 8 .* set back"):
            Job(Link(a_log(3))).read(wanted)
        assert Job(Link(a_log(3)), failOnDataLoss="false").read(wanted) == messages(2, 3)

    def test_are_noticed_when_the_log_is_another_one(self) -> None:
        wanted = MessageRange("t", "another.1", 0, 3)

        with pytest.raises(DataLossError, match="another"):
            Job(Link(a_log(3))).read(wanted)

    def test_are_noticed_when_a_log_was_set_back_and_has_grown_again(self) -> None:
        """R14: the offsets fit again, but the message before them is another one."""
        proxy = a_log(3, 3)
        job = Job(Link(proxy))
        start = job.latest(job.stream.initial(), 3)
        grown = a_broker()
        grown.now_ns += 1_000
        put(grown, 3, 3)
        job.link.proxy = grown

        with pytest.raises(DataLossError, match="offset 3 of log"):
            job.values(start, job.latest(start))


class TestTheSubscriberOfAQuery:
    def test_has_read_what_the_last_finished_batch_ended_with(self) -> None:
        proxy = a_log(5)
        job = Job(Link(proxy), subscriber="job")
        end = job.latest(job.stream.initial(), 3)
        assert self.cursor(proxy) == 0

        job.latest(end)

        assert self.cursor(proxy) == 3

    def test_learns_what_spark_commits_and_never_goes_back(self) -> None:
        proxy = a_log(5)
        job = Job(Link(proxy), subscriber="job")
        first = job.latest(job.stream.initial(), 2)
        second = job.latest(first, 2)

        job.stream.processed(second)
        job.stream.processed(first)

        assert self.cursor(proxy) == 4

    def test_keeps_the_latest_offset_that_a_query_began_with(self) -> None:
        """Its first batch failed; the next run must not begin at a later end."""
        proxy = a_log(5)
        start = Job(Link(proxy), subscriber="job", startingOffsets="latest").stream.initial()
        put(proxy, 4)

        again = Job(Link(proxy), subscriber="job", startingOffsets="latest").stream.initial()

        assert reached(start) == reached(again) == {"t": 5}

    def test_keeps_the_earliest_messages_until_the_query_has_them(self) -> None:
        proxy = a_log(5, settings=KEEP_NOTHING)

        Job(Link(proxy), subscriber="job").stream.initial()
        proxy.tick()

        assert proxy.state.topics["t"].start == 0

    def test_resumes_where_it_stood_with_a_new_checkpoint(self) -> None:
        proxy = a_log(5)
        job = Job(Link(proxy), subscriber="job")
        job.latest(job.latest(job.stream.initial(), 3))

        assert reached(Job(Link(proxy), subscriber="job").stream.initial()) == {"t": 3}

    def test_stops_no_query_when_a_newer_one_has_its_id(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        proxy = a_log(5)
        older = Job(Link(proxy), subscriber="job")
        start = older.stream.initial()
        Job(Link(proxy), subscriber="job").stream.initial()

        end = older.latest(older.latest(start, 2))

        assert reached(end) == {"t": 5}
        assert "fenced" in caplog.text

    def cursor(self, proxy: MemoryProxy) -> int:
        return proxy.state.topics["t"].subscriptions["job"].cursor


class TestABatchQuery:
    def test_reads_what_is_stored_when_it_is_planned(self) -> None:
        job = Job(Link(a_log(3, 4)), startingOffsets='{"t": 2}', endingOffsets='{"t": 6}')

        (wanted,) = batch_ranges(job.options, job.topics)

        assert job.read(wanted) == messages(3, 6)

    def test_of_a_topic_that_is_not_there_is_refused(self) -> None:
        proxy = a_log(3)
        job = Job(Link(proxy))
        job.options = parse_options({"subscribe": "t,u"})
        job.topics = ProxyTopics(job.options, status=a_status(Link(proxy)), reader=job.reader())

        with pytest.raises(UsageError, match="no topic 'u'"):
            batch_ranges(job.options, job.topics)

    def test_of_nothing_has_no_task(self) -> None:
        job = Job(Link(a_broker()))

        assert batch_ranges(job.options, job.topics) == []


class TestATask:
    def test_asks_again_when_requests_and_answers_are_lost(self) -> None:
        job = Job(Link(a_log(3, 4), "><.<>."))

        assert job.read(MessageRange("t", LOG, 1, 6)) == messages(2, 6)

    def test_ends_with_endpoint_request_tries_and_seconds_without_an_answer(self) -> None:
        job = Job(Link(a_log(3), ">" * 11))

        with pytest.raises(ProxyUnreachableError) as error:
            job.read(MessageRange("t", LOG, 0, 3))

        assert (
            "HISTORY from tcp://127.0.0.1:5556 in 11 attempts over"
            in str(error.value).splitlines()[-1]
        )

    def test_gives_every_column_as_it_was_put(self) -> None:
        proxy = a_broker()
        columns = Batch([b"v", b""], [b"k", None], [{"h": "1"}, None])
        body = encode_batch(columns)
        request = a_put(1, count=2, body=body)
        assert request.crc == crc32(body)
        proxy.ask(request, body)
        schema = pa.schema(
            [
                ("topic", pa.string()),
                ("offset", pa.int64()),
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("timestamp", pa.timestamp("us", "UTC")),
                ("publisher", pa.string()),
                ("sequence", pa.int64()),
                ("headers", pa.map_(pa.string(), pa.string())),
            ]
        )
        reader = Job(Link(proxy)).reader()

        wanted = MessageRange("t", LOG, 0, 2)
        (batch,) = arrow_batches(wanted, reader, schema, fail_on_data_loss=True)

        time = batch.column("timestamp")[0].as_py()
        assert time.timestamp() == proxy.now_ns / 1e9
        assert [tuple(row.values()) for row in batch.to_pylist()] == [
            ("t", 0, b"k", b"v", time, "p", 1, [("h", "1")]),
            ("t", 1, None, b"", time, "p", 2, None),
        ]

    def test_gives_record_batches_of_a_bounded_size(self) -> None:
        proxy = a_log(*[5_000] * 5)
        schema = pa.schema([("offset", pa.int64())])
        reader = Job(Link(proxy)).reader()

        wanted = MessageRange("t", LOG, 7, 24_000)
        batches = list(arrow_batches(wanted, reader, schema, fail_on_data_loss=True))

        assert max(batch.num_rows for batch in batches) < 20_000
        offsets = [offset for batch in batches for offset in batch.column(0).to_pylist()]
        assert offsets == list(range(7, 24_000))


@pytest.fixture(autouse=True)
def warnings_are_seen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "reliable_pubsub.pipeline")


class TestAMissingTopic:
    def test_is_reported_and_fails_a_stream_that_has_waited_too_long(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        link = Link(a_log(3))
        named = {"subscribe": "t,tt", "missingTopicTimeout": "90s"}
        options = parse_options(named)
        job = Job(link)
        stream = QueryStream(
            options,
            ProxyTopics(
                options,
                status=StatusClient("", PATIENT, _world=a_world(job.transport(), job.clock)),
                reader=job.reader(),
                clock=job.clock,
            ),
            job.clock,
        )

        start = stream.initial()
        end = stream.latest(start, MANY)

        assert "there is no topic 'tt' yet" in caplog.text
        assert stream.ends()["waiting_for"] == ["tt"]
        job.clock.time_s += 91
        with pytest.raises(UsageError, match=r"no topic 'tt'.*did you mean 't'.*waited 91 s"):
            stream.latest(end, MANY)

    def test_may_be_waited_for_without_a_limit(self) -> None:
        assert parse_options({"subscribe": "t"}).missing_topic_s == 60
        waiting = parse_options({"subscribe": "t", "failOnMissingTopic": "false"})
        assert waiting.missing_topic_s == float("inf")


def test_a_batch_waits_for_enough_messages_but_not_forever() -> None:
    proxy = a_log(3)
    job = Job(Link(proxy), minOffsetsPerTrigger="5", maxTriggerDelay="1m")
    start = job.stream.initial()

    assert job.latest(start) == start
    put(proxy, 2)
    full = job.latest(start)
    assert job.values(start, full) == messages(1, 5)
    put(proxy, 1)
    assert job.latest(full) == full
    job.clock.time_s += 60
    assert job.values(full, job.latest(full)) == messages(6, 6)
