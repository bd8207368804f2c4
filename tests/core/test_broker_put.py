"""PUT: once, in order, or a reason why not (rules R3, R4, R17)."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.answers import (
    Busy,
    Conflict,
    Duplicate,
    Fenced,
    Full,
    Gap,
    Limit,
    Lost,
    PutAck,
    Stale,
    StorageFull,
)
from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.limits import (
    KIB,
    MIB,
    NUMBER_MAX,
    PUBLISHERS_PER_TOPIC_MAX,
    TOPICS_MAX,
)
from reliable_pubsub.common.core.settings import OnBound
from reliable_pubsub.common.core.wire import decode_request, encode
from reliable_pubsub.proxy.core.broker import due
from reliable_pubsub.proxy.core.records import TopicCreated, Trimmed
from reliable_pubsub.proxy.core.state import BrokerSettings, State
from reliable_pubsub.proxy.core.stored import (
    StoredPublisher,
    StoredSession,
    StoredState,
    StoredTopic,
)
from reliable_pubsub.proxy.core.topic_log import SEGMENT_BATCHES, Retention
from reliable_pubsub.proxy.features import TABLES
from tests.fakes import (
    EMPTY,
    LOG,
    NONCE,
    NOW_NS,
    MemoryProxy,
    a_body,
    a_broker,
    a_get,
    a_hello,
    a_put,
    a_setup,
    a_sub,
    an_ack,
    as_stored,
    decide,
    put_body,
    shown,
)


def a_small_proxy(*, bound: int, on_bound: OnBound = "reject", subscribers: int = 1) -> MemoryProxy:
    """A proxy whose topics hold `bound` bytes, with a subscriber that has read nothing."""
    retention = Retention(topic_bytes_max=bound, on_bound=on_bound)
    proxy = a_broker(settings=BrokerSettings(retention=retention))
    if subscribers:
        proxy.ask(a_sub())
    return proxy


def put_big(proxy: MemoryProxy, sequence: int, size: int) -> object:
    """Put one message of `size` bytes; return the answer."""
    body = a_body(b"x" * size)
    return proxy.ask(a_put(sequence, body=body), body)


class TestTheNextBatch:
    def test_gets_the_next_offset(self) -> None:
        proxy = a_broker()

        first = proxy.put(1, count=3)
        second = proxy.put(4)

        assert isinstance(first, PutAck)
        assert isinstance(second, PutAck)
        assert (first.offset, second.offset) == (0, 3)

    def test_is_answered_with_the_head_of_its_request_and_what_the_answer_means(self) -> None:
        """R1: an answer can be matched with its request, and says how durable it is."""
        proxy = a_broker()

        answer = proxy.ask(a_put(1, request=7), put_body(1))

        assert (answer.client, answer.epoch, answer.request) == ("p", 1, 7)
        assert (answer.boot, answer.durability) == ("boot-1", "sync")

    def test_makes_the_topic_if_there_is_none(self) -> None:
        """H21: a topic begins with its first SUB or PUT, and a put needs no subscriber."""
        proxy = a_broker(subscribers=())

        decision = proxy.decide(a_put(1), put_body(1))

        assert decision.records[0] == TopicCreated(1, "t", LOG)
        assert proxy.state.topics["t"].end == 1

    def test_counts_for_its_topic_and_publisher_alone(self) -> None:
        proxy = a_broker(publishers=("p", "q"))

        answers = [
            proxy.put(1, topic="t", client="p"),
            proxy.put(1, topic="u", client="p"),
            proxy.put(1, topic="t", client="q"),
        ]

        assert [a.offset for a in answers if isinstance(a, PutAck)] == [0, 0, 1]

    def test_changes_nothing_until_its_records_are_applied(self) -> None:
        proxy = a_broker()

        decide(proxy.state, a_put(1), put_body(1), now_ns=NOW_NS)

        assert proxy.state.topics == {}
        assert decide(proxy.state, a_put(1), put_body(1), now_ns=NOW_NS).records


class TestANumber:
    """H28, row 3.5: 64 bits, counted forever; nothing comes round."""

    @pytest.mark.parametrize("bits", [8, 16, 32, 48])
    def test_is_not_taken_for_the_one_that_it_would_be_in_fewer_bits(self, bits: int) -> None:
        """The body is that of message 1, so nothing but the number tells the two apart."""
        proxy = a_publisher_at(2**bits)
        body = put_body(1)

        reply = proxy.ask(a_put(2**bits + 1, body=body), body)

        assert isinstance(reply, PutAck)

    @pytest.mark.parametrize("bits", [8, 16, 32, 48])
    def test_that_was_used_is_not_taken_for_the_next_one_although_fewer_bits_are_the_same(
        self, bits: int
    ) -> None:
        """A late copy of message 1 comes when the next number has the same lower bits."""
        proxy = a_publisher_at(2**bits)
        body = put_body(1)

        reply = proxy.ask(a_put(1, body=body), body)

        assert isinstance(reply, Duplicate)
        assert not proxy.log.batches

    def test_ends_with_the_last_of_63_bits_and_does_not_begin_again(self) -> None:
        proxy = a_publisher_at(NUMBER_MAX - 2)

        last = proxy.put(NUMBER_MAX - 1)
        with pytest.raises(MalformedError, match="sequence numbers end"):
            decode_request(encode(a_put(NUMBER_MAX), put_body(NUMBER_MAX)))
        body = put_body(9)
        again = proxy.ask(a_put(1, body=body), body)

        assert isinstance(last, PutAck)
        assert not isinstance(again, PutAck)
        assert [batch.first_sequence for batch in proxy.log.batches[1]] == [NUMBER_MAX - 1]


def a_publisher_at(last_sequence: int) -> MemoryProxy:
    """A proxy at which publisher `p` has counted so far; retention has removed its messages."""
    mark = StoredPublisher("p", last_sequence, 1, 9, 0, 2)
    topic = StoredTopic(1, "t", LOG, 10, 10, NOW_NS, [], [mark])
    session = StoredSession("publisher", "p", 1, NONCE, 0)
    return MemoryProxy(StoredState(EMPTY.store_id, [topic], [session]))


class TestARepeat:
    def test_is_a_success_with_the_first_offset_and_stores_nothing(self) -> None:
        """H7: what is not newer is judged by its content, never dropped unseen."""
        proxy = a_broker()
        proxy.put(1)

        decision = proxy.decide(a_put(1), put_body(1))

        assert isinstance(decision.reply, Duplicate)
        assert (decision.reply.offset, decision.records) == (0, ())

    def test_is_known_however_many_batches_came_after_it(self) -> None:
        """H3: the proxy remembers more than one id."""
        proxy = a_broker()
        for sequence in range(1, 21):
            proxy.put(sequence)

        answers = [proxy.put(sequence) for sequence in range(1, 21)]

        assert [a.offset for a in answers if isinstance(a, Duplicate)] == list(range(20))
        assert proxy.state.topics["t"].end == 20

    def test_is_known_in_a_new_epoch_and_after_a_restart(self) -> None:
        """H13: a publisher that begins again cannot store a number a second time."""
        proxy = a_broker()
        proxy.put(1)
        proxy = proxy.restarted()
        proxy.ask(a_hello("publisher", "p", epoch=2))

        answer = proxy.ask(a_put(1, epoch=2), put_body(1))

        assert isinstance(answer, Duplicate)

    def test_is_known_when_retention_has_removed_the_batch(self) -> None:
        """H22: the memory of a number never ends, neither by time nor with its message."""
        retention = Retention(history_bytes=0)
        proxy = a_broker(settings=BrokerSettings(retention=retention))
        proxy.put(1)
        proxy.put(2)
        proxy.tick()

        oldest, newest = proxy.put(1), proxy.put(2)

        assert proxy.state.topics["t"].start == 2
        assert isinstance(oldest, Duplicate)
        assert isinstance(newest, Duplicate)
        assert (oldest.offset, newest.offset) == (None, 1)

    def test_of_a_batch_in_flight_is_a_duplicate_that_waits_for_it(self) -> None:
        proxy = a_broker()
        first = proxy.decide(a_put(1), put_body(1))

        again = proxy.decide(a_put(1), put_body(1))

        assert isinstance(again.reply, Duplicate)
        assert again.visible_at == first.visible_at > proxy.state.durable_lsn

    def test_of_an_older_batch_in_flight_is_asked_again_later(self) -> None:
        proxy = a_broker()
        proxy.decide(a_put(1), put_body(1))
        proxy.decide(a_put(2), put_body(2))

        undecided = proxy.decide(a_put(1), put_body(1))
        proxy.commit()
        decided = proxy.decide(a_put(1), put_body(1))

        assert isinstance(undecided.reply, Busy)
        assert isinstance(decided.reply, Duplicate)

    def test_is_recognised_before_a_gap_is_looked_for(self) -> None:
        """Otherwise a lost answer would loop forever: 1 is stored, 1 comes again, 2 is expected."""
        proxy = a_broker()
        proxy.put(1, count=5)
        proxy.put(6, count=5)

        answers = [proxy.put(1, count=5), proxy.put(6, count=5)]

        assert [type(answer) for answer in answers] == [Duplicate, Duplicate]


class TestAnotherContent:
    def test_under_the_newest_number_is_a_conflict(self) -> None:
        """H8: a step file that was edited between two runs does not lose its new messages."""
        proxy = a_broker()
        proxy.put(1)
        other = a_body(b"edited")

        answer = proxy.ask(a_put(1, body=other), other)

        assert isinstance(answer, Conflict)
        assert (answer.first_sequence, answer.count) == (1, 1)
        assert proxy.state.topics["t"].end == 1

    def test_under_an_older_number_is_a_conflict(self) -> None:
        proxy = a_broker()
        proxy.put(1)
        proxy.put(2)
        other = a_body(b"edited")

        assert isinstance(proxy.ask(a_put(1, body=other), other), Conflict)

    @pytest.mark.parametrize(("sequence", "count"), [(1, 2), (2, 1), (2, 4), (1, 5)])
    def test_a_batch_cut_in_another_way_is_a_conflict(self, sequence: int, count: int) -> None:
        proxy = a_broker()
        proxy.put(1, count=3)
        proxy.put(4, count=3)

        assert isinstance(proxy.put(sequence, count=count), Conflict)

    def test_waits_for_the_batch_in_flight_that_it_contradicts(self) -> None:
        proxy = a_broker()
        first = proxy.decide(a_put(1), put_body(1))
        other = a_body(b"edited")

        conflict = proxy.decide(a_put(1, body=other), other)

        assert isinstance(conflict.reply, Conflict)
        assert conflict.visible_at == first.visible_at


class TestAGap:
    def test_is_refused_and_names_the_number_that_is_expected(self) -> None:
        """H7: a number that skips another one is never stored, so no hole can hide."""
        proxy = a_broker()
        proxy.put(1)

        answer = proxy.put(3)

        assert isinstance(answer, Gap)
        assert answer.expected == 2
        assert proxy.state.topics["t"].end == 1

    def test_a_publisher_begins_with_one(self) -> None:
        answer = a_broker().put(2)

        assert isinstance(answer, Gap)
        assert answer.expected == 1

    def test_a_batch_that_straddles_the_last_number_is_a_gap_after_it(self) -> None:
        proxy = a_broker()
        proxy.put(1, count=3)

        answer = proxy.put(2, count=3)

        assert isinstance(answer, Gap)
        assert answer.expected == 4

    def test_a_proxy_that_lost_its_store_says_so_with_a_gap(self) -> None:
        """H13: an older state of the proxy shows in the numbering, at the next put."""
        proxy = a_broker()
        proxy.put(1)
        older = proxy.restarted()
        proxy.put(2)

        answer = older.put(3)

        assert isinstance(answer, Gap)
        assert answer.expected == 2


class TestTheFence:
    def test_an_unknown_publisher_is_asked_to_say_hello(self) -> None:
        answer = MemoryProxy().put(1)

        assert isinstance(answer, Fenced)
        assert answer.current_epoch == 0
        assert "HELLO" in answer.text

    def test_an_older_epoch_is_refused_before_its_numbers_are_looked_at(self) -> None:
        """H11: of two processes with one id the newer one counts."""
        proxy = a_broker()
        proxy.ask(a_hello("publisher", "p", epoch=2))

        answer = proxy.put(1)

        assert isinstance(answer, Fenced)
        assert answer.current_epoch == 2
        assert proxy.state.topics == {}

    def test_the_epoch_of_a_subscriber_does_not_count_for_a_publisher(self) -> None:
        proxy = a_broker(publishers=(), subscribers=("p",))

        assert isinstance(proxy.put(1), Fenced)


class TestTheBoundOfATopicWhoseSlowestExpire:
    """R17: one that holds too much back is given up; status shows it, and a report on return."""

    def full(self) -> MemoryProxy:
        """Two subscribers: s has read nothing, s2 all but the last message."""
        proxy = a_small_proxy(bound=3 * MIB, on_bound="expire")
        proxy.ask(a_hello("subscriber", "s2"))
        proxy.ask(a_sub(client="s2"))
        for sequence in (1, 2, 3):
            put_big(proxy, sequence, 1000 * KIB)
        proxy.ask(an_ack(2, client="s2"))
        return proxy

    def test_gives_up_the_slowest_and_no_other(self) -> None:
        proxy = self.full()

        assert isinstance(put_big(proxy, 4, 1000 * KIB), PutAck)
        log = proxy.state.topics["t"]
        assert (log.subscriptions["s"].expired, log.subscriptions["s2"].expired) == (True, False)
        assert 0 < log.start <= 2

    def test_tells_the_one_that_was_given_up_what_is_gone(self) -> None:
        proxy = self.full()
        put_big(proxy, 4, 1000 * KIB)
        start = proxy.state.topics["t"].start

        assert isinstance(proxy.ask(a_get(0)), Stale)
        proxy.ask(a_sub(2, log=LOG, cursor=0))
        lost = proxy.ask(a_get(0))

        assert isinstance(lost, Lost)
        assert (lost.first, lost.end) == (0, start)

    def test_refuses_a_put_that_not_even_that_makes_room_for(self) -> None:
        proxy = a_small_proxy(bound=100 * KIB, on_bound="expire")

        assert isinstance(put_big(proxy, 1, 200 * KIB), Full)
        assert not proxy.state.topics["t"].subscriptions["s"].expired


class TestTheBoundOfATopic:
    def test_refuses_the_put_that_would_pass_it(self) -> None:
        """H17: nothing unread is dropped; the publisher gets FULL and asks again."""
        proxy = a_small_proxy(bound=100 * KIB)
        put_big(proxy, 1, 60 * KIB)

        answer = put_big(proxy, 2, 60 * KIB)

        assert isinstance(answer, Full)
        assert "topic_bytes_max" in answer.text
        assert proxy.state.topics["t"].end == 1

    def test_takes_the_same_put_once_there_is_room(self) -> None:
        retention = Retention(topic_bytes_max=100 * KIB, history_bytes=0)
        proxy = a_broker(settings=BrokerSettings(retention=retention))
        proxy.ask(a_sub())
        put_big(proxy, 1, 60 * KIB)
        refused = put_big(proxy, 2, 60 * KIB)

        proxy.ask(an_ack(1))
        proxy.tick()

        assert isinstance(refused, Full)
        assert isinstance(put_big(proxy, 2, 60 * KIB), PutAck)

    def test_knows_a_duplicate_also_when_it_is_reached(self) -> None:
        proxy = a_small_proxy(bound=100 * KIB)
        put_big(proxy, 1, 90 * KIB)

        assert isinstance(put_big(proxy, 1, 90 * KIB), Duplicate)

    def test_gives_up_the_oldest_if_the_operator_chose_so_and_says_so(self) -> None:
        """H17, H25: what a subscriber missed is reported to it, with its offsets."""
        proxy = a_small_proxy(bound=3 * MIB, on_bound="lose_oldest")
        for sequence in range(1, 5):
            put_big(proxy, sequence, 1000 * KIB)

        answer = proxy.ask(a_get(0))

        assert isinstance(answer, Lost)
        assert (answer.first, answer.end) == (0, proxy.state.topics["t"].start)
        assert proxy.state.topics["t"].stored_bytes <= 3 * MIB

    def test_gives_up_the_newest_too_if_there_is_no_other_way(self) -> None:
        proxy = a_small_proxy(bound=100 * KIB, on_bound="lose_oldest")
        put_big(proxy, 1, 60 * KIB)

        answer = put_big(proxy, 2, 60 * KIB)

        assert isinstance(answer, PutAck)
        assert (proxy.state.topics["t"].start, proxy.state.topics["t"].end) == (1, 2)

    def test_gives_up_before_the_disk_has_it_what_a_bound_below_the_puts_in_flight_demands(
        self,
    ) -> None:
        """H17: what was given up is reported when the put that it made room for is durable."""
        proxy = a_small_proxy(bound=100 * KIB, on_bound="lose_oldest")
        body = a_body(b"x" * 60 * KIB)
        for sequence in (1, 2, 3):
            proxy.decide(a_put(sequence, body=body), body)

        lost = proxy.decide(a_get(0))
        proxy.commit()

        assert isinstance(lost.reply, Lost)
        assert (lost.reply.first, lost.reply.end) == (0, 2)
        assert lost.visible_at <= proxy.state.durable_lsn
        assert shown(proxy.ask(a_get(2))) == [(2, 1)]

    def test_holds_also_when_large_batches_follow_segments_of_small_ones(self) -> None:
        """P7: a topic stays below its bound, whatever the sizes of its batches."""
        proxy = a_small_proxy(bound=2 * MIB, on_bound="lose_oldest")
        small = 4 * SEGMENT_BATCHES
        for sequence in range(1, small + 1):
            proxy.decide(a_put(sequence), put_body(sequence))
        proxy.commit()

        for sequence in range(small + 1, small + 4):
            put_big(proxy, sequence, 1000 * KIB)

        assert proxy.state.topics["t"].stored_bytes <= 2 * MIB

    def test_is_not_reached_by_what_every_subscriber_has_acknowledged(self) -> None:
        """R17: FULL is said for the sake of subscribers; none waits for acknowledged history."""
        retention = Retention(topic_bytes_max=3 * MIB, history_bytes=256 * MIB)
        proxy = a_broker(settings=BrokerSettings(retention=retention))
        proxy.ask(a_sub())

        answers = []
        for sequence in range(1, 6):
            answers.append(put_big(proxy, sequence, 1000 * KIB))
            proxy.ask(an_ack(proxy.state.topics["t"].end))
            proxy.tick(now_s=float(sequence))

        assert [type(answer) for answer in answers] == [PutAck] * 5


class TestTheLimitsOfAProxy:
    def test_a_topic_above_the_limit_is_refused(self) -> None:
        topics = [
            StoredTopic(number, f"t{number}", f"x.{number}", 0, 0, 0)
            for number in range(1, TOPICS_MAX + 1)
        ]
        proxy = a_broker(StoredState("x", topics))

        refused, known = proxy.put(1, topic="one more"), proxy.put(1, topic="t7")

        assert isinstance(refused, Limit)
        assert refused.limit == TOPICS_MAX
        assert isinstance(known, PutAck)

    def test_a_publisher_above_the_limit_of_a_topic_is_refused(self) -> None:
        others = [
            StoredPublisher(f"p{number}", 1, 1, number, 0)
            for number in range(PUBLISHERS_PER_TOPIC_MAX)
        ]
        topic = StoredTopic(1, "t", "x.1", 0, PUBLISHERS_PER_TOPIC_MAX, 1, (), others)
        proxy = a_broker(StoredState("x", [topic]))

        assert isinstance(proxy.put(1), Limit)

    def test_a_client_above_the_limit_is_refused_and_known_ones_are_served(self) -> None:
        """Known ones have numbers; who has none makes room, see test_forgetting.py."""
        clients = [f"p{number}" for number in range(3)]
        proxy = a_broker(publishers=clients, subscribers=())
        proxy.allow(clients_max=3)
        for client in clients:
            proxy.put(1, client=client)

        refused = proxy.ask(a_hello("publisher", "one-more"))
        known = proxy.put(2, client="p1")

        assert isinstance(refused, Limit)
        assert refused.limit == 3
        assert "clients_max" in refused.text
        assert isinstance(known, PutAck)


class TestAFullDisk:
    def test_refuses_puts_serves_gets_and_tries_again_in_time(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub())
        proxy.put(1)
        full = State(as_stored(proxy.durable), a_setup(proxy.log))
        full.is_storage_full, full.storage_full_until_s = True, 5.0

        refused = decide(full, a_put(2), put_body(2), now_ns=NOW_NS)
        served = decide(full, a_get(0), b"", now_ns=NOW_NS)
        moved = decide(full, a_get(1), b"", now_ns=NOW_NS)
        due(full, TABLES, now_s=5.0)
        later = decide(full, a_put(2), put_body(2), now_ns=NOW_NS)
        acknowledged = decide(full, an_ack(1), b"", now_ns=NOW_NS)
        full.is_storage_full = False
        taken = decide(full, a_put(2), put_body(2), now_ns=NOW_NS)

        assert isinstance(refused.reply, StorageFull)
        assert served.body == put_body(1)
        assert moved.records == ()  # the cursor of a get needs no disk
        assert isinstance(later.reply, StorageFull)
        assert isinstance(acknowledged.reply, PutAck)
        assert isinstance(taken.reply, PutAck)

    def test_removes_nothing_by_retention_meanwhile(self) -> None:
        state = State(EMPTY, a_setup())
        state.is_storage_full, state.storage_full_until_s = True, 5.0

        assert due(state, TABLES, now_s=4.9) == ()


def test_the_number_of_a_trim_stands_before_that_of_the_batch_it_makes_room_for() -> None:
    proxy = a_small_proxy(bound=3 * MIB, on_bound="lose_oldest")
    for sequence in range(1, 4):
        put_big(proxy, sequence, 1000 * KIB)

    body = a_body(b"x" * 1000 * KIB)
    decision = proxy.decide(a_put(4, body=body), body)

    assert isinstance(decision.records[0], Trimmed)
    assert decision.visible_at == proxy.state.lsn
