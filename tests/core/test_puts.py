"""Puts that share a request: which do, what they send, and the outcome that each gets."""

from __future__ import annotations

from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.errors import ProxyUnreachableError, UsageError
from reliable_pubsub.common.core.limits import BATCH_MESSAGES_MAX, BODY_BYTES_MAX
from reliable_pubsub.common.core.wire import decode_batch
from reliable_pubsub.publisher.core.outbox import encoded_batch
from reliable_pubsub.publisher.core.puts import WaitingPut, failed, fitting, joined


def a_put(*payloads: bytes, topic: str = "t", qos: int = 2, is_alone: bool = False) -> WaitingPut:
    batch = Batch(payloads)
    return WaitingPut(batch, encoded_batch(topic, batch), qos, is_alone=is_alone)  # type: ignore[arg-type]


def a_put_of(batch: Batch) -> WaitingPut:
    return WaitingPut(batch, encoded_batch("t", batch), 2)


def test_puts_on_one_topic_at_one_level_share_a_request() -> None:
    first = a_put(b"1")
    same, several = a_put(b"2"), a_put(b"3", b"4")
    settled = a_put(b"5")
    failed([settled], UsageError("no"))
    others = [a_put(b"", topic="u"), same, a_put(b"", qos=1), a_put(b"", is_alone=True), settled]

    assert fitting(first, [*others, several]) == [first, same, several]
    assert fitting(a_put(b"", is_alone=True), [same])[1:] == []


def test_what_shares_a_request_fits_into_one() -> None:
    large = [a_put(bytes(BODY_BYTES_MAX // 3)) for _ in range(4)]
    many = [a_put(*[b""] * (BATCH_MESSAGES_MAX // 2)) for _ in range(3)]
    keyed = [a_put_of(Batch([b"m"] * 9000, [b"k"] * 9000)) for _ in range(99)]
    small = [a_put(*[b"m"] * 9000) for _ in range(99)]

    for puts, fit in ((large, 2), (many, 2)):
        assert len(fitting(puts[0], puts[1:])) == fit
    for puts in (large, many, [one for pair in zip(keyed, small, strict=True) for one in pair]):
        shared = fitting(puts[0], puts[1:])
        assert 1 < len(shared) < len(puts)
        assert len(joined(shared)[1].body) <= BODY_BYTES_MAX


def test_a_joined_batch_has_each_message_with_its_own_key_headers_and_time() -> None:
    puts = [
        a_put(b"plain", b"too"),
        a_put_of(Batch([b"keyed"], [b"k"])),
        a_put_of(Batch([b"all"], [b"a"], [{"h": "v"}], [7])),
    ]

    batch, whole = joined(puts)

    assert list(batch.payloads) == [b"plain", b"too", b"keyed", b"all"]
    found = decode_batch(whole.body, 4)
    assert found.keys == [None, None, b"k", b"a"]
    assert found.headers == [None, None, None, {"h": "v"}]
    assert found.event_times_ns == [None, None, None, 7]


def test_each_put_gets_an_error_of_its_own_with_the_facts_of_the_one_that_came() -> None:
    puts = [a_put(b"1"), a_put(b"2")]
    try:
        raise ProxyUnreachableError(endpoint="e", attempts=3, waited_s=1.0, verb="PUT")
    except ProxyUnreachableError as error:
        failed(puts, error, kept=True)
    found = [put.outcome for put in puts]

    assert found[0] is not found[1]
    for one in found:
        assert isinstance(one, ProxyUnreachableError)
        assert (one.attempts, one.kept, one.code) == (3, True, "PROXY_UNREACHABLE")
        assert "no answer to PUT from e" in str(one)


def test_what_is_settled_stays_so() -> None:
    put = a_put(b"1")
    failed([put], UsageError("first"))

    failed([put], UsageError("later"))

    assert str(put.outcome) == "first"
