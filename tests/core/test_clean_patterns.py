"""A clean session of a pattern: it ends with its process or its lease, and leaves nothing."""

from __future__ import annotations

from typing import Any

import pytest

from reliable_pubsub.common.core.errors import NotSubscribedError
from reliable_pubsub.common.core.message_base import Terms
from reliable_pubsub.common.core.pattern_messages import Fetch, Match
from reliable_pubsub.common.core.patterns.pattern import Pattern, glob
from reliable_pubsub.common.core.start import Earliest
from reliable_pubsub.proxy.patterns.index import PatternIndex, StoredPattern
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.client import Subscriber
from tests.fakes import (
    Disk,
    FakeClock,
    FakeTransport,
    Link,
    MemoryProxy,
    a_broker,
    a_hello,
    a_world,
    as_stored,
)

HEAT, ANY = glob("sensor/*/heat"), glob("sensor/*")
ONE, TWO = "sensor/1/heat", "sensor/2/heat"


class House:
    """A proxy, a publisher, and subscribers with one id, one after another."""

    def __init__(self) -> None:
        self.link = Link(a_broker())
        self.link.proxy.tick(now_s=0.0)
        self.publisher = Publisher("p", _world=a_world(self.link, state=Disk()))
        self.disk = Disk()
        self.subscriber = self.opened()

    def opened(self) -> Subscriber:
        """The next process; the one before it was killed."""
        clock = FakeClock()
        transport = FakeTransport(self.link, clock)
        self.subscriber = Subscriber("s", _world=a_world(transport, clock, self.disk))
        return self.subscriber

    @property
    def proxy(self) -> MemoryProxy:
        return self.link.proxy

    def subscribe(self, pattern: Pattern = HEAT, *, lease_s: float | None = None) -> None:
        self.subscriber.subscribe(match=pattern, session="clean", lease_s=lease_s)

    def put(self, topic: str, *payloads: bytes) -> None:
        self.publisher.put_many(topic, payloads)

    def silence(self, seconds: float) -> None:
        """No client says anything to the proxy for this long."""
        self.proxy.tick(now_s=self.proxy.now_s + seconds)

    def got(self, pattern: Pattern = HEAT) -> list[bytes]:
        found = []
        while messages := self.subscriber.get(pattern, max_messages=9):
            found += [one.payload for one in messages]
        return sorted(found)

    def leaves_nothing(self) -> bool:
        """Whether neither side has anything of a subscription."""
        stored = as_stored(self.proxy.durable)
        names = [name for name in self.disk.values if name.startswith(("topic:", "pattern:"))]
        is_gone = not (self.proxy.state.subscribed or self.proxy.state.part(PatternIndex).of)
        return is_gone and not stored.of(StoredPattern) and not names


class TestACleanPattern:
    def test_has_what_comes_after_it_began_and_leaves_nothing_when_its_client_closes(self) -> None:
        house = House()
        house.put(ONE, b"before")
        house.subscribe()
        house.put(ONE, b"1")
        house.put(TWO, b"2")
        assert house.got() == [b"1", b"2"]

        house.subscriber.close()

        assert house.leaves_nothing()

    def test_that_is_begun_again_has_what_comes_from_then_on(self) -> None:
        house = House()
        house.subscribe()
        house.put(ONE, b"1", b"in hand", b"fetched")
        house.put(TWO, b"fetched")
        house.subscriber.get(HEAT)
        house.subscriber.get(HEAT)

        house.subscribe()
        house.subscriber.acknowledge(HEAT)
        house.put(ONE, b"2")

        assert house.got() == [b"2"]

    def test_of_no_topic_ends_with_its_client_too(self) -> None:
        house = House()
        house.subscribe()

        house.subscriber.close()
        house.put(ONE, b"1")

        assert house.leaves_nothing()

    @pytest.mark.parametrize("topics", [(), (ONE, TWO)])
    def test_ends_with_its_lease(self, topics: tuple[str, ...]) -> None:
        house = House()
        house.subscribe(lease_s=1.0)
        for topic in topics:
            house.put(topic, b"1")
        house.got()

        house.silence(1.0)
        assert house.proxy.state.part(PatternIndex).of
        house.silence(1.5)
        house.put("sensor/3/heat", b"3")

        assert not house.proxy.state.part(PatternIndex).of
        assert not house.proxy.state.subscribed
        with pytest.raises(NotSubscribedError):
            house.subscriber.get(HEAT)
        assert house.leaves_nothing()

    def test_that_has_ended_begins_again_with_new_messages(self) -> None:
        house = House()
        house.subscribe(lease_s=1.0)
        house.put(ONE, b"1")
        house.got()
        house.silence(3.0)
        house.put(ONE, b"missed")
        with pytest.raises(NotSubscribedError):
            house.subscriber.get(HEAT)

        house.subscribe(lease_s=1.0)
        house.put(ONE, b"2")

        assert house.got() == [b"2"]

    def test_lasts_as_long_as_its_client_asks(self) -> None:
        house = House()
        house.subscribe(lease_s=1.0)
        house.put(ONE, b"1")

        for number in range(5):
            house.silence(1.5)
            house.put(ONE, b"%d" % number)
            assert b"%d" % number in house.got()

    def test_survives_a_restart_of_the_proxy_and_ends_with_its_lease_then(self) -> None:
        house = House()
        house.subscribe(lease_s=1.0)
        house.put(ONE, b"1")
        house.got()

        house.link.proxy = house.proxy.restarted()
        house.put(TWO, b"2")
        assert house.got() == [b"2"]
        house.link.proxy = house.proxy.restarted()
        house.silence(0.1)
        house.silence(2.1)

        assert not house.proxy.state.part(PatternIndex).of

    def test_begins_again_with_new_messages_in_the_next_process(self) -> None:
        house = House()
        house.subscribe()
        house.put(ONE, b"1", b"2")
        house.put(TWO, b"3")
        house.subscriber.get(HEAT)

        house.opened()
        house.subscribe()
        house.put(ONE, b"4")
        house.put("sensor/3/heat", b"5")

        assert house.got() == [b"4", b"5"]

    def test_begins_where_the_call_says(self) -> None:
        house = House()
        house.put(ONE, b"1")

        house.subscriber.subscribe(match=HEAT, session="clean", start=Earliest)

        assert house.got() == [b"1"]

    @pytest.mark.parametrize("clean_first", [False, True])
    @pytest.mark.parametrize("is_later", [False, True])
    def test_that_ends_leaves_what_a_persistent_pattern_matches_too(
        self, clean_first: bool, is_later: bool
    ) -> None:
        house = House()
        if not is_later:
            house.put(ONE, b"before")
        for is_clean in (clean_first, not clean_first):
            if is_clean:
                house.subscribe(ANY, lease_s=1.0)
            else:
                house.subscriber.subscribe(match=HEAT)
        house.put(ONE, b"1")

        house.silence(3.0)
        house.put(ONE, b"2")

        assert house.got() == [b"1", b"2"]
        with pytest.raises(NotSubscribedError):
            house.subscriber.get(ANY)
        house.put(ONE, b"3")
        assert house.got() == [b"3"]

    def test_leaves_the_place_in_a_topic_that_a_persistent_pattern_has_made_its_own(self) -> None:
        house = House()
        house.subscribe(ANY, lease_s=1.0)
        house.put(ONE, b"1", b"2", b"3")
        house.subscriber.get(ANY)
        house.subscriber.subscribe(match=HEAT)
        house.subscriber.get(ANY)

        house.opened()
        house.link.proxy = house.proxy.restarted()
        house.subscribe(ANY, lease_s=1.0)
        assert house.got(ANY) == [b"2", b"3"]
        house.proxy.tick(now_s=1.0)
        house.silence(5.0)
        house.put(ONE, b"4")

        assert house.got() == [b"4"]

    def test_leaves_the_terms_of_a_topic_that_a_persistent_pattern_has_too(self) -> None:
        house = House()
        house.put(ONE, b"before")
        house.subscriber.subscribe(match=HEAT)
        house.subscribe(ANY)
        house.put(ONE, b"1")

        assert house.got(ANY) == [b"1"]
        house.subscriber.close()

        (one,) = house.proxy.state.topics[ONE].subscriptions.values()
        assert (one.active, one.terms.session) == (True, "persistent")

    def test_that_ends_leaves_what_another_clean_one_with_a_longer_lease_matches(self) -> None:
        house = House()
        house.put(ONE, b"before")
        house.subscribe(ANY, lease_s=9.0)
        house.subscribe(HEAT, lease_s=1.0)

        house.silence(3.0)
        house.put(ONE, b"1")

        assert house.got(ANY) == [b"1"]


def test_a_fetch_of_a_clean_pattern_without_topics_waits_for_half_of_its_lease() -> None:
    """Otherwise its lease could end while its sender waits, which is silent meanwhile."""
    proxy = a_broker()
    proxy.ask(a_hello("subscriber", "s"))
    head: dict[str, Any] = {"client": "s", "epoch": 1, "match": HEAT}
    terms = Terms(session="clean", lease_ms=1000)
    proxy.ask(Match(**head, request=2, control=1, terms=terms))

    proxy.send(Fetch(**head, request=3, boot=proxy.state.boot, wait_ms=20_000))

    assert proxy.engine.waiting.ends_at_s - proxy.now_s == 0.5
