"""FETCH: reads all topics of a pattern with one request. Pure.

It returns the messages of several topics at the cursors that the proxy knows. Where this client is
at another place of a topic, or the answer is not messages, a SUB and a GET of that topic follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from msgspec import UNSET

from reliable_pubsub.common.core.answers import AnyReply, NotSub, SubAck
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.errors import LogChangedError
from reliable_pubsub.common.core.limits import (
    BODY_BYTES_MAX,
    FETCH_BATCHES_MAX,
    FETCH_TOPICS_MAX,
)
from reliable_pubsub.common.core.message_base import Start, Terms
from reliable_pubsub.common.core.pattern_messages import Fetch, Fetched, FetchedTopic, Told

from ...core.engine import SubscriberEngine
from ...core.fetching import patience_s
from ...core.place import Place
from ...core.subscribing import Asked
from ...core.subscription import TopicSubscription
from .pattern_subscribing import PatternSubscribing, pattern_in_words
from .pattern_subscription import FETCHED_MAX, PatternSubscription

if TYPE_CHECKING:
    from ...push.core.pushing import Pushing


class PatternFetching:
    """Fetches what comes next of the patterns of one subscriber."""

    def __init__(self, engine: SubscriberEngine, patterns: PatternSubscribing) -> None:
        self._session = engine.session
        self._subscribing = engine.subscribing
        self._patterns = patterns
        self._topics = engine.topics
        self._fetching = engine.fetching
        self._now_s = engine.now_s

    @property
    def _pushing(self) -> Pushing:
        """The push feature; only where something is pushed."""
        return cast("Pushing", self._fetching.pushes)

    def take_pushed(self, one: PatternSubscription, *, asks: bool) -> Conversation[bool]:
        """Take what was pushed; return False if a pull is due.

        Args:
            asks: also if nothing was pushed.
        """
        taken = self._pushing.take_of(one)
        for each in taken or ():
            if each.batches:
                yield from self._fetching.received_pushes(each.subscription, each.batches)
            yield from self._fetching.read_qos0(each.subscription, one.pace.ahead)
            one.ready.append(each.subscription)
        one.pace.found(sum(len(each.subscription.fetched) for each in taken or ()), self._now_s())
        return bool(taken) or (taken is not None and not asks)

    def fetch(self, one: PatternSubscription, left_s: float, *, loops: bool) -> Conversation[None]:
        """One FETCH: send cursors, and take what comes.

        Args:
            loops: as many messages as a loop takes in a short time.
            left_s: how long the proxy may hold its answer; not where pushes may come.
        """
        messages_max = one.pace.look_ahead(self._now_s()) if loops else FETCHED_MAX
        wait_s = 0.0
        if one.ring is not None and (one.pushes is None or self._pushing.is_refused):
            wait_s = patience_s(self._session, left_s, one.asked.terms.lease_ms)
        told: list[TopicSubscription] = []
        body = b""

        def ask() -> Conversation[AnyReply]:
            nonlocal told, body
            told = self._to_be_told(one)
            yield from self._session.inbox.save(*told, tells=True)
            reply, body = yield from self._session.requester.asking(
                Fetch(
                    **self._session.head(),
                    match=one.pattern,
                    boot=one.boot,
                    told=tuple(map(_told, told)),
                    messages_max=messages_max,
                    wait_ms=int(wait_s * 1000) or UNSET,
                    ring=one.ring or UNSET,
                ),
                None,
                wait_s=wait_s,
            )
            return reply

        reply = yield from self._session.asking_as_known(ask)
        if isinstance(reply, NotSub):
            yield from self._forgotten(one, reply)
            return
        if not isinstance(reply, Fetched):
            self._session.refused(reply)
        if reply.boot == one.boot:
            for each in told:
                if each.confirmation is not None:
                    each.confirmation.proxy_cursor = each.place.cursor
                one.moved.pop(each.topic, None)
        one.boot = reply.boot
        shown = yield from self._take(one, reply, body)
        one.fetched_unstored(reply.boot, reply.ring)
        is_full = len(told) == FETCH_TOPICS_MAX or _is_full(reply, body, messages_max)
        if one.pushes is not None:
            self._pushing.pulled_of(one, shown, is_full=is_full)

    def _to_be_told(self, one: PatternSubscription) -> list[TopicSubscription]:
        """The subscriptions whose cursors the running proxy does not know."""
        found = [
            each
            for each in one.moved.values()
            if each.confirmation is not None
            and each.confirmation.boot == one.boot
            and each.place.cursor > each.confirmation.proxy_cursor
        ]
        return found[:FETCH_TOPICS_MAX]

    def save(self, one: PatternSubscription) -> Conversation[None]:
        """Write the places of all of its topics, as before the proxy learns of them."""
        return self._session.inbox.save(*one.moved.values(), tells=True)

    def _forgotten(self, one: PatternSubscription, reply: NotSub) -> Conversation[None]:
        """The proxy does not know the pattern: it was replaced, or set back to an older copy.

        Or its session was clean, and has ended.
        """
        if one.is_clean:
            yield from self._patterns.ended(one)
            self._session.refused(reply)
        choice = self._subscribing.on_log_changed
        if choice == "stop":
            raise LogChangedError(
                f"{reply.text}. The proxy was replaced or set back to an older copy. Choose with "
                "--on-log-changed (on_log_changed): `rewind` reads its topics from their start "
                "and may repeat, `adopt` goes on at their end and may miss"
            )
        start = Start("earliest") if choice == "rewind" else None
        yield from self._patterns.subscribe(one.asked, start)

    def _take(
        self, one: PatternSubscription, reply: Fetched, body: bytes
    ) -> Conversation[list[TopicSubscription]]:
        """Take what FETCH has shown; then ask for what it could not show.

        Returns:
            The topics that were shown, and had nothing fetched before.
        """
        at, count = 0, 0
        taken: list[TopicSubscription] = []
        alone: list[tuple[TopicSubscription, Terms]] = []
        for shown in reply.topics:
            part = body[at : (at := at + sum(batch.body_bytes for batch in shown.batches))]
            each = self._session.inbox.add(shown.topic)
            if each.has_next:
                one.ready.append(each)
                continue
            if not each.is_subscribed and shown.cursor == 0 and shown.batches:
                self._begin(one, each, shown, reply)
                one.moved[each.topic] = each  # to be written
            if not _stands_at(each, shown, reply.boot):
                alone.append((each, shown.terms or one.asked.terms))
                continue
            yield from self._fetching.received(each, shown.batches, part, end=shown.end)
            count += len(each.fetched)
            taken.append(each)
            one.ready.append(each)
        self._take_unstored(one, reply, body[at:])
        one.pace.found(count, self._now_s())
        for each, terms in alone:
            if each.confirmation is not None and each.confirmation.boot != reply.boot:
                each.forgotten()
            one.current = each  # so that the next call goes past what is lost
            yield from self._ask_alone(one, each, terms)
            one.ready.append(each)
            taken.append(each)
        return taken

    def _take_unstored(self, one: PatternSubscription, reply: Fetched, body: bytes) -> None:
        """Take QoS 0 messages, even of topics that were never stored."""
        at = 0
        for found in reply.unstored:
            header = found.batch
            part = body[at : (at := at + header.body_bytes)]
            each = self._session.inbox.add(found.topic)
            if not each.qos0.found(found.topic, reply.boot, header, part):
                if each.confirmation is not None:
                    one.ready.append(each)  # its ring is read from its own place
                    continue
                each.qos0.skip_missing(header.base)
                each.qos0.found(found.topic, reply.boot, header, part)
            if one.asked.terms.qos and not each.is_subscribed:
                self._fetching.report_lower_qos(each, header.publisher, 0)
            one.ready.append(each)

    def _begin(
        self, one: PatternSubscription, each: TopicSubscription, shown: FetchedTopic, reply: Fetched
    ) -> None:
        """A topic that is new here: the proxy has begun its subscription at its first message."""
        asked, terms = one.asked, shown.terms or one.asked.terms
        with self._session.recorder.call("subscribe", each.topic) as call:
            call.invoke(epoch=self._session.inbox.epoch, match=pattern_in_words(asked.pattern))
            place = Place(
                shown.log,
                0,
                terms=terms,
                max_deliveries=asked.max_deliveries,
                shown=shown.shown,
            )
            each.move(place)
            each.confirmed(_as_sub_ack(shown, reply, terms), is_new=True)
            call.ok(
                epoch=self._session.inbox.epoch,
                log=shown.log,
                generation=shown.generation,
                cursor=0,
                qos=terms.qos,
            )

    def _ask_alone(
        self, one: PatternSubscription, each: TopicSubscription, terms: Terms
    ) -> Conversation[None]:
        if not each.is_subscribed:
            asked = Asked(terms=terms, max_deliveries=one.asked.max_deliveries)
            yield from self._subscribing.subscribe(each, asked)
        yield from self._topics.settle(each)  # in hand through another subscription
        with self._session.recorder.call("get", each.topic):
            yield from self._fetching.pull(each, FETCHED_MAX)
            yield from self._fetching.read_qos0(each, FETCHED_MAX)


def _stands_at(each: TopicSubscription, shown: FetchedTopic, boot: str) -> bool:
    """Whether what FETCH has shown of a topic follows what this client has."""
    confirmation = each.confirmation
    return (
        bool(shown.batches)
        and confirmation is not None
        and (confirmation.boot, confirmation.generation) == (boot, shown.generation)
        and (each.place.log, each.place.cursor) == (shown.log, shown.cursor)
    )


def _is_full(reply: Fetched, body: bytes, messages_max: int) -> bool:
    """Whether there may be more than the answer has; not told if a large batch had no room."""
    batches = [batch for shown in reply.topics for batch in shown.batches]
    is_cut = any(
        shown.batches[-1].base + shown.batches[-1].count < shown.end
        for shown in reply.topics
        if shown.batches
    )
    return (
        is_cut
        or len(reply.topics) == FETCH_TOPICS_MAX
        or len(batches) == FETCH_BATCHES_MAX
        or sum(batch.count for batch in batches) >= messages_max
        or len(body) > BODY_BYTES_MAX // 2
    )


def _told(each: TopicSubscription) -> Told:
    assert each.confirmation is not None
    return Told(each.topic, each.confirmation.generation, each.place.cursor)


def _as_sub_ack(shown: FetchedTopic, reply: Fetched, terms: Terms) -> SubAck:
    return SubAck(
        client=reply.client,
        epoch=reply.epoch,
        request=reply.request,
        boot=reply.boot,
        topic=shown.topic,
        generation=shown.generation,
        log=shown.log,
        cursor=shown.cursor,
        already=True,
        terms=terms,
        shown=shown.shown,
        ring=shown.ring,
    )
