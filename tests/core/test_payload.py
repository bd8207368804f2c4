"""Values as payloads: each codec gives its value back, and what it cannot write is not sent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf, nan
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Raw, Struct

from reliable_pubsub import Codec, Message, PayloadError, Publisher, Subscriber, UsageError, typed
from reliable_pubsub.common.core.payload import CONTENT_TYPE, CodecName, codec_named, encoded
from tests.fakes import Disk, FakeClock, FakeTransport, Link, MemoryProxy, a_world


class Order(Struct):
    id: int
    amount: Annotated[float, Meta(gt=0)]


@dataclass
class Reading:
    at: datetime
    celsius: float


def message(payload: bytes, content_type: str | None = None) -> Message:
    headers = None if content_type is None else {CONTENT_TYPE: content_type}
    return Message("t", 7, "p", 8, 0, payload, None, headers)


def sent(codec: CodecName | Codec, value: object) -> Message:
    chosen = codec_named(codec)
    return message(encoded("t", value, chosen), chosen.content_type)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.binary())
def test_bytes_come_back(value: bytes) -> None:
    assert sent("bytes", value).value == value


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_comes_back(value: str) -> None:
    assert sent("text", value).value == value


@given(JSON)
def test_what_json_has_comes_back_or_is_refused(value: Any) -> None:
    try:
        read = sent("json", value)
    except PayloadError:
        assert "inf" in repr(value)
    else:
        assert read.value == value


@given(JSON)
def test_what_messagepack_has_comes_back(value: Any) -> None:
    assert sent("msgpack", value).value == value


@pytest.mark.parametrize("value", [nan, inf, -inf, {"a": [1.0, nan]}, [None, {"b": inf}]])
def test_json_refuses_a_number_that_it_would_write_as_null(value: object) -> None:
    with pytest.raises(PayloadError, match="JSON has no"):
        sent("json", value)
    assert repr(sent("msgpack", value).value) == repr(value)


@pytest.mark.parametrize(
    "value",
    [{1: "a", "1": "b"}, [{"a": {0.5: 1, "0.5": 2}}], Raw(b'{"a": 1, "a": 2}'), Raw(b"{")],
)
def test_json_refuses_what_would_be_read_back_with_less(value: object) -> None:
    with pytest.raises(PayloadError, match=r"same text|truncated"):
        sent("json", value)


def test_json_that_is_written_already_stays_as_it_is() -> None:
    assert sent("json", Raw(b'{ "a": 1 }')).payload == b'{ "a": 1 }'


@pytest.mark.parametrize(
    ("codec", "value"),
    [("bytes", "text"), ("text", b"bytes"), ("text", "\ud800"), ("json", object()), ("json", 1j)],
)
def test_what_a_codec_cannot_write_is_an_error_that_says_so(
    codec: CodecName, value: object
) -> None:
    with pytest.raises(PayloadError, match="Nothing was sent") as refused:
        sent(codec, value)
    assert refused.value.topic == "t"


def test_a_payload_without_a_content_type_is_its_bytes() -> None:
    assert message(b"\xff").value == b"\xff"


@pytest.mark.parametrize(
    ("content_type", "payload", "value"),
    [
        ("application/JSON; charset=UTF-8", b'{"a": 1}', {"a": 1}),
        ("application/cloudevents+json", b"[1]", [1]),
        ('text/csv; charset="utf-8"; header=present', b"a,b", "a,b"),
        ("application/msgpack", b"\x91\x01", [1]),
    ],
)
def test_content_types_of_other_clients_are_read(
    content_type: str, payload: bytes, value: object
) -> None:
    assert message(payload, content_type).value == value


@pytest.mark.parametrize("content_type", ["image/png", "text/plain; charset=latin-1", ""])
def test_an_unknown_content_type_leaves_the_bytes_and_says_so(content_type: str) -> None:
    unknown = message(b"\xff", content_type)

    with pytest.raises(PayloadError, match=r"message\.payload") as error:
        assert unknown.value

    assert (error.value.offset, error.value.content_type) == (7, content_type)
    assert unknown.payload == b"\xff"


def test_bytes_that_are_not_what_their_header_says_are_an_error_with_the_place() -> None:
    with pytest.raises(PayloadError, match="offset 7 of topic 't'") as error:
        assert message(b"{", "application/json").value
    assert (error.value.code, error.value.exit_code) == ("PAYLOAD", 4)


def test_a_value_is_read_as_a_type() -> None:
    reading = Reading(datetime(2026, 1, 1, tzinfo=UTC), 21.5)
    for codec in (typed(Reading), typed(Reading, "msgpack")):
        assert sent(codec, reading).value_as(Reading) == reading
    assert message(b'{"id": 1, "amount": 2}').value_as(Order) == Order(1, 2)  # without a header


@pytest.mark.parametrize("format_", ["json", "msgpack"])
@pytest.mark.parametrize(
    "value",
    [{"id": 1}, {"id": "1", "amount": 1.0}, Order(1, -1.0), Order("1", 1.0), [], None],  # type: ignore[arg-type]
)
def test_a_schema_refuses_at_put_what_its_readers_could_not_read(
    format_: Any, value: object
) -> None:
    with pytest.raises(PayloadError):
        sent(typed(Order, format_), value)


def test_a_codec_of_the_program_is_read_with_value_as() -> None:
    reversing = Codec("reversed", "application/x-reversed", lambda v: v[::-1], lambda p: p[::-1])
    received = sent(reversing, b"abc")
    assert (received.payload, received.value_as(reversing)) == (b"cba", b"abc")


def test_an_exception_that_is_not_about_the_value_passes_a_codec() -> None:
    def alarmed(_: object) -> bytes:
        raise TimeoutError("an alarm")

    with pytest.raises(TimeoutError):
        sent(Codec("x", "x", alarmed, alarmed), b"")


# Through the clients.


class House:
    def __init__(self, **publisher: Any) -> None:
        proxy, clock = MemoryProxy(), FakeClock()
        worlds = [a_world(FakeTransport(Link(proxy), clock), clock, Disk()) for _ in "ps"]
        self.publisher = Publisher("p", _world=worlds[0], **publisher)
        self.subscriber = Subscriber("s", _world=worlds[1])
        self.subscriber.subscribe("t")

    def values(self) -> list[object]:
        return [one.value for one in self.subscriber.get("t", max_messages=100)]


def test_every_way_to_put_takes_a_codec() -> None:
    house = House()
    house.publisher.put("t", {"a": 1}, codec="json")
    house.publisher.put_many("t", ["x", "y"], codec="text")
    with house.publisher.transaction() as transaction:
        transaction.put("t", [1], codec="msgpack")
    with house.publisher.stream() as stream:
        stream.put("t", {"b": 2}, codec="json")
        stream.put("t", {"c": 3}, codec="json")
        stream.put("t", b"plain")
        stream.put("t", "text", codec="text")

    assert house.values() == [{"a": 1}, "x", "y", [1], {"b": 2}, {"c": 3}, b"plain", "text"]


def test_a_topic_with_a_schema_takes_nothing_else() -> None:
    house = House(codecs={"t": typed(Order)})
    publisher = house.publisher
    publisher.put("t", Order(1, 2.0))
    publisher.put("t", {"id": 2, "amount": 1})
    with pytest.raises(PayloadError):
        publisher.put("t", {"id": 3})
    with pytest.raises(PayloadError):
        publisher.put_many("t", [{"id": 4, "amount": 1}, {"id": 5}])
    with pytest.raises(PayloadError):
        publisher.put("t", b'{"id": 6, "amount": 1}')
    with pytest.raises(UsageError, match="leave `codec` out"):
        publisher.put("t", "text", codec="text")
    with publisher.stream() as stream, pytest.raises(PayloadError):
        stream.put("t", {})
    with pytest.raises(PayloadError), publisher.transaction() as transaction:
        transaction.put("t", {})
    publisher.put("other", b"bytes")

    read = [one.value_as(Order) for one in house.subscriber.get("t", max_messages=100)]
    assert read == [Order(1, 2.0), Order(2, 1.0)]


def test_a_batch_of_bytes_does_not_pass_a_schema() -> None:
    from reliable_pubsub.common.core.batch import Batch

    house = House(codecs={"t": typed(Order)})
    with pytest.raises(UsageError, match="use put or put_many"):
        house.publisher.put_batch("t", Batch([b"x"]))
    assert house.values() == []


def test_headers_stay_and_a_contradicting_content_type_is_refused() -> None:
    house = House()
    house.publisher.put("t", "x", codec="text", headers={"unit": "C"})
    with pytest.raises(UsageError, match="leave the header to the codec"):
        house.publisher.put("t", "x", codec="text", headers={"Content-Type": "text/html"})

    (received,) = house.subscriber.get("t", max_messages=100)
    assert received.headers == {"unit": "C", CONTENT_TYPE: "text/plain; charset=utf-8"}


def test_a_stream_holds_its_batches_in_bounds_with_content_types() -> None:
    house = House()
    large = "x" * 300_000
    with house.publisher.stream() as stream:
        for _ in range(8):
            stream.put("t", large, codec="text")

    assert [house.values() for _ in range(4)] == [[large] * 3, [large] * 3, [large] * 2, []]
