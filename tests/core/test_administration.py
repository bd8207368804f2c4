"""What operators do: previewed first, done once, durable, and reported to those concerned (R28)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub import Admin as AdminClient
from reliable_pubsub import Earliest, LastReceived, Now, at_offset, newest
from reliable_pubsub.common.core.actions import (
    AdminAck,
    AnyAction,
    DeleteTopic,
    EndSubscription,
    ForgetClient,
    Pause,
    Resume,
    SetCursor,
    Skip,
    Truncate,
)
from reliable_pubsub.common.core.answers import (
    Busy,
    Duplicate,
    Fenced,
    Limit,
    Lost,
    Malformed,
    MessageBatches,
    NotPossible,
    NotSub,
    PutAck,
    Stale,
    SubAck,
)
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import (
    LostError,
    NotPossibleError,
    NotSubscribedError,
    StaleError,
    TimedOutError,
    TryLaterError,
    UsageError,
)
from reliable_pubsub.common.core.group_messages import Take, Taken
from reliable_pubsub.common.core.message_base import GroupTerms, Start, Terms
from reliable_pubsub.common.core.patterns.pattern import glob
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.status import Clients, ClientsReport, Status, StatusReport
from reliable_pubsub.proxy.operators.history import Administration
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.client import Subscriber
from tests.fakes import (
    LOG,
    FakeClock,
    FakeTransport,
    Link,
    MemoryProxy,
    a_broker,
    a_get,
    a_hello,
    a_put,
    a_stage,
    a_sub,
    a_world,
    an_ack,
    an_action,
    groups_of,
    put_body,
    shown,
    sub_ack,
)

ONCE = RetryPolicy(retries_max=0)
OTHER_NONCE = b"nonce-02"
END = EndSubscription(topic="t", subscriber="s")
STATUS = Status(client="admin-0123abcd", epoch=0, request=1)
SKIP = Skip(topic="t", subscriber="s")
BACK = SetCursor(topic="t", subscriber="s", start=Start("earliest"))


def a_proxy(messages: int = 4) -> MemoryProxy:
    """A subscriber that has acknowledged all but the last of some messages."""
    proxy = a_broker()
    proxy.ask(a_sub(1))
    for sequence in range(1, messages + 1):
        proxy.put(sequence)
    proxy.ask(an_ack(messages - 1))
    return proxy


def done(proxy: MemoryProxy, do: AnyAction) -> AdminAck:
    """Do an action under the next number; it must succeed."""
    number = proxy.state.part(Administration).last_number + 1
    reply = proxy.ask(an_action(do, number=number, nonce=b"nonce%03d" % number))
    assert isinstance(reply, AdminAck), reply
    assert reply.done
    return reply


def is_listed(proxy: MemoryProxy, client: str) -> bool:
    report = proxy.ask(Clients(client="admin-0123abcd", epoch=0, request=1))
    assert isinstance(report, ClientsReport)
    return any(one.client == client for one in report.clients)


class TestAnAction:
    def test_that_is_looked_at_says_what_it_would_do_and_changes_nothing(self) -> None:
        proxy = a_proxy()
        before = proxy.state.lsn

        looked = proxy.ask(an_action(BACK))

        assert isinstance(looked, AdminAck)
        assert (looked.number, looked.done, looked.already) == (1, False, False)
        assert (looked.effect.first, looked.effect.end, looked.effect.generation) == (3, 0, 2)
        assert proxy.state.lsn == before

    def test_whose_answer_was_lost_is_done_once_also_across_a_restart(self) -> None:
        proxy = a_proxy()
        first = done(proxy, BACK)

        proxy = proxy.restarted()
        again = proxy.ask(an_action(BACK, number=1, nonce=b"nonce001"))

        assert isinstance(again, AdminAck)
        assert (again.already, again.effect) == (True, first.effect)
        assert proxy.state.topics["t"].subscriptions["s"].generation == 2

    def test_that_comes_after_another_has_taken_its_number_is_stale(self) -> None:
        """Two operators looked at the same time: the later one has to look again."""
        proxy = a_proxy()
        done(proxy, Pause())

        late = proxy.ask(an_action(BACK, number=1, nonce=OTHER_NONCE))

        assert isinstance(late, Stale)
        assert "another operator's came before" in late.text

    def test_needs_a_nonce(self) -> None:
        request = replace(an_action(Resume(), number=1), nonce=None)

        assert isinstance(a_proxy().ask(request), Malformed)

    def test_is_answered_when_it_is_durable_and_not_before(self) -> None:
        proxy = a_proxy()

        decision = proxy.decide(an_action(Pause(), number=1))

        assert decision.visible_at == proxy.state.lsn > proxy.state.durable_lsn
        assert isinstance(proxy.restarted().put(5), PutAck)  # it was never durable

    @pytest.mark.parametrize(
        "do",
        [
            SKIP,
            BACK,
            Truncate(topic="nowhere", start=Start("now")),
            Skip(topic="t", subscriber="s", end=99),
            SetCursor(topic="t", subscriber="s", start=Start("offset", 99)),
            Pause(reason="no\0store keeps it"),
        ],
        ids=[
            "not subscribed",
            "nor this",
            "no such topic",
            "beyond the end",
            "nor to there",
            "NUL",
        ],
    )
    def test_that_cannot_be_done_says_why(self, do: AnyAction) -> None:
        proxy = a_proxy()
        if do in (SKIP, BACK):
            done(proxy, END)

        reply = proxy.ask(an_action(do))

        assert isinstance(reply, NotPossible)
        assert "nothing was changed" in reply.text


class TestToEndASubscription:
    def test_lets_go_of_its_messages_and_tells_it(self) -> None:
        proxy = a_proxy()

        done(proxy, END)

        assert isinstance(proxy.ask(a_get(3)), NotSub)
        assert proxy.state.topics["t"].low_watermark() == 4

    def test_that_has_ended_already_changes_nothing(self) -> None:
        proxy = a_proxy()
        done(proxy, END)

        again = proxy.ask(an_action(END, number=2, nonce=OTHER_NONCE))

        assert isinstance(again, AdminAck)
        assert (again.done, again.already) == (False, True)

    def test_of_a_clean_session_is_final(self) -> None:
        proxy = a_broker()
        terms = Terms(session="clean", lease_ms=1000)
        proxy.ask(a_sub(1, terms=terms, start=Start("now")))

        done(proxy, END)

        assert isinstance(proxy.ask(a_sub(2, log=LOG, cursor=0, terms=terms)), NotSub)


class TestToForgetAClient:
    def test_ends_its_subscriptions_and_never_grants_its_epochs_again(self) -> None:
        proxy = a_proxy()

        done(proxy, ForgetClient(role="subscriber", of="s"))

        assert not is_listed(proxy, "s")
        assert isinstance(proxy.ask(a_get(3)), Fenced)
        assert isinstance(proxy.ask(a_hello("subscriber", "s", epoch=1)), Fenced)
        proxy.ask(a_hello("subscriber", "s", epoch=2))
        assert sub_ack(proxy.ask(a_sub(1, epoch=2))).generation == 2

    def test_keeps_the_numbers_of_a_publisher_as_long_as_one_of_its_messages_is_stored(
        self,
    ) -> None:
        """Otherwise its first number would be free, and stored a second time."""
        proxy = a_proxy()
        forget = ForgetClient(role="publisher", of="p")
        refused = proxy.ask(an_action(forget))
        done(proxy, Truncate(topic="t", start=Start("now")))

        done(proxy, forget)

        assert isinstance(refused, NotPossible)
        assert "are still stored in t" in refused.text
        assert not is_listed(proxy, "p")
        assert isinstance(proxy.put(5), Fenced)
        proxy.ask(a_hello("publisher", "p", epoch=2))
        assert isinstance(proxy.ask(a_put(1, epoch=2), put_body(1)), PutAck)

    def test_that_is_unknown_changes_nothing(self) -> None:
        reply = a_proxy().ask(an_action(ForgetClient(role="subscriber", of="unknown")))

        assert isinstance(reply, AdminAck)
        assert reply.already


class TestToTruncate:
    def test_removes_whole_batches_below_a_place_and_tells_who_had_not_read_them(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub(1))
        for sequence in (1, 4, 7):
            proxy.put(sequence, count=3)

        effect = done(proxy, Truncate(topic="t", start=Start("offset", 5))).effect

        assert (effect.first, effect.end, effect.subscriptions) == (0, 3, 1)
        lost = proxy.ask(a_get(0))
        assert isinstance(lost, Lost)
        assert (lost.first, lost.end, lost.operator) == (0, 3, True)
        assert shown(proxy.ask(a_get(3)))[0] == (3, 3)

    def test_counts_what_is_left_of_a_segment(self) -> None:
        proxy = a_proxy()
        log = proxy.state.topics["t"]
        size = log.stored_bytes

        done(proxy, Truncate(topic="t", start=Start("offset", 1)))

        assert log.stored_bytes == size * 3 // 4
        assert [(one.base, one.end, one.batches) for one in log.segments] == [(1, 4, 3)]

    def test_leaves_the_numbers_of_publishers_as_they_are(self) -> None:
        proxy = a_proxy()

        done(proxy, Truncate(topic="t", start=Start("now")))

        assert isinstance(proxy.put(4), Duplicate)
        assert isinstance(proxy.put(5), PutAck)


class TestToDeleteATopic:
    def test_removes_its_messages_ends_its_subscriptions_and_no_longer_lists_it(self) -> None:
        proxy = a_proxy()

        effect = done(proxy, DeleteTopic(topic="t")).effect

        assert (effect.first, effect.end, effect.subscriptions) == (0, 4, 1)
        report = proxy.ask(STATUS)
        assert isinstance(report, StatusReport)
        assert (report.topics, report.topics_count) == ((), 0)
        assert isinstance(proxy.ask(a_get(4)), NotSub)
        again = proxy.ask(an_action(DeleteTopic(topic="t")))
        assert isinstance(again, AdminAck)
        assert again.already

    def test_leaves_the_numbers_of_its_publishers_also_across_a_restart(self) -> None:
        """Otherwise a put in doubt would be stored a second time in the next log of the name."""
        proxy = a_proxy()
        done(proxy, DeleteTopic(topic="t"))
        proxy = proxy.restarted()

        assert isinstance(proxy.put(4), Duplicate)
        assert isinstance(proxy.ask(STATUS), StatusReport)
        assert proxy.state.deleted_topics == {"t"}  # a repeat makes nothing again

    def test_the_next_put_makes_it_again_and_its_offsets_continue(self) -> None:
        proxy = a_proxy()
        log = proxy.state.topics["t"].log
        done(proxy, DeleteTopic(topic="t"))

        stored = proxy.put(5)

        assert isinstance(stored, PutAck)
        assert stored.offset == 4
        report = proxy.restarted().ask(STATUS)
        assert isinstance(report, StatusReport)
        assert [(one.topic, one.log, one.start, one.end) for one in report.topics] == [
            ("t", log, 4, 5)
        ]

    def test_one_that_comes_back_learns_what_an_operator_removed(self) -> None:
        house = House(messages=2)
        house.admin.delete_topic("t")

        with pytest.raises(LostError) as lost:
            house.get()

        assert (lost.value.first, lost.value.end, lost.value.by_operator) == (0, 2, True)

    def test_is_refused_while_messages_are_put_to_it(self) -> None:
        proxy = a_proxy()
        proxy.decide(a_put(5), put_body(5))  # not durable yet

        refused = proxy.ask(an_action(DeleteTopic(topic="t"), number=1))

        assert isinstance(refused, NotPossible)

    def test_makes_room_for_another_topic(self) -> None:
        proxy = a_proxy()
        proxy.allow(topics_max=1)
        assert isinstance(proxy.put(1, topic="u"), Limit)

        done(proxy, DeleteTopic(topic="t"))

        assert isinstance(proxy.put(1, topic="u"), PutAck)
        assert isinstance(proxy.put(5), Limit)


class TestToEndAGroup:
    def test_ends_it_for_all_members_whatever_they_hold(self) -> None:
        proxy = a_proxy()
        terms = {"group": "g", "group_terms": GroupTerms(), "start": Start("earliest")}
        join = replace(a_sub(2), **terms)
        assert isinstance(proxy.ask(join), SubAck)
        a_take = Take(client="s", epoch=1, request=9, topic="t", group="g", generation=1)
        assert isinstance(proxy.ask(a_take), Taken)

        effect = done(proxy, EndSubscription(topic="t", subscriber="group:g")).effect

        assert (effect.end, effect.generation, effect.subscriptions) == (0, 1, 1)
        assert isinstance(proxy.ask(replace(a_take, request=10)), NotSub)
        assert isinstance(proxy.ask(join), NotSub)  # a copy of a request that was done
        assert not groups_of(proxy.restarted().state)
        nothing = proxy.ask(an_action(EndSubscription(topic="t", subscriber="group:g")))
        assert isinstance(nothing, AdminAck)
        assert nothing.already

    def test_says_that_a_mistyped_topic_is_not_known(self) -> None:
        mistyped = EndSubscription(topic="tt", subscriber="group:g")

        refused = a_proxy().ask(an_action(mistyped))

        assert isinstance(refused, NotPossible)
        assert "no topic 'tt'" in refused.text


class TestToSkip:
    def test_moves_past_one_batch_and_tells_its_subscriber_that_it_is_lost(self) -> None:
        proxy = a_proxy()
        proxy.put(5)

        effect = done(proxy, SKIP).effect

        assert (effect.first, effect.end) == (3, 4)
        stale = proxy.ask(a_get(3))
        assert isinstance(stale, Stale)
        assert "an operator has moved it" in stale.text
        assert sub_ack(proxy.ask(a_sub(2, log=LOG, cursor=3))).moved is True
        lost = proxy.ask(a_get(3, generation=2))
        assert isinstance(lost, Lost)
        assert (lost.first, lost.end, lost.operator) == (3, 4, True)
        assert shown(proxy.ask(a_get(4, generation=2))) == [(4, 1)]

    def test_leaves_one_that_is_past_it_where_it_is(self) -> None:
        proxy = a_proxy()
        done(proxy, SKIP)

        ack = sub_ack(proxy.ask(a_sub(2, log=LOG, cursor=4)))

        assert (ack.cursor, ack.moved) == (4, UNSET)
        assert proxy.state.topics["t"].subscriptions["s"].moved == ""


class TestToSetACursor:
    def test_counts_until_its_subscriber_has_asked_from_there(self) -> None:
        """Also across crashes on both sides; a later place of its own then counts again."""
        proxy = a_proxy()
        done(proxy, BACK)
        proxy = proxy.restarted()
        first = sub_ack(proxy.ask(a_sub(2, log=LOG, cursor=4)))
        proxy.ask(a_get(0, generation=2, boot="boot-2"))

        proxy = proxy.restarted()
        second = sub_ack(proxy.ask(a_sub(3, log=LOG, cursor=2)))

        assert (first.cursor, first.moved, first.shown) == (0, True, 3)
        assert (second.cursor, second.moved) == (2, UNSET)

    def test_shows_nothing_before_it_is_durable_that_the_place_was_taken(self) -> None:
        proxy = a_proxy()
        done(proxy, BACK)
        proxy.ask(a_sub(2, log=LOG, cursor=4))

        decision = proxy.decide(a_get(0, generation=2))

        assert isinstance(decision.reply, MessageBatches)
        assert decision.visible_at == proxy.state.lsn > proxy.state.durable_lsn

    def test_answers_a_get_that_waits(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub(1))
        proxy.put(1)
        waiting = proxy.send(replace(a_get(1), wait_ms=1000))
        proxy.commit()

        done(proxy, BACK)

        assert isinstance(proxy.answer_to(waiting), Stale)

    def test_gives_way_to_a_seek_of_the_program_whatever_was_known(self) -> None:
        proxy = a_proxy()
        done(proxy, BACK)

        ack = sub_ack(proxy.ask(a_sub(2, start=Start("offset", 2), seeks=True)))

        assert (ack.cursor, ack.generation, ack.moved) == (2, 3, UNSET)


class TestAPause:
    def test_refuses_what_would_be_stored_and_answers_what_was(self) -> None:
        proxy = a_proxy()
        done(proxy, Pause(reason="a new disk"))

        refused = proxy.put(5)

        assert isinstance(refused, Busy)
        assert "(a new disk)" in refused.text
        assert isinstance(proxy.put(4), Duplicate)
        assert isinstance(proxy.ask(a_stage(1), put_body(1)), Busy)
        assert shown(proxy.ask(a_get(3))) == [(3, 1)]

    def test_survives_a_restart_and_is_shown_in_status(self) -> None:
        proxy = a_proxy()
        done(proxy, Pause(reason="a new disk"))

        proxy = proxy.restarted()

        report = proxy.ask(Status(client="w", epoch=0, request=1))
        assert isinstance(report, StatusReport)
        assert report.paused == "a new disk"
        assert isinstance(proxy.put(5), Busy)
        done(proxy, Resume())
        assert isinstance(proxy.restarted().put(5), PutAck)

    def test_that_is_over_is_not_brought_back_by_a_late_copy(self) -> None:
        """RESUME takes a number even where nothing is paused."""
        proxy = a_proxy()
        late = an_action(Pause(), number=1, nonce=OTHER_NONCE)

        done(proxy, Resume())

        assert isinstance(proxy.ask(late), Stale)
        assert isinstance(proxy.put(5), PutAck)


# The clients.


class House:
    """A subscriber in the middle of its work, and an operator."""

    def __init__(self, messages: int = 6, qos: int = 2) -> None:
        self.proxy = MemoryProxy()
        link = Link(self.proxy)
        self.clock = FakeClock()

        def world() -> object:
            return a_world(FakeTransport(link, self.clock), self.clock)

        make: Callable[..., Subscriber] = Subscriber
        self.subscriber = make("s", _world=world())
        self.publisher = Publisher("p", retry=ONCE, _world=world())  # type: ignore[arg-type]
        self.admin = AdminClient(_world=world())  # type: ignore[arg-type]
        self.subscriber.subscribe("t")
        for number in range(messages):
            self.publisher.put("t", b"m%d" % number)

    def get(self, count: int = 9) -> list[Message]:
        return self.subscriber.get("t", max_messages=count)


def payloads(messages: list[Message]) -> list[bytes]:
    return [message.payload for message in messages]


class TestASubscriber:
    def test_with_a_pattern_has_a_deleted_topic_again_when_it_is_made_again(self) -> None:
        house = House(messages=0)
        house.subscriber.subscribe(match=glob("sensor/*"))
        house.publisher.put("sensor/1", b"before")
        assert payloads(house.subscriber.get(glob("sensor/*"))) == [b"before"]
        house.subscriber.acknowledge(glob("sensor/*"))
        house.admin.delete_topic("sensor/1")
        assert house.subscriber.get(glob("sensor/*")) == []

        house.publisher.put("sensor/1", b"after")

        (after,) = house.subscriber.get(glob("sensor/*"))
        assert (after.offset, after.payload) == (1, b"after")

    def test_with_a_pattern_learns_what_was_deleted_before_it_had_it(self) -> None:
        house = House(messages=0)
        house.subscriber.subscribe(match=glob("sensor/*"))
        house.publisher.put("sensor/1", b"0")
        assert payloads(house.subscriber.get(glob("sensor/*"))) == [b"0"]
        house.publisher.put("sensor/1", b"1")
        house.admin.delete_topic("sensor/1")
        house.publisher.put("sensor/1", b"2")

        with pytest.raises(LostError, match="by an operator"):
            house.subscriber.get(glob("sensor/*"))

        assert payloads(house.subscriber.get(glob("sensor/*"))) == [b"2"]

    def test_with_a_pattern_learns_of_a_topic_that_was_deleted_before_it_heard_of_it(self) -> None:
        house = House(messages=0)
        house.subscriber.subscribe(match=glob("sensor/*"))
        house.publisher.put_many("sensor/1", [b"0", b"1"])
        house.admin.delete_topic("sensor/1")

        with pytest.raises(LostError, match="by an operator") as lost:
            house.subscriber.get(glob("sensor/*"))

        assert (lost.value.first, lost.value.end) == (0, 2)
        house.publisher.put("sensor/1", b"2")
        assert payloads(house.subscriber.get(glob("sensor/*"))) == [b"2"]

    def test_whose_pattern_begins_later_has_a_topic_that_was_deleted_when_it_is_made_again(
        self,
    ) -> None:
        house = House(messages=0)
        house.publisher.put("sensor/1", b"before")
        house.admin.delete_topic("sensor/1")
        assert house.subscriber.subscribe(match=glob("sensor/*")) == 0

        house.publisher.put("sensor/1", b"after")

        assert payloads(house.subscriber.get(glob("sensor/*"))) == [b"after"]

    def test_that_is_moved_back_gets_all_again_marked_and_then_continues(self) -> None:
        house = House(messages=2)
        house.get()
        house.subscriber.acknowledge("t")
        house.admin.set_cursor("t", "s", Earliest)
        house.publisher.put("t", b"new")

        given = house.get()

        assert payloads(given) == [b"m0", b"m1", b"new"]
        assert [message.redelivered for message in given] == [True, True, False]
        assert house.get() == []

    def test_that_has_messages_in_hand_when_it_hears_of_it_gets_them_again(self) -> None:
        house = House(messages=2)
        house.subscriber.subscribe("t", lease_s=60)
        house.get(1)
        house.subscriber.acknowledge("t")
        house.get()  # the second one is in hand
        house.admin.set_cursor("t", "s", Earliest)

        house.subscriber.keep_alive()  # it asks, with messages in hand

        assert [(m.payload, m.redelivered) for m in house.get()] == [(b"m0", True), (b"m1", True)]

    def test_learns_what_was_skipped_and_that_an_operator_did_it(self) -> None:
        house = House(messages=2)
        house.admin.skip("t", "s")

        with pytest.raises(LostError, match="by an operator") as lost:
            house.get()

        assert (lost.value.first, lost.value.end, lost.value.by_operator) == (0, 1, True)
        assert payloads(house.get()) == [b"m1"]

    def test_that_rejects_what_an_operator_has_skipped_learns_that_it_was_too_late(self) -> None:
        house = House(messages=2)
        (message, _) = house.get()
        house.admin.skip("t", "s")

        with pytest.raises(StaleError, match="the position was changed"):
            house.subscriber.reject(message, "bad")
        with pytest.raises(LostError):
            house.get()
        assert payloads(house.get()) == [b"m1"]

    def test_whose_subscription_was_ended_continues_at_its_own_place(self) -> None:
        house = House(messages=2)
        house.get(1)
        house.admin.end_subscription("t", "s")

        assert payloads(house.get(9)) == [b"m1"]

    @pytest.mark.parametrize("action", ["skip", "set_cursor"])
    def test_is_told_what_was_skipped_also_if_its_subscription_has_ended_since(
        self, action: str
    ) -> None:
        """It is told by its program's start, which passes over what was skipped."""
        house = House(messages=3)
        house.get(1)
        house.subscriber.acknowledge("t")
        if action == "skip":
            house.admin.skip("t", "s", end=2)
        else:
            house.admin.set_cursor("t", "s", at_offset(2))
        house.admin.end_subscription("t", "s")

        house.subscriber.subscribe("t", start=Earliest)

        with pytest.raises(LostError, match="by an operator") as lost:
            house.get()
        assert (lost.value.first, lost.value.end, lost.value.by_operator) == (1, 2, True)
        assert payloads(house.get()) == [b"m2"]
        assert house.get() == []

    def test_that_has_unsubscribed_begins_after_what_an_operator_has_skipped(self) -> None:
        """It has no place of its own, so none could be lost."""
        house = House(messages=3)
        house.get(1)
        house.admin.skip("t", "s", end=2)
        house.subscriber.unsubscribe("t")

        house.subscriber.subscribe("t", start=Earliest)

        assert payloads(house.get()) == [b"m2"]

    def test_that_was_forgotten_continues_at_its_own_place(self) -> None:
        house = House(messages=2)
        house.get(1)
        house.admin.forget_client("s")

        assert payloads(house.get()) == [b"m1"]


class TestTheLibrary:
    def test_does_nothing_when_it_only_looks(self) -> None:
        house = House()

        looked = house.admin.truncate("t", newest(2), look=True)

        assert (looked.first, looked.end, looked.done) == (0, 4, False)
        assert house.admin.topics()[0].start == 0

    def test_lists_topics_and_clients(self) -> None:
        house = House()

        assert [one.topic for one in house.admin.topics()] == ["t"]
        assert [(one.client, one.role) for one in house.admin.clients()] == [
            ("p", "publisher"),
            ("s", "subscriber"),
        ]

    def test_looks_again_when_another_operator_was_faster(self) -> None:
        house = House()
        asked = house.admin._asker.asking
        rivals = iter([True])

        def late(request: object, *more: object) -> object:
            if getattr(request, "number", 0) and next(rivals, False):
                done(house.proxy, Resume())
            return asked(request, *more)  # type: ignore[arg-type]

        house.admin._asker.asking = late  # type: ignore[assignment, method-assign]

        outcome = house.admin.truncate("t", at_offset(2))

        assert (outcome.number, outcome.done, outcome.end) == (2, True, 2)

    def test_drains_when_all_is_acknowledged_and_says_who_has_not(self) -> None:
        house = House()
        with pytest.raises(TimedOutError, match=r"s on 't' \(6 messages\)"):
            house.admin.drain("disk", timeout_s=1)
        house.get()
        house.subscriber.acknowledge("t")

        house.admin.drain("disk", timeout_s=1)

        with pytest.raises(TryLaterError, match="an operator has paused puts"):
            house.publisher.put("t", b"x")
        house.admin.resume()
        house.publisher.resume()
        assert payloads(house.get()) == [b"x"]

    def test_ends_a_group_which_then_holds_nothing_and_is_gone_for_its_members(
        self,
    ) -> None:
        house = House()
        house.subscriber.subscribe("jobs", group="workers")
        house.publisher.put("jobs", b"x")
        house.subscriber.get("jobs")

        outcome = house.admin.end_subscription("jobs", "group:workers")

        assert (outcome.done, outcome.subscriptions) == (True, 1)
        assert house.admin.end_subscription("jobs", "group:workers").already
        with pytest.raises(NotSubscribedError):
            house.subscriber.get("jobs")
        restarted = house.proxy.restarted().state
        assert not groups_of(restarted, "jobs")
        assert not restarted.topics["jobs"].subscriptions["group:workers"].active

    def test_does_not_move_a_group_and_says_what_to_do(self) -> None:
        admin = House().admin
        with pytest.raises(UsageError, match="let a member begin it"):
            admin.skip("jobs", "group:workers")
        with pytest.raises(UsageError, match="let a member begin it"):
            admin.set_cursor("jobs", "group:workers", Earliest)

    def test_drains_groups_too(self) -> None:
        house = House(0)
        house.subscriber.subscribe("jobs", group="workers")
        house.publisher.put_many("jobs", [b"x", b"y"])
        house.subscriber.get("jobs")

        with pytest.raises(TimedOutError, match=r"group:workers on 'jobs' \(2 messages\)"):
            house.admin.drain(timeout_s=0)
        house.subscriber.get("jobs")
        house.subscriber.acknowledge("jobs")

        house.admin.drain(timeout_s=0)

    @pytest.mark.parametrize("call", ["set_cursor", "truncate"])
    def test_has_no_place_where_a_subscriber_was_last(self, call: str) -> None:
        place = ("t", "s") if call == "set_cursor" else ("t",)
        with pytest.raises(UsageError, match="no place for an operator"):
            getattr(House().admin, call)(*place, LastReceived)

    def test_raises_what_cannot_be_done(self) -> None:
        with pytest.raises(NotPossibleError, match="there is no topic"):
            House().admin.truncate("nowhere", Now)


@pytest.mark.parametrize(
    ("terms", "moved"),
    [(Terms(), "set"), (Terms(session="clean", lease_ms=60_000), "")],
    ids=["persistent", "clean"],
)
def test_a_subscription_that_ends_after_it_was_moved_is_as_after_a_restart(
    terms: Terms, moved: str
) -> None:
    proxy = a_proxy()
    proxy.ask(replace(a_sub(2, start=Start("earliest")), terms=terms))
    done(proxy, BACK)

    done(proxy, END)

    known = proxy.state.topics["t"].subscriptions["s"]
    assert known.moved == proxy.restarted().state.topics["t"].subscriptions["s"].moved == moved
