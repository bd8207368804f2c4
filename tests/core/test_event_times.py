"""Event times have 64 bits: others are refused at put; one of a stranger breaks no reader."""

from __future__ import annotations

import msgspec
import pytest

from reliable_pubsub.common.core.batch import Batch, Message
from reliable_pubsub.common.core.dead_letter import dead_letter
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.wire import decode_batch, encode_batch
from reliable_pubsub.publisher.client import Publisher
from tests.fakes import Disk, FakeClock, Link, MemoryProxy, a_world

TOO_LATE = [2**63, 2**64 - 1, 2**64, 10**30]
TOO_EARLY = [-(2**63) - 1, -(10**30)]


def a_publisher(link: Link, disk: Disk) -> Publisher:
    clock = FakeClock()
    return Publisher("p", _world=a_world(link, clock, disk))


@pytest.mark.parametrize("time_ns", [*TOO_LATE, *TOO_EARLY])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_one_beyond_64_bits_is_refused_before_anything_is_numbered(time_ns: int, qos: int) -> None:
    link, disk = Link(MemoryProxy()), Disk()
    publisher = a_publisher(link, disk)

    with pytest.raises(UsageError, match="event_time"):
        publisher.put("t", b"a", event_time_ns=time_ns, qos=qos)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="event_time"):
        publisher.put_many("t", [b"a", b"b"], event_times_ns=[None, time_ns])
    with pytest.raises(UsageError, match="event_time"), publisher.transaction() as transaction:
        transaction.put("t", b"a", event_time_ns=time_ns)

    assert (link.answers, disk.values) == ([], {})


@pytest.mark.parametrize("time_ns", [-(2**63), -1, 0, 2**63 - 1])
def test_every_other_one_is_kept(time_ns: int) -> None:
    body = encode_batch(Batch([b"a"], event_times_ns=[time_ns]))

    assert decode_batch(body, 1).event_times_ns == [time_ns]


@pytest.mark.parametrize("columns", [{"keys": ["k"]}, {"headers": [{"a": b"b"}]}])
def test_other_columns_of_a_wrong_kind_are_refused_too(columns: dict[str, list[object]]) -> None:
    with pytest.raises(UsageError):
        encode_batch(Batch([b"a"], **columns))  # type: ignore[arg-type]


def test_one_that_a_stranger_put_is_read_and_can_be_given_up() -> None:
    """The proxy does not look into a body (decisions/0004), so a reader may meet it."""
    body = msgspec.msgpack.encode([[b"a"], None, None, [2**63]])

    (time_ns,) = decode_batch(body, 1).event_times_ns or ()
    letter = decode_batch(
        dead_letter(Message("t", 0, "p", 1, 0, b"a", None, None, time_ns), "s", 1, "no"), 1
    )

    assert time_ns == 2**63
    assert letter.event_times_ns == [None]
    assert letter.headers is not None
    assert letter.headers[0] is not None
    assert letter.headers[0]["dead-letter-event-time-ns"] == str(2**63)
