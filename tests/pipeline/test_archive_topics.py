"""A query over an archive reads by offset, so compacted files are not read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.pipeline.archive_topics import LOOK_S, ArchiveTopics, archived_range
from reliable_pubsub.pipeline.core.columns import COLUMNS
from reliable_pubsub.pipeline.core.loss import DataLossError
from reliable_pubsub.pipeline.core.options import parse_options
from reliable_pubsub.pipeline.core.planning import MessageRange
from reliable_pubsub.pipeline.stream import QueryStream, batch_ranges
from tests.fakes import FakeClock

from .test_archive import catch_up, compact, everything, two_topics
from .test_stream import KEEP_NOTHING, a_log, messages, put

TYPES = {
    "string": StringType(),
    "bigint": LongType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
}
SCHEMA = to_arrow_schema(
    StructType([StructField(name, TYPES[kind]) for name, kind in COLUMNS.items()]), timezone="UTC"
)


class Query:
    """A streaming query over an archive."""

    def __init__(self, folder: Path, **given: str) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.options = parse_options({"subscribePattern": ".*", "archive": str(folder), **given})
        self.topics = ArchiveTopics(self.options, clock=self.clock)
        self.stream = QueryStream(self.options, self.topics)

    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        self.clock.time_s += 2 * LOOK_S
        return self.stream.latest(start, 1_000)

    def rows(self, ranges: list[MessageRange]) -> list[dict[str, Any]]:
        loss = self.options.fail_on_data_loss
        return [
            row
            for one in ranges
            for batch in archived_range(one, self.folder, SCHEMA, fail_on_data_loss=loss)
            for row in batch.to_pylist()
        ]

    def values(self, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
        return [row["value"] for row in self.rows(self.stream.ranges(start, end))]


class TestAStreamOverAnArchive:
    def test_reads_each_message_once_even_when_files_are_compacted_and_added(
        self, tmp_path: Path
    ) -> None:
        proxy = a_log(7)
        catch_up(proxy, tmp_path)
        query = Query(tmp_path)
        start = query.stream.initial()

        first = query.latest(start)
        put(proxy, 4)
        catch_up(proxy, tmp_path)
        compact(tmp_path)
        second = query.latest(first)

        assert query.values(start, first) == messages(1, 7)  # again, as after a crash
        assert query.values(first, second) == messages(8, 11)
        assert query.latest(second) == second

    def test_is_the_same_from_its_checkpoint_in_another_process(self, tmp_path: Path) -> None:
        proxy = a_log(7)
        catch_up(proxy, tmp_path)
        query = Query(tmp_path)
        end = query.latest(query.stream.initial())
        put(proxy, 2)
        catch_up(proxy, tmp_path)
        compact(tmp_path)

        again = Query(tmp_path)

        assert again.values(end, again.latest(end)) == messages(8, 9)

    def test_stops_where_the_archive_has_a_gap(self, tmp_path: Path) -> None:
        proxy = a_log(3, settings=KEEP_NOTHING)
        catch_up(proxy, tmp_path)
        put(proxy, 3)
        proxy.tick()
        put(proxy, 2)
        catch_up(proxy, tmp_path, fail_on_data_loss=False)
        start = Query(tmp_path).stream.initial()

        for given, expected in (("true", None), ("false", [*messages(1, 3), *messages(7, 8)])):
            query = Query(tmp_path, failOnDataLoss=given)
            end = query.latest(start)
            if expected is None:
                with pytest.raises(DataLossError, match="offsets 3 to 5 "):
                    query.values(start, end)
            else:
                assert query.values(start, end) == expected


def test_a_batch_over_an_archive_has_every_column(tmp_path: Path) -> None:
    catch_up(two_topics(), tmp_path)
    query = Query(tmp_path, maxRecordsPerPartition="3")

    rows = query.rows(batch_ranges(query.options, query.topics))

    seen = sorted((row["topic"], row["offset"], row["value"]) for row in rows)
    assert seen == everything(("t", 10), ("u", 4))
    assert (rows[0]["publisher"], rows[0]["sequence"]) == ("p", 1)


def test_a_time_is_found_in_an_archive(tmp_path: Path) -> None:
    catch_up(a_log(4, 4), tmp_path)
    query = Query(tmp_path)
    extent = query.topics.extents()["t"]
    some = query.rows(batch_ranges(query.options, query.topics))

    found = [query.topics.find_time("t", extent, time_ns) for time_ns in (0, 9 * 10**18)]

    assert found == [0, len(some)]


def test_an_archive_has_no_subscriptions_and_no_tables() -> None:
    for more in ({"subscriber": "s"}, {"table": "topics"}):
        with pytest.raises(UsageError, match="goes with neither"):
            parse_options({"subscribe": "t", "archive": "folder", **more})
