"""A feed of subscriptions: who wants what, first as it is and then each change of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from reliable_pubsub import ExactTopic, InterestChange
from reliable_pubsub.common.core import limits
from reliable_pubsub.common.core.actions import DeleteTopic
from reliable_pubsub.common.core.answers import Denied, Malformed
from reliable_pubsub.common.core.errors import (
    InDoubtError,
    InvalidNameError,
    InvalidPatternError,
    UsageError,
)
from reliable_pubsub.common.core.interest_messages import (
    SubscriptionRow,
    Subscriptions,
    SubscriptionsReport,
)
from reliable_pubsub.common.core.pattern_messages import Match
from reliable_pubsub.common.core.patterns.pattern import Pattern, glob, regex
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.wire import encode
from reliable_pubsub.proxy.core.outputs import Answer
from reliable_pubsub.proxy.status import interests
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.client import Subscriber
from tests.core.rights_world import GovernedProxy, authority, key_of
from tests.fakes import (
    FakeClock,
    FakeTransport,
    Link,
    MemoryProxy,
    a_broker,
    a_hello,
    a_sub,
    a_world,
    an_action,
    an_unsub,
    as_stored,
)

ONCE = RetryPolicy(retries_max=0)
HEAT = glob("sensor/*/heat")


class House:
    """A proxy, a publisher that looks on, and subscribers."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.link = Link(MemoryProxy())
        transport = FakeTransport(self.link, self.clock)
        self.publisher = Publisher("p", retry=ONCE, _world=a_world(transport, self.clock))

    def subscriber(self, name: str) -> Subscriber:
        return Subscriber(name, _world=a_world(self.link))

    def subscribe(self, *topics: str) -> Subscriber:
        subscriber = self.subscriber("s")
        for topic in topics:
            subscriber.subscribe(topic)
        return subscriber

    def feed(self, *asked: Any, **more: Any) -> Iterator[InterestChange]:
        return self.publisher.interests(*asked, **{"timeout_s": 0} | more)


def begins(topics: str | Pattern, subscribers: int = 1, *, qos: Any = 2) -> InterestChange:
    return InterestChange("begins", topics, "", qos, subscribers)


class TestAFeed:
    def test_begins_with_what_is_there_and_continues_with_what_changes(self) -> None:
        house = House()
        one, two = house.subscriber("s1"), house.subscriber("s2")
        one.subscribe("a", qos=0)
        one.subscribe("b")
        feed = house.feed()
        assert list(feed) == [begins("a", qos=0), begins("b")]

        two.subscribe("a")
        two.subscribe("c")
        one.unsubscribe("b")

        assert list(feed) == [
            InterestChange("changes", "a", "", 2, 2),
            InterestChange("ends", "b", "", 2, 0),
            begins("c"),
        ]
        assert list(feed) == []

    def test_is_of_one_topic_or_of_those_of_a_pattern(self) -> None:
        house = House()
        house.subscribe("sensor/1/heat", "sensor/1/light", "sensor/2/heat")

        assert list(house.feed(HEAT)) == [begins("sensor/1/heat"), begins("sensor/2/heat")]
        assert list(house.feed("sensor/1/light")) == [begins("sensor/1/light")]
        assert list(house.feed("sensor/1")) == []

    def test_has_subscriptions_by_pattern_that_may_share_a_topic_with_it(self) -> None:
        house = House()
        house.subscriber("s1").subscribe(match=HEAT)
        house.subscriber("s2").subscribe(match=HEAT, qos=1)
        house.subscriber("s3").subscribe(match=regex("light/[0-9]+"))

        assert list(house.feed(glob("sensor/7/*"))) == [begins(HEAT, 2)]
        assert list(house.feed("light/7")) == [begins(regex("light/[0-9]+"))]
        assert list(house.feed("light/x")) == []
        assert list(house.feed(glob("*.dead"))) == []

    def test_has_a_pattern_and_each_topic_that_it_has_matched(self) -> None:
        house = House()
        subscriber = house.subscriber("s")
        feed = house.feed()
        assert list(feed) == []

        subscriber.subscribe(match=HEAT)
        assert list(feed) == [begins(HEAT)]

        house.publisher.put("sensor/1/heat", b"hot")
        assert list(feed) == [begins("sensor/1/heat")]

        subscriber.unsubscribe(HEAT)
        assert list(feed) == [
            InterestChange("ends", "sensor/1/heat", "", 2, 0),
            InterestChange("ends", HEAT, "", 2, 0),
        ]

    def test_does_not_have_a_topic_that_an_operator_has_deleted_until_it_is_made_again(
        self,
    ) -> None:
        house = House()
        house.subscriber("s").subscribe(match=HEAT)
        house.publisher.put("sensor/1/heat", b"1")
        feed = house.feed()
        assert list(feed) == [begins("sensor/1/heat"), begins(HEAT)]

        house.link.proxy.ask(an_action(DeleteTopic(topic="sensor/1/heat"), number=1))
        assert list(feed) == [InterestChange("ends", "sensor/1/heat", "", 2, 0)]

        house.publisher.put("sensor/1/heat", b"2")
        assert list(feed) == [begins("sensor/1/heat")]

    def test_has_a_group_with_the_number_of_its_members(self) -> None:
        house = House()
        one, two = house.subscriber("s1"), house.subscriber("s2")
        one.subscribe("jobs", group="workers")
        feed = house.feed()
        assert list(feed) == [InterestChange("begins", "jobs", "workers", 2, 1)]

        two.subscribe("jobs", group="workers")
        assert list(feed) == [InterestChange("changes", "jobs", "workers", 2, 2)]

        one.unsubscribe("jobs")
        two.unsubscribe("jobs")
        assert list(feed) == [InterestChange("changes", "jobs", "workers", 2, 0)]

    def test_does_not_have_a_subscription_whose_lease_has_ended(self) -> None:
        house = House()
        proxy = house.link.proxy
        proxy.tick(now_s=1.0)
        house.subscriber("s").subscribe("t", lease_s=10)
        feed = house.feed()
        assert list(feed) == [begins("t")]

        proxy.tick(now_s=30.0)

        assert list(feed) == [InterestChange("ends", "t", "", 2, 0)]

    def test_names_a_topic_so_that_it_can_be_put_on(self) -> None:
        house = House()
        house.subscriber("s").subscribe(ExactTopic("odd*"))
        (change,) = house.feed()
        assert isinstance(change.topics, str)

        house.publisher.put(change.topics, b"x")

    def test_refuses_what_is_no_topic_and_no_pattern_before_it_asks(self) -> None:
        house = House()
        with pytest.raises(InvalidNameError):
            house.feed("sensor/*")
        with pytest.raises(InvalidPatternError):
            house.feed(regex("("))
        with pytest.raises(UsageError):
            house.feed(every_s=0)
        assert house.link.answers == []


class TestLooks:
    def test_are_so_far_apart_and_end_after_so_long_without_a_change(self) -> None:
        house = House()
        feed = house.feed(every_s=2, timeout_s=5)

        assert list(feed) == []

        assert house.clock.time_s == 5
        assert len(house.link.answers) == 4  # at 0, 2, 4 and 5 s

    def test_are_one_short_answer_while_nothing_changes(self) -> None:
        house = House()
        house.subscriber("s").subscribe("t")
        feed = house.feed()
        assert list(feed) == [begins("t")]

        house.publisher.put("t", b"x")
        assert list(feed) == []

        answer = house.link.answers[-1]
        assert isinstance(answer, SubscriptionsReport)
        assert (answer.unchanged, answer.rows) == (True, ())

    def test_find_what_changed_while_the_proxy_was_away(self) -> None:
        house = House()
        subscriber = house.subscribe("a", "b")
        feed = house.feed(timeout_s=None)
        assert [next(feed), next(feed)] == [begins("a"), begins("b")]

        subscriber.unsubscribe("a")
        house.link.script(">")
        with pytest.raises(InDoubtError):
            next(feed)
        house.link.proxy = house.link.proxy.restarted()

        assert next(feed) == InterestChange("ends", "a", "", 2, 0)
        assert list(house.feed()) == [begins("b")]

    def test_tell_nothing_again_after_a_restart_without_a_change(self) -> None:
        house = House()
        house.subscriber("s").subscribe("t")
        feed = house.feed()
        assert list(feed) == [begins("t")]

        house.link.proxy = house.link.proxy.restarted()

        assert list(feed) == []

    def test_see_a_change_after_the_disk_was_full(self) -> None:
        """The records of a state that was taken back get the same numbers once more."""
        house = House()
        proxy = house.link.proxy
        proxy.ask(a_hello("subscriber", "s"))
        feed = house.feed()
        for control, topic in enumerate("abcd", 1):
            proxy.ask(a_sub(control, topic=topic))
        proxy.ask(an_unsub(5, topic="a"))
        assert list(feed) == list(map(begins, "bcd"))
        told = proxy.state.interest_version

        proxy.engine.failed(as_stored(proxy.durable), "the disk is full", now_s=0.0)
        proxy.tick(now_s=5.0)
        proxy.ask(an_unsub(6, topic="b"))
        while proxy.state.interest_version < told:
            proxy.state.interest_changed()  # as records do that change nothing

        assert list(feed) == [InterestChange("ends", "b", "", 2, 0)]


class TestPages:
    def test_are_as_many_as_there_are_topics_for(self) -> None:
        house = House()
        names = [f"t{n:04}" for n in range(2 * limits.SUBSCRIPTIONS_ROWS_MAX + 1)]
        house.subscribe(*names)
        before = len(house.link.answers)

        assert list(house.feed()) == list(map(begins, names))

        assert len(house.link.answers) - before == 3 + 1  # the last one: nothing has changed

    def test_divide_the_groups_of_one_topic(self) -> None:
        house = House()
        groups = [f"g{n:03}" for n in range(limits.SUBSCRIPTIONS_ROWS_MAX + 1)]
        for name in groups:
            house.subscriber(f"s-{name}").subscribe("jobs", group=name)
        house.subscribe("jobs", "later")

        found = [(one.topics, one.group) for one in house.feed()]

        assert found == [("jobs", name) for name in ["", *groups]] + [("later", "")]

    @pytest.mark.parametrize("limit", ["SUBSCRIPTIONS_STEPS_MAX", "COMPARE_STEPS_MAX"])
    def test_end_early_where_they_cost_much_and_leave_nothing_out(
        self, limit: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(interests, limit, 10)
        house = House()
        subscriber = house.subscribe(*"abcdefgh")
        for text in ("x*1", "x*2", "y*3", "z*4"):
            subscriber.subscribe(match=glob(text))
        before = len(house.link.answers)

        found = list(house.feed(glob("[a-z]*")))

        assert len(found) == 12
        assert len(house.link.answers) - before > 2

    def test_are_of_what_is_durable(self) -> None:
        proxy = a_broker()
        proxy.decide(a_sub(1))
        asked = Subscriptions(client="p", epoch=1, request=2, match=glob("*"))

        waiting = proxy.send(asked)
        assert proxy.answer_to(waiting) is None
        proxy.commit()

        answer = proxy.answer_to(waiting)
        assert isinstance(answer, SubscriptionsReport)
        assert answer.rows == (SubscriptionRow(Pattern("exact", "t"), "", 2, 1),)

    def test_name_a_topic_once_that_a_pattern_names_exactly(self) -> None:
        proxy = a_broker(subscribers=("s", "s2"))
        exact = Pattern("exact", "t")
        for client in ("s", "s2"):
            match = Match(client=client, epoch=1, request=2, match=exact, control=1)
            proxy.ask(match)
        asked = Subscriptions(client="p", epoch=1, request=2, match=exact)

        before = proxy.ask(asked)
        proxy.put(1)
        after = proxy.ask(asked)

        for answer in (before, after):
            assert isinstance(answer, SubscriptionsReport)
            assert answer.rows == (SubscriptionRow(exact, "", 2, 2),)

    @pytest.mark.parametrize("match", [regex("("), Pattern("later", "x")])
    def test_are_refused_for_a_pattern_that_cannot_be_read(self, match: Pattern) -> None:
        asked = Subscriptions(client="p", epoch=1, request=2, match=match)

        assert isinstance(a_broker().ask(asked), Malformed)


class TestAKey:
    def shown_to(self, asked: Pattern, **rights: Any) -> list[Pattern] | Denied:
        proxy = GovernedProxy(
            p=rights, s={"get": ["*"]}, other={"put": ["*"], "ids": ["*"], "status": ["*"]}
        )
        proxy.ask_as("s", a_hello("subscriber", "s"))
        topics = ("mine/1", "theirs/1")
        for control, topic in enumerate(topics, 1):
            proxy.ask_as("s", a_sub(control, topic=topic))
        for control, text in enumerate(("*/heat", "mine/?x", "theirs/*y"), 3):
            head: dict[str, Any] = {"client": "s", "epoch": 1, "request": 1}
            proxy.ask_as("s", Match(**head, match=glob(text), control=control))
        answer = proxy.ask_as("p", Subscriptions(client="p", epoch=1, request=2, match=asked))
        if isinstance(answer, Denied):
            return answer
        assert isinstance(answer, SubscriptionsReport)
        return [row.match for row in answer.rows]

    def test_is_shown_what_it_may_put_to_and_patterns_that_may_share_it(self) -> None:
        shown = self.shown_to(glob("*"), put=["mine/*"])

        assert shown == [Pattern("exact", "mine/1"), glob("*/heat"), glob("mine/?x")]

    def test_is_shown_everything_if_it_may_put_anywhere(self) -> None:
        shown = self.shown_to(glob("*"), put=["*"])

        assert isinstance(shown, list)
        assert len(shown) == 5

    def test_is_denied_what_it_may_not_put_to(self) -> None:
        one = self.shown_to(Pattern("exact", "theirs/1"), put=["mine/*"])
        nothing = self.shown_to(glob("*"), get=["*"], status=["*"], history=["*"])

        assert isinstance(one, Denied)
        assert (one.right, one.topic) == ("put", "theirs/1")
        assert isinstance(nothing, Denied)
        assert (nothing.right, nothing.topic) == ("put", "")

    def test_that_may_put_to_more_is_shown_more(self) -> None:
        proxy = GovernedProxy(p={"put": ["mine/*"]}, s={"get": ["*"]})
        proxy.ask_as("s", a_hello("subscriber", "s"))
        proxy.ask_as("s", a_sub(1, topic="theirs/1"))
        head: dict[str, Any] = {"client": "p", "epoch": 1, "request": 2, "match": glob("*")}
        before = proxy.ask_as("p", Subscriptions(**head))
        assert isinstance(before, SubscriptionsReport)
        assert before.rows == ()

        proxy.engine.govern(authority(p={"put": ["*"]}, s={"get": ["*"]}))

        known: dict[str, Any] = {"boot": before.boot, "known": before.version}
        after = proxy.ask_as("p", Subscriptions(**head, **known))
        assert isinstance(after, SubscriptionsReport)
        assert len(after.rows) == 1

    def test_is_shown_a_change_when_it_is_durable(self) -> None:
        proxy = GovernedProxy(p={"put": ["mine/*"]}, s={"get": ["*"]})
        proxy.ask_as("s", a_hello("subscriber", "s"))
        proxy.decide(a_sub(1, topic="mine/1"))
        asked = Subscriptions(client="p", epoch=1, request=2, match=glob("*"))
        now_s, now_ns = proxy.now_s, proxy.now_ns
        frames, key = encode(asked), key_of("p")

        proxy.engine.receive(frames, "asker", role="publisher", now_s=now_s, now_ns=now_ns, key=key)
        proxy.engine.flush()
        assert not any(isinstance(one, Answer) for one in proxy.engine.outputs)

        answer = proxy.answer()
        assert isinstance(answer, SubscriptionsReport)
        assert len(answer.rows) == 1
