"""GETs that wait: when each is answered, with what, and how many may wait."""

from __future__ import annotations

import math

import pytest
from msgspec import UNSET

from reliable_pubsub.common.core.answers import Fenced, MessageBatches, NoMessagesYet, NotSub, Stale
from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.limits import HELD_REQUESTS_MAX, MIB
from reliable_pubsub.common.core.message_base import Terms
from reliable_pubsub.common.core.requests import AnyRequest
from reliable_pubsub.common.core.status import Status, StatusReport
from reliable_pubsub.common.core.wire import decode_reply, encode
from reliable_pubsub.proxy.core.lease_ends import ended_leases, longest_wait_s
from reliable_pubsub.proxy.core.records import Decision
from reliable_pubsub.proxy.core.waiting_gets import TURN_MAX, WaitingGets
from reliable_pubsub.proxy.features import TABLES
from reliable_pubsub.proxy.qos0.verbs import offered
from reliable_pubsub.relay.core.unstored import Offer, encode_offer
from tests.fakes import (
    FakeClock,
    MemoryProxy,
    a_body,
    a_broker,
    a_bye,
    a_get,
    a_hello,
    a_put,
    a_sub,
    an_ack,
    an_unsub,
    as_stored,
    put_body,
    shown,
)

WAIT_MS = 5000
WAIT_S = WAIT_MS / 1000


def subscribed(*clients: str, terms: Terms = Terms()) -> MemoryProxy:  # noqa: B008  (frozen)
    """A proxy with an empty topic, whose subscribers have subscribed at second 0."""
    clients = clients or ("s",)
    proxy = a_broker(subscribers=clients)
    proxy.tick(now_s=0.0)
    for client in clients:
        proxy.ask(a_sub(client=client, terms=terms))
    return proxy


def wait_of(proxy: MemoryProxy, cursor: int = 0, **more: object) -> object:
    """Ask with a GET that waits; return its return address."""
    facts = {"wait_ms": WAIT_MS, "request": 2} | more
    return proxy.send(a_get(cursor, **facts))  # type: ignore[arg-type]


def waiting(proxy: MemoryProxy) -> int:
    return len(proxy.engine.waiting)


class TestAGetThatWaits:
    def test_has_no_answer_until_something_is_durable_and_then_has_it(self) -> None:
        proxy = subscribed()
        get = wait_of(proxy)
        assert proxy.answer_to(get) is None

        proxy.decide(a_put(1), put_body(1))
        assert proxy.answer_to(get) is None, "answered before durable"
        proxy.commit()

        reply = proxy.answer_to(get)
        assert reply is not None
        assert shown(reply) == [(0, 1)]
        assert waiting(proxy) == 0

    def test_is_answered_once(self) -> None:
        proxy = subscribed()
        get = wait_of(proxy)
        proxy.put(1)
        assert isinstance(proxy.answer_to(get), MessageBatches)

        proxy.put(2)
        proxy.tick(now_s=WAIT_S + 1)

        assert proxy.answer_to(get) is None

    def test_is_answered_that_there_is_nothing_when_its_time_is_over(self) -> None:
        proxy = subscribed()
        get = wait_of(proxy)

        proxy.tick(now_s=WAIT_S - 0.001)
        assert proxy.answer_to(get) is None
        proxy.tick(now_s=WAIT_S)

        assert isinstance(proxy.answer_to(get), NoMessagesYet)

    @pytest.mark.parametrize("wait_ms", [UNSET, 0])
    def test_is_only_one_that_asks_to(self, wait_ms: object) -> None:
        proxy = subscribed()

        assert isinstance(proxy.answer_to(wait_of(proxy, wait_ms=wait_ms)), NoMessagesYet)

    def test_does_not_wait_for_what_is_there(self) -> None:
        proxy = subscribed()
        proxy.put(1)

        assert isinstance(proxy.answer_to(wait_of(proxy)), MessageBatches)

    def test_hears_nothing_of_another_topic(self) -> None:
        proxy = subscribed()
        get = wait_of(proxy)

        proxy.put(1, topic="other")

        assert proxy.answer_to(get) is None

    def test_acknowledges_when_it_comes_and_not_when_it_is_answered(self) -> None:
        proxy = subscribed()
        proxy.put(1)

        wait_of(proxy, 1)

        assert proxy.state.topics["t"].subscriptions["s"].cursor == 1

    def test_is_seen_in_status(self) -> None:
        proxy = subscribed("s", "r")
        ask = Status(client="w", epoch=0, request=1)
        before = proxy.ask(ask)
        wait_of(proxy)
        wait_of(proxy, client="r")
        during = proxy.ask(ask)

        assert isinstance(before, StatusReport)
        assert isinstance(during, StatusReport)
        assert (before.waiting_gets, during.waiting_gets) == (UNSET, 2)

    def test_does_not_outlive_the_process(self) -> None:
        proxy = subscribed()
        wait_of(proxy)

        assert waiting(proxy.restarted()) == 0


class TestItsTime:
    def test_is_half_a_lease_at_most_so_that_a_live_subscriber_is_heard_in_time(self) -> None:
        proxy = subscribed(terms=Terms(lease_ms=1000))
        get = wait_of(proxy)

        proxy.tick(now_s=0.5)

        assert isinstance(proxy.answer_to(get), NoMessagesYet)

    def test_is_bounded_by_the_shortest_lease_of_all_its_topics(self) -> None:
        """A request keeps every lease of its sender, so silence ends them all."""
        proxy = subscribed(terms=Terms(lease_ms=60_000))
        proxy.ask(a_sub(2, topic="u", terms=Terms(lease_ms=1000)))

        assert longest_wait_s(proxy.state, "s") == 0.5

    def test_has_no_bound_where_there_is_no_lease(self) -> None:
        proxy = subscribed("s", "r", terms=Terms(lease_ms=1000))
        proxy.ask(a_hello("subscriber", "free"))
        proxy.ask(a_sub(client="free"))

        assert longest_wait_s(proxy.state, "free") == math.inf
        assert longest_wait_s(subscribed().state, "s") == math.inf


class TestWhoAsksAgain:
    """A client that gives a socket up leaves nothing that waits."""

    @pytest.mark.parametrize(
        "request_",
        [
            a_get(0, wait_ms=WAIT_MS, request=2),
            a_get(0, wait_ms=WAIT_MS, request=3),
            a_get(0, request=3),
            a_hello("subscriber", "s", epoch=2),
            an_unsub(3),
            a_bye(),
        ],
        ids=[
            "with the same bytes",
            "with the next get",
            "now",
            "as a new process",
            "to end",
            "bye",
        ],
    )
    def test_gets_the_first_one_answered_at_once(self, request_: AnyRequest) -> None:
        proxy = subscribed()
        first = wait_of(proxy)

        proxy.send(request_)
        proxy.commit()

        assert proxy.answer_to(first) is not None
        assert waiting(proxy) == (1 if getattr(request_, "wait_ms", UNSET) else 0)

    @pytest.mark.parametrize(
        "late",
        [
            a_get(0, wait_ms=WAIT_MS, request=1),
            a_hello("subscriber", "s"),
            a_hello("publisher", "s", epoch=9),
            Status(client="s", epoch=9, request=9),
        ],
        ids=["a late copy", "a late HELLO", "a publisher of the same name", "a look at the status"],
    )
    def test_is_not_who_only_seems_to(self, late: AnyRequest) -> None:
        proxy = subscribed()
        get = wait_of(proxy)

        copy = proxy.send(late)
        proxy.commit()

        assert proxy.answer_to(get) is None
        assert proxy.answer_to(copy) is not None

    def test_over_the_same_return_address_frees_it_for_any_client(self) -> None:
        proxy = subscribed("s", "r")
        proxy.send(a_get(0, wait_ms=WAIT_MS), reply_to="peer")

        proxy.decide(a_get(0, client="r", wait_ms=WAIT_MS), reply_to="peer")

        assert isinstance(proxy.answer_to("peer"), NoMessagesYet)
        assert waiting(proxy) == 1

    def test_is_fenced_if_another_process_has_its_id_now(self) -> None:
        proxy = subscribed()
        get = wait_of(proxy)

        proxy.decide(a_hello("subscriber", "s", epoch=2))
        assert proxy.answer_to(get) is None, "the grant is not durable"
        proxy.commit()

        assert isinstance(proxy.answer_to(get), Fenced)

    def test_learns_that_its_subscription_has_ended(self) -> None:
        proxy = subscribed()
        get = wait_of(proxy)

        proxy.ask(an_unsub(3))

        assert isinstance(proxy.answer_to(get), NotSub)

    def test_learns_that_its_subscription_has_expired(self) -> None:
        proxy = subscribed(terms=Terms(lease_ms=60_000))
        get = wait_of(proxy, wait_ms=30_000)
        proxy.state.leases.now_s = 1000.0
        expired = ended_leases(proxy.state)

        proxy.take(expired)
        proxy.commit()

        assert isinstance(proxy.answer_to(get), Stale)

    def test_leaves_nothing_over_a_hundred_sockets(self) -> None:
        proxy = subscribed()
        sockets = [wait_of(proxy) for _ in range(100)]

        answered = [proxy.answer_to(one) for one in sockets[:-1]]

        assert all(isinstance(reply, NoMessagesYet) for reply in answered)
        assert waiting(proxy) == 1


class TestMessagesAtQoS0:
    def offer(self, proxy: MemoryProxy, sequence: int) -> None:
        body = a_body(b"x")
        offer = Offer(publisher="p", epoch=1, first_sequence=sequence, count=1, crc=crc32(body))
        became = offered(proxy.engine, encode_offer("t", offer, body), now_ns=1)
        assert became == "taken"
        proxy.commit()

    def test_answer_a_get_that_says_how_much_of_the_ring_it_knows(self) -> None:
        proxy = subscribed("s", "r")
        reads, does_not = wait_of(proxy, ring=0), wait_of(proxy, client="r")

        self.offer(proxy, 1)

        reply = proxy.answer_to(reads)
        assert isinstance(reply, NoMessagesYet)
        assert reply.ring == 1
        assert proxy.answer_to(does_not) is None

    def test_that_came_on_the_way_are_reported_at_once(self) -> None:
        proxy = subscribed()
        self.offer(proxy, 1)

        assert isinstance(proxy.answer_to(wait_of(proxy, ring=0)), NoMessagesYet)
        assert proxy.answer_to(wait_of(proxy, ring=1)) is None


class TestManyThatWait:
    def test_are_bounded_and_one_too_many_is_answered_at_once(self) -> None:
        proxy = subscribed("a", "b", "c")
        proxy.engine.waiting = WaitingGets(TABLES.waits, TABLES.of_subscribers, 2)
        held = [wait_of(proxy, client=name) for name in "ab"]

        assert isinstance(proxy.answer_to(wait_of(proxy, client="c")), NoMessagesYet)
        assert [proxy.answer_to(one) for one in held] == [None, None]

    def test_are_decided_a_bounded_number_in_a_turn(self) -> None:
        names = [f"s{n}" for n in range(2 * TURN_MAX + 1)]
        proxy = subscribed(*names)
        for name in names:
            wait_of(proxy, client=name)
        proxy.engine.waiting.has_come("t")

        left = []
        while proxy.engine.is_turn_due:
            proxy.engine.end_turn(now_s=0.0, now_ns=1)
            left.append(waiting(proxy))

        assert left == [TURN_MAX + 1, 1, 0]

    def test_cost_nothing_where_nothing_comes(self) -> None:
        """R26: a put looks at the gets on its own topic, and time at those whose time is over."""
        names = [f"s{n}" for n in range(200)]
        proxy = a_broker(subscribers=names)
        for number, name in enumerate(names):
            proxy.ask(a_sub(client=name, topic=f"t{number}"))
            wait_of(proxy, client=name, topic=f"t{number}")
        decided: list[AnyRequest] = []
        handled = proxy.engine._decide

        def counting(request: AnyRequest, body: bytes, now_ns: int) -> Decision:
            decided.append(request)
            return handled(request, body, now_ns)

        proxy.engine._decide = counting  # type: ignore[method-assign]
        looks = proxy.engine.waiting._ends.looks

        proxy.put(1, topic="t7")
        for tick in range(20):
            proxy.tick(now_s=tick / 10)

        assert [type(one).__name__ for one in decided] == ["Put", "Get"]
        assert proxy.engine.waiting._ends.looks - looks <= 20

    def test_leave_nothing_in_place(self) -> None:
        proxy = subscribed()
        state, waits = proxy.state, proxy.engine.waiting
        for number in range(1000):
            get = a_get(0, topic=f"t{number}", client=f"s{number}", wait_ms=1)
            waits.keep(state, get, number, 0.0)
        waits.end(1.0)

        assert (len(waits.due), len(waits.of), len(waits._on), len(waits._over)) == (1000, 0, 0, 0)
        assert waits.ends_at_s == math.inf


class TestWhenTheDisk:
    def test_does_not_answer_what_waits_continues_to_wait(self) -> None:
        proxy = subscribed()
        get = wait_of(proxy)
        proxy.decide(a_put(1), put_body(1))
        proxy.engine.tick(now_s=2.0, now_ns=proxy.now_ns)
        proxy._carry_out()
        assert proxy.answer_to(get) is None

        proxy.commit()

        assert isinstance(proxy.answer_to(get), MessageBatches)

    def test_is_full_all_are_answered_from_what_is_durable(self) -> None:
        proxy = subscribed()
        get = wait_of(proxy)
        proxy.decide(a_put(1), put_body(1))
        proxy.uncommitted = []

        proxy.engine.failed(as_stored(proxy.durable), "full", now_s=0.0)
        proxy._carry_out()

        assert isinstance(proxy.answer_to(get), NoMessagesYet)


class TestHowMuchIsTaken:
    """R27: what waits for the disk is bounded, and puts do not keep gets out."""

    def test_stops_at_a_number_of_requests(self) -> None:
        proxy = a_broker()
        for sequence in range(1, HELD_REQUESTS_MAX + 1):
            assert proxy.engine.takes_more("publisher")
            proxy.decide(a_put(sequence), put_body(sequence))

        assert not proxy.engine.takes_more("publisher")
        assert proxy.engine.takes_more("subscriber")
        proxy.commit()
        assert proxy.engine.takes_more("publisher")

    def test_stops_at_a_number_of_bytes(self) -> None:
        proxy = a_broker()
        body = a_body(bytes(MIB - 64))
        for sequence in range(1, 18):
            proxy.decide(a_put(sequence, body=body), body)

        assert not proxy.engine.takes_more("publisher")
        assert proxy.engine.takes_more("subscriber")

    def test_begins_again_when_requests_are_put_off(self) -> None:
        proxy = a_broker()
        for sequence in range(1, HELD_REQUESTS_MAX + 1):
            proxy.decide(a_put(sequence), put_body(sequence))

        proxy.engine.tick(now_s=2.0, now_ns=1)

        assert proxy.engine.takes_more("publisher")


class TestTheProxyOfTheTests:
    def test_lets_the_time_of_a_wait_pass(self) -> None:
        proxy = subscribed()
        proxy.clock = FakeClock()

        frames = proxy.frames(encode(a_get(0, wait_ms=WAIT_MS, request=2)))

        assert isinstance(decode_reply(frames)[0], NoMessagesYet)
        assert (proxy.now_s, proxy.clock.time_s) == (WAIT_S, WAIT_S)

    def test_lets_others_act_meanwhile(self) -> None:
        proxy = subscribed()
        proxy.meanwhile = lambda: proxy.put(1)

        frames = proxy.frames(encode(a_get(0, wait_ms=WAIT_MS, request=2)))

        assert shown(decode_reply(frames)[0]) == [(0, 1)]

    def test_answers_an_acknowledgement_beside_a_get_that_waits(self) -> None:
        proxy = subscribed("s", "r")
        get = wait_of(proxy)

        proxy.ask(an_ack(0, client="r"))

        assert proxy.answer_to(get) is None
