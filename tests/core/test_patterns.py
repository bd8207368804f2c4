"""Subscriptions by pattern: one cursor for each topic, later topics from their first message."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from reliable_pubsub.common.core.answers import Limit, PutAck
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import (
    InvalidPatternError,
    LimitError,
    LostError,
    MalformedError,
    NotSubscribedError,
    UsageError,
)
from reliable_pubsub.common.core.limits import PATTERNS_PER_CLIENT_MAX
from reliable_pubsub.common.core.pattern_messages import Fetch, Fetched, Match, Matched
from reliable_pubsub.common.core.patterns.pattern import Pattern, glob, prefix, regex
from reliable_pubsub.common.core.start import Earliest
from reliable_pubsub.proxy.patterns.index import PatternIndex
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.client import Subscriber
from tests.core.rights_world import GovernedProxy
from tests.fakes import (
    Disk,
    FakeClock,
    FakeTransport,
    Link,
    a_broker,
    a_hello,
    a_put,
    a_sub,
    a_world,
    put_body,
)

HEAT = glob("sensor/*/heat")


def a_publisher(link: Link) -> Publisher:
    return Publisher("p", _world=a_world(link))


def a_subscriber(link: Link, disk: Disk | None = None) -> Subscriber:
    clock = FakeClock()
    transport = FakeTransport(link, clock)
    return Subscriber("s", _world=a_world(transport, clock, disk))


def all_of(subscriber: Subscriber, pattern: Pattern) -> list[tuple[str, int, bytes]]:
    """What is there now, message by message."""
    found = []
    while messages := subscriber.get(pattern, max_messages=3):
        found += [(one.topic, one.offset, one.payload) for one in messages]
    return found


@pytest.mark.parametrize("make", [glob, regex, prefix, partial(Pattern, "exact")])
def test_a_pattern_that_no_request_can_carry_is_refused(make: Callable[[str], Pattern]) -> None:
    with pytest.raises(InvalidPatternError, match="lone surrogate"):
        make("a\ud800")


class TestASubscriptionByPattern:
    def test_has_the_topics_that_it_matches_from_their_ends(self) -> None:
        link = Link(a_broker())
        publisher, subscriber = a_publisher(link), a_subscriber(link)
        publisher.put("sensor/1/heat", b"before")
        publisher.put("sensor/1/light", b"before")

        assert subscriber.subscribe(match=HEAT) == 1
        publisher.put("sensor/1/heat", b"after")
        publisher.put("sensor/1/light", b"other")

        assert all_of(subscriber, HEAT) == [("sensor/1/heat", 1, b"after")]

    def test_has_a_later_topic_from_its_first_message(self) -> None:
        link = Link(a_broker())
        publisher, subscriber = a_publisher(link), a_subscriber(link)
        subscriber.subscribe(match=HEAT)

        publisher.put_many("sensor/2/heat", [b"1", b"2"])
        publisher.put("sensor/3/heat", b"3")
        publisher.put("sensor/3/light", b"4")

        assert sorted(all_of(subscriber, HEAT)) == [
            ("sensor/2/heat", 0, b"1"),
            ("sensor/2/heat", 1, b"2"),
            ("sensor/3/heat", 0, b"3"),
        ]

    def test_begins_where_the_call_says_in_the_topics_that_exist(self) -> None:
        link = Link(a_broker())
        publisher, subscriber = a_publisher(link), a_subscriber(link)
        publisher.put("sensor/1/heat", b"before")

        subscriber.subscribe(match=HEAT, start=Earliest)

        assert all_of(subscriber, HEAT) == [("sensor/1/heat", 0, b"before")]

    def test_keeps_the_cursor_of_each_topic_across_a_crash_of_either_side(self) -> None:
        link, disk = Link(a_broker()), Disk()
        publisher, subscriber = a_publisher(link), a_subscriber(link, disk)
        subscriber.subscribe(match=HEAT)
        publisher.put_many("sensor/1/heat", [b"1", b"2"])
        publisher.put_many("sensor/2/heat", [b"3", b"4"])
        first = subscriber.get(HEAT)
        second = subscriber.get(HEAT)

        again = a_subscriber(link, disk)  # it was killed with the second one in hand
        link.proxy = link.proxy.restarted()
        found = []
        while messages := again.get(HEAT):
            found += messages

        taken = [(one.topic, one.offset, one.redelivered) for one in (*first, *found)]
        assert sorted(taken) == [
            ("sensor/1/heat", 0, False),
            ("sensor/1/heat", 1, True),
            ("sensor/2/heat", 0, False),
            ("sensor/2/heat", 1, False),
        ]
        assert second[0].offset == 1

    def test_is_as_it_was_after_a_restart_of_the_proxy(self) -> None:
        link = Link(a_broker())
        publisher, subscriber = a_publisher(link), a_subscriber(link)
        subscriber.subscribe(match=HEAT)
        link.proxy = link.proxy.restarted()

        publisher.put("sensor/1/heat", b"1")

        assert all_of(subscriber, HEAT) == [("sensor/1/heat", 0, b"1")]

    def test_ends_with_all_of_its_subscriptions(self) -> None:
        link = Link(a_broker())
        publisher, subscriber = a_publisher(link), a_subscriber(link)
        subscriber.subscribe(match=HEAT)
        publisher.put("sensor/1/heat", b"1")
        all_of(subscriber, HEAT)

        subscriber.unsubscribe(HEAT)
        publisher.put("sensor/2/heat", b"2")

        assert not link.proxy.state.subscribed
        assert not link.proxy.state.part(PatternIndex).of
        with pytest.raises(NotSubscribedError):
            subscriber.get(HEAT)

    def test_is_ended_again_by_a_step_whose_process_died_before_it_wrote_that_down(self) -> None:
        link = Link(a_broker())
        subscriber = a_subscriber(link)
        subscriber.subscribe(match=HEAT)
        subscriber.unsubscribe(HEAT)

        subscriber.unsubscribe(HEAT)

        assert isinstance(link.answers[-1], Matched)
        assert link.answers[-1].already

    def test_leaves_what_another_pattern_has(self) -> None:
        link = Link(a_broker())
        publisher, subscriber = a_publisher(link), a_subscriber(link)
        subscriber.subscribe(match=HEAT)
        subscriber.subscribe(match=glob("sensor/1/*"))
        publisher.put("sensor/1/heat", b"1")

        subscriber.unsubscribe(HEAT)

        assert all_of(subscriber, glob("sensor/1/*")) == [("sensor/1/heat", 0, b"1")]

    def test_delivers_only_what_fulfils_its_condition(self) -> None:
        link = Link(a_broker())
        publisher, subscriber = a_publisher(link), a_subscriber(link)
        subscriber.subscribe(match=HEAT, where='region = "eu"')
        for region in ("us", "eu", "us", "eu", "us"):
            publisher.put("sensor/1/heat", region.encode(), headers={"region": region})

        looped = [one.offset for one in subscriber.messages(HEAT, timeout_s=0)]

        assert looped == [1, 3]
        assert all_of(subscriber, HEAT) == []
        subscriber.close()
        assert link.proxy.state.topics["sensor/1/heat"].subscriptions["s"].cursor == 5

    def test_takes_turns_between_its_topics(self) -> None:
        link = Link(a_broker())
        publisher, subscriber = a_publisher(link), a_subscriber(link)
        subscriber.subscribe(match=HEAT)
        for number in range(1500):  # more than one FETCH shows
            publisher.put("sensor/1/heat", b"")
            if number % 500 == 0:
                publisher.put("sensor/2/heat", b"")

        seen = [one.topic for one in subscriber.messages(HEAT, timeout_s=0)]

        assert len(seen) == 1503
        assert "sensor/2/heat" in seen[:1004]

    def test_reports_what_is_lost_in_a_topic_and_continues(self) -> None:
        link = Link(a_broker())
        publisher, subscriber = a_publisher(link), a_subscriber(link)
        subscriber.subscribe(match=HEAT)
        for payload in (b"1", b"2", b"3"):
            publisher.put("sensor/1/heat", payload)
        del link.proxy.log.batches[1][:2]

        with pytest.raises(LostError) as lost:
            subscriber.get(HEAT)

        assert (lost.value.topic, lost.value.first, lost.value.end) == ("sensor/1/heat", 0, 2)
        assert all_of(subscriber, HEAT) == [("sensor/1/heat", 2, b"3")]

    def test_does_not_have_its_own_dead_letters(self) -> None:
        link = Link(a_broker())
        publisher, subscriber = a_publisher(link), a_subscriber(link)
        subscriber.subscribe(match=glob("sensor/*"))
        publisher.put("sensor/1/heat", b"1")
        (message,) = subscriber.get(glob("sensor/*"))

        subscriber.reject(message, "it cannot be read")

        assert all_of(subscriber, glob("sensor/*")) == []


class TestATopicOfAPatternAndOfAGroup:
    def house(self, disk: Disk | None = None) -> tuple[Link, Subscriber, list[Message]]:
        """What a member of a group has in hand by a pattern with the group's topic."""
        link = Link(a_broker())
        publisher, subscriber = a_publisher(link), a_subscriber(link, disk)
        subscriber.subscribe("sensor/1/heat", group="g")
        subscriber.subscribe(match=HEAT)
        publisher.put_many("sensor/1/heat", [b"1", b"2"])
        return link, subscriber, subscriber.get(HEAT, max_messages=2)

    def test_is_acknowledged_by_the_pattern_that_has_delivered_it(self) -> None:
        link, subscriber, _ = self.house()

        subscriber.acknowledge(HEAT)

        assert link.proxy.state.topics["sensor/1/heat"].subscriptions["s"].cursor == 2

    def test_is_recorded_as_processed_with_the_note(self) -> None:
        """Otherwise a crash would write its output lines twice."""
        disk = Disk()
        link, subscriber, _ = self.house(disk)

        subscriber.record(HEAT, b"two lines")

        disk.lose_power()
        again = a_subscriber(link, disk)
        assert (again.note, again.get(HEAT)) == (b"two lines", [])

    def test_is_rejected_by_the_pattern_that_has_delivered_it(self) -> None:
        link, subscriber, (first, _) = self.house()

        subscriber.reject(first, "it cannot be read")

        assert link.proxy.state.topics["sensor/1/heat"].subscriptions["s"].cursor == 1
        assert [one.offset for one in subscriber.get("sensor/1/heat", max_messages=2)] == [0, 1]


class TestASubscriberWithAPattern:
    def test_is_refused_to_leave_one_topic_of_it(self) -> None:
        link = Link(a_broker())
        publisher, subscriber = a_publisher(link), a_subscriber(link)
        subscriber.subscribe(match=HEAT)
        publisher.put("sensor/1/heat", b"1")
        subscriber.get(HEAT)

        with pytest.raises(UsageError, match="unsubscribe the pattern"):
            subscriber.unsubscribe("sensor/1/heat")

    def test_is_refused_a_pattern_or_a_condition_that_cannot_be_read(self) -> None:
        subscriber = a_subscriber(Link(a_broker()))

        with pytest.raises(InvalidPatternError):
            subscriber.subscribe(match=glob("sensor/[a"))
        with pytest.raises(InvalidPatternError):
            subscriber.subscribe(match=HEAT, where="region is eu")
        with pytest.raises(UsageError, match="kinds"):
            subscriber.subscribe(match=Pattern("sql", "a"))
        with pytest.raises(MalformedError, match="has no NUL"):
            subscriber.subscribe(match=glob("a\0*"))
        with pytest.raises(UsageError, match="goes with"):
            subscriber.subscribe("t", where='region = "eu"')


class TestAProxyWithRights:
    def test_does_not_match_what_the_key_may_not_read_now_or_later(self) -> None:
        proxy = GovernedProxy(
            sensor={"ids": ["p"], "put": ["*"]}, display={"ids": ["s"], "get": ["room/*"]}
        )
        proxy.ask_as("sensor", a_hello("publisher", "p"))
        proxy.ask_as("display", a_hello("subscriber", "s"))
        proxy.ask_as("sensor", a_put(1, topic="room/1"), put_body(1))
        proxy.ask_as("sensor", a_put(1, topic="safe/1"), put_body(1))

        head: dict[str, Any] = {"client": "s", "epoch": 1}
        match = Match(**head, request=2, match=glob("*"), control=1)
        reply = proxy.ask_as("display", match)
        proxy.ask_as("sensor", a_put(1, topic="room/2"), put_body(1))
        proxy.ask_as("sensor", a_put(1, topic="safe/2"), put_body(1))
        fetched = proxy.ask_as("display", Fetch(**head, request=3, match=glob("*"), boot=""))

        assert isinstance(reply, Matched)
        assert reply.topics == 1
        assert isinstance(fetched, Fetched)
        assert [one.topic for one in fetched.topics] == ["room/2"]
        mine = {log.topic for log in proxy.state.topics.values() if "s" in log.subscriptions}
        assert mine == {"room/1", "room/2"}


class TestAProxyWithPatterns:
    def test_bounds_those_of_one_subscriber(self) -> None:
        link = Link(a_broker())
        subscriber = a_subscriber(link)
        for number in range(PATTERNS_PER_CLIENT_MAX):
            subscriber.subscribe(match=glob(f"sensor/{number}/*"))

        with pytest.raises(LimitError, match="32 patterns of one subscriber"):
            subscriber.subscribe(match=glob("one/more/*"))

    def test_lets_a_fetch_wait_for_a_topic_that_is_not_there_yet(self) -> None:
        proxy = a_broker()
        proxy.ask(a_hello("subscriber", "s"))
        head: dict[str, Any] = {"client": "s", "epoch": 1, "match": HEAT}
        proxy.ask(Match(**head, request=2, control=1))
        waits = proxy.send(Fetch(**head, request=3, boot="", wait_ms=1000))

        proxy.put(1, topic="sensor/1/heat")

        fetched = proxy.answer_to(waits)
        assert isinstance(fetched, Fetched)
        assert [one.topic for one in fetched.topics] == ["sensor/1/heat"]

    def test_does_not_count_its_subscriptions_for_who_makes_the_topic(self) -> None:
        proxy = GovernedProxy(
            sensor={"ids": ["p"], "put": ["*"], "subscriptions_max": 0},
            display={"ids": ["s"], "get": ["*"]},
        )
        proxy.ask_as("sensor", a_hello("publisher", "p"))
        proxy.ask_as("display", a_hello("subscriber", "s"))
        proxy.ask_as("display", Match(client="s", epoch=1, request=2, match=glob("*"), control=1))

        stored = proxy.ask_as("sensor", a_put(1, topic="room/1"), put_body(1))

        assert isinstance(stored, PutAck)

    def test_counts_for_who_asked_even_beyond_the_quota_and_then_a_new_one_is_refused(self) -> None:
        proxy = GovernedProxy(
            sensor={"ids": ["p"], "put": ["*"]},
            display={"ids": ["s"], "get": ["*"], "subscriptions_max": 1},
        )
        proxy.ask_as("sensor", a_hello("publisher", "p"))
        proxy.ask_as("display", a_hello("subscriber", "s"))
        proxy.ask_as("display", Match(client="s", epoch=1, request=2, match=HEAT, control=1))
        for number in (1, 2):
            proxy.ask_as("sensor", a_put(1, topic=f"sensor/{number}/heat"), put_body(1))

        refused = proxy.ask_as("display", a_sub(2, topic="another", client="s"))

        assert isinstance(refused, Limit)
        assert "has 2 subscriptions" in refused.text
