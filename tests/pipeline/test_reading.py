"""What a task reads: a value that no column can hold stops nothing, and is reported."""

from __future__ import annotations

import logging

import msgspec
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, StructType

from reliable_pubsub.common.core.errors import ProxyUnreachableError
from reliable_pubsub.pipeline.core.columns import ARCHIVE_SCHEMA
from reliable_pubsub.pipeline.core.options import parse_options
from reliable_pubsub.pipeline.core.planning import MessageRange
from reliable_pubsub.pipeline.data_source import MessagesReader
from reliable_pubsub.pipeline.reading import arrow_batches, leave_out_of_collections
from reliable_pubsub.subscriber.reader import LogReader
from tests.fakes import PATIENT, FakeClock, FakeTransport, Link, a_broker, a_put, a_world
from tests.integration.harness import NOWHERE


def test_an_event_time_beyond_64_bits_is_left_out_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A foreign client may put one; it must not stop every later run of an archive."""
    proxy, clock = a_broker(), FakeClock()
    body = msgspec.msgpack.encode([[b"a", b"b"], None, None, [2**63, 7]])
    proxy.ask(a_put(1, count=2, body=body), body)
    reader = LogReader(retry=PATIENT, _world=a_world(FakeTransport(Link(proxy), clock), clock))
    log = proxy.state.topics["t"].log
    wanted = MessageRange(topic="t", log=log, first=0, end=2)

    with caplog.at_level(logging.WARNING, "reliable_pubsub.pipeline"):
        (rows,) = arrow_batches(wanted, reader, ARCHIVE_SCHEMA, fail_on_data_loss=True)

    assert rows.column("value").to_pylist() == [b"a", b"b"]
    assert rows.column("event_time_ns").to_pylist() == [None, 7]
    assert "offset 0: its event time 9223372036854775808" in caplog.text


def test_a_worker_takes_its_modules_out_of_garbage_collection_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr("gc.freeze", lambda: told.append("freeze"))
    leave_out_of_collections.cache_clear()
    given = {"endpoint": NOWHERE, "subscribe": "t", "timeoutMs": "1", "retries": "0"}
    reader = MessagesReader(parse_options(given), StructType().add("value", BinaryType()))

    for _ in range(2):
        with pytest.raises(ProxyUnreachableError):
            list(reader.read(InputPartition((MessageRange("t", "x.1", 0, 1), NOWHERE))))

    assert told == ["freeze"]
