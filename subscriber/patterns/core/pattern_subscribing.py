"""MATCH: begins, resumes and ends subscriptions by pattern. Pure.

Each topic of a pattern is an ordinary subscription here, too, with its own place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack

from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub.common.core.answers import AnyReply
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.errors import NotSubscribedError, UsageError
from reliable_pubsub.common.core.message_base import Start
from reliable_pubsub.common.core.pattern_messages import Match, Matched
from reliable_pubsub.common.core.patterns.matching import Kinds, is_of
from reliable_pubsub.common.core.patterns.pattern import Pattern, Topics
from reliable_pubsub.common.core.recorder import Call

from ...core.session import SubscriberSession
from ...core.subscription import Changes, TopicSubscription
from .pattern_subscription import AskedPattern, Condition, PatternSubscription

_kinds = Kinds()


class PatternSubscribing:
    """Begins, resumes and ends the patterns of one subscriber."""

    def __init__(
        self, session: SubscriberSession, set_push: Callable[[Topics, bool], None]
    ) -> None:
        self._session = session
        self._set_push = set_push

    def of(self, pattern: Pattern) -> PatternSubscription:
        """A pattern that is subscribed to.

        Raises:
            NotSubscribedError: it is not.
        """
        one: PatternSubscription | None = self._session.inbox.patterns.get(pattern)
        if one is None:
            client = self._session.client
            raise NotSubscribedError(f"{client!r} has no pattern {pattern}; subscribe first")
        return one

    def covering(self, topic: str) -> list[PatternSubscription]:
        """Return the patterns that match a topic."""
        patterns = self._session.inbox.patterns.items()
        return [one for pattern, one in patterns if is_of(pattern, topic)]

    def condition_of(self, topics: Iterable[str]) -> Condition | None:
        """Return the test for a message wanted by any subscription to its topic; None: all are.

        All subscriptions of a subscriber to a topic share its cursor, so it skips a message only if
        none of them wants it (rule R32).
        """
        found: dict[str, list[Condition]] = {}
        for topic in topics:
            wanted = [one.matches for one in self.covering(topic)]
            conditions = [one for one in wanted if one is not None]
            each = self._session.inbox.of(topic)
            is_of_patterns = each.place.terms.by_pattern or not each.is_subscribed
            if is_of_patterns and len(conditions) == len(wanted):
                found[topic] = conditions

        def is_wanted(message: Message) -> bool:
            conditions = found.get(message.topic)
            return conditions is None or any(one(message) for one in conditions)

        return is_wanted if found else None

    def subscribe(self, asked: AskedPattern, start: Start | None) -> Conversation[int]:
        """Begin a pattern, or resume it; return how many topics it matches now."""
        ending = self._clean(asked.pattern) if asked.terms.session == "clean" else []
        with ExitStack() as stack:
            self._ending_calls(stack, ending)  # of unknown outcome: they begin again
            yield from self._give_up(ending, {})
            call = stack.enter_context(self._session.recorder.call("match"))
            reply = yield from self._match(asked, call, start=start)
            if not isinstance(reply, Matched):
                self._session.refused(reply)
            call.ok(epoch=self._session.inbox.epoch)
        one = self._session.inbox.patterns.get(asked.pattern) or PatternSubscription(asked)
        one.ask(asked)
        if one.ring is None or one.is_clean:
            one.fetched_unstored(reply.boot, reply.ring)
        joined = [
            each
            for each in self._matched(one.pattern)
            if each.place.terms.joined(asked.terms) != each.place.terms
        ]
        for each in joined:
            each.move(replace(each.place, terms=each.place.terms.joined(asked.terms)))
        yield from self._session.inbox.save(*joined, durable=True, also=one.row())
        self._session.inbox.patterns[asked.pattern] = one
        return reply.topics

    def seek(
        self,
        one: PatternSubscription,
        start: Start,
        tell: Callable[[TopicSubscription], Conversation[None]],
    ) -> Conversation[int]:
        """Move the subscriptions of a pattern; return how many topics it matches now.

        Their places here are given up first, so that none of them is resumed.

        Args:
            tell: sends the cursor of a subscription whose place is given up.
        """
        moved = self._matched(one.pattern)
        if start.at != "last":
            for each in moved:
                yield from tell(each)
            yield from self._give_up(moved, {})
        with self._session.recorder.call("match") as call:
            reply = yield from self._match(one.asked, call, start=start, seeks=True)
            if not isinstance(reply, Matched):
                self._session.refused(reply)
            call.ok(epoch=self._session.inbox.epoch)
        return reply.topics

    def _clean(self, pattern: Pattern) -> list[TopicSubscription]:
        """Return the clean subscriptions that a pattern alone has made."""
        return [each for each in self._of_alone(pattern) if each.is_clean]

    def _of_alone(self, pattern: Pattern) -> list[TopicSubscription]:
        """Return the subscriptions that end with a pattern: nothing else here needs them."""
        others = [other for other in self._session.inbox.patterns if other != pattern]
        return [
            each
            for each in self._matched(pattern)
            if each.place.terms.by_pattern and not any(is_of(other, each.topic) for other in others)
        ]

    def _matched(self, pattern: Pattern) -> list[TopicSubscription]:
        known = self._session.inbox.subscriptions.items()
        return [each for topic, each in known if each.is_subscribed and is_of(pattern, topic)]

    def _ending_calls(self, stack: ExitStack, ending: Sequence[TopicSubscription]) -> list[Call]:
        """Record that these subscriptions are about to end."""
        recorder, epoch = self._session.recorder, self._session.inbox.epoch
        calls = [stack.enter_context(recorder.call("unsubscribe", each.topic)) for each in ending]
        for call in calls:
            call.invoke(epoch=epoch)
        return calls

    def _give_up(self, ending: Sequence[TopicSubscription], changes: Changes) -> Conversation[None]:
        """Forget the places of subscriptions that end."""
        for each in ending:
            each.drop()
            each.ended()
        for one in self._session.inbox.patterns.values():
            one.drop_ended()
        yield from self._session.inbox.save(*ending, durable=True, also=changes)

    def ended(self, one: PatternSubscription) -> Conversation[None]:
        """A clean pattern has ended at the proxy; forget it, and its subscriptions."""
        yield from self._give_up(self._clean(one.pattern), one.row(ends=True))
        self._forget(one.pattern)
        self._set_push(one.pattern, False)

    def _forget(self, pattern: Pattern) -> None:
        """Forget a pattern, and its QoS 0 messages of unstored topics."""
        inbox = self._session.inbox
        inbox.patterns.pop(pattern, None)
        for topic, each in inbox.subscriptions.items():
            if is_of(pattern, topic) and not each.is_subscribed and not self.covering(topic):
                each.ended()

    def unsubscribe(
        self, pattern: Pattern, tell: Callable[[TopicSubscription], Conversation[None]]
    ) -> Conversation[None]:
        """End a pattern, and the subscriptions that it alone has made; even if it has ended.

        Args:
            tell: sends the cursor of a subscription that is about to end.
        """
        inbox = self._session.inbox
        one = inbox.patterns.get(pattern) or PatternSubscription(AskedPattern(pattern=pattern))
        ending = self._of_alone(pattern)
        for each in ending:
            yield from tell(each)
        with ExitStack() as stack:
            calls = self._ending_calls(stack, ending)
            ending_all = stack.enter_context(self._session.recorder.call("unmatch"))
            reply = yield from self._match(one.asked, ending_all, ends=True)
            if not isinstance(reply, Matched):
                self._session.refused(reply)
            yield from self._give_up(ending, one.row(ends=True))
            self._forget(pattern)
            for call in (*calls, ending_all):
                call.ok(epoch=inbox.epoch)

    def _match(
        self,
        asked: AskedPattern,
        call: Call,
        *,
        start: Start | None = None,
        seeks: bool = False,
        ends: bool = False,
    ) -> Conversation[AnyReply]:
        def ask() -> Conversation[AnyReply]:
            head = self._session.control_head()
            call.invoke(epoch=self._session.inbox.epoch, match=pattern_in_words(asked.pattern))
            return self._session.asking(
                Match(
                    **head,
                    match=asked.pattern,
                    start=start,
                    seeks=seeks or UNSET,
                    terms=asked.terms,
                    ends=ends,
                )
            )

        return self._session.asking_as_known(ask)


def check_pattern(pattern: Pattern) -> None:
    """Check the kind and the text of a pattern.

    Raises:
        UsageError: an unknown kind.
        InvalidPatternError: its text cannot be read.
    """
    if not _kinds.knows(pattern):
        raise UsageError(f"patterns are of the kinds exact, prefix, glob, regex: not {pattern}")
    _kinds.check(pattern)


def pattern_in_words(pattern: Pattern) -> str:
    return f"{pattern.kind} {pattern.text}"
