"""Being pushed to, without a socket: when a link is replaced, and what each topic gets from it."""

from __future__ import annotations

from collections.abc import Sequence

from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.patterns.matching import Pattern
from reliable_pubsub.relay.core.push import AnyPush, Pushed, PushFrames
from reliable_pubsub.subscriber.core.inbox import Inbox
from reliable_pubsub.subscriber.core.place import Standing
from reliable_pubsub.subscriber.core.push_timing import PushTiming
from reliable_pubsub.subscriber.push.core.push_queue import PushQueue
from reliable_pubsub.subscriber.push.core.pushing import Pushing
from reliable_pubsub.subscriber.push.push_link import ZmqPushLink
from tests.fakes import FakeClock

LOG, BOOT = "log", "boot-1"
NOWHERE = "tcp://127.0.0.1:1"
TIMING = PushTiming()
AT_START = Standing(LOG, BOOT, 0, 0)


def a_push(topic: str, base: int, *, boot: str = BOOT) -> PushFrames:
    header = BatchHeader(base, 1, "p", base + 1, base, 0, 1)
    return PushFrames(topic, Pushed(boot=boot, log=LOG, batch=header), b"x")


class SilentLink:
    """A link that says it works. Implements `PushLink`."""

    def __init__(self) -> None:
        self.coming: list[AnyPush] = []
        self.wanted: frozenset[Pattern] = frozenset()
        self.is_closed = False
        self.is_refused = False

    def want(self, patterns: frozenset[Pattern]) -> None:
        """See `PushLink`."""
        self.wanted = patterns

    def turn(self, now_s: float) -> bool:
        """See `PushLink`."""
        assert not self.is_closed
        return not self.is_refused

    def doubt(self, now_s: float) -> None:
        """See `PushLink`."""

    def receive(self) -> Sequence[AnyPush]:
        """See `PushLink`."""
        assert not self.is_closed
        found, self.coming = self.coming, []
        return found

    def wait(self, seconds: float) -> None:
        """See `PushLink`."""

    def close(self) -> None:
        """See `PushLink`."""
        self.is_closed = True


class Pushes:
    """A subscriber's pushing, and the links that it made."""

    def __init__(self, *topics: str) -> None:
        self.links: list[SilentLink] = []
        self.clock = FakeClock()
        self.inbox = Inbox({})
        self.pushing = Pushing(self.inbox, self._connect, timing=TIMING, now_s=self.clock.now_s)
        for topic in topics:
            self.pushing.use(topic, True)

    def _connect(self) -> SilentLink:
        self.links.append(SilentLink())
        return self.links[-1]

    def queue(self, topic: str) -> PushQueue:
        """The queue of one topic."""
        queue: PushQueue | None = self.inbox.of(topic).pushes
        assert queue is not None
        return queue

    def taken(self, topic: str, cursor: int = 0) -> list[int] | None:
        """Offsets that can be taken; None: a pull is due."""
        found = self.pushing.take(self.queue(topic), Standing(LOG, BOOT, cursor, cursor))
        return None if found is None else [header.base for header, _ in found]

    def miss(self, topic: str, offset: int) -> None:
        """A pull finds what no push has brought, long after it was usual."""
        self.clock.time_s += TIMING.silence_s_max
        assert self.taken(topic, offset) is None
        self.pushing.pulled(self.queue(topic), Standing(LOG, BOOT, offset, offset), offset + 1)


def a_failed_link() -> Pushes:
    """A link over which nothing comes: three pulls in a row had to find what it did not bring."""
    pushes = Pushes("t", "u")
    assert pushes.taken("t") is None
    pushes.pushing.pulled(pushes.queue("t"), AT_START, None)
    for offset in range(TIMING.misses_max):
        pushes.miss("t", offset)
    assert pushes.pushing.counts("t").misses == TIMING.misses_max
    pushes.clock.time_s += TIMING.silence_s_max
    return pushes


class TestALinkThatFailed:
    def test_is_replaced_by_one_that_wants_the_same_topics(self) -> None:
        """Row 2.11: the node above may have forgotten the old one, or know another under it."""
        pushes = a_failed_link()

        pushes.taken("t", TIMING.misses_max)

        old, new = pushes.links
        assert (old.is_closed, new.is_closed) == (True, False)
        assert new.wanted == {Pattern("exact", "t"), Pattern("exact", "u")}
        assert pushes.pushing.counts("t").links == 1

    def test_brings_nothing_any_more(self) -> None:
        """Row 2.12: what is under way on an old link is never seen, so it cannot be old news."""
        pushes = a_failed_link()
        pushes.links[0].coming = [a_push("t", TIMING.misses_max)]

        assert pushes.taken("t", TIMING.misses_max) is None  # pulled: the new link brings no past
        assert pushes.pushing.counts("t").taken == 0
        assert pushes.links[0].coming

    def test_is_replaced_once_until_the_new_one_fails_too(self) -> None:
        pushes = a_failed_link()

        for _ in range(5):
            pushes.taken("t", TIMING.misses_max)

        assert len(pushes.links) == 2


def test_each_link_has_a_random_name_of_its_own() -> None:
    """Row 2.11: what the node above sends for one link cannot be taken for another's."""
    links = [ZmqPushLink(NOWHERE, "s") for _ in range(8)]
    for link in links:
        link.close()

    assert len({link._above.wish.link for link in links}) == 8


def test_a_name_that_looks_like_a_pattern_is_asked_for_as_it_stands() -> None:
    """Rows 0.2 and 4.21: what a name looks like plays no part."""
    pushes = Pushes("t*", "a.b")

    assert pushes.links[0].wanted == {Pattern("exact", name) for name in ("t*", "a.b")}


class TestATopicAmongOthers:
    def test_has_each_message_after_the_one_before_it_whatever_else_is_pushed(self) -> None:
        """H26: what is filtered out are whole topics, and offsets count in one topic, so the
        predecessor of a message is the same under every filter: the offset below."""
        pushes = Pushes("t", "u")
        for topic in ("t", "u"):
            assert pushes.taken(topic) is None
            pushes.pushing.pulled(pushes.queue(topic), AT_START, None)

        pushes.links[0].coming = [
            a_push(topic, base) for base in range(4) for topic in ("t", "not wanted", "u")
        ]

        assert [pushes.taken(topic) for topic in ("t", "u")] == [[0, 1, 2, 3], [0, 1, 2, 3]]
        counts = [pushes.pushing.counts(topic) for topic in ("t", "u")]
        assert [(one.jumps, one.repeats, one.taken) for one in counts] == [(0, 0, 4)] * 2
