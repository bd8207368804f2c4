"""One subscription: its states, and how often and when it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from reliable_pubsub.common.core.answers import SubAck
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import LostError, OutOfRangeError, ProxyUnreachableError
from reliable_pubsub.common.core.message_base import QoS
from reliable_pubsub.common.core.plan_mark import PlanMark, mark_of
from reliable_pubsub.common.core.start import Earliest, LastReceived, at_offset
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.relay.core.push import AnyPush
from reliable_pubsub.subscriber.client import Subscriber
from reliable_pubsub.subscriber.core.inbox import Inbox
from reliable_pubsub.subscriber.core.place import Place
from reliable_pubsub.subscriber.core.states import (
    TO_PROGRAM,
    TO_PROXY,
    SubscriptionEvent,
    ToProgram,
    ToProxy,
)
from reliable_pubsub.subscriber.core.subscription import TopicSubscription
from tests.fakes import LOG, Disk, FakeClock, FakeTransport, Link, MemoryProxy, a_broker, a_world


class CountingDisk(Disk):
    """Remembers each write of a place: whether it was durable, and the cursor in it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[tuple[str, int]] = []

    def write(self, changes: Mapping[str, bytes | None], *, durable: bool) -> None:
        super().write(changes, durable=durable)
        if "topic:t" in changes:
            cursor = Inbox(self.values).places["t"].cursor
            self.writes.append(("durable" if durable else "lazy", cursor))


class QuietPushLink:
    """A link that works, and brings nothing. Implements `PushLink`."""

    def __init__(self, house: House) -> None:
        self._house = house

    def want(self, topics: frozenset[str]) -> None:
        """See `PushLink`."""

    def turn(self, now_s: float) -> bool:
        """See `PushLink`."""
        return True

    def doubt(self, now_s: float) -> None:
        """See `PushLink`."""

    def receive(self) -> Sequence[AnyPush]:
        """See `PushLink`."""
        return ()

    def wait(self, seconds: float) -> None:
        """See `PushLink`."""
        self._house.on_disk_while_waiting.append(Inbox(self._house.disk.values).places["t"].cursor)
        self._house.clock.time_s += seconds

    def close(self) -> None:
        """See `PushLink`."""


class House:
    """A proxy with messages, and a subscriber whose writes are seen."""

    def __init__(self, count: int, *, qos: QoS = 2, push: bool = False) -> None:
        self.clock = FakeClock()
        self.link = Link(MemoryProxy())
        self.disk = CountingDisk()
        self.on_disk_while_waiting: list[int] = []
        self.subscriber = self.new_subscriber()
        self.subscriber.subscribe("t", qos=qos, push=push)
        if count:
            publisher = Publisher("p", _world=a_world(self.link, self.clock))
            publisher.put_many("t", [b"%d" % number for number in range(count)])
        self.disk.writes.clear()

    def new_subscriber(self) -> Subscriber:
        return Subscriber(
            "s",
            _world=a_world(
                FakeTransport(self.link, self.clock),
                self.clock,
                self.disk,
                connect_data=lambda _: QuietPushLink(self),
            ),
        )

    def writes_of_get(self, **more: Any) -> list[tuple[str, int]]:
        """What one get writes: how, and with which cursor."""
        self.disk.writes.clear()
        self.subscriber.get("t", **more)
        return list(self.disk.writes)


class TestAGet:
    def test_of_what_was_fetched_writes_once_what_is_processed_with_what_is_in_hand(self) -> None:
        house = House(3)
        house.subscriber.get("t")

        assert house.writes_of_get() == [("lazy", 1)]
        assert Inbox(house.disk.values).places["t"].in_hand == ((2, 1),)

    def test_that_asks_the_proxy_writes_durably_before_it_tells_a_cursor(self) -> None:
        """R9: the place is durable before the proxy hears of it; what follows is known after."""
        house = House(2)
        house.subscriber.get("t", max_messages=1)
        house.subscriber.get("t", max_messages=1)
        house.subscriber.inbox.of("t").fetched.clear()

        assert house.writes_of_get() == [("durable", 2)]  # the same row, once

    def test_that_asks_and_gets_writes_the_cursor_once_and_the_delivery_once(self) -> None:
        house = House(2)
        house.subscriber.get("t")
        house.subscriber.inbox.of("t").fetched.clear()

        assert house.writes_of_get() == [("durable", 1), ("lazy", 1)]

    def test_with_nothing_processed_and_nothing_there_writes_nothing(self) -> None:
        house = House(0)

        assert house.writes_of_get() == []

    def test_at_qos_1_writes_nothing_durably(self) -> None:
        house = House(2, qos=1)
        house.subscriber.get("t")
        house.subscriber.inbox.of("t").fetched.clear()

        assert house.writes_of_get() == [("lazy", 1), ("lazy", 1)]

    def test_that_waits_for_a_push_has_written_what_is_processed(self) -> None:
        """Otherwise a process that is killed while it waits would get done messages again."""
        house = House(1, push=True)
        house.subscriber.get("t")

        house.subscriber.get("t", timeout_s=0.02)

        assert house.on_disk_while_waiting
        assert set(house.on_disk_while_waiting) == {1}

    def test_that_reaches_no_proxy_has_written_what_is_processed(self) -> None:
        house = House(1)
        house.subscriber.get("t")
        house.subscriber._engine.session.connected = False  # so it begins with HELLO
        house.link.script(">" * 1000)

        with pytest.raises(Exception, match="no answer"):
            house.subscriber.get("t")

        assert Inbox(house.disk.values).places["t"].cursor == 1

    def test_whose_write_failed_is_made_good_by_the_next_write(self) -> None:
        house = House(2)
        subscription = house.subscriber.inbox.of("t")
        subscription.move(subscription.place.moved(1, None))

        assert subscription.saved is not subscription.place
        house.writes_of_get()

        assert subscription.saved is subscription.place
        assert Inbox(house.disk.values).places["t"].cursor == 1


def a_sub_ack(cursor: int = 0) -> SubAck:
    return SubAck(
        client="s",
        epoch=1,
        request=1,
        topic="t",
        generation=1,
        log=LOG,
        cursor=cursor,
        already=True,
    )


def a_message(offset: int) -> Message:
    return Message("t", offset, "p", offset + 1, 1, b"")


def confirmed() -> TopicSubscription:
    subscription = TopicSubscription("t")
    subscription.move(Place(LOG, 0))
    subscription.confirmed(a_sub_ack(), is_new=True)
    return subscription


class TestTheStates:
    def test_of_each_table_are_all_there_and_all_are_reached(self) -> None:
        assert set(TO_PROXY) == set(ToProxy)
        assert set(TO_PROGRAM) == set(ToProgram)
        assert {after for row in TO_PROXY.values() for after in row.values()} == set(ToProxy)
        reached = {after for row in TO_PROGRAM.values() for after in row.values()}
        assert reached == set(ToProgram)

    def test_know_each_event(self) -> None:
        at_proxy = {event for row in TO_PROXY.values() for event in row}
        at_program = {event for row in TO_PROGRAM.values() for event in row}

        assert at_proxy | at_program == set(SubscriptionEvent)

    def test_towards_the_proxy_lose_what_was_fetched_with_their_confirmation(self) -> None:
        for leave in (
            TopicSubscription.forgotten,
            TopicSubscription.place_lost,
            TopicSubscription.ended,
        ):
            subscription = confirmed()
            subscription.fetched.append(a_message(0))

            leave(subscription)

            assert subscription.confirmation is None
            assert not subscription.fetched

    def test_towards_the_program_settle_what_is_in_hand_and_no_more(self) -> None:
        subscription = confirmed()
        subscription.transition(SubscriptionEvent.HAND_OVER, in_hand=a_message(4))

        subscription.settle()
        subscription.settle()

        assert (subscription.place.cursor, subscription.in_hand) == (5, None)

    def test_pass_a_loss_when_the_program_comes_back_and_not_earlier(self) -> None:
        subscription = confirmed()
        subscription.transition(SubscriptionEvent.LOSE, lost_end=7)
        before = subscription.place.cursor

        subscription.settle()

        assert (before, subscription.place.cursor) == (0, 7)

    def test_keep_in_hand_what_came_with_a_message_that_is_given_up_and_after_it(self) -> None:
        subscription = confirmed()
        subscription.transition(SubscriptionEvent.HAND_OVER, in_hand=a_message(2))
        subscription.begin_letter(a_message(1), b"letter")

        subscription.letter_stored()

        assert subscription.in_hand == a_message(2)

    @pytest.mark.parametrize("act", ["settle", "lose", "hand over", "another letter"])
    def test_let_nothing_else_happen_while_a_letter_is_in_doubt(self, act: str) -> None:
        subscription = confirmed()
        subscription.begin_letter(a_message(0), b"letter")
        acts: dict[str, Callable[[], None]] = {
            "settle": subscription.settle,
            "lose": lambda: subscription.transition(SubscriptionEvent.LOSE, lost_end=1),
            "hand over": lambda: subscription.transition(
                SubscriptionEvent.HAND_OVER, in_hand=a_message(0)
            ),
            "another letter": lambda: subscription.begin_letter(a_message(0), b"other"),
        }

        with pytest.raises(KeyError):
            acts[act]()

        assert subscription.letter is not None

    def test_begin_with_what_is_stored_after_a_call_was_left(self) -> None:
        subscription = confirmed()
        subscription.transition(SubscriptionEvent.HAND_OVER, in_hand=a_message(2))
        subscription.fetched.append(a_message(3))

        subscription.reload(Place(LOG, 0), Place(LOG, 0))

        assert subscription.in_hand is None
        assert subscription.confirmation is None
        assert not subscription.fetched
        assert subscription.place == Place(LOG, 0)


def a_subscriber(link: Link, disk: Disk) -> Subscriber:
    clock = FakeClock()
    return Subscriber("s", _world=a_world(FakeTransport(link, clock), clock, disk))


def test_a_cursor_is_durable_before_a_sub_tells_it() -> None:
    """A lazily written cursor was sent to the proxy, then power failed."""
    link, disk = Link(a_broker()), Disk()
    first = a_subscriber(link, disk)
    first.subscribe("t")
    for sequence in range(1, 3):
        link.proxy.put(sequence)
    assert first.get("t")
    assert first.get("t")  # acknowledges the first message here, lazily; then the process is killed

    a_subscriber(link, disk).subscribe("t")
    disk.lose_power()

    assert a_subscriber(link, disk).subscribe("t") == 1


def test_what_was_in_hand_and_is_left_after_a_loss_is_marked_when_it_comes_again() -> None:
    """The loss had taken the mark with it."""
    link, disk = Link(a_broker()), Disk()
    first = a_subscriber(link, disk)
    first.subscribe("t")
    for sequence in range(1, 4):
        link.proxy.put(sequence)
    first.get("t", max_messages=3)  # then the process is killed
    del link.proxy.log.batches[1][:2]

    second = a_subscriber(link, disk)
    with pytest.raises(LostError):
        second.get("t")
    (again,) = second.get("t")

    assert (again.offset, again.redelivered) == (2, True)


def test_a_place_that_is_recorded_with_an_output_survives_power_loss_at_qos_1_too() -> None:
    """Otherwise the output is cut to an older length, and the proxy continues after it: a loss."""
    disk = Disk()
    link = Link(a_broker())
    subscriber = a_subscriber(link, disk)
    subscriber.subscribe("t", qos=1)
    link.proxy.put(1)
    subscriber.get("t")

    subscriber.record("t", PlanMark("digest", 1, output_bytes=100).note)
    subscriber.acknowledge("t")
    disk.lose_power()

    again = a_subscriber(link, disk).inbox
    mark = mark_of(again.note)
    assert mark is not None
    assert (again.places["t"].cursor, mark.output_bytes) == (1, 100)


@pytest.mark.parametrize("answered", [True, False], ids=["refused", "in doubt"])
def test_a_seek_without_an_answer_leaves_a_place_that_can_be_moved_again(answered: bool) -> None:
    """The next process takes neither place for an old copy: no LOG_CHANGED."""
    disk = Disk()
    link = Link(a_broker())
    subscriber = a_subscriber(link, disk)
    subscriber.subscribe("t")
    link.proxy.put(1)
    if not answered:
        link.script("<" * 20)

    with pytest.raises(OutOfRangeError if answered else ProxyUnreachableError):
        subscriber.seek("t", at_offset(9) if answered else Earliest)

    subscriber.abandon()
    link.script("")
    again = a_subscriber(link, disk)
    assert again.inbox.places["t"].asks == (not answered)
    assert again.seek("t", Earliest) == 0


def test_a_close_that_reaches_no_proxy_ends_no_clean_session() -> None:
    """The place was dropped, and what was processed came again from the session."""
    link, disk = Link(a_broker()), Disk()
    first = a_subscriber(link, disk)
    first.subscribe("t", session="clean")
    link.proxy.put(1)
    assert len(first.get("t")) == 1
    link.script(">" * 100)
    first.close()
    a_subscriber(link, disk).close()
    link.script("")

    third = a_subscriber(link, disk)

    assert third.subscribe("t", session="clean", start=LastReceived) == 1
    assert third.get("t") == []
