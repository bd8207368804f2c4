"""Wrong arguments never lower a promise (rule R27): each call of the library refuses them all.

The calls are found by looking: what `reliable_pubsub` offers, and what these take and give. A call
or a parameter that is new has to say here which of many odd values it takes.
"""

from __future__ import annotations

import enum
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cached_property, partial
from math import inf, nan
from pathlib import Path, PosixPath, PurePosixPath
from types import FunctionType
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

import reliable_pubsub.pipeline
from reliable_pubsub import (
    Admin,
    Codec,
    Earliest,
    LastReceived,
    Message,
    Now,
    Position,
    Publisher,
    QoSWarning,
    RetryPolicy,
    Start,
    Subscriber,
    Transaction,
    UsageError,
    ago,
    at_offset,
    at_time,
    newest,
    secure,
    typed,
)
from reliable_pubsub.common.core.arguments import Seconds, check_argument, checked
from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.parameters import parameter_of, shown
from reliable_pubsub.common.core.patterns.pattern import Pattern, glob, prefix, regex
from reliable_pubsub.common.core.plan_mark import PlanMark
from reliable_pubsub.common.world import World
from reliable_pubsub.publisher.core.puts import Payloads
from reliable_pubsub.publisher.streams.stream import Stream
from reliable_pubsub.subscriber.core.push_timing import PushTiming
from tests.fakes import Disk, FakeClock, FakeTransport, Link, MemoryProxy, a_world
from tests.interrupting import Interrupted, Interrupter


class Unfriendly:
    """Cannot be shown, compared or counted."""

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    def __index__(self) -> int:
        raise RuntimeError("index")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        raise RuntimeError("len")

    def __bool__(self) -> bool:
        raise RuntimeError("bool")


class Color(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    ONE = 1


ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, 3, -1, 2**63, 10**5000, 0.0, 0.5, 2.0, -0.5, nan, inf, -inf, 1j),
    *(
        "",
        "x",
        "1",
        "2",
        "Stop",
        "ADOPT",
        "exactly-once",
        "earliest",
        "1h",
        "foo",
        "a\0b",
        "\ud800",
    ),
    *(b"", b"x", bytearray(b"x"), memoryview(b"x"), [], (), {}, set(), [b"x"], [1], ["x"], (b"x",)),
    *([None], [{}], {"a": "b"}, {"a": 1}, {1: "a"}, {b"a": b"b"}, iter([b"x"]), range(2)),
    *(object(), Unfriendly(), int, len, Level.ONE, Color.RED, Fraction(1, 2), PurePosixPath("x")),
    *(timedelta(hours=1), datetime(2026, 1, 1, tzinfo=UTC), Earliest, Position("t", 0)),
    *(RetryPolicy(), PushTiming(), Batch([b"x"]), PlanMark("digest"), FakeClock(), Disk(), World()),
)

Takes = Callable[[Any], bool]
READ_AS = ("typed", "Message.value_as")  # take a type


def is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return is_int(value) or isinstance(value, float | Fraction)


def within(low: float, high: float) -> Takes:
    """Finite numbers in a range, both ends included."""
    return lambda value: is_number(value) and low <= value <= high


def count(low: int, high: int) -> Takes:
    return lambda value: is_int(value) and low <= value <= high


def event_time(value: Any) -> bool:
    return is_int(value) and -(2**63) <= value < 2**63


def one_of(*values: Any) -> Takes:
    kinds = {type(value) for value in values}
    return lambda value: type(value) in kinds and value in values


def a(*kinds: type) -> Takes:
    return lambda value: isinstance(value, kinds)


def or_none(takes: Takes) -> Takes:
    return lambda value: value is None or takes(value)


def of(takes: Takes) -> Takes:
    """A list or tuple of them."""
    return lambda value: isinstance(value, list | tuple | range) and all(map(takes, value))


def has(*names: str) -> Takes:
    return lambda value: not isinstance(value, type) and all(hasattr(value, n) for n in names)


def headers(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(part, str) for pair in value.items() for part in pair
    )


data = a(bytes, bytearray, memoryview)
path = or_none(
    lambda value: (
        isinstance(value, str | PurePosixPath) and str(value) not in ("", "a\0b", "\ud800")
    )
)
pause_reason = lambda value: isinstance(value, str) and value != "\ud800"  # noqa: E731
day_s = within(1e-9, 86_400)
natural = count(0, 2**63 - 1)
waiting = lambda value: is_number(value) and (0 <= value < 2**1023 or value == inf)  # noqa: E731
level = one_of(0, 1, 2)
acknowledgers = lambda value: one_of("all")(value) or count(1, 2_000)(value)  # noqa: E731
lease = or_none(within(0.001, 30 * 86_400))

# Which of the odd values each parameter takes, by its name; where a call differs, by both names.
TAKES: dict[str, Takes] = {
    **dict.fromkeys(("topic", "client", "reason"), a(str)),
    **dict.fromkeys(("Admin.pause.reason", "Admin.drain.reason"), pause_reason),
    **dict.fromkeys(("endpoint", "push_via"), or_none(a(str))),
    **dict.fromkeys(("name", "use"), a(str)),
    **dict.fromkeys(("state_dir", "journal"), path),
    **dict.fromkeys(("payload",), data),
    **dict.fromkeys(("text", "where"), a(str)),
    "Subscriber.subscribe.topic": or_none(a(str)),
    "match": or_none(a(Pattern)),
    "key": or_none(data),
    "headers": or_none(headers),
    "event_time_ns": or_none(event_time),
    "payloads": of(data),
    "count": count(1, 65_536),
    "keys": or_none(of(or_none(data))),
    "Publisher.put_many.headers": or_none(of(or_none(headers))),
    "event_times_ns": or_none(of(or_none(is_int))),
    "qos": lambda value: is_int(value) and value in (0, 1, 2),
    "wait": one_of("stored", "delivered"),
    "Publisher.wait_delivered.acknowledged_by": acknowledgers,
    "Publisher.put.acknowledged_by": or_none(acknowledgers),
    "timeout_s": or_none(
        lambda value: waiting(value) and value > 0  # type: ignore[no-untyped-call]
    ),
    "Publisher.wait_delivered.timeout_s": day_s,
    **dict.fromkeys(("Subscriber.get.timeout_s", "Publisher.wait_for_interest.timeout_s"), waiting),
    "Subscriber.messages.timeout_s": or_none(waiting),
    "Publisher.interests.timeout_s": or_none(waiting),
    "Publisher.interests.topics": a(str, Pattern),
    "every_s": within(0.01, 86_400),
    "Ticket.result.timeout_s": or_none(within(0, 366 * 86_400)),
    "linger_s": within(0, 3_600),
    "session": one_of("persistent", "clean"),
    "group": or_none(a(str)),
    "name": a(str),
    "ordered_by": or_none(one_of("key")),
    "ends_group": a(bool),
    "delay_s": within(0, 30 * 86_400),
    "lease_s": lease,
    **dict.fromkeys(("push", "allow_plaintext"), a(bool)),
    "codec": one_of(None, "bytes", "text", "json", "msgpack"),
    "codecs": lambda value: value is None or (type(value) is dict and not value),
    **{f"{call}.kind": lambda value: value is None or value is int for call in READ_AS},
    "format": one_of("json", "msgpack"),
    "handler": callable,
    "retries": natural,
    "pause_s": within(0, 60),
    "on_failure": or_none(one_of("stop", "reject")),
    "Subscriber.run.timeout_s": or_none(waiting),
    **dict.fromkeys(("Codec.name", "Codec.content_type"), a(str)),
    **dict.fromkeys(("Codec.encode", "Codec.decode"), callable),
    "Transaction.payloads": or_none(a(Payloads)),
    "max_deliveries": or_none(count(1, 1_000)),
    "max_messages": count(1, 65_536),
    "Subscriber.subscribe.start": or_none(a(Start, Position)),
    "Subscriber.seek.start": a(Start, Position),
    "Subscriber.history.start": lambda value: isinstance(value, Start) or is_int(value),
    "Publisher.on_log_changed": one_of("stop", "adopt"),
    "Subscriber.on_log_changed": one_of("stop", "rewind", "adopt"),
    "retry": or_none(a(RetryPolicy)),
    "push_timing": or_none(a(PushTiming)),
    "_world": or_none(a(World)),
    **dict.fromkeys(("on_silence", "on_lower_qos", "begins", "Transaction.commit"), callable),
    "batch": a(Batch),
    **dict.fromkeys(("Publisher.put_batch.note", "Publisher.transaction.note"), or_none(data)),
    "note": data,
    "repeats": a(bool),
    "topics": of(a(str)),
    "Publisher.ready_for.count": count(1, 65_536),
    **dict.fromkeys(("receipt", "message"), lambda value: False),
    **dict.fromkeys(("secure.endpoint", "server_key", "secret_key"), a(str)),
    "at_offset.offset": is_int,
    "newest.messages": is_int,
    "at_time.moment": lambda value: is_int(value) or isinstance(value, datetime),
    "ago.age": lambda value: isinstance(value, timedelta),
    "Start.at": one_of("earliest"),
    **dict.fromkeys(("Start.value", "Position.offset"), natural),
    "RetryPolicy.retries_max": or_none(lambda value: natural(value) or one_of("forever")(value)),
    "Position.log": or_none(a(str)),
    "RetryPolicy.timeout_s": day_s,
    **dict.fromkeys(("RetryPolicy.pause_s", "RetryPolicy.pause_s_max"), within(0, 86_400)),
    **dict.fromkeys(("PushTiming.silence_s_min", "PushTiming.silence_s_max"), day_s),
    "PushTiming.tell_s": day_s,
    "PushTiming.misses_max": count(1, 2**63 - 1),
    "subscriber": a(str),
    "look": a(bool),
    "role": one_of("publisher", "subscriber"),
    **dict.fromkeys(("Admin.set_cursor.start", "Admin.truncate.start"), a(Start)),
    "Admin.skip.end": or_none(natural),
    "Subscriber.close.timeout_s": waiting,
    "Admin.drain.timeout_s": within(0, 366 * 86_400),
}


class House:
    """A publisher and a subscriber in memory, with messages in hand and in doubt."""

    def __init__(self) -> None:
        clock = FakeClock()
        self.proxy = MemoryProxy()
        self.disks = Disk(), Disk()
        self.transports = [FakeTransport(Link(self.proxy), clock) for _ in range(3)]
        self.publisher = Publisher("p", _world=a_world(self.transports[0], clock, self.disks[0]))
        self.subscriber = Subscriber("s", _world=a_world(self.transports[1], clock, self.disks[1]))
        self.admin = Admin(_world=a_world(self.transports[2], clock))
        self.subscriber.subscribe("t")
        self.receipt = self.publisher.put_many("t", [b"a", b"b", b"c"])
        (self.message,) = self.subscriber.get("t")
        self.transaction = self.publisher.transaction()

    @cached_property
    def stream(self) -> Stream:
        """A stream that stores nothing; its thread ends with the process."""
        return Stream(lambda topic, batch: self.receipt, linger_s=0)

    def looks(self) -> object:
        """Everything that a call may change."""
        return (
            [list(transport.sent) for transport in self.transports],
            [dict(disk.values) for disk in self.disks],
            self.subscriber.inbox.of("t").in_hand,
            list(self.subscriber.inbox.of("t").fetched),
            self.subscriber.is_pushed("t"),
            repr(self.transaction._rows),
            self.publisher._sender is not None,
        )


def on_publisher(name: str) -> Callable[[House], Any]:
    return lambda house: getattr(house.publisher, name)


def on_subscriber(name: str) -> Callable[[House], Any]:
    return lambda house: getattr(house.subscriber, name)


def on_admin(name: str) -> Callable[[House], Any]:
    return lambda house: getattr(house.admin, name)


TOPIC_OF_S = {"topic": "t", "subscriber": "s"}
SILENT = FakeTransport(lambda frames: None)
# Every call that takes something, with arguments that are right. Those that are made from the
# house are our own values, for which every odd value is refused.
RIGHT: dict[str, tuple[Callable[[House], Any], dict[str, Any]]] = {
    "Publisher": (
        lambda _: Publisher,
        {"client": "q", "_world": World(connect=lambda _: SILENT)},
    ),
    "Subscriber": (
        lambda _: Subscriber,
        {"client": "q", "_world": World(connect=lambda _: SILENT)},
    ),
    "Transaction": (lambda _: Transaction, {"begins": print, "commit": print}),
    "RetryPolicy": (lambda _: RetryPolicy, {}),
    "PushTiming": (lambda _: PushTiming, {}),
    "Start": (lambda _: Start, {"at": "offset"}),
    "Position": (lambda _: Position, {"topic": "t", "offset": 0}),
    "ago": (lambda _: ago, {"age": timedelta(hours=1)}),
    "at_offset": (lambda _: at_offset, {"offset": 1}),
    "at_time": (lambda _: at_time, {"moment": 1}),
    "glob": (lambda _: glob, {"text": "t*"}),
    "regex": (lambda _: regex, {"text": "t.*"}),
    "prefix": (lambda _: prefix, {"text": "t"}),
    "newest": (lambda _: newest, {"messages": 1}),
    "secure": (lambda _: secure, {"endpoint": "tcp://127.0.0.1:5555", "server_key": "x" * 40}),
    "typed": (lambda _: typed, {"kind": int}),
    "Codec": (lambda _: Codec, {"name": "x", "content_type": "y", "encode": len, "decode": len}),
    "Message.value_as": (lambda house: house.message.value_as, {"kind": int}),
    "Publisher.put": (on_publisher("put"), {"topic": "t", "payload": b"x"}),
    "Publisher.put_many": (on_publisher("put_many"), {"topic": "t", "payloads": [b"x"]}),
    "Publisher.put_batch": (on_publisher("put_batch"), {"topic": "t", "batch": Batch([b"x"])}),
    "Publisher.wait_delivered": (on_publisher("wait_delivered"), {"receipt": House().receipt}),
    "Publisher.interest": (on_publisher("interest"), {"topic": "t"}),
    "Publisher.interests": (on_publisher("interests"), {}),
    "Publisher.wait_for_interest": (
        on_publisher("wait_for_interest"),
        {"topic": "t", "timeout_s": 0},
    ),
    "Publisher.stream": (on_publisher("stream"), {}),
    "Publisher.transaction": (on_publisher("transaction"), {}),
    "Publisher.ready_for": (on_publisher("ready_for"), {"topic": "t"}),
    "Publisher.begin_run": (on_publisher("begin_run"), {"note": b"x", "topics": ["t"]}),
    "Transaction.put": (lambda house: house.transaction.put, {"topic": "t", "payload": b"x"}),
    "Stream.put": (lambda house: house.stream.put, {"topic": "t", "payload": b"x"}),
    "Stream.flush": (lambda house: house.stream.flush, {}),
    "Stream.close": (lambda house: house.stream.close, {}),
    "Publisher.resume": (lambda house: house.publisher.resume, {}),
    "Publisher.connect": (lambda house: house.publisher.connect, {}),
    "Publisher.topics": (lambda house: house.publisher.topics, {}),
    "Subscriber.connect": (on_subscriber("connect"), {}),
    "Subscriber.topics": (on_subscriber("topics"), {}),
    "Subscriber.off": (on_subscriber("off"), {"topic": "t"}),
    "Subscriber.close": (on_subscriber("close"), {}),
    "Subscriber.keep_alive": (on_subscriber("keep_alive"), {}),
    "Ticket.result": (lambda house: house.stream.put("t", b"x").result, {}),
    "Subscriber.subscribe": (on_subscriber("subscribe"), {"topic": "t"}),
    "Subscriber.use_push": (on_subscriber("use_push"), {"topic": "t", "push": False}),
    "Subscriber.is_pushed": (on_subscriber("is_pushed"), {"topic": "t"}),
    "Subscriber.push_counts": (on_subscriber("push_counts"), {"topic": "t"}),
    "Subscriber.unstored_counts": (on_subscriber("unstored_counts"), {"topic": "t"}),
    "Subscriber.unsubscribe": (on_subscriber("unsubscribe"), {"topic": "t"}),
    "Subscriber.get": (on_subscriber("get"), {"topic": "t"}),
    "Subscriber.messages": (on_subscriber("messages"), {"topic": "t"}),
    "Subscriber.on": (on_subscriber("on"), {"topic": "t", "handler": print}),
    "Subscriber.run": (on_subscriber("run"), {}),
    "Subscriber.acknowledge": (on_subscriber("acknowledge"), {"topic": "t"}),
    "Subscriber.ack": (on_subscriber("ack"), {"message": House().message}),
    "Subscriber.nack": (on_subscriber("nack"), {"message": House().message}),
    "Subscriber.extend": (on_subscriber("extend"), {"message": House().message}),
    "Subscriber.reject": (on_subscriber("reject"), {"message": House().message, "reason": "bad"}),
    "Subscriber.history": (on_subscriber("history"), {"topic": "t"}),
    "Subscriber.read": (on_subscriber("read"), {"topic": "t"}),
    "Subscriber.record": (on_subscriber("record"), {"topic": "t", "note": b"x"}),
    "Admin": (lambda _: Admin, {"_world": World(connect=lambda _: SILENT)}),
    "Admin.end_subscription": (on_admin("end_subscription"), TOPIC_OF_S),
    "Admin.forget_client": (on_admin("forget_client"), {"client": "s"}),
    "Subscriber.seek": (on_subscriber("seek"), {"topic": "t", "start": Earliest}),
    "Admin.set_cursor": (on_admin("set_cursor"), {**TOPIC_OF_S, "start": Earliest}),
    "Admin.skip": (on_admin("skip"), TOPIC_OF_S),
    "Admin.truncate": (on_admin("truncate"), {"topic": "t", "start": Earliest}),
    "Admin.delete_topic": (on_admin("delete_topic"), {"topic": "t"}),
    "Admin.topics": (on_admin("topics"), {}),
    "Admin.clients": (on_admin("clients"), {}),
    "Admin.pause": (on_admin("pause"), {}),
    "Admin.resume": (on_admin("resume"), {}),
    "Admin.drain": (on_admin("drain"), {}),
    "Subscriber.write_note": (on_subscriber("write_note"), {"note": b"x"}),
}

# What the library gives, and who makes it: a caller has no reason to make one, and where one is
# taken each of its fields is checked.
GIVEN = (
    {"Batch", "Delivery", "Interest", "Message", "OfferCounts", "Numbered", "Pending"}
    | {"InterestChange", "Interests"}
    | {"PlanMark", "PlanPosition", "PushCounts", "Reading", "Receipt", "UnstoredCounts"}
    | {"Stream", "Ticket"}  # their constructors
    | {"AdminOutcome", "ClientStatus", "TopicStatus", "SubscriptionStatus", "PublisherStatus"}
    | {"RingStatus", "Terms", "Pattern"}
)


# Finding the calls.


def calls_of(kind: type) -> Iterator[tuple[str, Any]]:
    """Its constructor and its public methods.

    What our values compute is for ourselves, except how a message is read.
    """
    if kind.__name__ not in GIVEN:
        yield kind.__name__, kind
    if issubclass(kind, Struct) and kind is not Message:
        return
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("reliable_pubsub."):
            continue
        for name, member in vars(base).items():
            if isinstance(member, FunctionType) and not name.startswith("_"):
                yield f"{kind.__name__}.{name}", member


def function_of(call: Any) -> Any:
    made: Any = getattr(call, "__init__", None) if isinstance(call, type) else None
    return made if isinstance(made, FunctionType) else call


def hints_of(call: Any) -> Mapping[str, Any]:
    inner = inspect.unwrap(function_of(call))
    if isinstance(call, type) and issubclass(call, Struct):
        return typing.get_type_hints(call)
    return typing.get_type_hints(inner)


def classes_in(hint: Any) -> Iterator[type]:
    """Our classes that an annotation names."""
    if isinstance(hint, type) and hint.__module__.startswith("reliable_pubsub."):
        yield hint
    for part in typing.get_args(hint):
        yield from classes_in(part)


def found() -> dict[str, Any]:
    """Every call by its name: what is offered, and what that takes and gives."""
    offered = [getattr(reliable_pubsub, name) for name in reliable_pubsub.__all__]
    calls = {one.__name__: one for one in offered if isinstance(one, FunctionType)}
    left = [one for one in offered if isinstance(one, type)]
    left += [type(one) for one in offered if not isinstance(one, type | FunctionType)]
    seen: set[type] = set()
    while left:
        kind = left.pop()
        if kind in seen or issubclass(kind, BaseException) or not is_ours(kind):
            continue
        seen.add(kind)
        for name, call in calls_of(kind):
            calls[name] = call
            left += [one for hint in hints_of(call).values() for one in classes_in(hint)]
    return calls


def is_ours(kind: type) -> bool:
    """Not a protocol, which the caller brings, nor a part of a client that is not for callers."""
    return not getattr(kind, "_is_protocol", False) and kind.__name__ not in (
        "Recorder",
        "Outbox",
        "Payloads",
        "World",
    )


CALLS = {name: call for name, call in found().items() if set(hints_of(call)) - {"return"}}
PARAMETERS = [
    (call, parameter)
    for call, function in CALLS.items()
    for parameter in hints_of(function)
    if parameter != "return"
]


def takes(call: str, parameter: str) -> Takes:
    specific = f"{call}.{parameter}"
    return TAKES[specific] if specific in TAKES else TAKES[parameter]


# Of these another argument, `codec`, decides what is allowed.
HINTS: Mapping[str, Any] = {
    **{call: {"payload": bytes} for call in ("Publisher.put", "Transaction.put", "Stream.put")},
    "Publisher.put_many": {"payloads": Sequence[bytes]},
}


def both_ways(call: str, parameter: str) -> Iterator[Callable[..., object]]:
    """Give an argument by its name, and by its place if it has one."""
    yield lambda door, **arguments: door(**arguments)
    places = [
        one.name
        for one in inspect.signature(CALLS[call]).parameters.values()
        if one.kind is one.POSITIONAL_OR_KEYWORD and one.name != "self"
    ]
    first = places[: places.index(parameter) + 1] if parameter in places else []
    if first and {parameter, *RIGHT[call][1]}.issuperset(first):
        yield lambda door, **arguments: door(*[arguments.pop(name) for name in first], **arguments)


def test_every_call_is_found_and_says_what_it_takes() -> None:
    assert set(CALLS) == set(RIGHT)
    assert all(takes(*one) for one in PARAMETERS)
    assert len(PARAMETERS) > 90


@pytest.mark.parametrize(("call", "parameter"), PARAMETERS, ids=map(".".join, PARAMETERS))
def test_a_wrong_argument_is_refused_before_anything_happens(call: str, parameter: str) -> None:
    where, right = RIGHT[call]
    accepts = takes(call, parameter)
    house = House()
    before = house.looks()
    wrong = [value for value in ODD if not accepts(value)]

    for value, given in ((value, given) for value in wrong for given in both_ways(call, parameter)):
        with pytest.raises(UsageError) as refused:
            given(where(house), **right | {parameter: value})
        assert f"{call}: {parameter} is {shown(value)}, allowed is " in str(refused.value)
        assert len(str(refused.value)) < 700

    assert wrong
    assert house.looks() == before


@pytest.mark.parametrize(("call", "parameter"), PARAMETERS, ids=map(".".join, PARAMETERS))
def test_a_right_argument_passes_as_the_plain_value(call: str, parameter: str) -> None:
    accepts = takes(call, parameter)
    door = CALLS[call]
    right = RIGHT[call][1]

    for value in filter(accepts, ODD):
        if isinstance(door, type) and issubclass(door, Struct):
            plain = getattr(door(**right | {parameter: value}), parameter)
        else:
            hint = HINTS.get(call, {}).get(parameter)
            allowed = None if hint is None else parameter_of(hint)
            plain = check_argument(function_of(door), parameter, value, allowed)
        assert plain == (Path(value) if parameter in ("state_dir", "journal") and value else value)
        if isinstance(value, enum.Enum | bytearray | memoryview | Fraction):
            assert type(plain) in (int, str, bytes, float, PosixPath)


@pytest.mark.parametrize(
    "argument",
    [
        {"payload": bytearray(b"a")},
        {"headers": {"a": "b"}},
        {"event_time_ns": 1},
        {"acknowledged_by": 1},
    ],
    ids=lambda one: next(iter(one)),
)
def test_what_a_signal_handler_raises_is_not_taken_for_a_wrong_argument(
    argument: dict[str, Any],
) -> None:
    def put(interrupter: Interrupter) -> None:
        house: Any = House()
        with (
            suppress(UsageError),
            interrupter,
        ):  # acknowledged_by alone is refused, once it was read
            house.publisher.put("t", **{"payload": b"", **argument})

    put(Interrupter())  # the first call of a process makes what later ones find
    put(calm := Interrupter())
    for line in range(1, calm.count):
        with pytest.raises(Interrupted):
            put(Interrupter([line]))


# What the calls for many messages take apart.


def test_entries_and_fields_are_named_where_they_are_wrong() -> None:
    house: Any = House()
    before = house.looks()

    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: house.publisher.put_many("t", [b"a", "b"]), "entry 1 is 'b' (str), not bytes"),
        (lambda: house.publisher.put("t", b"", headers={"a": 1}), "entry 'a' (str) is 1 (int)"),
        (
            lambda: house.subscriber.reject(replace(house.message, offset="0"), "bad"),
            "its offset is '0' (str), not a whole number",
        ),
        (lambda: house.publisher.put_many("t", iter([b"a"])), "make a list of it first"),
        (
            lambda: house.publisher.put_many("t", [b"a", b"b"], keys=[b"a"]),
            "keys has 1 entry, payloads 2: give one for each, or None",
        ),
        (
            lambda: house.publisher.put_many("t", [b"a"], headers=[None, {}]),
            "headers has 2 entries, payloads 1",
        ),
        (
            lambda: house.publisher.put_batch("t", Batch([b"a"], event_times_ns=[])),
            "event_times_ns has 0 entries, payloads 1",
        ),
        (
            lambda: house.publisher.put_many("t", [b"a"], keys=1),
            "keys is 1 (int), allowed is None, or a list or tuple, each entry bytes or None. Not",
        ),
        (
            lambda: house.publisher.put_many("t", [b"a"], headers=1),
            "is None, or a list or tuple, each entry a mapping of text to text or None. Not",
        ),
        (lambda: house.publisher.put("t", "text"), "text.encode()"),
        (lambda: house.admin.pause("\ud800"), "that has a UTF-8 form"),
        (lambda: house.admin.drain("x" * 201), "text of at most 200 characters"),
        (lambda: house.publisher.put_many("t", []), "at least one message"),
        (lambda: house.publisher.put("t", b"", qos=0, wait="delivered"), "never acknowledged"),
        (lambda: house.subscriber.push_counts("t"), "push is not on"),
        (
            lambda: house.subscriber.history("t", LastReceived),
            "does not begin at LastReceived: it belongs to a subscription",
        ),
        (
            lambda: house.subscriber.history("t", Now),
            "Expected an offset, Earliest, at_offset(n), newest(n), at_time(t) or ago(age)",
        ),
        (lambda: house.subscriber.subscribe("t", start=Position("u", 0)), "one of 'u'"),
    ]
    for call, told in calls:
        with pytest.raises(UsageError) as refused:
            call()
        assert told in str(refused.value)

    assert house.looks() == before


def test_what_is_taken_is_a_copy() -> None:
    house: Any = House()
    payload = bytearray(b"as it was")

    with house.transaction as both:
        both.put("u", payload)
        payload[:] = b"as it is "
    (message,) = house.subscriber.history("u")

    assert message.payload == b"as it was"


def test_a_call_with_too_few_or_unknown_arguments_is_pythons_error_with_a_note_of_all() -> None:
    house: Any = House()
    put = "Publisher.put takes by place topic, payload; by name codec=, key=, headers="
    made = "takes by place client; by name endpoint=, state_dir=, retry=, allow_plaintext="

    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: house.publisher.put("t"), put),
        (lambda: house.publisher.put("t", b"", qso=0), put),
        (lambda: house.publisher.put("t", b"", b""), put),
        (lambda: house.subscriber.get("t", 3), "Subscriber.get takes by place topic; by name max_"),
        (lambda: house.publisher.close(1), ""),
    ]
    kinds: list[Any] = [Publisher, Subscriber]
    calls += [
        (partial(kind, "c", "tcp://127.0.0.1:5555"), f"{kind.__name__} {made}") for kind in kinds
    ]
    for call, note in calls:
        with pytest.raises(TypeError) as told:
            call()
        assert "".join(getattr(told.value, "__notes__", [])).startswith(note)


def test_a_type_error_from_within_a_call_has_no_note_of_its_arguments() -> None:
    @checked
    def calls(function: Callable[..., object]) -> None:
        function()

    with pytest.raises(TypeError) as told:
        calls(len)

    assert not hasattr(told.value, "__notes__")


def test_what_newcomers_write_is_refused_with_the_way_out() -> None:
    house: Any = House()

    for call, way_out in (
        (lambda: Publisher("tcp://127.0.0.1:5555"), "an endpoint, which is given as `endpoint`"),
        (lambda: house.subscriber.subscribe(match="a/*"), "allowed is glob(...), regex(...) or"),
        (lambda: house.publisher.put("t", {"a": 1}), "with a codec such as codec='json'"),
        (lambda: house.publisher.put("t", "text"), "or a value with a codec such as codec='json'"),
        (lambda: house.publisher.put_many("t", [{"a": 1}]), "entry bytes, or a value with a codec"),
    ):
        with pytest.raises(UsageError) as told:
            call()
        assert way_out in str(told.value)


def test_a_warning_names_the_line_of_the_program_whatever_wraps_the_call() -> None:
    house = House()
    house.publisher.put("t", b"d", qos=1)
    house.subscriber.subscribe("t", start=Earliest)
    with pytest.warns(QoSWarning) as warned:
        house.subscriber.get("t", max_messages=4)

    assert {one.filename for one in warned} == {__file__}


def test_the_pipeline_refuses_what_is_no_name_no_session_and_no_progress() -> None:
    pipeline: Any = reliable_pubsub.pipeline
    calls: list[Callable[[], object]] = [
        lambda: pipeline.session(5),
        lambda: pipeline.session("x", master=4),
        lambda: pipeline.register("spark"),
        lambda: pipeline.lag(5),
    ]
    for call in calls:
        with pytest.raises(UsageError):
            call()


def test_a_value_is_looked_at_although_one_of_its_type_was_taken_before() -> None:
    calls = []

    @checked
    def wait(topic: str, timeout_s: Seconds) -> None:
        calls.append((topic, timeout_s))

    wait("t", 1.0)
    wait("t", 2.0)

    with pytest.raises(UsageError):
        wait("t", nan)
    assert calls == [("t", 1.0), ("t", 2.0)]
