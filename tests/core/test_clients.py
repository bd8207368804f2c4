"""Publisher and subscriber against the broker, over a link that loses what the script says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, get_type_hints

import pytest
from msgspec.structs import replace

from reliable_pubsub import aio
from reliable_pubsub.common.core.answers import Duplicate, MessageBatches, NoMessagesYet, PutAck
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.client_state import MemoryState
from reliable_pubsub.common.core.errors import (
    ConflictError,
    FencedError,
    LogChangedError,
    LostError,
    NotSubscribedError,
    ProxyUnreachableError,
    StorageFailedError,
)
from reliable_pubsub.common.core.limits import KIB, MIB
from reliable_pubsub.common.core.retry import RetryPolicy, poll_pause_s
from reliable_pubsub.common.core.start import Earliest
from reliable_pubsub.common.core.wire import decode_reply, decode_request, encode
from reliable_pubsub.proxy.core.state import BrokerSettings
from reliable_pubsub.proxy.core.topic_log import Retention
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.client import Subscriber
from tests.fakes import (
    FakeClock,
    FakeTransport,
    Link,
    MemoryProxy,
    a_body,
    a_broker,
    a_get,
    a_put,
    a_world,
)

ONCE = RetryPolicy(retries_max=0)


def a_publisher(link: Link, *, retry: RetryPolicy = RetryPolicy()) -> Publisher:  # noqa: B008
    return Publisher("p", retry=retry, _world=a_world(link))


def a_subscriber(
    link: Link,
    *,
    client: str = "s",
    retry: RetryPolicy = RetryPolicy(),  # noqa: B008
) -> Subscriber:
    clock = FakeClock()
    return Subscriber(client, _world=a_world(FakeTransport(link, clock), clock), retry=retry)


def stored(proxy: MemoryProxy, topic_id: int = 1) -> list[bytes]:
    """Bodies in the log, in order."""
    return [batch.body for batch in proxy.log.batches.get(topic_id, [])]


def texts(messages: list[Message]) -> list[str]:
    return [message.payload.decode() for message in messages]


def process(_messages: list[Message]) -> None:
    """A program with a fault."""
    raise ZeroDivisionError


class TestAPut:
    @pytest.mark.parametrize("script", [".", "..>", "..<", "..<<>><", "<><.<"])
    def test_is_stored_once_whatever_the_link_loses(self, script: str) -> None:
        """P2: lost requests and lost answers, at HELLO and at PUT."""
        link = Link(MemoryProxy(), script)
        publisher = a_publisher(link)

        receipts = [publisher.put("t", b"a"), publisher.put("t", b"b")]

        assert [receipt.offset for receipt in receipts] == [0, 1]
        assert stored(link.proxy) == [a_body(b"a"), a_body(b"b")]

    def test_whose_answer_was_lost_is_a_duplicate_and_a_success(self) -> None:
        link = Link(MemoryProxy(), "..<")

        receipt = a_publisher(link).put("t", b"a")

        assert receipt.duplicate
        assert (receipt.offset, receipt.message_id) == (0, "p_1")
        assert isinstance(link.answers[-1], Duplicate)

    def test_that_was_not_answered_keeps_its_number_and_is_sent_again(self) -> None:
        """H6: an error costs no number, and the message that it met is not skipped."""
        link = Link(MemoryProxy(), "..>")
        publisher = a_publisher(link, retry=ONCE)
        with pytest.raises(ProxyUnreachableError):
            publisher.put("t", b"a")
        in_doubt = publisher.in_doubt

        receipt = publisher.put("t", b"b")

        assert in_doubt is not None
        assert (in_doubt.first_sequence, receipt.first_sequence) == (1, 2)
        assert stored(link.proxy) == [a_body(b"a"), a_body(b"b")]

    def test_that_is_refused_is_reported_with_the_reason(self) -> None:
        """H8: another content under a number that is used is never dropped in silence."""
        proxy = a_broker()
        publisher = a_publisher(Link(proxy))
        publisher.ready_for("t")
        other = a_body(b"stored by another")
        proxy.ask(a_put(1, epoch=publisher.outbox.epoch, body=other), other)

        with pytest.raises(ConflictError, match="another content"):
            publisher.put("t", b"a")

    def test_of_a_process_that_was_replaced_is_refused(self) -> None:
        """H11: the older of two processes with one id stops."""
        link = Link(MemoryProxy())
        older, newer = a_publisher(link), a_publisher(link)
        older.put("t", b"a")
        newer.put("t", b"b")

        with pytest.raises(FencedError):
            older.put("t", b"c")

        assert stored(link.proxy) == [a_body(b"a"), a_body(b"b")]

    def test_continues_when_the_proxy_has_restarted(self) -> None:
        link = Link(MemoryProxy())
        publisher = a_publisher(link)
        publisher.put("t", b"a")
        link.proxy = link.proxy.restarted()

        receipt = publisher.put("t", b"b")

        assert (receipt.offset, receipt.duplicate) == (1, False)

    def test_stops_when_the_proxy_has_lost_what_it_acknowledged(self) -> None:
        """H13: an older or empty store is found out at the first put."""
        link = Link(MemoryProxy())
        publisher = a_publisher(link)
        publisher.put("t", b"a")
        link.proxy = MemoryProxy()

        with pytest.raises(LogChangedError):
            publisher.put("t", b"b")

        assert stored(link.proxy) == []


class TestAGet:
    @pytest.mark.parametrize("script", ["", "<", ">", "<<<", "><><", ".<.<.<"])
    def test_gives_every_message_once_and_in_order_whatever_the_link_loses(
        self, script: str
    ) -> None:
        """H1: a timeout between proxy and subscriber loses no message, and repeats none."""
        proxy = a_broker()
        link = Link(proxy)
        subscriber = a_subscriber(link)
        subscriber.subscribe("t")
        for sequence in range(1, 5):
            proxy.put(sequence)
        link.script(script)

        got = [message for _ in range(4) for message in subscriber.get("t")]

        assert texts(got) == ["m1", "m2", "m3", "m4"]
        assert [message.offset for message in got] == [0, 1, 2, 3]

    def test_of_a_subscriber_that_died_with_the_answer_in_flight_comes_again(self) -> None:
        """H5: what the proxy sent and no client took is still there."""
        proxy = a_broker()
        link = Link(proxy)
        first = a_subscriber(link, retry=ONCE)
        first.subscribe("t")
        proxy.put(1)
        link.script("<")
        with pytest.raises(ProxyUnreachableError):
            first.get("t")

        second = a_subscriber(link)
        second.subscribe("t")

        assert texts(second.get("t")) == ["m1"]

    def test_that_finds_nothing_gives_nothing_and_moves_nothing(self) -> None:
        """H20: NO_MESSAGES_YET costs neither a message nor a step."""
        proxy = a_broker()
        link = Link(proxy)
        subscriber = a_subscriber(link)
        subscriber.subscribe("t")

        empty = subscriber.get("t")
        proxy.put(1)
        full = subscriber.get("t")

        assert empty == []
        assert isinstance(link.answers[-2], NoMessagesYet)
        assert texts(full) == ["m1"]

    def test_waits_as_long_as_it_may_and_then_gives_nothing(self) -> None:
        clock = FakeClock()
        link = Link(a_broker())
        subscriber = Subscriber("s", _world=a_world(FakeTransport(link, clock), clock))
        subscriber.subscribe("t")

        assert subscriber.get("t", timeout_s=1.5) == []
        assert clock.time_s == pytest.approx(1.5)

    def test_polls_and_a_loop_over_messages_waits(self) -> None:
        """Row 2.17."""
        proxy, clock = a_broker(), FakeClock()
        proxy.clock = clock
        subscriber = Subscriber("s", _world=a_world(FakeTransport(Link(proxy), clock), clock))
        subscriber.subscribe("t")
        proxy.meanwhile = lambda: proxy.put(1)  # while a client waits

        assert subscriber.get("t") == []
        assert next(subscriber.messages("t")).payload == b"m1"

    def test_does_not_acknowledge_what_it_gives(self) -> None:
        """H4, R9: the cursor moves when the program comes back, that is when it is done."""
        proxy = a_broker()
        link = Link(proxy)
        subscriber = a_subscriber(link)
        subscriber.subscribe("t")
        proxy.put(1)
        known = proxy.state.topics["t"].subscriptions["s"]

        subscriber.get("t")
        while_in_hand = known.cursor
        subscriber.acknowledge("t")

        assert (while_in_hand, known.durable_cursor) == (0, 1)

    def test_that_was_left_by_an_error_comes_again(self) -> None:
        """H4: a program that fails while it works on a message gets it again."""
        proxy = a_broker()
        link = Link(proxy)
        first = a_subscriber(link)
        first.subscribe("t")
        proxy.put(1)
        with pytest.raises(ZeroDivisionError), first:
            process(first.get("t"))
        with a_subscriber(link) as second:
            second.subscribe("t")
            again = second.get("t")

        assert texts(again) == ["m1"]
        assert proxy.state.topics["t"].subscriptions["s"].cursor == 1

    def test_needs_a_subscription(self) -> None:
        with pytest.raises(NotSubscribedError):
            a_subscriber(Link(a_broker())).get("t")

    def test_reports_a_loss_once_and_continues_after_it(self) -> None:
        """H17: the program hears of the offsets that are gone."""
        proxy = a_broker()
        subscriber = a_subscriber(Link(proxy))
        subscriber.subscribe("t")
        for sequence in (1, 2, 3):
            proxy.put(sequence)
        del proxy.log.batches[1][:2]

        with pytest.raises(LostError) as caught:
            subscriber.get("t")

        assert (caught.value.first, caught.value.end) == (0, 2)
        assert texts(subscriber.get("t")) == ["m3"]

    def test_that_is_given_what_it_had_asks_again_and_waits_for_nothing(self) -> None:
        """Row 1.24: what lies below the cursor is dropped by its offset. It is no answer that was
        lost (no retry, no new socket), and it is not taken for the message that a step waits for.
        """
        proxy = a_broker()
        proxy.put(1)
        clock = FakeClock()
        old: list[Sequence[bytes]] = []

        def answer(frames: Sequence[bytes]) -> Sequence[bytes]:
            """The first GET after message 1 is answered with that message once more."""
            answer = proxy.frames(frames)
            reply = decode_reply(answer)[0]
            if isinstance(reply, MessageBatches) and reply.batches[0].base == 1 and not old:
                old.append(frames)
                asked = replace(decode_request(frames)[0], cursor=0, messages_max=1)
                return proxy.frames(encode(asked))
            return answer

        transport = FakeTransport(answer, clock)
        subscriber = Subscriber("s", _world=a_world(transport, clock))
        subscriber.subscribe("t", start=Earliest)
        assert texts(subscriber.get("t")) == ["m1"]
        proxy.put(2)

        got = subscriber.get("t", timeout_s=5.0)

        assert old, "the old message was not repeated"
        assert (texts(got), [message.delivery_count for message in got]) == (["m2"], [1])
        assert clock.time_s <= poll_pause_s(1)
        assert transport.reopened == 0

    def test_inside_a_batch_skips_what_was_had_without_another_request(self) -> None:
        """Row 1.24, the usual case: a place inside a batch, and a process that begins there."""
        proxy = a_broker()
        proxy.put(1, count=3)
        clock = FakeClock()
        first = a_subscriber(Link(proxy))
        first.subscribe("t", start=Earliest)
        assert texts(first.get("t")) == ["m1"]
        first.acknowledge("t")
        transport = FakeTransport(Link(proxy), clock)
        second = Subscriber("s", _world=a_world(transport, clock))
        second.subscribe("t")
        before = len(transport.sent)

        assert texts(second.get("t")) == ["m2"]

        assert len(transport.sent) - before == 1
        assert (clock.sleeps, transport.reopened) == ([], 0)


class TestTwoSubscribers:
    """Row 0.23: a place and failures of their own."""

    def test_get_everything_each_whatever_happens_to_the_other(self) -> None:
        proxy = a_broker()
        failing = a_subscriber(Link(proxy), client="failing", retry=ONCE)
        failing.subscribe("t")
        with a_subscriber(Link(proxy), client="other") as before:
            before.subscribe("t")
        for sequence in (1, 2, 3):
            proxy.put(sequence)

        with pytest.raises(ZeroDivisionError), failing:
            process(failing.get("t"))
        other = a_subscriber(Link(proxy), client="other")  # knows only what the proxy tells it
        other.subscribe("t")
        got = [message for _ in range(3) for message in other.get("t")]
        other.acknowledge("t")
        cursors = {n: s.cursor for n, s in proxy.state.topics["t"].subscriptions.items()}
        with a_subscriber(Link(proxy), client="failing") as again:
            again.subscribe("t")
            late = [message for _ in range(3) for message in again.get("t")]

        assert texts(got) == texts(late) == ["m1", "m2", "m3"]
        assert cursors == {"failing": 0, "other": 3}
        assert [message.redelivered for message in got] == [False] * 3

    def test_give_a_message_up_each_for_itself(self) -> None:
        proxy = a_broker()
        rejecting, other = (a_subscriber(Link(proxy), client=name) for name in ("r", "o"))
        for one in (rejecting, other):
            one.subscribe("t")
        proxy.put(1)
        proxy.put(2)

        (bad,) = rejecting.get("t")
        rejecting.reject(bad, "not for me")

        cursors = {n: s.cursor for n, s in proxy.state.topics["t"].subscriptions.items()}
        assert cursors == {"r": 1, "o": 0}
        assert texts(rejecting.get("t")) == ["m2"]
        assert texts(other.get("t")) == ["m1"]


class TestARestartOfTheProxy:
    def test_is_not_seen_by_a_subscriber(self) -> None:
        """H12: it resumes at its own place, though the proxy forgot the last cursor."""
        link = Link(a_broker())
        subscriber = a_subscriber(link)
        subscriber.subscribe("t")
        for sequence in (1, 2):
            link.proxy.put(sequence)
        first = subscriber.get("t")
        link.proxy = link.proxy.restarted()

        second = subscriber.get("t")

        assert texts(first + second) == ["m1", "m2"]

    def test_with_an_older_store_stops_a_subscriber(self) -> None:
        """H13: the place of the subscriber is below what the proxy still has."""
        link = Link(a_broker())
        subscriber = a_subscriber(link)
        subscriber.subscribe("t")
        older = link.proxy.restarted()
        link.proxy.put(1)
        subscriber.get("t")
        subscriber.acknowledge("t")
        older.log.batches.clear()
        link.proxy = older

        with pytest.raises(LogChangedError, match="beyond its end"):
            subscriber.get("t")


def test_a_position_of_another_log_is_no_place_to_begin() -> None:
    """Row 2.18: an offset alone would be a place in every log."""
    proxy = a_broker()
    proxy.put(1)
    subscriber = a_subscriber(Link(proxy))
    position = subscriber.read("t").position

    with pytest.raises(LogChangedError, match="the log is now"):
        subscriber.subscribe("t", start=replace(position, log="another"))

    assert subscriber.subscribe("t", start=position) == 1


def test_a_dead_attempt_that_is_served_late_moves_nothing() -> None:
    """H1: copies of a GET from abandoned sockets arrive after newer ones, in any order."""
    proxy = a_broker()
    link = Link(proxy)
    subscriber = a_subscriber(link)
    subscriber.subscribe("t")
    for sequence in (1, 2, 3):
        proxy.put(sequence)

    got: list[Message] = []
    for _ in range(3):
        for cursor in range(len(got) + 1):
            late = proxy.ask(a_get(cursor, epoch=subscriber.inbox.epoch))
            assert isinstance(late, MessageBatches)
        got += subscriber.get("t")

    assert texts(got) == ["m1", "m2", "m3"]


def test_every_attempt_of_a_request_has_the_same_bytes() -> None:
    """R1, R3: the proxy can tell a repeat from something new."""
    clock = FakeClock()
    link = Link(MemoryProxy(), "..<<")
    transport = FakeTransport(link, clock)
    publisher = Publisher("p", _world=a_world(transport, clock))

    publisher.put("t", b"a")

    puts = transport.sent[2:]
    assert len(puts) == 3
    assert len(set(puts)) == 1
    assert isinstance(link.answers[2], PutAck)


def test_a_loss_is_reported_until_the_program_comes_back() -> None:
    """P6: the place was moved before the report; a kill between the two silenced it."""
    retention = Retention(topic_bytes_max=3 * MIB, on_bound="lose_oldest")
    link = Link(a_broker(settings=BrokerSettings(retention=retention)))
    clock = FakeClock()
    subscriber = Subscriber("s", _world=a_world(FakeTransport(link, clock), clock))
    subscriber.subscribe("t")
    body = a_body(b"x" * 700 * KIB)
    for sequence in range(1, 8):
        link.proxy.ask(a_put(sequence, body=body), body)

    with pytest.raises(LostError) as lost:
        subscriber.get("t")
    place_at_the_report = subscriber.inbox.places["t"].cursor
    messages = subscriber.get("t")

    assert place_at_the_report == lost.value.first == 0
    assert messages[0].offset == lost.value.end


def test_a_full_disk_of_the_subscriber_makes_no_message_be_skipped() -> None:
    """The message had left the queue when its hand-over could not be written."""

    class FullOnce(MemoryState):
        def __init__(self) -> None:
            super().__init__()
            self.full = False

        def write(self, changes: Mapping[str, bytes | None], *, durable: bool) -> None:
            if self.full:
                self.full = False
                raise StorageFailedError("no space")

    link, clock, state = Link(a_broker()), FakeClock(), FullOnce()
    subscriber = Subscriber("s", _world=a_world(FakeTransport(link, clock), clock, state))
    subscriber.subscribe("t")
    for sequence in range(1, 4):
        link.proxy.put(sequence)
    first = subscriber.get("t")

    state.full = True
    with pytest.raises(StorageFailedError):
        subscriber.get("t")
    rest = subscriber.get("t") + subscriber.get("t")

    assert [message.offset for message in first + rest] == [0, 1, 2]


def test_a_put_that_could_not_be_written_down_is_not_sent_later() -> None:
    """R3: the caller had heard of a failure and put again, and both were stored."""

    class FullOnce(MemoryState):
        full = False

        def write(self, changes: Mapping[str, bytes | None], *, durable: bool) -> None:
            if self.full and "pending" in changes:
                self.full = False
                raise StorageFailedError("no space")

    link, clock, state = Link(a_broker()), FakeClock(), FullOnce()
    publisher = Publisher("p", _world=a_world(link, clock, state))
    publisher.put("t", b"a")

    state.full = True
    with pytest.raises(StorageFailedError):
        publisher.put("t", b"b")
    publisher.put("t", b"b")

    assert [batch.body for batch in link.proxy.log.batches[1]] == [a_body(b"a"), a_body(b"b")]


class TestAnAsyncioClient:
    """Both clients are shells of one engine, so they differ by `await` only."""

    @pytest.mark.parametrize(
        ("blocking", "awaited", "of_step_files"),
        [
            (Publisher, aio.Publisher, {"begin_run", "note", "put_batch", "ready_for"}),
            (Subscriber, aio.Subscriber, {"note", "record", "write_note"}),
        ],
    )
    def test_has_all_of_the_blocking_one_but_what_step_files_use(
        self, blocking: type, awaited: type, of_step_files: set[str]
    ) -> None:
        assert public(blocking).keys() - public(awaited).keys() == of_step_files
        assert public(awaited).keys() <= public(blocking).keys()

    @pytest.mark.parametrize(
        ("blocking", "awaited"), [(Publisher, aio.Publisher), (Subscriber, aio.Subscriber)]
    )
    def test_has_the_same_arguments_and_properties(self, blocking: type, awaited: type) -> None:
        with_note = {"transaction"}  # by which a step file resumes
        for name, value in public(awaited).items():
            other = public(blocking)[name]
            if isinstance(other, property):
                assert isinstance(value, property), name
                assert get_type_hints(value.fget) == get_type_hints(other.fget), name
            elif name not in with_note:
                assert arguments(value) == arguments(other), name


def public(client: type) -> dict[str, Any]:
    """The attributes that programs use."""
    return {name: getattr(client, name) for name in dir(client) if not name.startswith("_")}


def arguments(call: Callable[..., Any]) -> list[tuple[str, object, object]]:
    """Its arguments; what a handler returns is another type where it is awaited."""
    return [(one.name, one.kind, one.default) for one in signature(call).parameters.values()]
