"""MATCH and FETCH: subscriptions by pattern (decision 0053).

A pattern makes ordinary subscriptions: of the topics that exist when it begins, and of every later
one by the decision that creates it. FETCH is several GETs that answer with messages only; any other
answer is left to a GET of that topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import lt

from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub.common.core.answers import AnyReply, Limit, MessageBatches, NotSub
from reliable_pubsub.common.core.errors import InvalidPatternError
from reliable_pubsub.common.core.limits import (
    FETCH_BATCHES_MAX,
    FETCH_TOPICS_MAX,
    PATTERNS_MAX,
    PATTERNS_PER_CLIENT_MAX,
)
from reliable_pubsub.common.core.message_base import Terms
from reliable_pubsub.common.core.pattern_messages import (
    Fetch,
    Fetched,
    FetchedTopic,
    Match,
    Matched,
    Told,
    UnstoredBatch,
)
from reliable_pubsub.common.core.patterns.matching import Kinds, is_of
from reliable_pubsub.common.core.patterns.pattern import Pattern
from reliable_pubsub.common.core.requests import Get, Sub

from ..core.appending import begun_after, resumed
from ..core.reading import cursor_moved, get, subscription_of
from ..core.records import Decision
from ..core.replies import decided, echo, limit_reached, malformed
from ..core.sessions import fence
from ..core.start_offset import chosen_offset
from ..core.state import Record, State
from ..core.subscribing import stale_control
from ..core.subscription_records import ControlSeen, CursorMoved, unsubscribed
from ..core.subscriptions import Session, Subscription
from ..core.topic_log import TopicLog
from ..qos0.ring import Rings
from .index import PatternIndex, RegisteredPattern
from .records import PatternEnded, PatternSubscribed

_KINDS = Kinds()


def match(state: State, request: Match, _body: bytes, now_ns: int) -> Decision:
    """Begin a pattern, change its terms, or end it (rules R12, R24)."""
    session = fence(state, "subscriber", request)
    if isinstance(session, Decision):
        return session
    known = state.part(PatternIndex).of.get(request.client, {}).get(request.match)
    is_repeat = request.control == session.control
    if request.control < session.control or (is_repeat and request.ends is (known is not None)):
        return stale_control(state, request, session)
    if is_repeat:
        topics, ring = _count(state, request), state.kept(Rings).number
        reply = Matched(**echo(state, request), topics=topics, already=True, ring=ring)
        return Decision(reply, visible_at=session.lsn)
    if request.ends:
        return _ended(state, request, session)
    return _refused(state, request, known) or _begun(state, request, session, known, now_ns)


def _refused(state: State, request: Match, known: RegisteredPattern | None) -> Decision | None:
    pattern = request.match
    try:
        problem = "" if _KINDS.knows(pattern) else f"the kind {pattern.kind!r} is not known"
        _KINDS.check(pattern)
        if "\0" in pattern.text:  # which not every store can keep
            problem = "a pattern has no NUL, as no topic has one"
    except InvalidPatternError as error:
        problem = str(error)
    if request.terms.session == "clean" and not request.terms.lease_ms:
        problem = "a clean session needs a lease: without one it is not known when it has ended"
    if problem:
        return Decision(malformed(state, problem, request))
    mine = state.part(PatternIndex).of.get(request.client, {})
    for count, most, what in (
        (len(mine), PATTERNS_PER_CLIENT_MAX, "patterns of one subscriber"),
        (
            0 if state.part(PatternIndex).has(pattern) else len(state.part(PatternIndex)),
            PATTERNS_MAX,
            "patterns",
        ),
    ):
        if known is None and count >= most:
            text = f"this proxy holds {most:,} {what}, the most that it may; nothing was changed"
            return Decision(Limit(**echo(state, request), limit=most, text=text))
    return None


def _begun(
    state: State,
    request: Match,
    session: Session,
    known: RegisteredPattern | None,
    now_ns: int,
) -> Decision:
    reader = _reader(request)
    terms = replace(request.terms, by_pattern=True)
    records: list[Record] = [
        PatternSubscribed(
            request.client,
            request.match,
            terms,
            reader,
            session.epoch,
            session.nonce,
            request.control,
        )
    ]
    topics = 0
    for log in _matched(state, request.match):
        if log.topic in state.deleted_topics or not state.authority.may_read(reader, log.topic):
            continue
        topics += 1
        one = log.subscriptions.get(request.client)
        is_there = one is not None and one.active
        if not is_there and log.live_count >= state.settings.subscriptions_per_topic_max:
            return limit_reached(state, request, "subscriptions_per_topic_max")
        joined = one.terms.joined(terms) if one is not None and is_there else terms
        if one is not None and is_there and not _begins_again(state, request, session, log, one):
            if joined != one.terms:
                renewed = resumed(state, log, request.client, session, joined, request.control)
                records.append(renewed)
            continue
        cursor = _first(state, request, log, one, now_ns)
        if isinstance(cursor, Decision):
            return cursor
        records.append(
            begun_after(state, log, request.client, session, joined, request.control, cursor)
        )
    already, ring = known is not None, state.kept(Rings).number
    reply = Matched(**echo(state, request), topics=topics, already=already, ring=ring)
    return decided(state, reply, *records)


def _begins_again(
    state: State, request: Match, session: Session, log: TopicLog, one: Subscription
) -> bool:
    """Return whether a pattern moves an existing subscription: by a seek, or as a clean session.

    A clean one is not moved if another subscription of its subscriber has it (rule R32).
    """
    if request.seeks:
        return True
    if "persistent" in (request.terms.session, one.terms.session) or not one.terms.by_pattern:
        return False
    mine = state.part(PatternIndex).of.get(request.client, {})
    others = [
        mine[pattern]
        for pattern in state.part(PatternIndex).patterns_of(log.topic_id)
        if pattern in mine and pattern != request.match
    ]
    return all(other.epoch != session.epoch for other in others)


def _first(
    state: State, request: Match, log: TopicLog, one: Subscription | None, now_ns: int
) -> int | Decision:
    """Where the subscription to an existing topic begins: as with SUB."""
    if request.start is None:
        return log.end
    redelivers = request.seeks is True or request.start.at in ("now", "last")
    sub = Sub(
        client=request.client,
        epoch=request.epoch,
        request=request.request,
        topic=log.topic,
        control=request.control,
        start=request.start,
        cursor=None if redelivers else 0,  # as of a subscriber without a state
        terms=request.terms,
    )
    return chosen_offset(state, sub, log, one, request.start, now_ns)


def _ended(state: State, request: Match, session: Session) -> Decision:
    head = (session.epoch, session.nonce, request.control)
    mine = state.part(PatternIndex).of.get(request.client, {})
    if request.match not in mine:
        reply = Matched(**echo(state, request), topics=0, already=True)
        return decided(state, reply, ControlSeen(request.client, *head))
    records: list[Record] = [PatternEnded(request.client, request.match, *head)]
    for topic_id in state.subscribed.get(request.client, ()):
        patterns = [one for one in state.part(PatternIndex).patterns_of(topic_id) if one in mine]
        one = state.topic_by_id[topic_id].subscriptions[request.client]
        if patterns == [request.match] and one.terms.by_pattern:
            records.append(unsubscribed(topic_id, request.client, one, session, request.control))
    reply = Matched(**echo(state, request), topics=len(records) - 1, already=False)
    return decided(state, reply, *records)


def _matched(state: State, pattern: Pattern) -> Sequence[TopicLog]:
    if state.part(PatternIndex).has(pattern):
        return [state.topic_by_id[one] for one in state.part(PatternIndex).topics_of(pattern)]
    return [log for topic, log in state.topics.items() if is_of(pattern, topic)]


def _count(state: State, request: Match) -> int:
    mine = state.subscribed.get(request.client, ())
    return sum(request.match in state.part(PatternIndex).patterns_of(topic_id) for topic_id in mine)


def fetch(state: State, request: Fetch, _body: bytes, now_ns: int) -> Decision:
    """Read what follows the cursors in the topics of a pattern, as GETs would (rule R7)."""
    session = fence(state, "subscriber", request)
    if isinstance(session, Decision):
        return session
    mine = state.part(PatternIndex).of.get(request.client, {}).get(request.match)
    if mine is None:
        text = f"{request.client!r} has no pattern {request.match}; subscribe first"
        return Decision(NotSub(**echo(state, request), text=text), visible_at=session.lsn)
    found = _Found(state, request, mine.terms, max(session.lsn, mine.lsn))
    for topic_id in mine.unread:
        if found.is_full or not found.look(state.topic_by_id[topic_id], now_ns):
            break
    found.acknowledge_rest()
    return found.decision()


class _Found:
    """The answer to a FETCH, topic by topic."""

    def __init__(self, state: State, request: Fetch, terms: Terms, visible_at: int) -> None:
        self._state = state
        self._request = request
        self._terms = terms
        self._told = {each.topic: each for each in request.told}  # not looked at yet
        self._visible_at = visible_at
        self._records: list[Record] = []
        self._topics: list[FetchedTopic] = []
        self._bodies: list[bytes] = []
        self._messages_max = request.messages_max
        self._bytes_max = request.bytes_max
        self._batches_max = FETCH_BATCHES_MAX
        self._unstored: list[UnstoredBatch] = []
        self._unstored_bodies: list[bytes] = []
        self._ring = state.kept(Rings).number
        if request.ring is not UNSET:
            is_of_this_start = request.ring.boot == state.boot
            self._read_rings(request.ring.number if is_of_this_start else 0)

    def _read_rings(self, number: int) -> None:
        """Take batches at QoS 0 from a number on: at least one, and up to half of the answer."""
        request, reader = self._request, _reader(self._request)
        leave = self._messages_max // 2, self._bytes_max // 2, self._batches_max // 2
        for after, topic, header, body in self._state.kept(Rings).since(number):
            if not is_of(request.match, topic) or not self._state.authority.may_read(reader, topic):
                continue
            left = (
                self._messages_max - header.count,
                self._bytes_max - len(body),
                self._batches_max - 1,
            )
            if self._unstored and any(map(lt, left, leave)):
                return
            self._messages_max, self._bytes_max, self._batches_max = left
            self._unstored.append(UnstoredBatch(topic, header))
            self._unstored_bodies.append(body)
            self._ring = after
        self._ring = self._state.kept(Rings).number

    @property
    def is_full(self) -> bool:
        left = min(self._messages_max, self._bytes_max, self._batches_max)
        return len(self._topics) == FETCH_TOPICS_MAX or left <= 0

    def look(self, log: TopicLog, now_ns: int) -> bool:
        """Show what a topic has at the cursor; False: there is no room for it."""
        told = self._told.get(log.topic)
        asked = self._get_of(log, told, min(self._messages_max, self._batches_max))
        if asked is None or asked.cursor == log.durable_end:
            return True
        # A move by an operator is answered to a GET of the topic only.
        is_moved = bool(log.subscriptions[asked.client].moved)
        decision = None if is_moved else get(self._state, asked, b"", now_ns)
        body = (decision.body if decision else None) or b""
        if self._topics and len(body) > self._bytes_max:
            return False
        self._told.pop(log.topic, None)
        topic = self._shown(log, asked, decision.reply if decision else None)
        self._topics.append(topic)
        if decision and topic.batches:
            self._records += decision.records
            self._visible_at = max(self._visible_at, decision.visible_at)
            self._bodies.append(body)
            self._messages_max -= sum(batch.count for batch in topic.batches)
            self._bytes_max -= len(body)
            self._batches_max -= len(topic.batches)
        return True

    def acknowledge_rest(self) -> None:
        """Move the cursors of the topics of which nothing is shown."""
        for told in self._told.values():
            log = self._state.topics.get(told.topic)
            asked = self._get_of(log, told, 1) if log else None
            if log is None or asked is None:
                continue
            found = subscription_of(self._state, asked)
            if not isinstance(found, Decision):
                self._records += cursor_moved(asked, *found[:2], urgent=False)
            elif len(self._topics) < FETCH_TOPICS_MAX:
                self._topics.append(self._shown(log, asked, None))

    def decision(self) -> Decision:
        state, visible_at = self._state, self._visible_at
        if any(isinstance(one, CursorMoved) and one.takes for one in self._records):
            visible_at = state.lsn + len(self._records)
        reply = Fetched(
            **echo(state, self._request),
            topics=tuple(self._topics),
            unstored=tuple(self._unstored),
            ring=self._ring,
        )
        body = b"".join([*self._bodies, *self._unstored_bodies])
        is_empty = not (self._topics or self._unstored)
        return Decision(reply, tuple(self._records), visible_at, body or None, is_empty)

    def _shown(self, log: TopicLog, asked: Get, reply: AnyReply | None) -> FetchedTopic:
        one = log.subscriptions[asked.client]
        return FetchedTopic(
            log.topic,
            one.generation,
            log.log,
            asked.cursor,
            one.shown,
            reply.batches if isinstance(reply, MessageBatches) else (),
            log.durable_end,
            self._state.kept(Rings).ends.get(log.topic, 0),
            None if one.terms == self._terms else one.terms,
        )

    def _get_of(self, log: TopicLog, told: Told | None, messages_max: int) -> Get | None:
        """The GET of one topic; None: it is not for the sender."""
        request, state = self._request, self._state
        one = log.subscriptions.get(request.client)
        if one is None or not state.authority.may_read(_reader(request), log.topic):
            return None
        return Get(
            client=request.client,
            epoch=request.epoch,
            request=request.request,
            topic=log.topic,
            generation=told.generation if told else one.generation,
            boot=request.boot if told else state.boot,
            cursor=told.cursor if told else one.cursor,
            messages_max=messages_max,
            bytes_max=self._bytes_max,
        )


def _reader(request: Match | Fetch) -> str:
    """The keys that a request is of."""
    return "" if request.key is UNSET else request.key
