"""Patterns in the calls of a subscriber: begin, move and end them, with their topics. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.conversation import Conversation, Save
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.message_base import Start, Terms
from reliable_pubsub.common.core.patterns.pattern import Pattern, Topics
from reliable_pubsub.common.core.start import Now, Position

from ...core.engine import SubscriberEngine
from ...core.feature import Opening, Origin, SubscriberFeature
from ...core.subscribe_call import SeekCall, SubscribeCall
from ...core.subscribing import Asked, lease_ms_of
from ...core.subscription import TopicSubscription
from .pattern_fetching import PatternFetching
from .pattern_source import PatternSource
from .pattern_subscribing import PatternSubscribing, check_pattern
from .pattern_subscription import AskedPattern, PatternSubscription, condition_of, load_patterns

_ARGUMENTS = {"match", "where", "start", "qos", "session", "lease_s", "push", "max_deliveries"}


class PatternFeature(SubscriberFeature):
    """The patterns of a subscriber."""

    name = "patterns"

    def __init__(self, engine: SubscriberEngine, _opening: Opening) -> None:
        self._engine = engine
        self._inbox = engine.session.inbox
        self.patterns = PatternSubscribing(engine.session, engine.set_push)
        fetching = PatternFetching(engine, self.patterns)
        self._source = PatternSource(
            engine.session, self.patterns, engine.delivering, engine.topics, fetching
        )

    def load(self, stored: Mapping[str, bytes]) -> None:
        self._inbox.patterns = load_patterns(stored, self._inbox.patterns, self._inbox.undo)

    def source(self, topic: Topics) -> Origin | None:
        return (self._source, self.patterns.of(topic)) if isinstance(topic, Pattern) else None

    def subscribe(self, call: SubscribeCall) -> Conversation[int] | None:
        if call.match is None and not call.where and call.topic is not None:
            return None
        asked, start = _asked_and_start(call)
        return self._match(asked, start, push=call.push)

    def _match(self, asked: AskedPattern, start: Start | None, *, push: bool) -> Conversation[int]:
        topics = yield from self.patterns.subscribe(asked, start)
        self._engine.set_push(asked.pattern, push)
        return topics

    def joined(self, topic: str, terms: Terms) -> Terms:
        """Take nothing from the patterns that have the topic (rule R32)."""
        return reduce(
            Terms.joined, [one.asked.terms for one in self.patterns.covering(topic)], terms
        )

    def seek(self, call: SeekCall) -> Conversation[int] | None:
        if not isinstance(call.topic, Pattern):
            return None
        start = _start_of_pattern(call.start)
        assert start is not None
        return self._seek(call.topic, start)

    def _seek(self, pattern: Pattern, start: Start) -> Conversation[int]:
        one = self.patterns.of(pattern)
        return (yield from self.patterns.seek(one, start, self._engine.tell_before_end))

    def unsubscribe(self, topic: Topics, *, ends_group: bool) -> Conversation[None] | None:
        if isinstance(topic, Pattern):
            return self._unmatch(topic)
        covering = [] if ends_group else self.patterns.covering(names.exact(topic))
        return self._leave_to(covering, self._inbox.of(topic)) if covering else None

    def _unmatch(self, pattern: Pattern) -> Conversation[None]:
        yield from self.patterns.unsubscribe(pattern, self._engine.tell_before_end)
        self._engine.set_push(pattern, False)

    def _leave_to(
        self, covering: Sequence[PatternSubscription], subscription: TopicSubscription
    ) -> Conversation[None]:
        """End a subscription to a topic that patterns still have: it stays where it is."""
        topic, place = subscription.topic, subscription.place
        if place.terms.by_pattern or not subscription.is_subscribed:
            pattern = covering[0].pattern
            raise UsageError(
                f"topic {topic!r} belongs to the pattern {pattern}; unsubscribe the pattern"
            )
        terms = reduce(Terms.joined, [one.asked.terms for one in covering])
        asked = Asked(terms=terms, max_deliveries=covering[0].asked.max_deliveries)
        yield from self._engine.subscribing.subscribe(subscription, asked)
        self._engine.set_push(topic, False)

    def check_push(self, topic: Topics, push: bool) -> None:
        if isinstance(topic, Pattern):
            self.patterns.of(topic)

    def record(self, topic: Topics, note: bytes) -> Conversation[None] | None:
        if not isinstance(topic, Pattern) or topic in self._inbox.patterns:
            return None
        return self._write_note(note)  # it was unsubscribed

    def _write_note(self, note: bytes) -> Conversation[None]:
        yield Save(self._inbox.write_note(note), True)

    def has_clean(self) -> bool:
        return any(one.is_clean for one in self._inbox.patterns.values())

    def said_bye(self) -> Conversation[None]:
        for one in [one for one in self._inbox.patterns.values() if one.is_clean]:
            yield from self.patterns.ended(one)


def _asked_and_start(call: SubscribeCall) -> tuple[AskedPattern, Start | None]:
    """The terms of a pattern, and where it begins.

    Raises:
        UsageError: arguments that do not go together.
        InvalidPatternError: the pattern or `where` cannot be read.
    """
    if call.match is None:
        raise UsageError(
            "`where` goes with `match`: subscribe(match=glob(...), where=...)"
            if call.where
            else "subscribe needs the name of a topic, or match=glob(...)"
        )
    if (given := call.given_except(_ARGUMENTS)) is not None:
        raise UsageError(f"a subscription by pattern has no `{given}`; that is for one topic")
    start = _start_of_pattern(call.start)
    check_pattern(call.match)
    condition_of(call.where)
    asked = AskedPattern(
        pattern=call.match,
        where=call.where,
        terms=Terms(
            qos=call.qos,
            session=call.session,
            lease_ms=lease_ms_of(call.session, call.lease_s),
            by_pattern=True,
        ),
        max_deliveries=call.max_deliveries,
    )
    return asked, Now if call.session == "clean" and start is None else start


def _start_of_pattern(start: Start | Position | None) -> Start | None:
    if isinstance(start, Position) or (start is not None and start.at == "offset"):
        raise UsageError("a pattern cannot start at an offset, because its topics differ")
    return start
