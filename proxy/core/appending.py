"""Appending a batch: its topic, room in it (`on_bound`), its offset (rules R10, R17 and R18)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from reliable_pubsub.common.core.answers import Full, Limit
from reliable_pubsub.common.core.limits import CHOSEN_TOPICS_MAX, NUMBER_MAX
from reliable_pubsub.common.core.message_base import Request, StoredQoS, Terms
from reliable_pubsub.common.core.requests import AnyRequest

from .records import Appended, Decision, TopicCreated, TopicDeleted, trimmed_to
from .replies import echo, limit_reached
from .state import Record, State
from .subscription_records import Expired, Subscribed
from .subscriptions import Session, Subscription, skipped_by
from .topic_log import TopicLog


def topic_for(
    state: State,
    request: AnyRequest,
    topic: str,
    *,
    others: int = 0,
    compares: bool = False,
    count: int = 0,
    body_bytes: int = 0,
) -> tuple[TopicLog, tuple[Record, ...]] | Decision:
    """A topic, and the records that create it and make room in it; or the refusal.

    Subscriptions may begin with a new topic (`Hooks.begins`). A deleted one is created again where
    it ended: its numbers and offsets continue.

    Args:
        others: topics that the same decision creates before it.
        compares: as at QoS 2, the topic keeps the sender's numbers, to compare later puts.
        count: messages that are to be appended, with bodies of `body_bytes`; 0: none.
    """
    log = state.topics.get(topic)
    created: tuple[Record, ...] = ()
    if log is None or topic in state.deleted_topics:
        if len(state.topics) - len(state.deleted_topics) + others >= state.settings.topics_max:
            return limit_reached(state, request, "topics_max")
        if log is not None:
            begins: Record = TopicDeleted(log.topic_id, is_back=True)
        elif state.last_topic_id + others >= CHOSEN_TOPICS_MAX:
            return limit_reached(state, request, "topics_max")
        else:
            log = state.next_topic(topic, others)
            begins = TopicCreated(log.topic_id, topic, log.log)
        also = [record for rows in state.hooks.begins for record in rows(state, log)]
        created = (begins, *also)
    is_new = compares and request.client not in log.publishers
    if is_new and state.lasting_publishers(log) >= state.settings.publishers_per_topic_max:
        return limit_reached(state, request, "publishers_per_topic_max")
    if not count:
        return log, created
    room = make_room(state, request, log, count, body_bytes)
    return room if isinstance(room, Decision) else (log, created + room)


def next_batch(
    state: State,
    log: TopicLog,
    request: Request,
    body: bytes,
    *,
    count: int,
    crc: int,
    now_ns: int,
    first_sequence: int | None = None,
    qos: StoredQoS = 2,
    after: Appended | None = None,
) -> Appended:
    """Return a batch of a request's sender, at the end of a topic.

    Timestamps grow strictly, whatever the clock does; time is only an index (rule R18). While a
    topic is ahead of the clock, its timestamps grow at half the speed of time, until the clock has
    caught up. Their minimum step differs for each start of the proxy, so a restored log gets
    different ones.

    Args:
        first_sequence: None: the next one of the sender.
        after: the batch of the same sender and decision that comes before it; None: none does.
    """
    last = after or log
    taken_ns = max(now_ns, last.timestamp_ns + state.timestamp_step_ns)
    if taken_ns > now_ns and last is log and log.segments and state.local_ns is not None:
        taken_ns += max(state.local_ns - log.segments[-1].since_ns, 0) // 2
    if first_sequence is None:
        before = after or log.publishers.get(request.client)
        first_sequence = before.last_sequence + 1 if before else 1
    return Appended(
        log.topic_id,
        after.end if after else log.end,
        count,
        request.client,
        request.epoch,
        first_sequence,
        taken_ns,
        crc,
        body,
        qos,
    )


def begun_after(
    state: State,
    log: TopicLog,
    subscriber: str,
    session: Session,
    terms: Terms,
    control: int,
    cursor: int,
) -> Subscribed:
    """The record of a subscription that begins without a SUB, as the next generation."""
    before = log.subscriptions.get(subscriber)
    return Subscribed(
        log.topic_id,
        subscriber,
        (before.generation if before else state.generation_floor) + 1,
        cursor,
        session.epoch,
        session.nonce,
        control,
        max(before.shown, cursor) if before else cursor,
        terms,
        skipped=skipped_by(before, cursor),
    )


def resumed(
    state: State, log: TopicLog, subscriber: str, session: Session, terms: Terms, control: int
) -> Subscribed:
    """Return the record that changes the terms of a subscription, but not its position."""
    one = log.subscriptions[subscriber]
    return Subscribed(
        log.topic_id,
        subscriber,
        one.generation,
        one.cursor,
        session.epoch,
        session.nonce,
        control,
        one.shown,
        terms,
        one.moved,
        one.skipped,
    )


def make_room(
    state: State,
    request: AnyRequest,
    log: TopicLog,
    count: int,
    body_bytes: int,
) -> Decision | tuple[Record, ...]:
    """Keep the topic below its bounds: its bytes, and the messages waiting for each subscriber.

    Messages that all subscribers have acknowledged are removed first. Then `on_bound` decides
    (rule R17): remove the oldest, expire the slowest subscriptions, or refuse this put.
    """
    retention = log.retention
    over = log.over_quota(count) if retention.waiting_messages_max < NUMBER_MAX else ()
    excess = log.stored_bytes + body_bytes - retention.topic_bytes_max
    if not over and excess <= 0:
        return ()
    if over and retention.on_bound == "reject":
        return _over_quota(state, request, log, count, over)
    expires = retention.on_bound == "expire"
    expired = [_expired(log, *pair) for pair in over] if expires else []
    if excess <= 0:
        return tuple(expired)
    without = {one.subscriber for one in expired}
    may_lose = retention.on_bound == "lose_oldest"
    start = log.start_without(excess, all_may_go=may_lose, without=without)
    if start is None and expires:
        slowest, start = _without_the_slowest(log, excess, without)
        expired += slowest
    if start is None:
        return _full(state, request, log)
    return (*expired, trimmed_to(log, start))


def _without_the_slowest(
    log: TopicLog, excess: int, gone: Collection[str]
) -> tuple[Sequence[Expired], int | None]:
    """The further subscriptions that must expire to free enough, and the topic's new start.

    As few as needed, the slowest first; None if expiring all of them does not free enough.
    """
    without = set(gone)
    expired: list[Expired] = []
    start = None
    for name, one in log.slowest_first():
        if name in without:
            continue
        without.add(name)
        expired.append(_expired(log, name, one))
        start = log.start_without(excess, all_may_go=False, without=without)
        if start is not None:
            break
    return expired, start


def _expired(log: TopicLog, name: str, one: Subscription) -> Expired:
    """The record that expires a subscription."""
    return Expired(log.topic_id, name, one.generation, one.cursor, one.terms, shown=one.shown)


def _over_quota(
    state: State,
    request: AnyRequest,
    log: TopicLog,
    count: int,
    over: Sequence[tuple[str, Subscription]],
) -> Decision:
    bound = log.retention.waiting_messages_max
    if count > bound:
        text = (
            f"at most {bound:,} messages may wait for one subscription, so not more can be put at "
            "once; put fewer, or raise waiting_messages_max"
        )
        return Decision(Limit(**echo(state, request), limit=bound, text=text))
    name, slowest = over[0]
    waiting = log.end - slowest.cursor
    text = (
        f"topic {log.topic!r}: {waiting:,} of {bound:,} messages wait for {name!r}; "
        "let it catch up, unsubscribe it, or raise waiting_messages_max"
    )
    return Decision(Full(**echo(state, request), text=text))


def _full(state: State, request: AnyRequest, log: TopicLog) -> Decision:
    text = (
        f"topic {log.topic!r} holds {log.stored_bytes:,} of {log.retention.topic_bytes_max:,} "
        "bytes that its subscribers have not all acknowledged; let them catch up, unsubscribe the "
        "idle ones, or raise topic_bytes_max"
    )
    return Decision(Full(**echo(state, request), text=text))
