"""Tasks that read the store: what is there is what the proxy holds, and the proxy has the rest."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from reliable_pubsub.common.core.batch import StoredBatch
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.wire import decode_batch
from reliable_pubsub.pipeline.archive_tasks import StageRange, stage_range
from reliable_pubsub.pipeline.core.places import check_store
from reliable_pubsub.pipeline.core.planning import MessageRange
from reliable_pubsub.pipeline.data_source import FORMAT
from reliable_pubsub.pipeline.stored_log import StoredLog
from reliable_pubsub.proxy.core.records import Trimmed
from reliable_pubsub.proxy.postgres_connection import connect_to_read
from reliable_pubsub.proxy.postgres_store import PostgresStore
from reliable_pubsub.proxy.store import Store
from reliable_pubsub.proxy.stored_state import open_reader
from tests.fakes import LOG, NOW_NS, a_beginning, an_append
from tests.integration.harness import NOWHERE, Service
from tests.postgres import needs_postgresql, shared_server

from .test_spark_source import put, values


class AskedProxy:
    """Notes what it is asked, and has one batch of its own."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def read(self, topic: str, start: int, **_: Any) -> list[StoredBatch]:
        self.asked.append(start)
        batch = an_append(start)
        return [StoredBatch(batch.header, decode_batch(batch.body, 1), 0)]


class Opened:
    """A store with batches at offsets 0, 1 to 2 and 3, a reader of it, and the proxy beside."""

    def __init__(self, store: Store | PostgresStore, reader: Any) -> None:
        self.store, self.proxy = store, AskedProxy()
        store.commit([*a_beginning(), an_append(0), an_append(1, count=2), an_append(3)])
        self.log = StoredLog(reader, self.proxy)

    def read(
        self, start: int, *, log: str = LOG, witness_ns: int | None = None
    ) -> list[tuple[int, int, int]]:
        """Base, count and skipped messages of each batch."""
        found = self.log.read("t", start, log=log, witness_ns=witness_ns, messages_max=100)
        return [(one.header.base, one.header.count, one.skip) for one in found]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=needs_postgresql)])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            store: Store | PostgresStore = stack.enter_context(closing(Store(tmp_path, "os")))
            reader: Any = open_reader(tmp_path / "proxy.sqlite3")
        else:
            dsn = shared_server().new_schema()
            store = stack.enter_context(closing(PostgresStore(dsn, "sync")))
            reader = connect_to_read(dsn)
        stack.enter_context(closing(reader))
        yield Opened(store, reader)


class TestWhatTheStoreHas:
    def test_is_read_there_and_the_proxy_is_not_asked(self, opened: Opened) -> None:
        assert opened.read(0) == [(0, 1, 0), (1, 2, 0), (3, 1, 0)]
        assert opened.read(2, witness_ns=NOW_NS + 1) == [(1, 2, 1), (3, 1, 0)]
        assert opened.proxy.asked == []

    def test_is_seen_when_it_was_committed_after_the_store_was_opened(self, opened: Opened) -> None:
        assert opened.read(3) == [(3, 1, 0)]
        opened.store.commit([an_append(4)])

        assert opened.read(4) == [(4, 1, 0)]
        assert opened.proxy.asked == []


class TestTheProxyIsAsked:
    def test_for_what_was_removed(self, opened: Opened) -> None:
        opened.store.commit([Trimmed(1, 3, 4, NOW_NS + 3)])

        assert opened.read(1) == [(1, 1, 0)]
        assert opened.proxy.asked == [1]

    def test_for_another_log_of_the_same_name(self, opened: Opened) -> None:
        opened.read(0, log="another")

        assert opened.proxy.asked == [0]

    def test_if_another_message_is_at_the_offset_before(self, opened: Opened) -> None:
        opened.read(1, witness_ns=NOW_NS + 77)

        assert opened.proxy.asked == [1]

    def test_after_the_end(self, opened: Opened) -> None:
        opened.read(4)

        assert opened.proxy.asked == [4]


def test_a_damaged_row_is_not_read_and_the_proxy_is_asked_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "proxy.sqlite3"
    with closing(Store(tmp_path, "os")) as store, closing(open_reader(path)) as reader:
        opened = Opened(store, reader)
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("UPDATE batch SET body = zeroblob(length(body)) WHERE base = 1")

        with caplog.at_level(logging.WARNING, "reliable_pubsub.pipeline"):
            opened.read(1)

    assert opened.proxy.asked == [1]
    assert "offsets 1 to 2 is damaged on disk" in caplog.text


def test_a_task_of_an_archive_reads_the_store_without_the_proxy(tmp_path: Path) -> None:
    data, folder = tmp_path / "data", tmp_path / "archive"
    folder.mkdir()
    with closing(Store(data, "os")) as store:
        store.commit([*a_beginning(), an_append(0), an_append(1, count=2), an_append(3)])
        work = StageRange(
            wanted=MessageRange("t", LOG, 1, 4),
            archive=str(folder),
            endpoint=NOWHERE,
            retry=RetryPolicy(retries_max=0),
            store=str(data),
        )

        (written,) = stage_range(work)

    assert (written.first, written.end, written.rows) == (1, 4, 3)


@pytest.mark.parametrize("wrong", ["data", "./data", "s3a://bucket/data", "mysql://host/db"])
def test_a_store_that_tasks_could_not_find_is_refused_when_the_query_is_made(wrong: str) -> None:
    with pytest.raises(UsageError):
        check_store(wrong)


def test_a_query_reads_the_store_of_a_running_proxy_and_spares_it(
    spark: SparkSession, service: Service
) -> None:
    service.start_proxy()
    put(service, "t", 1_000)
    before = service.status().requests_count
    where = {"endpoint": service.subscriber_endpoint, "subscribe": "t"}
    small = {"maxRecordsPerPartition": "100"}  # ten tasks

    frame = spark.read.format(FORMAT).options(**where, **small, store=str(service.data_dir))

    assert values(frame.load()) == list(range(1_000))
    assert service.status().requests_count - before < 10  # what the driver asks
