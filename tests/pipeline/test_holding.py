"""A load warns before that nothing keeps what it puts, or reports afterwards that it is gone."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.answers import SubAck
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.places import check_local
from reliable_pubsub.common.core.status import KeptStatus, StatusReport, TopicKept
from reliable_pubsub.common.status_client import StatusClient
from reliable_pubsub.pipeline.core.holding import (
    FileSplit,
    NotHeldError,
    check_still_there,
    refuse_unheld,
)
from reliable_pubsub.proxy.core.state import BrokerSettings
from reliable_pubsub.proxy.core.topic_log import Retention
from tests.fakes import (
    PATIENT,
    FakeClock,
    FakeTransport,
    Link,
    MemoryProxy,
    a_broker,
    a_sub,
    a_world,
)

from .test_stream import put

FEW = BrokerSettings(
    retention=Retention(history_bytes=100), topics={"large": Retention(history_bytes=10_000)}
)
NONE = BrokerSettings(retention=Retention(history_bytes=0))


def status(proxy: MemoryProxy) -> StatusReport:
    clock = FakeClock()
    return StatusClient("", PATIENT, _world=a_world(FakeTransport(Link(proxy), clock), clock)).ask()


def a_split(size: int, publisher: str = "p") -> FileSplit:
    return FileSplit(publisher, size)


class TestALoad:
    def test_that_is_larger_than_what_the_topic_keeps_is_refused_with_the_setting(self) -> None:
        report = status(a_broker(settings=FEW))

        refuse_unheld("t", [a_split(50), a_split(50, "q")], report)
        with pytest.raises(NotHeldError, match=r"history_bytes is 100.*Nothing was put.*--subscri"):
            refuse_unheld("t", [a_split(50), a_split(51, "q")], report)

    def test_is_measured_by_the_settings_of_its_topic(self) -> None:
        report = status(a_broker(settings=FEW))

        assert report.kept == KeptStatus(
            history_bytes=100, topics=(TopicKept(topic="large", history_bytes=10_000),)
        )
        refuse_unheld("large", [a_split(9_000)], report)
        with pytest.raises(NotHeldError):
            refuse_unheld("large", [a_split(10_001)], report)

    def test_that_a_subscription_waits_for_is_taken_whatever_its_size(self) -> None:
        proxy = a_broker(settings=FEW)
        assert isinstance(proxy.ask(a_sub(1)), SubAck)

        refuse_unheld("t", [a_split(10**12)], status(proxy))
        with pytest.raises(NotHeldError):
            refuse_unheld("u", [a_split(10**12)], status(proxy))

    def test_that_is_repeated_is_measured_by_the_splits_that_are_left(self) -> None:
        proxy = a_broker(settings=FEW)
        put(proxy, 60)

        refuse_unheld("t", [a_split(6_000), a_split(99, "another")], status(proxy))
        with pytest.raises(NotHeldError):
            refuse_unheld("t", [a_split(6_000), a_split(101, "another")], status(proxy))

    def test_of_which_the_proxy_has_removed_rows_meanwhile_says_so(self) -> None:
        proxy = a_broker(settings=NONE)
        put(proxy, 5, 5)
        check_still_there("t", 10, 0, status(proxy))
        proxy.tick()
        assert proxy.state.topics["t"].start > 0

        with pytest.raises(NotHeldError, match=r"10 messages were put.*removed.*below offset 10"):
            check_still_there("t", 10, 0, status(proxy))
        with pytest.raises(NotHeldError):
            check_still_there("t", 10, None, status(proxy))  # its first has no offset any more
        check_still_there("t", 0, None, status(proxy))  # a repeat, that put nothing

    def test_whose_rows_a_subscription_has_read_is_good(self) -> None:
        proxy = a_broker(settings=NONE)
        put(proxy, 5)
        proxy.tick()
        assert isinstance(proxy.ask(a_sub(1)), SubAck)

        check_still_there("t", 5, 0, status(proxy))


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("s3a://bucket/archive", "s3a: is not written or read here"),
        ("hdfs://node:9000/archive", "hdfs: is not"),
        ("hdfs:/archive", "hdfs: is not"),
        ("file:///tmp/archive", "write the path itself"),
    ],
)
def test_an_address_is_not_taken_for_a_folder(address: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_local(address)


@pytest.mark.parametrize("path", ["archive", "/a/b", "./s3a:", "a:b", "C", "2026-11-23T10:00/x"])
def test_a_path_is_a_path(path: str) -> None:
    assert check_local(path) == path
