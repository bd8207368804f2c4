"""A subscriber by pattern, over the real `Subscriber`: its topics may come after it."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from reliable_pubsub.common.core.batch import NO_OFFSET
from reliable_pubsub.common.core.errors import InDoubtError, LostError, NotSubscribedError
from reliable_pubsub.common.core.patterns.pattern import glob
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.proxy.core.records import Appended
from reliable_pubsub.subscriber.client import Subscriber

from .simulated_subscribers import SubscriberMachine, Subscribing
from .world import Interrupted, Process

MATCH = glob("?")  # the topics of a world, and no dead letters
NOTHING = glob("[a-z]")  # the same topics, of which it wants no message


class PatternMachine(SubscriberMachine):
    """Gets everything of the topics that a pattern matches."""

    output = ""

    def begin_with(
        self,
        end: Callable[[str], int | None],
        created_s: Mapping[str, float],
        stored_end: Callable[[str], int],
        *,
        ends: bool,
        push: bool,
        lease_s: float | None,
    ) -> None:
        """Take what to do.

        Args:
            end: where a topic ends for good; None as long as something may be put.
            created_s: when each topic became durable.
            stored_end: where a topic ends now.
            ends: unsubscribe at the end.
            push: be pushed to.
            lease_s: be a clean session with this lease; None: be persistent.
        """
        self.begin((), dict.fromkeys(created_s, Subscribing()), end)
        self._created_s = created_s
        self._stored_end = stored_end
        self._begins_by: dict[str, int] = {}  # what is put from there on must be delivered
        self._ends = ends
        self._push = push
        self._lease_s = lease_s
        self._matched_s: float | None = None
        self._is_ending = False  # a call to end it was begun
        self.on_log_changed = "stop"
        self._first: dict[str, int] = {}  # offset that was delivered or lost first, by topic
        # Which of its subscriptions it reads; None: it has one.
        key = f"{self._world.seed} {self.name} overlaps"
        chance = random.Random(key)
        self._reads = chance if lease_s is None and chance.random() < 0.5 else None
        self._had: set[tuple[str, int]] = set()  # what the program was given, or was told is lost

    def program(self, process: Process, recorder: Recorder) -> bool:
        """Subscribe, and get what comes, until every topic is drained."""
        self._terms = defaultdict(Subscribing)
        subscriber = self.make_client(process, recorder)
        while True:
            try:
                self._match(subscriber)
                while not self._is_all_here(subscriber):
                    self._get_some(subscriber, process)
                subscriber.acknowledge(MATCH)
                if self._reads:
                    subscriber.unsubscribe(NOTHING)
                if self._ends:
                    self._is_ending = True
                    subscriber.unsubscribe(MATCH)
                break
            except Interrupted:
                continue
            except LostError as lost:
                if not lost.by_operator:
                    raise
                self._first.setdefault(lost.topic, lost.first)
                self._had |= {(lost.topic, one) for one in range(lost.first, lost.end)}
            except InDoubtError as error:
                self.wait_or_end(process, error)
            except NotSubscribedError:
                if self._lease_s is None:
                    raise
                self._world.counts["pattern_ended"] += 1
        return True

    def _match(self, subscriber: Subscriber) -> None:
        """Subscribe; what was before a clean session, or one that has ended, does not count."""
        subscriber.is_pushed(MATCH)  # a call, so that an interrupted one before it has its effect
        if self._is_ending and MATCH not in subscriber.inbox.patterns:
            self._is_ending = False  # the call that ended it was interrupted after its effect
            self._matched_s = None
            self._first.clear()
        if self._lease_s is None:
            subscriber.subscribe(match=MATCH, push=self._push)
            if self._reads:
                subscriber.subscribe(match=NOTHING, where="has(never)")
        else:
            subscriber.subscribe(
                match=MATCH, push=self._push, session="clean", lease_s=self._lease_s
            )
            self._matched_s = None
            self._first.clear()
        if self._matched_s is None:
            self._matched_s = self._world.now_s
            self._begins_by = {one: self._stored_end(one) for one in self._created_s}

    def _get_some(self, subscriber: Subscriber, process: Process) -> None:
        chance = self._world.random
        match = self._reads.choice((MATCH, NOTHING)) if self._reads else MATCH
        waits_s = chance.choice((0.0, 0.03))
        if self._push:
            waits_s = chance.uniform(0.0, 0.1)  # a get without a wait pulls
            if self._world.happens("push_switched", self._faults.push_switched):
                subscriber.use_push(MATCH, not subscriber.is_pushed(MATCH))
        if chance.random() < 0.5:
            found = subscriber.get(match, max_messages=chance.randint(1, 4), timeout_s=waits_s)
            for message in found:
                self._saw(message.topic, message.offset)
        else:
            left, found = chance.randint(1, 8), []
            for message in subscriber.messages(match, timeout_s=waits_s):
                self._saw(message.topic, message.offset)
                process.point("message taken")
                found.append(message)
                left -= 1
                if left == 0:
                    break
        self._world.counts["pattern"] += bool(found)
        if subscriber.is_pushed(MATCH):
            self._world.counts["pattern_push"] += subscriber.push_counts(MATCH).taken > 0
        if not found:
            process.wait(chance.uniform(0.002, 0.03))

    def _saw(self, topic: str, offset: int) -> None:
        if offset != NO_OFFSET:
            self._first[topic] = min(offset, self._first.get(topic, offset))
            self._had.add((topic, offset))

    def _is_all_here(self, subscriber: Subscriber) -> bool:
        """Whether every topic that exists was delivered to its end."""
        for topic in self._created_s:
            if len(topic) > 1:
                continue  # dead letters
            end = self._end(topic)
            if end is None:
                return False
            is_known = topic in subscriber.inbox.places
            if is_known and not self.is_drained(subscriber, topic):
                return False
            if not is_known and end > self._begins_by.get(topic, 0):
                return False
        return bool(self._created_s) and self._end(next(iter(self._created_s))) is not None

    def _is_late(self, topic: str) -> bool:
        return self._matched_s is not None and self._created_s[topic] > self._matched_s

    def judge(self, appended: Iterable[Appended]) -> Iterable[str]:
        """A topic that came after the pattern was delivered from its first message."""
        for topic, first in self._first.items():
            if self._is_late(topic):
                self._world.counts["late_topic"] += 1
                if first:
                    yield f"pattern: {self.name} has the later topic {topic!r} from {first}, not 0"
        if self._reads:
            self._world.counts["pattern_overlap"] += 1
            for topic in filter(lambda one: len(one) == 1, self._created_s):
                end = self._stored_end(topic)
                first = self._first.get(topic, self._begins_by.get(topic, 0))
                skipped = [one for one in range(first, end) if (topic, one) not in self._had]
                if skipped:
                    yield f"R32: {self.name} was not given {topic!r} at {skipped}, which it wants"
