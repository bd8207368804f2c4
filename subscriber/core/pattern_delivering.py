"""Delivers the messages of patterns: settle what is in hand, find the next ones. Pure.

Each topic of a pattern is a subscription. They take turns as the current one, which delivers as any
other does.
"""

from __future__ import annotations

from collections.abc import Callable

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.conversation import Conversation, Save, Sleep
from reliable_pubsub.common.core.errors import PubSubError
from reliable_pubsub.common.core.retry import poll_pause_s

from .delivering import Delivering
from .pattern_fetching import PatternFetching
from .pattern_subscribing import PatternSubscribing
from .pattern_subscription import FETCHED_MAX, PatternSubscription, RunPart
from .place import marked, run_batches
from .pushing import Pushing
from .session import SubscriberSession
from .subscription import Running, TopicSubscription


class PatternDelivering:
    """Delivers of the patterns of one subscriber."""

    def __init__(
        self,
        session: SubscriberSession,
        patterns: PatternSubscribing,
        delivering: Delivering,
        fetching: PatternFetching,
        pushing: Pushing,
        *,
        now_s: Callable[[], float],
    ) -> None:
        self._session = session
        self._patterns = patterns
        self._delivering = delivering
        self._fetching = fetching
        self._pushing = pushing
        self._now_s = now_s

    def get(
        self, one: PatternSubscription, messages_max: int, timeout_s: float
    ) -> Conversation[list[Message]]:
        """The next messages of one of its topics that fulfil its condition."""
        deadline_s = self._now_s() + timeout_s
        while True:
            found = yield from self.find(one, deadline_s - self._now_s(), loops=False)
            if found is None:
                return []
            messages = yield from self._delivering.get(found, messages_max, 0.0)
            is_wanted = self._patterns.condition_of([found.topic])
            wanted = [each for each in messages if is_wanted is None or is_wanted(each)]
            if wanted:
                return wanted

    def take(
        self, one: PatternSubscription, timeout_s: float
    ) -> Conversation[Running | list[Message]]:
        """The next messages for a loop, which passes over those that it is not to have."""
        deadline_s = self._now_s() + timeout_s
        while True:
            found = yield from self.find(one, deadline_s - self._now_s())
            if found is None:
                return []
            run = yield from self._begin_run(one)
            messages = [] if run else (yield from self._delivering.get(found, 1, 0.0))
            if run or messages:
                taken = [part.subscription.topic for part in one.parts] or [found.topic]
                one.fulfils = self._patterns.condition_of(taken)
                return run or messages

    def come_back(self, one: PatternSubscription) -> Conversation[None]:
        """Settle the messages in hand, and write the places."""
        if one.current is not None:
            yield from self._delivering.settle(one.current)
        yield from self._write(one)

    def acknowledge(self, one: PatternSubscription) -> Conversation[None]:
        """Settle the messages in hand; return when the proxy has stored all cursors."""
        if one.current is not None:
            one.current.is_kept = False
            yield from self._delivering.settle(one.current)
        yield from self._fetching.save(one)
        for moved in list(one.moved.values()):
            yield from self._delivering.acknowledge(moved)

    def record(self, one: PatternSubscription, note: bytes) -> Conversation[None]:
        """Write durably that the messages in hand are processed, in one step with the note."""
        yield from self._fetching.save(one)
        if one.current is None:
            yield Save(self._session.inbox.write_note(note), True)
        else:
            yield from self._delivering.record(one.current, note)

    def find(
        self, one: PatternSubscription, timeout_s: float, *, loops: bool = True, asks: bool = True
    ) -> Conversation[TopicSubscription | None]:
        """Settle what is in hand, and fetch until there is something or the time is over.

        Args:
            loops: fetch as many messages as a loop takes in a short time.
            asks: if there is no time, pull, even if pushes are waited for.

        Returns:
            The next subscription with messages; None if the time is over.

        Raises:
            LostError: messages of a topic are lost; the next call continues after them.
        """
        if one.current is not None:
            self._session.inbox.undo.before.setdefault(one, one.current)
            yield from self._delivering.settle(one.current)
            self._session.inbox.save_with_next(one.current)
        deadline_s = self._now_s() + timeout_s
        asks = asks and timeout_s <= 0
        empty = 0
        while (found := one.next()) is None:
            began_s = self._now_s()
            left_s = max(deadline_s - began_s, 0.0)
            if one.pushes is not None and (yield from self._fetching.take_pushed(one, asks=asks)):
                if one.ready:
                    continue
                if left_s <= 0:
                    return None
                yield from self._write(one)
                yield from self._pushing.wait([one.pushes], left_s)
                continue
            yield from self._fetching.save(one)
            if loops:
                one.pace.look_ahead(began_s)
            yield from self._fetching.fetch(one, left_s, one.pace.ahead if loops else FETCHED_MAX)
            if not loops:  # else they are written with the run
                yield from self._write(one)
            if one.ready:
                continue
            now_s = self._now_s()
            if now_s >= deadline_s:
                return None
            empty += 1
            pause_s = min(began_s + poll_pause_s(empty), deadline_s) - now_s
            if one.pushes is None and pause_s > 0:
                yield Sleep(pause_s)
        one.current = found
        if found.is_subscribed:  # else its topic was never stored
            one.moved[found.topic] = found
        return found

    def _write(self, one: PatternSubscription) -> Conversation[None]:
        """Write the places that have changed."""
        inbox = self._session.inbox
        yield from inbox.save(*one.unwritten(inbox.subscriptions).values())

    def _begin_run(self, one: PatternSubscription) -> Conversation[Running | None]:
        """Let a loop take the fetched messages, topic after topic: one mark and one write.

        The same write settles what was taken before: the mark of that run counts until then, and
        the next run but one uses it again.

        Returns:
            None if the messages that are next are to be delivered one by one.
        """
        first = one.next()
        settled = one.unwritten(self._session.inbox.subscriptions)
        slot = one.slot
        if first is None or not first.can_run or not self._session.inbox.can_run(one):
            yield from self._session.inbox.save(*settled.values())
            return None
        run = self._session.inbox.next_run(one)
        ready = {each.topic: each for each in one.ready if each.can_run}
        batches = {topic: run_batches(each.fetched) for topic, each in ready.items()}
        total = sum(len(each.messages) for each in batches.values())
        for topic, each in ready.items():
            part = each.join_run(run, batches[topic], skip=len(run.messages), total=total)
            one.parts.append(RunPart(each, part))
            run.messages.extend(marked(each.place, part.messages))
        try:
            yield from self._session.inbox.save(*(settled | ready).values())
        except PubSubError:  # nothing was delivered, and the rows of the run before still count
            one.end_run()
            one.slot = slot
            raise
        one.moved |= ready
        return run
