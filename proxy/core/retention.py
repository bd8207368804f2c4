"""What a topic keeps, and what a put does at its bounds (rules R10 and R17)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from reliable_pubsub.common.core.answers import Full, Limit
from reliable_pubsub.common.core.group_messages import Settle, Take
from reliable_pubsub.common.core.limits import NUMBER_MAX
from reliable_pubsub.common.core.requests import Dead, Put
from reliable_pubsub.common.core.transaction_messages import Commit

from .records import Decision, Expired, Record, Trimmed
from .replies import echo
from .state import State
from .subscriptions import Subscription
from .topic_log import TopicLog

Storing = Put | Commit | Dead | Take | Settle  # TAKE and SETTLE make dead letters


def trims_due(state: State, now_ns: int) -> Sequence[Trimmed]:
    """The trims that retention makes now, in topics that have changed or aged."""
    records: list[Trimmed] = []
    topics = state.topic_by_id
    touched, state.touched_topics = state.touched_topics, set()
    touched.update(state.ages.take_below(now_ns, lambda one: topics[one].ages_at_ns))
    for topic_id in sorted(touched):
        log = topics[topic_id]
        trimmed = log.trim_due(now_ns)
        ages_at_ns = log.ages_at_ns
        if trimmed is not None:
            records.append(trimmed)
            state.touched_topics.add(topic_id)  # one record removes only so much
        elif ages_at_ns is not None and ages_at_ns >= now_ns:
            state.ages.add(topic_id, ages_at_ns)
        # Else a subscription keeps the old segment; its acknowledgement touches the topic.
    return records


def make_room(
    state: State,
    request: Storing,
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
    return (*expired, log.trimmed_to(start))


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
    request: Storing,
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


def _full(state: State, request: Storing, log: TopicLog) -> Decision:
    text = (
        f"topic {log.topic!r} holds {log.stored_bytes:,} of {log.retention.topic_bytes_max:,} "
        "bytes that its subscribers have not all acknowledged; let them catch up, unsubscribe the "
        "idle ones, or raise topic_bytes_max"
    )
    return Decision(Full(**echo(state, request), text=text))
