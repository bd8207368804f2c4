"""Sources and sinks reach a proxy that knows keys, and their tasks too; no Java is started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark.cloudpickle import dumps, loads
from pyspark.sql.types import BinaryType, StructField, StructType

from reliable_pubsub.lab.rig.keyed_service import KeyedService
from reliable_pubsub.pipeline.data_source import ReliablePubSubSource

T = TypeVar("T")
SCHEMA = StructType([StructField("value", BinaryType())])


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KeyedService]:
    """The environment names the keys of `sensor-1`."""
    with KeyedService(tmp_path) as service:
        monkeypatch.setenv("RELIABLE_PUBSUB_SECRET_KEY", str(service.secret("sensor-1")))
        monkeypatch.setenv("RELIABLE_PUBSUB_SERVER_KEY", str(service.keys / "proxy.key"))
        service.start()
        yield service


def in_a_task(one: T, monkeypatch: pytest.MonkeyPatch) -> T:
    """An object as a worker of a cluster has it, without the environment of the driver."""
    sent = dumps(one)  # type: ignore[no-untyped-call]
    monkeypatch.delenv("RELIABLE_PUBSUB_SECRET_KEY", raising=False)
    monkeypatch.delenv("RELIABLE_PUBSUB_SERVER_KEY", raising=False)
    found: T = loads(sent)
    return found


@pytest.mark.parametrize("word", ["endpoint", "Endpoint"])
def test_a_source_reads_with_the_keys_of_the_settings(
    service: KeyedService, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    with service.open_publisher("p") as publisher:
        publisher.put_many("t", [b"1", b"2", b"3"])
    options = {word: str(service.subscriber_endpoint), "subscribe": "t"}
    source = ReliablePubSubSource(options)
    reader: Any = source.reader(SCHEMA)
    (wanted,) = reader.partitions()

    batches = list(in_a_task(reader, monkeypatch).read(wanted))

    assert [one.as_py() for batch in batches for one in batch.column("value")] == [
        b"1",
        b"2",
        b"3",
    ]


def test_a_sink_puts_with_the_keys_of_the_settings(
    service: KeyedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"endpoint": str(service.publisher_endpoint), "topic": "t"}
    found = ReliablePubSubSource(options).parsed_sink(streaming=True)

    where = in_a_task(found, monkeypatch).endpoint

    with service.open_publisher("p", endpoint=where) as publisher:
        assert publisher.put("t", b"1").offset == 0


def test_keys_allow_an_endpoint_of_another_machine(service: KeyedService) -> None:
    source = ReliablePubSubSource({"endpoint": "tcp://192.0.2.1:5556", "subscribe": "t"})

    assert source.parsed().endpoint == "tcp://192.0.2.1:5556"
