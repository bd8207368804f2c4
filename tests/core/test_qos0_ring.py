"""What was put at QoS 0: its place in the ring, what is dropped without room, who learns of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from reliable_pubsub.common.core.answers import (
    AnyReply,
    Fenced,
    MessageBatches,
    NoMessagesYet,
    NotSub,
    Stale,
)
from reliable_pubsub.common.core.batch import ENTRY_BYTES
from reliable_pubsub.common.core.message_base import BatchHeader, Terms
from reliable_pubsub.common.core.qos0_messages import Listeners, ListenersReport, Ring
from reliable_pubsub.proxy.qos0.ring import Rings
from reliable_pubsub.proxy.qos0.verbs import take_offer
from reliable_pubsub.relay.core.unstored import Offer, OfferFrames
from tests.fakes import (
    MemoryProxy,
    a_broker,
    a_get,
    a_sub,
    an_unsub,
    as_stored,
    put_body,
    sub_ack,
)

ROOM = 3  # batches of one byte that one ring holds here


def rings_for(topics: int = 100) -> Rings:
    return Rings(ROOM * (1 + ENTRY_BYTES), topics * ROOM * (1 + ENTRY_BYTES))


def add(
    rings: Rings, sequence: int = 1, *, topic: str = "t", count: int = 1, body: bytes = b"x"
) -> int:
    header = rings.add(
        topic, publisher="p", first_sequence=sequence, count=count, crc=0, body=body, now_ns=9
    )
    return header.base


def places(rings: Rings, place: int, *, topic: str = "t", messages_max: int = 99) -> list[int]:
    read = rings.read(topic, place, messages_max=messages_max, bytes_max=1 << 20)
    return [header.base for header in read.headers]


class TestARing:
    def test_gives_each_message_the_next_place_of_its_topic(self) -> None:
        rings = rings_for()

        assert [add(rings, count=2), add(rings), add(rings, topic="u"), add(rings)] == [0, 2, 0, 3]
        assert (rings.ends.get("t", 0), rings.ends.get("u", 0), rings.ends.get("v", 0)) == (4, 1, 0)

    def test_shows_whole_batches_from_a_place_on(self) -> None:
        rings = rings_for()
        for _ in range(3):
            add(rings, count=2)

        assert places(rings, 3) == [2, 4]
        assert places(rings, 0, messages_max=3) == [0, 2]
        assert places(rings, 6) == []

    def test_that_is_full_lets_the_oldest_go_and_keeps_the_places_of_the_rest(self) -> None:
        rings = rings_for()
        for sequence in range(1, 6):
            add(rings, sequence)

        read = rings.read("t", 0, messages_max=99, bytes_max=1 << 20)

        assert (read.first, read.end) == (2, 5)
        assert places(rings, 0) == [2, 3, 4]

    def test_holds_the_newest_batch_however_large_it_is(self) -> None:
        rings = Rings()

        add(rings, body=bytes(1 << 20))
        add(rings, body=bytes(1 << 20))

        assert places(rings, 0) == [1]

    def test_gives_way_to_another_topic_if_all_of_them_have_no_room(self) -> None:
        rings = rings_for(topics=1)
        for topic in ("t", "u", "t", "u"):
            add(rings, topic=topic)

        assert (places(rings, 0), places(rings, 0, topic="u")) == ([1], [0, 1])

    @given(st.lists(st.tuples(st.sampled_from("tuv"), st.integers(1, 3)), max_size=60))
    def test_never_takes_more_than_its_room_and_never_a_place_twice(
        self, puts: list[tuple[str, int]]
    ) -> None:
        rings = rings_for(topics=2)
        seen: dict[str, list[int]] = {"t": [], "u": [], "v": []}
        for topic, count in puts:
            base = add(rings, topic=topic, count=count)
            seen[topic] += range(base, base + count)

            assert rings.size_bytes <= 2 * ROOM * (1 + ENTRY_BYTES)
            held = [rings.status(one) for one in "tuv"]
            assert sum(one.held_bytes for one in held if one is not UNSET) == rings.size_bytes
        assert all(found == list(range(len(found))) for found in seen.values())


class TestWhatIsLost:
    def test_is_counted_for_each_subscriber_that_asks_too_late(self) -> None:
        rings = rings_for()
        for _ in range(5):
            add(rings)

        rings.asked("t", "late", 0)
        rings.asked("t", "in-time", 2)

        assert (rings.lost("t", "late"), rings.lost("t", "in-time")) == (2, UNSET)

    def test_is_counted_once_however_often_it_is_asked_for(self) -> None:
        rings = rings_for()
        for _ in range(5):
            add(rings)
        for _ in range(3):
            rings.asked("t", "s", 0)
        add(rings)
        rings.asked("t", "s", 1)

        assert rings.lost("t", "s") == 3

    def test_stays_counted_when_a_full_disk_sets_the_state_back(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub())
        proxy.commit()
        rings = rings_for()
        proxy.state.setup.kept.add(rings)
        for _ in range(5):
            add(rings)
        rings.asked("t", "s", 0)

        proxy.engine.failed(as_stored(proxy.durable), "full", now_s=0.0)

        assert rings.lost("t", "s") == 2

    def test_is_forgotten_with_the_subscription(self) -> None:
        rings = rings_for()
        for _ in range(5):
            add(rings)
        rings.asked("t", "s", 0)

        rings.forget("t", "s")

        assert rings.lost("t", "s") is UNSET


def a_ring(place: int, *, generation: int = 1, boot: str = "boot-1", epoch: int = 1) -> Ring:
    return Ring(
        client="s", epoch=epoch, request=1, topic="t", generation=generation, boot=boot, place=place
    )


def listeners(proxy: MemoryProxy, topic: str = "t") -> int:
    reply: AnyReply = proxy.ask(Listeners(client="p", epoch=0, request=1, topic=topic))
    assert isinstance(reply, ListenersReport)
    return reply.subscriptions


def an_offer(*, publisher: str = "p", epoch: int = 1) -> OfferFrames:
    offer = Offer(publisher=publisher, epoch=epoch, first_sequence=7, count=2, crc=5)
    return OfferFrames("t", offer, b"xy")


class TestAnOffer:
    def test_that_is_wanted_gets_the_next_place(self) -> None:
        state = a_broker().state
        add(state.kept(Rings))

        header = take_offer(state, an_offer(), is_wanted=True, now_ns=9)

        assert header == BatchHeader(1, 2, "p", 7, 9, 5, 2, 0)
        assert places(state.kept(Rings), 0) == [0, 1]

    @pytest.mark.parametrize("offer", [an_offer(epoch=2), an_offer(publisher="stranger")])
    def test_of_an_unknown_session_is_refused(self, offer: OfferFrames) -> None:
        state = a_broker().state

        assert take_offer(state, offer, is_wanted=True, now_ns=9) == "refused"
        assert state.kept(Rings).ends.get("t", 0) == 0

    def test_that_is_not_wanted_takes_no_room(self) -> None:
        state = a_broker().state

        assert take_offer(state, an_offer(), is_wanted=False, now_ns=9) == "unwanted"
        assert state.kept(Rings).ends.get("t", 0) == 0


class TestAReader:
    def test_begins_where_the_ring_is_when_it_subscribes(self) -> None:
        proxy = a_broker()
        add(proxy.state.kept(Rings))

        assert sub_ack(proxy.ask(a_sub())).ring == 1

    def test_is_shown_what_follows_its_place_and_the_same_again(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub())
        add(proxy.state.kept(Rings), body=put_body(1))

        for _ in range(2):
            found = proxy.ask(a_ring(0))
            assert isinstance(found, MessageBatches)
            assert [(one.base, one.qos) for one in found.batches] == [(0, 0)]
            assert (found.first, found.end) == (0, 1)
        assert isinstance(proxy.ask(a_ring(1)), NoMessagesYet)

    def test_needs_a_subscription_that_this_proxy_has_confirmed(self) -> None:
        proxy = a_broker()
        assert isinstance(proxy.ask(a_ring(0)), NotSub)
        proxy.ask(a_sub())

        assert isinstance(proxy.ask(a_ring(0, boot="another")), Stale)
        assert isinstance(proxy.ask(a_ring(0, generation=2)), Stale)
        assert isinstance(proxy.ask(a_ring(0, epoch=0)), Fenced)

    def test_hears_of_it_with_the_answer_to_a_get(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub())
        silent = proxy.ask(a_get(0))
        add(proxy.state.kept(Rings))

        told = proxy.ask(a_get(0))
        proxy.put(1)
        told_too = proxy.ask(a_get(0))

        assert isinstance(silent, NoMessagesYet)
        assert isinstance(told, NoMessagesYet)
        assert isinstance(told_too, MessageBatches)
        assert (silent.ring, told.ring, told_too.ring) == (UNSET, 1, 1)


class TestListeners:
    def test_are_the_subscriptions_that_would_get_a_message_now(self) -> None:
        proxy = a_broker()
        assert listeners(proxy) == 0
        proxy.ask(a_sub())
        proxy.ask(a_sub(2, topic="other"))
        assert (listeners(proxy), listeners(proxy, "nothing")) == (1, 0)

        proxy.ask(an_unsub(3))

        assert listeners(proxy) == 0


class TestASubscriptionAtLevel0:
    def test_holds_nothing_back(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub(terms=Terms(qos=0)))
        proxy.put(1)
        log = proxy.state.topics["t"]

        assert (log.subscriptions["s"].listens, log.subscriptions["s"].holds) == (True, False)
        assert log.low_watermark() == log.durable_end == 1
