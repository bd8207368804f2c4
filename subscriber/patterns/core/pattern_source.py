"""The messages of patterns, for `Delivering`. Pure.

Each topic of a pattern is a subscription. They take turns as the current one, which delivers as any
other does.
"""

from __future__ import annotations

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.conversation import Conversation, Save
from reliable_pubsub.common.core.errors import PubSubError

from ...core.delivering import A_LOOP, Delivering, Source
from ...core.place import marked, run_batches
from ...core.restoring import Running
from ...core.session import SubscriberSession
from ...core.topic_source import TopicSource
from .pattern_fetching import PatternFetching
from .pattern_subscribing import PatternSubscribing
from .pattern_subscription import PatternSubscription, RunPart


class PatternSource(Source[PatternSubscription]):
    """The patterns of one subscriber."""

    def __init__(
        self,
        session: SubscriberSession,
        patterns: PatternSubscribing,
        delivering: Delivering,
        topics: TopicSource,
        fetching: PatternFetching,
    ) -> None:
        self._session = session
        self._patterns = patterns
        self._delivering = delivering
        self._topics = topics
        self._fetching = fetching

    def settle(self, one: PatternSubscription) -> Conversation[None]:
        if one.current is not None:
            self._session.inbox.undo.before.setdefault(one, one.current)
            yield from self._topics.settle(one.current)
            self._session.inbox.save_with_next(one.current)

    def ready(self, one: PatternSubscription) -> Conversation[bool]:
        """Make the subscription whose messages are next the current one."""
        yield from ()
        found = one.next()
        if found is None:
            return False
        one.current = found
        if found.is_subscribed:  # else its topic was never stored
            one.moved[found.topic] = found
        return True

    def arrived(self, one: PatternSubscription, count: int, *, asks: bool) -> Conversation[bool]:
        if one.pushes is None:
            return False
        return (yield from self._fetching.take_pushed(one, asks=asks))

    def request(self, one: PatternSubscription, count: int, left_s: float) -> Conversation[None]:
        """FETCH, from all of its topics."""
        yield from self._fetching.save(one)
        yield from self._fetching.fetch(one, left_s, loops=count == A_LOOP)
        if count != A_LOOP:  # else they are written with the run
            yield from self.write(one)
        if one.pushes is not None and not one.has_next:  # it may have been pushed meanwhile
            yield from self._fetching.take_pushed(one, asks=False)

    def hand_over(self, one: PatternSubscription, count: int) -> Conversation[list[Message]]:
        """Deliver the messages of the current topic that some subscription wants."""
        found = one.next()
        if found is None:
            return []
        messages = yield from self._delivering.get(self._topics, found, count, 0.0)
        is_wanted = self._patterns.condition_of([found.topic])
        one.fulfils = None
        return [each for each in messages if is_wanted is None or is_wanted(each)]

    def begin_run(self, one: PatternSubscription) -> Conversation[Running | None]:
        """Let the loop skip the messages that no subscription wants."""
        run = yield from self._join_run(one)
        if run is not None:
            one.fulfils = self._patterns.condition_of(
                [part.subscription.topic for part in one.parts]
            )
        return run

    def write(self, one: PatternSubscription) -> Conversation[None]:
        """Write the places that have changed."""
        inbox = self._session.inbox
        yield from inbox.save(*one.unwritten(inbox.subscriptions).values())

    def failed(self, one: PatternSubscription, error: PubSubError) -> None:
        """Do nothing: the request for a single topic has recorded it."""

    def acknowledge(self, one: PatternSubscription) -> Conversation[None]:
        """Store the cursors of all topics."""
        if one.current is not None:
            one.current.is_kept = False
            yield from self._topics.settle(one.current)
        yield from self._fetching.save(one)
        for moved in list(one.moved.values()):
            yield from self._topics.acknowledge(moved)

    def record(self, one: PatternSubscription, note: bytes) -> Conversation[None]:
        yield from self._fetching.save(one)
        if one.current is None:
            yield Save(self._session.inbox.write_note(note), True)
        else:
            yield from self._topics.record(one.current, note)

    def _join_run(self, one: PatternSubscription) -> Conversation[Running | None]:
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
