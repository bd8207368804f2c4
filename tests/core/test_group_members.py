"""A subscriber that is a member of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import (
    InDoubtError,
    LeaseLostError,
    LogChangedError,
    NotSubscribedError,
    UsageError,
)
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.start import Earliest
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.client import Subscriber
from tests.fakes import FakeClock, FakeTransport, Link, MemoryProxy, a_world

ONCE = RetryPolicy(retries_max=0)

Call = Callable[[Any, Message], object]  # that is refused
GIVE_BACK_NEVER: Call = lambda member, message: member.nack(message, delay_s=-1)  # noqa: E731
GIVE_BACK_A_LIST: Call = lambda member, message: member.nack([message])  # noqa: E731
REJECT_A_LIST: Call = lambda member, message: member.reject([message], "bad")  # noqa: E731


class House:
    """A proxy, a publisher, and members of a group; one clock for all."""

    def __init__(self, **terms: Any) -> None:
        self.proxy = MemoryProxy()
        self.clock = self.proxy.clock = FakeClock()
        self.link = Link(self.proxy)
        self.publisher = Publisher("p", _world=a_world(self.link))
        self.terms = terms
        self.proxy.tick(now_s=0.0)

    def member(self, name: str, **settings: Any) -> Subscriber:
        transport = FakeTransport(self.link, self.clock)
        member = Subscriber(name, _world=a_world(transport, self.clock), **settings)
        member.subscribe("jobs", group="workers", **self.terms)
        return member

    def set_back_to(self, copy: MemoryProxy) -> None:
        """Start a copy of the proxy, from before the first message, in its place."""
        copy.log.batches.clear()
        copy.now_ns += 5  # time has passed
        self.link.proxy = self.proxy = copy
        self.proxy.tick(now_s=self.clock.time_s)

    def put(self, *payloads: bytes) -> None:
        self.publisher.put_many("jobs", payloads)

    def pass_time(self, seconds: float) -> None:
        self.clock.time_s += seconds
        self.proxy.tick(now_s=self.proxy.now_s + seconds)


def texts(messages: list[Message]) -> list[str]:
    return [message.payload.decode() for message in messages]


class TestMembersShareATopic:
    def test_each_message_goes_to_one_of_them(self) -> None:
        house = House()
        one, other = house.member("w1"), house.member("w2")
        house.put(b"a", b"b", b"c")

        assert texts(one.get("jobs", max_messages=2)) == ["a", "b"]
        assert texts(other.get("jobs", max_messages=2)) == ["c"]

    def test_one_that_comes_late_has_its_share(self) -> None:
        house = House()
        one = house.member("w1")
        house.put(b"a", b"b")
        one.get("jobs")

        assert texts(house.member("w2").get("jobs")) == ["b"]

    def test_what_get_gave_is_acknowledged_by_the_next_one(self) -> None:
        house = House()
        one = house.member("w1")
        house.put(b"a", b"b")
        one.get("jobs")
        one.get("jobs")

        house.pass_time(31.0)

        assert texts(house.member("w2").get("jobs", max_messages=5)) == ["b"]

    def test_a_loop_acknowledges_when_it_comes_back(self) -> None:
        house = House()
        one = house.member("w1")
        house.put(b"a", b"b", b"c")

        assert texts(list(one.messages("jobs", timeout_s=0))) == ["a", "b", "c"]

        house.pass_time(31.0)
        assert house.member("w2").get("jobs") == []

    def test_a_member_that_dies_is_replaced_when_its_lease_ends(self) -> None:
        house = House(lease_s=10.0)
        house.member("w1")
        house.put(b"a")
        dead = house.member("w2")
        dead.get("jobs")
        other = house.member("w1")
        assert other.get("jobs") == []

        house.pass_time(10.0)

        (message,) = other.get("jobs")
        assert message.redelivered
        assert message.delivery_count == 2

    def test_a_member_that_closes_has_acknowledged_what_was_in_hand(self) -> None:
        house = House()
        one = house.member("w1")
        house.put(b"a", b"b")
        one.get("jobs")
        one.close()

        assert texts(house.member("w2").get("jobs", max_messages=5)) == ["b"]

    def test_a_group_that_is_ended_is_gone(self) -> None:
        house = House()
        one, other = house.member("w1"), house.member("w2")
        one.unsubscribe("jobs", ends_group=True)

        with pytest.raises(NotSubscribedError):
            other.get("jobs")


class TestSingleMessages:
    def test_are_acknowledged_in_any_order(self) -> None:
        house = House()
        one = house.member("w1")
        house.put(b"a", b"b", b"c")
        a, b, c = one.get("jobs", max_messages=3)
        one.ack(c)
        one.ack(a)
        one.abandon()

        house.pass_time(31.0)

        assert house.member("w2").get("jobs", max_messages=3)[0].payload == b.payload

    def test_that_are_given_back_come_again_after_the_delay(self) -> None:
        house = House()
        one, other = house.member("w1"), house.member("w2")
        house.put(b"a")
        one.nack(one.get("jobs")[0], delay_s=5.0)
        assert other.get("jobs") == []

        house.pass_time(5.0)

        assert texts(other.get("jobs")) == ["a"]

    def test_are_kept_for_longer_when_their_lease_is_extended(self) -> None:
        house = House(lease_s=10.0)
        one, other = house.member("w1"), house.member("w2")
        house.put(b"a")
        (message,) = one.get("jobs")
        house.pass_time(9.0)
        one.extend(message)
        house.pass_time(9.0)
        assert other.get("jobs") == []

        one.ack(message)

        house.pass_time(20.0)
        assert other.get("jobs") == []

    def test_that_are_rejected_become_dead_letters(self) -> None:
        house = House()
        one = house.member("w1")
        house.put(b"a", b"b")
        (message,) = one.get("jobs")

        offset = one.reject(message, "cannot be read")

        assert offset == 0
        assert texts(one.get("jobs")) == ["b"]
        assert texts(one.history("jobs.dead")) == ["a"]

    def test_of_a_plain_subscription_are_not_settled_and_the_error_says_what_to_do(self) -> None:
        plain = Subscriber("s", _world=a_world(House().link))
        plain.subscribe("t")
        message = Message("t", 0, "p", 1, 0, b"a")

        for call in (plain.ack, plain.nack, plain.extend):
            with pytest.raises(UsageError, match="calls `acknowledge`"):
                call(message)

    @pytest.mark.parametrize("call", [GIVE_BACK_NEVER, GIVE_BACK_A_LIST, REJECT_A_LIST])
    def test_whose_call_was_refused_come_again_marked(self, call: Call) -> None:
        house = House()
        one = house.member("w1")
        house.put(b"a", b"b")
        messages = one.get("jobs", max_messages=2)
        for message in messages:
            with pytest.raises(UsageError):
                call(one, message)

        again = one.get("jobs", max_messages=2)

        assert [(m.payload, m.delivery_count) for m in again] == [(b"a", 2), (b"b", 2)]

    def test_that_a_plain_subscriber_gives_back_come_again_marked(self) -> None:
        house = House()
        plain = Subscriber("s", _world=a_world(house.link))
        plain.subscribe("jobs")
        house.put(b"a")
        (message,) = plain.get("jobs")
        with pytest.raises(UsageError, match="in no group"):
            plain.nack(message)

        assert [m.delivery_count for m in plain.get("jobs")] == [2]

    def test_that_are_not_in_hand_cannot_be_settled(self) -> None:
        house = House()
        one = house.member("w1")
        house.put(b"a")
        (message,) = one.get("jobs")
        one.ack(message)

        with pytest.raises(UsageError, match="not in hand"):
            one.ack(message)

    def test_whose_lease_ended_learn_of_it(self) -> None:
        house = House(lease_s=10.0)
        one, other = house.member("w1"), house.member("w2")
        house.put(b"a")
        (message,) = one.get("jobs")
        house.pass_time(11.0)
        other.get("jobs")

        with pytest.raises(LeaseLostError) as lost:
            one.ack(message)

        assert lost.value.offsets == (0,)

    def test_ahead_of_a_loop_are_free_for_others_while_the_one_in_hand_is_extended(self) -> None:
        house = House()
        one, other = house.member("w1"), house.member("w2")
        house.put(*[b"%d" % n for n in range(50)])
        loop = one.messages("jobs", timeout_s=0)
        seen = [next(loop) for _ in range(10)]
        one.extend(seen[-1])

        found = other.get("jobs", max_messages=50)

        assert [message.offset for message in found] == list(range(10, 50))
        assert {message.delivery_count for message in found} == {1}

    def test_ahead_of_a_get_of_many_are_those_that_a_fast_program_will_have_in_a_moment(
        self,
    ) -> None:
        house = House()
        one, other = house.member("w1"), house.member("w2")
        house.put(*[b"%d" % n for n in range(5_000)])
        first = one.get("jobs", max_messages=100)
        house.pass_time(0.01)

        second = one.get("jobs", max_messages=100)

        ahead = 1_000  # in 0.1 s, as fast as it was
        theirs = other.get("jobs", max_messages=100)
        assert [message.offset for message in first + second] == list(range(200))
        assert [message.offset for message in theirs] == list(range(100 + ahead, 200 + ahead))

    @pytest.mark.parametrize("passed_s", [1e-6, 60.0])
    def test_of_a_get_of_few_are_what_it_asks_for(self, passed_s: float) -> None:
        house = House(lease_s=600.0)
        one, other = house.member("w1"), house.member("w2")
        house.put(*[b"%d" % n for n in range(500)])
        one.get("jobs", max_messages=100)
        house.pass_time(passed_s)
        one.get("jobs", max_messages=99)

        assert other.get("jobs")[0].offset == 199

    @pytest.mark.parametrize("max_deliveries", [1, 2, 3])
    def test_ahead_of_a_loop_are_not_given_up_with_the_one_that_kills_its_members(
        self, max_deliveries: int
    ) -> None:
        house = House(lease_s=10.0, max_deliveries=max_deliveries)
        house.put(b"before")
        house.member("w0")
        house.put(*[b"%d" % n for n in range(50)])
        done: set[bytes] = set()
        for life in range(max_deliveries + 1):
            member = house.member(f"w{life}")
            for message in member.messages("jobs", timeout_s=0):
                if message.payload == b"20":
                    member._free(None)  # it dies
                    break
                done.add(message.payload)
            house.pass_time(10.0)

        assert texts(house.member("reader").history("jobs.dead")) == ["20"]
        assert len(done) == 49

    def test_ahead_of_a_loop_are_not_handed_over_when_their_lease_is_over(self) -> None:
        """A fast loop takes many; then it stalls, and others get them."""
        house = House(lease_s=10.0)
        one, other = house.member("w1"), house.member("w2")
        house.put(*[b"%d" % n for n in range(50)])
        seen: list[int] = []
        for message in one.messages("jobs", timeout_s=0):
            seen.append(message.offset)
            if len(seen) == 10:
                house.pass_time(11.0)
                seen += [m.offset for m in other.get("jobs", max_messages=50)]
                break

        seen += [message.offset for message in one.get("jobs", max_messages=50)]

        assert sorted(set(seen)) == list(range(50))
        assert len(seen) == 10 + 49  # what it had not acknowledged when it stalled comes twice


class TestAnAnswerIsLost:
    @pytest.mark.parametrize("script", [">", "<", "<<", "><"])
    def test_nothing_is_lost_and_nothing_comes_twice(self, script: str) -> None:
        house = House()
        one = house.member("w1")
        house.put(b"a", b"b", b"c")
        house.link.script(script)

        found = [texts(one.get("jobs")) for _ in range(3)]

        assert found == [["a"], ["b"], ["c"]]
        assert one.get("jobs") == []

    def test_in_doubt_an_acknowledgement_is_finished_by_the_next_call(self) -> None:
        house = House()
        one = house.member("w1", retry=ONCE)
        house.put(b"a", b"b")
        (message,) = one.get("jobs")
        house.link.script("<")
        with pytest.raises(InDoubtError):
            one.ack(message)

        assert texts(one.get("jobs")) == ["b"]
        house.pass_time(31.0)
        assert texts(house.member("w2").get("jobs", max_messages=5)) == ["b"]

    @pytest.mark.parametrize("lost", ["<", ">"])
    @pytest.mark.parametrize("call", ["ack", "nack", "reject"])
    def test_in_doubt_a_call_can_be_made_again(
        self, call: str, lost: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        house = House()
        one = house.member("w1", retry=ONCE)
        house.put(b"a")
        (message,) = one.get("jobs")
        more = ("poison",) if call == "reject" else ()
        house.link.script(lost)
        with pytest.raises(InDoubtError):
            getattr(one, call)(message, *more)

        assert getattr(one, call)(message, *more) == (0 if call == "reject" else None)

        with pytest.raises(UsageError, match="not in hand"):
            getattr(one, call)(message, *more)
        again = [m.delivery_count for m in one.get("jobs")]
        assert again == ([2] if call == "nack" else [])
        assert len(one.history("jobs.dead")) == (call == "reject")
        assert "no longer held" not in caplog.text

    def test_in_doubt_a_rejection_is_finished_by_the_next_get_without_a_false_alarm(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        house = House()
        one = house.member("w1", retry=ONCE)
        house.put(b"a", b"b")
        (message,) = one.get("jobs")
        house.link.script("<")
        with pytest.raises(InDoubtError):
            one.reject(message, "poison")

        assert texts(one.get("jobs")) == ["b"]

        assert texts(one.history("jobs.dead")) == ["a"]
        assert "no longer held" not in caplog.text

    def test_in_doubt_what_was_granted_comes_with_the_next_call(self) -> None:
        house = House()
        one = house.member("w1", retry=ONCE)
        house.put(b"a")
        house.link.script("<")
        with pytest.raises(InDoubtError):
            one.get("jobs")

        (message,) = one.get("jobs")

        assert message.delivery_count == 1

    def test_the_next_proxy_knows_what_is_held(self) -> None:
        house = House()
        one, other = house.member("w1"), house.member("w2")
        house.put(b"a", b"b")
        (message,) = one.get("jobs")
        house.link.proxy = house.proxy = house.proxy.restarted()

        assert texts(other.get("jobs", max_messages=5)) == ["b"]
        one.ack(message)


class TestADeliveryCountsWhenTheProgramHasTheMessage:
    """Rule R29."""

    @pytest.mark.parametrize("bound", [None, 1, 3])
    @pytest.mark.parametrize("script", [">" * 4, ">" * 3 + "<", "<" * 4])
    def test_it_does_not_in_an_outage_longer_than_the_lease(
        self, script: str, bound: int | None
    ) -> None:
        house = House(lease_s=2.0, max_deliveries=bound)
        one, other = house.member("w1"), house.member("w2")
        house.put(b"a", b"b")
        house.link.script(script)  # each attempt takes 2 s

        found = one.get("jobs", max_messages=2)
        found += other.get("jobs", max_messages=2) + one.get("jobs", max_messages=2)

        assert sorted(texts(found)) == ["a", "b"]
        assert {message.delivery_count for message in found} == {1}
        assert one.history("jobs.dead") == []

    def test_it_does_not_at_a_member_that_was_stopped_for_longer_than_the_lease(self) -> None:
        house = House(lease_s=2.0, max_deliveries=1)
        one, other = house.member("w1"), house.member("w2")
        house.put(b"a")

        def stops() -> None:
            house.link.script("")
            house.pass_time(3.0)  # its answer waits in the socket
            found.extend(other.get("jobs"))

        found: list[Message] = []
        house.link.meanwhile = stops
        house.link.script("~")
        found += one.get("jobs") + one.get("jobs")

        assert [message.delivery_count for message in found] == [1]
        assert one.history("jobs.dead") == []

    def test_it_does_not_in_a_call_that_was_broken_off(self) -> None:
        house = House(max_deliveries=1)
        one = house.member("w1", retry=ONCE)
        house.put(b"a")
        house.link.script("<")
        with pytest.raises(InDoubtError):
            one.get("jobs")
        one._begin_again()

        assert [message.delivery_count for message in one.get("jobs")] == [1]

    @pytest.mark.parametrize("bound", [None, 5])
    def test_it_does_not_for_what_a_loop_had_ahead_when_it_was_broken_off(
        self, bound: int | None
    ) -> None:
        house = House(max_deliveries=bound)
        one = house.member("w1")
        house.put(*[b"%d" % n for n in range(50)])
        for message in one.messages("jobs", timeout_s=0):
            if message.offset == 2:  # in a run by now
                one._gate.steps.drop()
                one._gate.steps, one._gate._is_broken = None, True
                one._gate.begin_again()
                break

        again = [message for _ in range(50) for message in one.get("jobs")]

        assert [m.offset for m in again if m.delivery_count == 1] == list(range(3, 50))
        assert len(again) == 47  # what the loop had taken is processed

    def test_it_does_where_a_member_died_of_it(self) -> None:
        house = House(max_deliveries=2, lease_s=2.0)
        house.put(b"poison")
        first = house.member("w0")
        first.unsubscribe("jobs", ends_group=True)
        house.terms["start"] = Earliest
        for number in (1, 2):
            assert [m.delivery_count for m in house.member(f"w{number}").get("jobs")] == [number]
            house.pass_time(3.0)

        last = house.member("w3")

        assert last.get("jobs") == []
        assert texts(last.history("jobs.dead")) == ["poison"]


class TestAMemberLeavesThroughAnException:
    @pytest.mark.parametrize("leave", ["exception", "abandon"])
    def test_what_a_get_gave_is_free_for_others_and_counts_as_delivered(self, leave: str) -> None:
        house = House(max_deliveries=5)
        one, other = house.member("w1"), house.member("w2")
        house.put(b"a", b"b", b"c")
        self.leave(one, lambda: one.get("jobs", max_messages=2), by=leave)

        found = [message for _ in range(3) for message in other.get("jobs", max_messages=5)]

        assert sorted((m.payload, m.delivery_count) for m in found) == [
            (b"a", 2),
            (b"b", 2),
            (b"c", 1),
        ]

    def test_what_a_loop_passed_is_acknowledged_and_what_it_had_ahead_is_no_delivery(self) -> None:
        house = House()
        one, other = house.member("w1"), house.member("w2")
        house.put(*[b"%d" % n for n in range(50)])

        def work() -> None:
            for message in one.messages("jobs", timeout_s=0):
                if message.offset == 10:
                    raise ValueError("cannot process it")

        self.leave(one, work)
        found = other.get("jobs", max_messages=50)

        assert [(m.offset, m.delivery_count) for m in found] == [
            (10, 2),
            *((n, 1) for n in range(11, 50)),
        ]

    def test_what_a_handler_has_handled_is_acknowledged(self) -> None:
        house = House()
        one, other = house.member("w1"), house.member("w2")
        house.put(*[b"%d" % n for n in range(10)])

        def handle(message: Message) -> None:
            if message.offset == 5:
                raise KeyboardInterrupt

        one.on("jobs", handle, group="workers")
        with pytest.raises(KeyboardInterrupt), one:
            one.run(timeout_s=0)
        found = [message for _ in range(3) for message in other.get("jobs", max_messages=50)]

        assert [(m.offset, m.delivery_count) for m in found] == [
            (5, 2),
            *((n, 1) for n in range(6, 10)),
        ]

    def test_an_exception_after_a_handler_has_returned_gives_nothing_back(self) -> None:
        house = House()
        one, other = house.member("w1"), house.member("w2")
        house.put(b"a", b"b")
        one.on("jobs", lambda message: None, group="workers")
        self.leave(one, lambda: one.run(timeout_s=0))

        assert other.get("jobs", max_messages=5) == []

    def test_what_it_settled_stays_settled(self) -> None:
        house = House()
        one, other = house.member("w1"), house.member("w2")
        house.put(b"a", b"b")

        def work() -> None:
            first, _ = one.get("jobs", max_messages=2)
            one.ack(first)

        self.leave(one, work)

        assert texts(other.get("jobs", max_messages=5)) == ["b"]

    def test_while_the_proxy_does_not_answer_its_exception_comes_through_soon(self) -> None:
        house = House()
        one = house.member("w1")
        house.put(b"a")
        one.get("jobs")
        house.link.script(">" * 99)
        began_s = house.clock.time_s

        self.leave(one, lambda: None)

        assert house.clock.time_s - began_s == RetryPolicy().timeout_s

    def test_in_the_middle_of_a_call_others_have_its_messages(self) -> None:
        house = House(max_deliveries=1)
        one, other = house.member("w1"), house.member("w2")
        house.put(b"a", b"b")
        house.link.script("!")  # the proxy has granted the message

        with pytest.raises(KeyboardInterrupt), one:
            one.get("jobs")

        found = [message for _ in range(3) for message in other.get("jobs", max_messages=5)]
        assert [(m.payload, m.delivery_count) for m in found] == [(b"a", 1), (b"b", 1)]

    def leave(self, member: Subscriber, work: Callable[[], object], by: str = "exception") -> None:
        if by == "abandon":
            work()
            member.abandon()
            return
        with pytest.raises((ZeroDivisionError, ValueError)), member:  # noqa: PT012
            work()
            raise ZeroDivisionError


class TestAStoreIsSetBack:
    @pytest.mark.parametrize("grown_again", [False, True])
    def test_before_what_a_member_held_it_learns_of_it_and_joins_again_to_continue(
        self, grown_again: bool
    ) -> None:
        """H13: P6 for groups; a member that is alive knows the newest message that it held."""
        house = House()
        one = house.member("w1")
        copy = house.proxy.restarted()
        house.put(b"a")
        assert texts(one.get("jobs")) == ["a"]
        house.set_back_to(copy)
        if grown_again:
            Publisher("p2", _world=a_world(house.link)).put("jobs", b"b")

        for _ in range(2):
            with pytest.raises(LogChangedError, match="set back to an older copy"):
                one.get("jobs")

        one.subscribe("jobs", group="workers")
        assert texts(one.get("jobs")) == (["b"] if grown_again else [])

    def test_the_acknowledgement_under_way_is_in_doubt(self) -> None:
        house = House()
        one = house.member("w1")
        copy = house.proxy.restarted()
        house.put(b"a")
        (message,) = one.get("jobs")
        house.set_back_to(copy)

        with pytest.raises(LogChangedError):
            one.ack(message)

    @pytest.mark.parametrize("choice", ["adopt", "rewind"])
    def test_a_member_that_was_asked_to_continues_at_the_place_of_the_group(
        self, choice: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        house = House()
        one = house.member("w1", on_log_changed=choice)
        copy = house.proxy.restarted()
        house.put(b"a")
        one.get("jobs")
        house.set_back_to(copy)
        Publisher("p2", _world=a_world(house.link)).put("jobs", b"b")

        assert texts(one.get("jobs")) == ["b"]
        assert f"The group continues ({choice})" in caplog.text


class TestAfterACallWasBrokenOff:
    def test_what_was_in_hand_stays_in_hand(self) -> None:
        house = House()
        one = house.member("w1")
        house.put(b"a", b"b")
        (message,) = one.get("jobs")
        one._gate._is_broken = True

        one.ack(message)

        assert texts(one.get("jobs")) == ["b"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"qos": 1},
        {"session": "clean"},
        {"push": True},
    ],
)
def test_a_group_has_no(wrong: dict[str, Any]) -> None:
    house = House()
    transport = FakeTransport(house.link, house.clock)
    member = Subscriber("w1", _world=a_world(transport, house.clock))

    with pytest.raises(UsageError, match="a group has no"):
        member.subscribe("jobs", group="workers", **wrong)


def test_a_group_is_not_pushed_to_by_the_other_call_either() -> None:
    with pytest.raises(UsageError, match="not pushed"):
        House().member("w1").use_push("jobs", True)


def test_a_client_reads_a_topic_alone_or_in_a_group() -> None:
    house = House()
    one = house.member("w1")

    with pytest.raises(UsageError, match="unsubscribe first"):
        one.subscribe("jobs")
