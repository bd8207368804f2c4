"""The public interface, found by looking: its names, its errors, and how its values are shown."""

from __future__ import annotations

import builtins
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

import reliable_pubsub
from reliable_pubsub import (
    Admin,
    Batch,
    Message,
    Publisher,
    PubSubError,
    Subscriber,
    TooLargeError,
    UsageError,
    aio,
    at_time,
    typed,
)
from reliable_pubsub.common.core import errors
from reliable_pubsub.common.core.limits import PAYLOAD_BYTES_MAX
from reliable_pubsub.common.core.schemas import classes_unknown_to_msgspec
from tests.fakes import Link, MemoryProxy, a_world

ERROR = re.compile(r"\b[A-Z]\w*(?:Error|Warning)\b")
SECONDS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())


def a_publisher(**more: Any) -> Publisher:
    return Publisher("p", _world=a_world(Link(MemoryProxy())), **more)


def documented() -> Iterator[tuple[str, str]]:
    """Every public class and call, with its docstring."""
    for room in (reliable_pubsub, aio):
        for name in room.__all__:
            one = getattr(room, name)
            yield name, inspect.getdoc(one) or ""
            if inspect.isclass(one):
                for member, value in inspect.getmembers(one):
                    if not member.startswith("_") or member == "__init__":
                        yield f"{name}.{member}", inspect.getdoc(value) or ""


class TestEveryError:
    def test_that_a_public_docstring_names_can_be_imported(self) -> None:
        missing = {
            (where, name)
            for where, text in documented()
            for name in ERROR.findall(text)
            if name not in reliable_pubsub.__all__ and not hasattr(builtins, name)
        }

        assert not missing

    def test_of_this_package_can_be_imported(self) -> None:
        ours = {
            name
            for name, one in vars(errors).items()
            if inspect.isclass(one) and issubclass(one, PubSubError)
        }

        assert ours <= set(reliable_pubsub.__all__)

    def test_of_this_package_is_in_its_tree(self) -> None:
        listed = set(ERROR.findall(errors.__doc__ or ""))

        assert listed == {name for name in vars(errors) if name.endswith("Error")}


class TestTheRepr:
    def test_of_a_message_is_bounded(self) -> None:
        large = Message(
            *("t" * 255, 7, "p", 1, 1, b"x" * 10**6, b"k" * 10**5),
            headers={f"{n}" * 99: "v" * 10**4 for n in range(99)},
        )

        assert len(repr(large)) < 1500
        assert repr(Message("t", 7, "p", 3, 1, b"hello", b"k")) == (
            "<Message p_3 topic='t' offset=7 key=b'k' delivery_count=1 qos=2 5 bytes: b'hello'>"
        )

    def test_of_every_public_value_has_no_address(self) -> None:
        publisher = a_publisher()
        with publisher.stream() as stream:
            shown: list[object] = [stream, stream.put("t", b"x"), stream.put("t", b"y")]
        shown += [publisher.transaction(), publisher.interests(), publisher, typed(int)]
        shown += [Batch((b"x" * 10**6,)), Subscriber("s", _world=a_world(Link(MemoryProxy())))]
        shown.append(Admin(_world=a_world(Link(MemoryProxy()))))

        assert all(" at 0x" not in repr(one) for one in shown), shown
        assert all(len(repr(one)) < 300 for one in shown)


class Line(BaseModel):
    model_config = ConfigDict(strict=True)
    name: str = Field(alias="Name")
    at: datetime


class Order(BaseModel):
    lines: list[Line]
    price: float = 1.0


@dataclass
class Parcel:
    orders: list[Order]


class Unknown:
    """A class that no codec reads."""


LINE = Line(Name="a", at=datetime(2026, 1, 1, tzinfo=UTC))
ORDER = Order(lines=[LINE])


class TestATypedCodec:
    @pytest.mark.parametrize("format", ["json", "msgpack"])
    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            (Order, ORDER),
            (list[Order], [ORDER]),
            (dict[str, Line], {"a": LINE}),
            (Parcel, Parcel([ORDER])),
        ],
    )
    def test_reads_back_a_model_of_pydantic_wherever_it_is(
        self, kind: Any, value: object, format: Any
    ) -> None:
        codec = typed(kind, format)

        assert codec.decode(codec.encode(value)) == value

    @pytest.mark.parametrize("value", [{"lines": [1]}, {}, 7])
    def test_refuses_what_is_no_such_model_at_the_put(self, value: object) -> None:
        publisher = a_publisher(codecs={"orders": typed(Order)})

        with pytest.raises(reliable_pubsub.PayloadError, match="Nothing was sent"):
            publisher.put("orders", value)  # type: ignore[call-overload]

    def test_refuses_a_number_that_json_does_not_have(self) -> None:
        with pytest.raises(ValueError, match="nan"):
            typed(Order).encode(Order(lines=[], price=float("nan")))

    @pytest.mark.parametrize("kind", [Unknown, list[Unknown], dict[str, Unknown], Unknown | None])
    def test_of_an_unknown_class_is_refused_when_it_is_made(self, kind: Any) -> None:
        with pytest.raises(UsageError, match="Unknown is neither"):
            typed(kind)

    def test_looks_at_a_type_that_contains_itself(self) -> None:
        assert classes_unknown_to_msgspec(reliable_pubsub.RetryPolicy) == []


class TestATime:
    @pytest.mark.parametrize("unit", [1, 10**3, 10**6])
    def test_in_a_larger_unit_than_nanoseconds_is_refused(self, unit: int) -> None:
        with pytest.raises(UsageError, match="nanoseconds"):
            at_time(SECONDS * unit)
        publisher = a_publisher()
        with pytest.raises(UsageError, match="nanoseconds"):
            publisher.put("t", b"x", event_time_ns=SECONDS * unit)
        with pytest.raises(UsageError, match="nanoseconds"):
            publisher.put_many("t", [b"x"], event_times_ns=[SECONDS * unit])
        with publisher.transaction() as both, pytest.raises(UsageError, match="nanoseconds"):
            both.put("t", b"x", event_time_ns=SECONDS * unit)

    def test_in_nanoseconds_is_taken(self) -> None:
        assert at_time(SECONDS * 10**9) == at_time(datetime(2026, 1, 1, tzinfo=UTC))
        assert at_time(0).value == 0
        a_publisher().put("t", b"x", event_time_ns=SECONDS * 10**9)


def test_every_kind_of_put_has_the_same_largest_payload() -> None:
    largest, larger = b"x" * PAYLOAD_BYTES_MAX, b"x" * (PAYLOAD_BYTES_MAX + 1)
    publisher = a_publisher()
    publisher.put("t", largest)
    publisher.put_many("t", [largest])
    publisher.put_batch("t", Batch((largest,)))
    with publisher.transaction() as both:
        both.put("t", largest)
        with pytest.raises(TooLargeError):
            both.put("t", larger)
    with publisher.stream() as stream:
        stream.put("t", largest)
        with pytest.raises(TooLargeError):
            stream.put("t", larger)
    with pytest.raises(TooLargeError):
        publisher.put("t", larger)
    with pytest.raises(TooLargeError):
        publisher.put_many("t", [larger])
    with pytest.raises(TooLargeError):
        publisher.put_batch("t", Batch((larger,)))


def test_a_client_lists_its_topics_and_hides_what_is_internal() -> None:
    link = Link(MemoryProxy())
    publisher = Publisher("p", _world=a_world(link))
    for topic in ("a", "b"):
        publisher.put(topic, b"x")

    assert publisher.topics() == ("a", "b")
    assert Subscriber("s", _world=a_world(link)).topics() == ("a", "b")
    assert not {"inbox", "outbox"} & set(dir(publisher))
    assert reliable_pubsub.__version__[0].isdigit()
