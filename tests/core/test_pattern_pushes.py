"""A subscription by pattern that is pushed to: the same messages, with requests for what is not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.errors import (
    InvalidNameError,
    NotSubscribedError,
    UsageError,
)
from reliable_pubsub.common.core.limits import FETCH_TOPICS_MAX
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.patterns.matching import Kinds
from reliable_pubsub.common.core.patterns.pattern import Pattern, glob
from reliable_pubsub.common.core.wire import decode_request
from reliable_pubsub.proxy.core.batches import LogBatch
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.relay.core.push import (
    AnyPush,
    Pushed,
    PushedUnstored,
    PushFrames,
    UnstoredFrames,
)
from reliable_pubsub.subscriber.client import Subscriber
from reliable_pubsub.subscriber.core.push_timing import PushTiming
from tests.core.test_pushing import SilentLink
from tests.fakes import (
    Disk,
    FakeClock,
    FakeTransport,
    Link,
    MemoryLog,
    MemoryProxy,
    a_world,
    put_body,
)

HEAT = glob("sensor/*/heat")
ONE, TWO = "sensor/1/heat", "sensor/2/heat"
TIMING = PushTiming()
KINDS = Kinds()


class PushLinkOfHouse(SilentLink):
    """A link that brings what becomes visible, as long as it is not cut."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock
        self.is_cut = False
        self.later: list[AnyPush] = []  # comes while its subscriber waits

    def brings(self, push: AnyPush) -> None:
        """A push comes, if it is wanted."""
        if not self.is_cut and any(KINDS.test(one)(push.topic) for one in self.wanted):
            self.coming.append(push)

    def wait(self, seconds: float) -> None:
        """See `PushLink`."""
        self.coming += self.later
        self._clock.sleep(0.0 if self.later else seconds)
        self.later = []


class PushingLog(MemoryLog):
    """Pushes what becomes visible."""

    def __init__(self, house: House) -> None:
        super().__init__()
        self._house = house

    def add(self, batches: Iterable[LogBatch]) -> None:
        """See `MemoryLog`."""
        batches = list(batches)
        super().add(batches)
        state = self._house.proxy.state
        for batch in batches:
            log = state.topic_by_id[batch.topic_id]
            pushed = Pushed(boot=state.boot, log=log.log, batch=batch.header)
            self._house.link.brings(PushFrames(log.topic, pushed, batch.body))


class House:
    """A proxy that pushes, a publisher, and a subscriber by pattern."""

    def __init__(self, *patterns: Pattern, push: bool = True) -> None:
        self.clock = FakeClock()
        self.link = PushLinkOfHouse(self.clock)
        self.way = Link(MemoryProxy(log=PushingLog(self)))
        self.publisher = Publisher("p", _world=a_world(self.way, self.clock, Disk()))
        self.transport = FakeTransport(self.way, self.clock)
        world = a_world(self.transport, self.clock, Disk(), connect_data=lambda _: self.link)
        self.subscriber = Subscriber(
            "s", push_timing=TIMING, on_lower_qos=lambda *_: None, _world=world
        )
        for pattern in patterns or (HEAT,):
            self.subscriber.subscribe(match=pattern, push=push)
            self.subscriber.get(pattern)

    @property
    def proxy(self) -> MemoryProxy:
        """The one that runs."""
        return self.way.proxy

    def put(self, topic: str, *payloads: bytes) -> None:
        self.publisher.put_many(topic, payloads)

    def got(self, pattern: Pattern = HEAT, *, timeout_s: float = 0.1) -> list[tuple[str, bytes]]:
        """What is delivered, until nothing has come for this long."""
        found = []
        while messages := self.subscriber.get(pattern, max_messages=9, timeout_s=timeout_s):
            found += [(one.topic, one.payload) for one in messages]
        return found

    def first(self, pattern: Pattern = HEAT) -> list[bytes]:
        """What the next get delivers."""
        found = self.subscriber.get(pattern, max_messages=9, timeout_s=0.01)
        return [one.payload for one in found]

    def requests(self) -> Sequence[str]:
        """The verbs that the subscriber has sent since the last call."""
        sent = [type(decode_request(frames)[0]).__name__ for frames in self.transport.sent]
        self.transport.sent.clear()
        return sent


class TestAPatternThatIsPushed:
    def test_has_what_is_pushed_of_its_topics_without_a_request(self) -> None:
        house = House()
        house.put(ONE, b"1")
        house.put(TWO, b"2")
        assert house.got() == [(ONE, b"1"), (TWO, b"2")]
        house.requests()

        house.put(TWO, b"3", b"4")
        house.put(ONE, b"5")

        assert [house.first(), house.first()] == [[b"3", b"4"], [b"5"]]
        assert house.requests() == []

    def test_asks_once_for_the_first_message_of_a_later_topic(self) -> None:
        """Only the proxy knows from where it has subscribed this client, and under which terms."""
        house = House()
        house.requests()

        house.put(ONE, b"1")
        assert house.first() == [b"1"]
        house.put(ONE, b"2")
        assert house.first() == [b"2"]
        house.put(ONE, b"3")
        assert house.first() == [b"3"]

        assert set(house.requests()) == {"Fetch"}
        assert house.subscriber.push_counts(HEAT).beginnings == 1
        assert house.subscriber.push_counts(HEAT).taken == 2

    def test_has_a_later_topic_from_its_first_message_if_the_push_of_that_was_lost(self) -> None:
        house = House()
        house.link.is_cut = True
        house.put(ONE, b"1")
        house.link.is_cut = False

        house.put(ONE, b"2")

        assert house.got() == [(ONE, b"1"), (ONE, b"2")]

    def test_asks_for_what_was_not_pushed_of_one_topic(self) -> None:
        house = House()
        house.put(ONE, b"1")
        house.put(TWO, b"2")
        house.got()
        house.link.is_cut = True
        house.put(ONE, b"3")
        house.link.is_cut = False

        house.put(ONE, b"4")
        house.put(TWO, b"5")

        assert sorted(house.got()) == [(ONE, b"3"), (ONE, b"4"), (TWO, b"5")]
        assert house.subscriber.push_counts(HEAT).jumps == 1

    def test_has_each_message_once_however_often_it_is_pushed(self) -> None:
        house = House()
        house.put(ONE, b"1")
        house.got()
        house.put(ONE, b"2")
        house.link.coming *= 2
        copies = list(house.link.coming)

        assert house.got() == [(ONE, b"2")]
        house.link.coming += copies
        house.put(ONE, b"3")

        assert house.got() == [(ONE, b"3")]

    def test_has_each_message_once_if_two_patterns_match_it(self) -> None:
        wide = glob("sensor/*")
        house = House(HEAT, wide)
        house.put(ONE, b"1")
        house.put(TWO, b"2")
        assert sorted(house.got()) == [(ONE, b"1"), (TWO, b"2")]

        house.put(ONE, b"3")
        house.put("sensor/1/light", b"4")

        assert sorted(house.got(wide)) == [(ONE, b"3"), ("sensor/1/light", b"4")]
        assert house.got() == []

    def test_continues_in_a_topic_of_which_another_pattern_has_a_message_in_hand(self) -> None:
        wide = glob("sensor/*")
        house = House(HEAT, wide)
        house.put(ONE, b"1")
        house.got()
        house.put(ONE, b"2")
        assert house.first() == [b"2"]

        house.put(ONE, b"3")

        assert house.first(wide) == [b"3"]
        assert house.first() == []

    def test_continues_after_a_restart_of_the_proxy(self) -> None:
        house = House()
        house.put(ONE, b"1")
        house.got()

        house.way.proxy = house.proxy.restarted()
        house.put(ONE, b"2")
        house.put(ONE, b"3")
        house.put(TWO, b"4")

        assert sorted(house.got()) == [(ONE, b"2"), (ONE, b"3"), (TWO, b"4")]

    def test_does_not_get_dead_letters_that_are_pushed(self) -> None:
        house = House(glob("*"))
        house.put(ONE, b"1")
        (message,) = house.subscriber.get(glob("*"), timeout_s=0.1)

        house.subscriber.reject(message, "no")

        assert house.proxy.state.topics[f"{ONE}.dead"].end == 1
        assert house.got(glob("*")) == []

    def test_tells_its_cursors_in_time_however_much_is_pushed(self) -> None:
        house = House()
        house.put(ONE, b"0")
        house.got()
        began_s, told = house.clock.time_s, []

        for number in range(200):
            house.clock.time_s += 0.02
            house.put(ONE, b"%d" % number)
            assert house.first() == [b"%d" % number]
            told.append(house.proxy.state.topics[ONE].subscriptions["s"].cursor)

        assert house.clock.time_s - began_s < 5
        assert [number - cursor < 60 for number, cursor in enumerate(told)] == [True] * 200
        assert house.requests().count("Fetch") < 12

    def test_asks_ever_less_often_while_nothing_comes(self) -> None:
        house = House()
        house.requests()

        house.subscriber.get(HEAT, timeout_s=60.0)

        assert len(house.requests()) <= 8 + 60 / TIMING.silence_s_max

    def test_is_woken_by_a_push_while_it_waits(self) -> None:
        house = House()
        house.put(ONE, b"1")
        house.got()
        house.put(ONE, b"2")
        house.link.later, house.link.coming = house.link.coming, []
        before_s = house.clock.time_s

        assert [one.payload for one in house.subscriber.get(HEAT, timeout_s=60.0)] == [b"2"]
        assert house.clock.time_s - before_s < TIMING.silence_s_max

    def test_has_what_is_put_at_qos_0_on_a_topic_that_is_known(self) -> None:
        house = House()
        house.put(ONE, b"1")
        house.got()
        body = put_body(1, 1)
        header = BatchHeader(0, 1, "p", 1, 0, crc32(body), len(body), 0)

        pushed = PushedUnstored(boot=house.proxy.state.boot, batch=header)
        house.link.brings(UnstoredFrames(ONE, pushed, body))

        (message,) = house.subscriber.get(HEAT, timeout_s=0.1)
        assert (message.topic, message.qos) == (ONE, 0)

    def test_waits_at_the_proxy_where_the_node_above_refuses_to_push(self) -> None:
        """As for a key that may not get all that the pattern can match."""
        house = House()
        house.link.is_refused = True
        house.proxy.clock = house.clock
        house.proxy.meanwhile = lambda: house.put(ONE, b"1")
        house.requests()
        before_s = house.clock.time_s

        (message,) = house.subscriber.get(HEAT, timeout_s=60.0)

        assert message.payload == b"1"
        assert house.clock.time_s - before_s < 0.1
        assert len(house.requests()) <= 3

    def test_is_polled_again_when_push_is_switched_off(self) -> None:
        house = House()
        house.put(ONE, b"1")
        house.got()
        house.put(ONE, b"2")

        house.subscriber.use_push(HEAT, False)

        assert house.link.wanted == frozenset()
        assert house.got() == [(ONE, b"2")]
        assert not house.subscriber.is_pushed(HEAT)
        with pytest.raises(UsageError, match="push is not on"):
            house.subscriber.push_counts(HEAT)

    @pytest.mark.parametrize("push", [True, False])
    def test_is_a_pattern_and_not_a_name_that_looks_like_one(self, push: bool) -> None:
        with pytest.raises(InvalidNameError, match="the name of one topic"):
            House().subscriber.use_push("sensor/*/heat", push)

    def test_asks_the_tree_for_itself_as_long_as_it_is_subscribed(self) -> None:
        house = House()
        house.subscriber.use_push("t", True)
        assert house.link.wanted == {HEAT, Pattern("exact", "t")}

        house.subscriber.unsubscribe(HEAT)

        assert house.link.wanted == {Pattern("exact", "t")}
        with pytest.raises(NotSubscribedError):
            house.subscriber.use_push(HEAT, True)

    def test_waits_for_pushes_together_with_a_topic(self) -> None:
        house = House()
        house.subscriber.subscribe("t", push=True)
        house.put("t", b"0")
        house.put(ONE, b"1")
        handled: dict[bytes, float] = {}
        for one in ("t", HEAT):
            house.subscriber.on(one, lambda m: handled.update({m.payload: house.clock.time_s}))
        house.subscriber.run(timeout_s=30)  # from here on pulls are seconds apart
        house.requests()
        began_s = house.clock.time_s

        house.put(ONE, b"2")
        house.put("t", b"3")
        house.link.later, house.link.coming = house.link.coming, []
        house.subscriber.run(timeout_s=30)

        assert sorted(handled) == [b"0", b"1", b"2", b"3"]
        assert handled[b"2"] - began_s < TIMING.silence_s_min
        assert len(house.requests()) < 50  # a poll every 64 ms would be 470

    def test_asks_at_once_for_all_that_was_put_before_its_link_stood(self) -> None:
        house = House()
        topics = [f"sensor/{number}/heat" for number in range(FETCH_TOPICS_MAX + 9)]
        house.link.is_cut = True
        for topic in topics:
            house.put(topic, b"x")
        house.subscriber.use_push(HEAT, False)
        house.subscriber.use_push(HEAT, True)

        found = [house.first() for _ in topics]

        assert found == [[b"x"]] * len(topics)
        assert house.clock.time_s < TIMING.silence_s_min

    def test_is_heard_within_half_of_its_lease_however_much_is_pushed(self) -> None:
        house = House()
        house.subscriber.subscribe(match=HEAT, push=True, lease_s=0.4)
        house.put(ONE, b"0")
        house.got()
        house.requests()
        silent_s = longest_s = 0.0

        for number in range(100):
            house.clock.time_s += 0.02
            silent_s += 0.02
            house.put(ONE, b"%d" % number)
            assert house.first() == [b"%d" % number]
            if house.requests():
                longest_s, silent_s = max(longest_s, silent_s), 0.0

        assert 0.0 < max(longest_s, silent_s) <= 0.22
