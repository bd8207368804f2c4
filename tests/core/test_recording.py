"""What a journal says of each outcome: every operation of a client, and every answer to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from reliable_pubsub.common.core.answers import (
    AnyReply,
    Busy,
    Conflict,
    Duplicate,
    Fenced,
    Full,
    Gap,
    HelloAck,
    Limit,
    LogChanged,
    Lost,
    Malformed,
    NotSub,
    Stale,
    StorageFull,
)
from reliable_pubsub.common.core.batch import Batch, crc32
from reliable_pubsub.common.core.errors import PubSubError, StorageFailedError
from reliable_pubsub.common.core.plan_mark import PlanMark
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.common.core.requests import Ack, Get, Hello, Put, Sub, Unsub
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.wire import decode_request, encode
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.client import Subscriber
from tests.fakes import (
    LOG,
    NOW_NS,
    Disk,
    FakeTransport,
    Link,
    a_body,
    a_broker,
    a_put,
    a_world,
)
from tests.journal_lines import JournalLines, Told, stamp

ONCE = RetryPolicy(retries_max=0)
A, B, C = (crc32(payload) for payload in (b"a", b"b", b"c"))


class AnsweringLink(Link):
    """A link that answers one verb differently, or not at all, once a test says so."""

    verb: type = type(None)
    reply: Callable[..., AnyReply] | None = None

    def __call__(self, frames: Sequence[bytes]) -> Sequence[bytes] | None:
        request, _ = decode_request(frames)
        if not isinstance(request, self.verb):
            return super().__call__(frames)
        if self.reply is None:
            return None
        who = {"client": request.client, "epoch": request.epoch, "request": request.request}
        return encode(self.reply(**who))


class World:
    """A publisher and a subscriber of one proxy, each with a journal."""

    def __init__(self) -> None:
        self.link = AnsweringLink(a_broker())
        self.puts, self.gets = JournalLines("p"), JournalLines("s")
        self.publisher = self.a_publisher()
        self.subscriber = self.a_subscriber()

    def a_publisher(self, *, state: Disk | None = None, **more: Any) -> Publisher:
        world = a_world(self.link, state=state, recorder=Recorder(self.puts))
        return Publisher("p", **{"retry": ONCE, **more}, _world=world)

    def a_subscriber(self, **more: Any) -> Subscriber:
        world = a_world(self.link, recorder=Recorder(self.gets))
        return Subscriber("s", **{"retry": ONCE, **more}, _world=world)

    def from_now_on(self, verb: type, reply: Callable[..., AnyReply] | None) -> None:
        """Make the proxy answer a verb with this; None is silence."""
        self.link.verb, self.link.reply = verb, reply


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def subscribed(world: World) -> World:
    world.subscriber.subscribe("t")
    return world


# Every answer, to every operation.

SILENCE = None
FENCED = partial(Fenced, text="", current_epoch=99)
CONFLICT = partial(Conflict, text="", first_sequence=1, count=1)
GAP = partial(Gap, text="", expected=1)
LIMIT = partial(Limit, text="", limit=1)
FULL, BUSY, STORAGE_FULL = (partial(kind, text="") for kind in (Full, Busy, StorageFull))
MALFORMED, STALE, NOT_SUB = (partial(kind, text="") for kind in (Malformed, Stale, NotSub))
LOG_CHANGED = partial(LogChanged, text="", topic="t", log=LOG, start=0, end=0)
LOST = partial(Lost, first=3, end=7)

OPERATIONS: dict[str, tuple[type, Callable[[World], object]]] = {
    "hello": (Hello, lambda world: world.publisher.connect()),
    "put": (Put, lambda world: world.publisher.put("t", b"a")),
    "subscribe": (Sub, lambda world: world.subscriber.subscribe("t")),
    "unsubscribe": (Unsub, lambda world: world.subscriber.unsubscribe("t")),
    "acknowledge": (Ack, lambda world: world.subscriber.acknowledge("t")),
    "get": (Get, lambda world: world.subscriber.get("t")),
}
NOTHING_IS_KNOWN: dict[str, dict[str, Callable[..., AnyReply] | None]] = {
    "hello": {"PROXY_UNREACHABLE": SILENCE, "MALFORMED": MALFORMED, "STORAGE_FULL": STORAGE_FULL},
    "put": {
        "PROXY_UNREACHABLE": SILENCE,
        "FULL": FULL,
        "BUSY": BUSY,
        "STORAGE_FULL": STORAGE_FULL,
        "FENCED": FENCED,
        "LOG_CHANGED": GAP,  # it knows fewer than it acknowledged
        "MALFORMED": MALFORMED,
        "REFUSED": HelloAck,  # an answer that fits no put
    },
    "subscribe": {
        "PROXY_UNREACHABLE": SILENCE,
        "BUSY": BUSY,
        "FENCED": FENCED,
        "LOG_CHANGED": LOG_CHANGED,
        "MALFORMED": MALFORMED,
    },
    "unsubscribe": {"PROXY_UNREACHABLE": SILENCE, "BUSY": BUSY, "FENCED": FENCED, "STALE": STALE},
    "acknowledge": {"PROXY_UNREACHABLE": SILENCE, "BUSY": BUSY, "FENCED": FENCED, "STALE": STALE},
}
NO_EFFECT: dict[str, dict[str, Callable[..., AnyReply] | None]] = {
    "put": {"CONFLICT": CONFLICT, "LIMIT": LIMIT},
    "subscribe": {"LIMIT": LIMIT},
    "acknowledge": {"NOT_SUB": NOT_SUB},
    "get": {  # nothing was handed over, whatever the reason
        "PROXY_UNREACHABLE": SILENCE,
        "BUSY": BUSY,
        "FENCED": FENCED,
        "NOT_SUB": NOT_SUB,
        "STALE": STALE,
    },
}


def answers(table: dict[str, dict[str, Any]]) -> list[tuple[str, str, Any]]:
    """Operation, code, answer."""
    return [(op, code, reply) for op, codes in table.items() for code, reply in codes.items()]


def last_line(world: World, op: str, reply: Callable[..., AnyReply] | None) -> Told:
    """The effect of an operation that was answered so."""
    verb, operation = OPERATIONS[op]
    if op == "put":
        world.publisher.ready_for("t")
    elif verb in (Unsub, Ack, Get):
        world.subscriber.subscribe("t")
    world.from_now_on(verb, reply)
    with pytest.raises(PubSubError):
        operation(world)
    journal = world.puts if op in ("hello", "put") else world.gets
    *_, last = journal.of(op)
    return last


@pytest.mark.parametrize(("op", "code", "reply"), answers(NOTHING_IS_KNOWN))
def test_what_may_have_had_its_effect_or_may_have_it_later_is_unknown(
    op: str, code: str, reply: Callable[..., AnyReply] | None, world: World
) -> None:
    """Also FENCED, LOG_CHANGED and STALE: an earlier attempt may have had its effect unnoticed."""
    last = last_line(world, op, reply)

    assert (last["type"], last["code"]) == ("unknown", code)
    assert last.get("sequence") == (1 if op == "put" else None)


@pytest.mark.parametrize(("op", "code", "reply"), answers(NO_EFFECT))
def test_what_has_no_effect_and_never_will_is_failed(
    op: str, code: str, reply: Callable[..., AnyReply] | None, world: World
) -> None:
    last = last_line(world, op, reply)

    assert (last["type"], last["code"]) == ("failed", code)
    assert last.get("sequence") == (1 if op == "put" else None)


@pytest.mark.parametrize("op", OPERATIONS)
def test_an_interrupt_leaves_an_operation_without_answer_as_kill_9_would(
    op: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    verb, operation = OPERATIONS[op]
    world.publisher.ready_for("t")
    world.subscriber.subscribe("t")
    world.from_now_on(verb, SILENCE)
    monkeypatch.setattr(FakeTransport, "receive", interrupted)

    with pytest.raises(KeyboardInterrupt):
        operation(world)

    journal = world.puts if op in ("hello", "put") else world.gets
    assert [line["type"] for line in journal.of(op)][-1:] == ([] if op == "get" else ["invoke"])


# Operations that have their effect, and what else they tell.


class TestAPut:
    def test_is_an_invoke_with_its_crcs_and_an_ok_with_its_place(self, world: World) -> None:
        world.publisher.put("t", b"a")
        world.publisher.put_many("t", [b"b", b"c"])

        ok = {"type": "ok", "epoch": 2, "durability": "sync"}
        assert world.puts.of("put") == [
            {"type": "invoke", "call": 2, "epoch": 2, "sequence": 1, "crcs": [A]},
            {**ok, "call": 2, "sequence": 1, "count": 1, "offset": 0},
            {"type": "invoke", "call": 3, "epoch": 2, "sequence": 2, "crcs": [B, C]},
            {**ok, "call": 3, "sequence": 2, "count": 2, "offset": 1},
        ]

    def test_names_its_place_in_a_plan(self, world: World) -> None:
        world.publisher.begin_run(PlanMark("digest", 5, step=3, message=7).note, ["t"])

        after = PlanMark("digest", 5, step=3, message=8)
        world.publisher.put_batch("t", Batch([b"a"]), after.note)

        assert world.puts.of("put")[0]["plan"] == "3:7"

    def test_in_doubt_that_is_sent_again_is_another_call_with_the_same_numbers(
        self, world: World
    ) -> None:
        world.publisher.ready_for("t")
        world.link.script("<")
        with pytest.raises(PubSubError):
            world.publisher.put("t", b"a")

        world.publisher.resume()

        first, unknown, again, ok = world.puts.of("put")
        assert unknown["type"] == "unknown"
        assert {**again, "call": 0} == {**first, "call": 0}
        assert (ok["type"], ok["duplicate"], ok["offset"]) == ("ok", True, 0)
        assert first["call"] == unknown["call"] < again["call"] == ok["call"]

    def test_that_gets_other_numbers_has_a_second_invoke_in_one_call(self, world: World) -> None:
        publisher = world.a_publisher(on_log_changed="adopt")
        publisher.ready_for("t")
        other = a_body(b"stored by another")
        world.link.proxy.ask(a_put(1, epoch=publisher.outbox.epoch, body=other), other)

        publisher.put("t", b"a")

        lines = world.puts.of("put")
        assert [(line["type"], line["sequence"]) for line in lines] == [
            ("invoke", 1),
            ("invoke", 2),
            ("ok", 2),
        ]
        assert len({line["call"] for line in lines}) == 1

    def test_that_may_stand_for_other_content_is_unknown(self, world: World) -> None:
        """A DUPLICATE of what this state has forgotten, and the proxy has removed."""
        disk = Disk()
        publisher = world.a_publisher(state=disk)
        publisher.begin_run(b"0", ["t"])
        publisher.put_batch("t", Batch([b"a"]), b"1")
        disk.lose_power()
        publisher = world.a_publisher(state=disk)
        world.from_now_on(Put, partial(Duplicate, offset=None))

        with pytest.raises(PubSubError):
            publisher.put_batch("t", Batch([b"a"]), b"1")

        last = world.puts.of("put")[-1]
        assert (last["type"], last["code"]) == ("unknown", "CONFLICT")

    @pytest.mark.parametrize("payload", [b"x" * 2_000_000, "text"])
    def test_that_cannot_be_sent_writes_nothing(self, payload: Any, world: World) -> None:
        with pytest.raises(PubSubError):
            world.publisher.put("t", payload)

        assert world.puts.of("put") == []

    def test_whose_ok_cannot_be_written_stays_in_doubt(self, world: World) -> None:
        """Otherwise the next put would hide that the journal has a hole."""
        world.publisher.ready_for("t")
        world.puts.space = 1

        with pytest.raises(StorageFailedError):
            world.publisher.put("t", b"a")

        assert world.publisher.in_doubt is not None
        assert [line["type"] for line in world.puts.of("put")] == ["invoke"]

    def test_whose_invoke_cannot_be_written_is_not_sent(self, world: World) -> None:
        world.publisher.ready_for("t")
        world.puts.space = 0

        with pytest.raises(StorageFailedError):
            world.publisher.put("t", b"a")

        assert world.link.proxy.log.batches.get(1, []) == []


class TestAGet:
    def test_that_hands_over_is_an_ok_with_the_messages_and_no_invoke(
        self, subscribed: World
    ) -> None:
        subscribed.publisher.put_many("t", [b"a", b"b"])
        (first,) = subscribed.subscriber.get("t")
        subscribed.subscriber.get("t")

        at_ns = first.timestamp_ns
        assert subscribed.gets.of("get") == [
            {"type": "ok", "call": 3, "epoch": 2, "messages": [[0, "p", 1, A, at_ns, 1, 2]]},
            {"type": "ok", "call": 4, "epoch": 2, "messages": [[1, "p", 2, B, at_ns, 1, 2]]},
        ]

    def test_that_finds_nothing_writes_nothing(self, subscribed: World) -> None:
        assert subscribed.subscriber.get("t") == []
        assert subscribed.gets.of("get") == []

    def test_that_hears_of_a_loss_is_failed_and_names_the_offsets(self, subscribed: World) -> None:
        subscribed.from_now_on(Get, LOST)

        with pytest.raises(PubSubError):
            subscribed.subscriber.get("t")

        (line,) = subscribed.gets.of("get")
        assert line == {"type": "failed", "call": 3, "code": "LOST", "first": 3, "end": 7}

    def test_that_is_asked_wrongly_writes_nothing(self, subscribed: World) -> None:
        with pytest.raises(PubSubError):
            subscribed.subscriber.get("t", max_messages=0)

        assert subscribed.gets.of("get") == []

    def test_without_a_subscription_is_failed(self, world: World) -> None:
        with pytest.raises(PubSubError):
            world.subscriber.get("t")

        assert [(line["type"], line["code"]) for line in world.gets.of("get")] == [
            ("failed", "NOT_SUB")
        ]

    def test_confirms_the_subscription_in_a_call_of_its_own(self, subscribed: World) -> None:
        subscribed.publisher.put("t", b"a")
        subscribed.link.proxy = subscribed.link.proxy.restarted()

        subscribed.subscriber.get("t")

        assert [line["type"] for line in subscribed.gets.of("subscribe")] == [
            *("invoke", "ok"),
            *("invoke", "ok"),
        ]
        assert subscribed.gets.of("subscribe")[2]["cursor"] == 0
        assert [line["type"] for line in subscribed.gets.of("get")] == ["ok"]

    def test_whose_ok_cannot_be_written_hands_the_same_message_over_again(
        self, subscribed: World
    ) -> None:
        subscribed.publisher.put_many("t", [b"a", b"b"])
        subscribed.gets.space = 0
        with pytest.raises(StorageFailedError):
            subscribed.subscriber.get("t")
        subscribed.gets.space = 9

        (message,) = subscribed.subscriber.get("t")

        assert message.payload == b"a"
        (line,) = subscribed.gets.of("get")
        assert [seen[0] for seen in line["messages"]] == [0]


class TestASubscription:
    def test_begins_with_its_log_its_generation_and_its_cursor(self, world: World) -> None:
        world.publisher.put("t", b"a")
        world.subscriber.subscribe("t")
        world.subscriber.subscribe("t")

        ok = {"type": "ok", "epoch": 2, "log": LOG, "generation": 1, "cursor": 1}
        assert world.gets.of("subscribe") == [
            {"type": "invoke", "call": 2, "epoch": 2},
            {"call": 2, **ok},
            {"type": "invoke", "call": 3, "epoch": 2, "cursor": 1},
            {"call": 3, **ok},
        ]

    def test_that_is_set_back_has_a_second_invoke_with_the_place_it_asks_for(
        self, world: World
    ) -> None:
        subscriber = world.a_subscriber(on_log_changed="rewind")
        world.publisher.put("t", b"a")
        subscriber.subscribe("t")
        older = world.link.proxy.restarted()
        older.log.batches.clear()
        world.publisher.put("t", b"b")
        subscriber.get("t")
        subscriber.acknowledge("t")
        world.link.proxy = older

        subscriber.subscribe("t")

        *_, first, second, ok = world.gets.of("subscribe")
        assert (first["type"], first["cursor"]) == ("invoke", 2)
        assert (second["type"], second["start"]) == ("invoke", "earliest")
        assert (ok["type"], ok["cursor"]) == ("ok", 0)
        assert first["call"] == second["call"] == ok["call"]

    def test_ends_with_an_ok(self, subscribed: World) -> None:
        subscribed.subscriber.unsubscribe("t")

        assert subscribed.gets.of("unsubscribe") == [
            {"type": "invoke", "call": 3, "epoch": 2},
            {"type": "ok", "call": 3, "epoch": 2},
        ]

    def test_is_acknowledged_with_the_cursor_that_the_proxy_has(self, subscribed: World) -> None:
        subscribed.publisher.put("t", b"a")
        subscribed.subscriber.get("t")
        subscribed.subscriber.acknowledge("t")

        assert subscribed.gets.of("acknowledge") == [
            {"type": "invoke", "call": 4, "epoch": 2, "cursor": 1},
            {"type": "ok", "call": 4, "epoch": 2, "cursor": 1},
        ]

    def test_that_is_not_there_is_not_acknowledged_and_writes_nothing(self, world: World) -> None:
        with pytest.raises(PubSubError):
            world.subscriber.acknowledge("t")

        assert world.gets.of("acknowledge") == []

    def test_records_a_processed_message_without_asking_the_proxy(self, subscribed: World) -> None:
        subscribed.publisher.put("t", b"a")
        subscribed.subscriber.get("t")
        subscribed.subscriber.record("t", PlanMark("digest", 5).note)

        assert subscribed.gets.of("record") == [{"type": "ok", "call": 4, "epoch": 2, "cursor": 1}]


class TestALife:
    def test_begins_with_its_role_and_says_hello_with_the_epoch_it_got(self, world: World) -> None:
        world.publisher.connect()
        world.publisher.close()

        begin = {"type": "begin", "role": "publisher", "wall_ns": NOW_NS, "remembers": False}
        assert world.puts.written == [
            {**begin, **stamp("p", 0)},
            {"type": "invoke", "op": "hello", "call": 1, "epoch": 1, **stamp("p", 1)},
            {"type": "ok", "op": "hello", "call": 1, "epoch": 2, **stamp("p", 2)},
            {"type": "end", **stamp("p", 3)},
        ]

    def test_ends_with_the_code_of_the_error_that_ended_it(self, world: World) -> None:
        world.from_now_on(Put, CONFLICT)

        with pytest.raises(PubSubError), world.publisher:
            world.publisher.put("t", b"a")

        assert world.puts.written[-1] == {"type": "end", "code": "CONFLICT", **stamp("p", 5)}

    def test_that_is_over_writes_nothing_more(self, world: World) -> None:
        world.publisher.close()
        world.publisher.close()

        assert [line["type"] for line in world.puts.written] == ["begin", "end"]

    def test_without_a_journal_is_the_same_life(self, world: World) -> None:
        publisher = Publisher("p", _world=a_world(world.link))
        subscriber = Subscriber("s", _world=a_world(world.link))
        subscriber.subscribe("t")
        publisher.put("t", b"a")
        (message,) = subscriber.get("t")
        subscriber.close()
        publisher.close()

        assert message.payload == b"a"
        assert {line["type"] for line in world.puts.written + world.gets.written} == {"begin"}
