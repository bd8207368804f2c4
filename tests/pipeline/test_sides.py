"""A program that knows one endpoint reads and writes there: the proxy names the other one."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import BinaryType, StructField, StructType

from reliable_pubsub.common.core.endpoint import endpoints_of
from reliable_pubsub.pipeline.__main__ import main
from reliable_pubsub.pipeline.core.sides import swapped
from reliable_pubsub.pipeline.data_source import ReliablePubSubSource
from tests.integration.harness import Service

PUBLISHERS, SUBSCRIBERS = "tcp://*:5555", "tcp://*:5556"
MOST = ReadMaxRows(9)
VALUES = StructType([StructField("value", BinaryType())])


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("tcp://10.0.0.5:5555", "tcp://10.0.0.5:5556"),
        ("tcp://10.0.0.5:5556", "tcp://10.0.0.5:5556"),
        ("tcp://[::1]:5555", "tcp://[::1]:5556"),
        ("tcp://a:5555,tcp://b:5555", "tcp://a:5556,tcp://b:5556"),
        ("tcp://127.0.0.1:15555", "tcp://127.0.0.1:15555"),
    ],
)
def test_the_port_of_the_other_role_is_replaced_and_the_host_stays(given: str, found: str) -> None:
    assert swapped(given, PUBLISHERS, SUBSCRIBERS) == found
    assert len(endpoints_of(found)) == len(endpoints_of(given))


def test_a_socket_file_of_the_other_role_is_replaced_as_a_whole() -> None:
    assert swapped("ipc:///run/put", "ipc:///run/put", "ipc:///run/get") == "ipc:///run/get"
    assert swapped("ipc:///tunnel", "ipc:///run/put", "ipc:///run/get") == "ipc:///tunnel"


@pytest.mark.parametrize("word", ["endpoint", "Endpoint"])
def test_source_and_sink_take_either_endpoint(service: Service, word: str) -> None:
    service.start_proxy()
    with service.open_publisher("p") as publisher:
        publisher.put("t", b"1")
    start = {"topics": {}, "v": 1}
    publishers, subscribers = str(service.publisher_endpoint), str(service.subscriber_endpoint)

    for given in (publishers, subscribers):
        format_ = ReliablePubSubSource({word: given, "subscribe": "t"})
        reader: Any = format_.reader(VALUES)
        stream: Any = format_.streamReader(VALUES)
        (read,) = reader.partitions()
        (streamed,) = stream.partitions(start, stream.latestOffset(start, MOST))
        sink = ReliablePubSubSource({word: given, "topic": "t"})
        writer: Any = sink.writer(VALUES, overwrite=False)

        assert read.value[1] == streamed.value[1] == subscribers
        assert writer._options.endpoint == publishers


@pytest.mark.parametrize("role", ["publisher", "subscriber"])
def test_a_job_that_reads_and_puts_needs_one_endpoint(service: Service, role: str) -> None:
    service.start_proxy()
    with service.open_publisher("p") as publisher:
        publisher.put_many("t", [b"1", b"2"])
    endpoint = str(getattr(service, f"{role}_endpoint"))

    words = ["replay", "--topic", "t", "--to", "u", "--endpoint", endpoint]
    result = CliRunner().invoke(main, words, catch_exceptions=False)

    assert result.exit_code == 0, result.output
    assert service.payloads("u") == [b"1", b"2"]
