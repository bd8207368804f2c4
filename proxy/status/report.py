"""STATUS: a page of the state."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from heapq import nsmallest
from typing import Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.limits import STATUS_PAGE_ROWS
from reliable_pubsub.common.core.status import (
    GroupStatus,
    KeptStatus,
    PublisherStatus,
    Status,
    StatusReport,
    SubscriptionStatus,
    TopicKept,
    TopicStatus,
)

from ..access.uses import key_uses, with_uses
from ..core.feature import Feature, Runtime
from ..core.records import Decision
from ..core.replies import echo
from ..core.state import State
from ..core.topic_log import TopicLog
from ..groups.state import GroupIndex, is_group, subscription_of_group
from ..operators.history import Administration
from ..qos0.ring import Rings
from ..transactions.verbs import staging_status


def status(
    state: State,
    request: Status,
    _body: bytes,
    _now_ns: int,
    shown: Callable[[str], bool] | None = None,
) -> Decision:
    """One page, topics in the order of their names, those after `after_topic`.

    Args:
        shown: a test of topics; the others are left out. None: all are shown.
    """
    topics = {name: log for name, log in state.topics.items() if name not in state.deleted_topics}
    names = sorted(filter(shown, topics) if shown else topics)
    first = bisect_right(names, request.after_topic) if request.after_topic else 0
    page: list[TopicStatus] = []
    rows = 0
    for name in names[first : first + request.topics_max]:
        page.append(_topic(state, topics[name], request.rows_max))
        rows += len(page[-1].subscriptions) + len(page[-1].publishers)
        rows += 0 if page[-1].groups is UNSET else 2 * len(page[-1].groups)  # they are longer
        if rows >= STATUS_PAGE_ROWS:
            break
    report = StatusReport(
        **echo(state, request),
        topics=tuple(page),
        next_topic=page[-1].topic if first + len(page) < len(names) else UNSET,
        topics_count=len(names),
        sessions_count=len(state.sessions),
        dropped_requests=0,
        staging=staging_status(state),
        kept=UNSET if request.after_topic else _kept(state, shown),
        paused=UNSET if (reason := state.part(Administration).paused) is None else reason,
    )
    return Decision(report)


class Description(Struct):
    """Adds to a report what only the shell knows."""

    describe: Callable[[StatusReport, Runtime], StatusReport] = lambda report, _: report


def completed(engine: Runtime, request: Status, decision: Decision) -> Decision:
    """Add to a report what the engine and its shell know besides the state."""
    report = decision.reply
    if not isinstance(report, StatusReport):
        return decision
    report = replace(
        with_uses(request, report, key_uses(engine.state)),
        requests_count=engine.requests_count,
        dropped_requests=engine.malformed_count,
        waiting_gets=len(engine.waiting) or UNSET,
        clock_steps=engine.local.steps or UNSET,
        timestamps_ahead_s=engine.local.ahead_s or UNSET,
    )
    return replace(decision, reply=engine.state.kept(Description).describe(report, engine))


def _kept(state: State, shown: Callable[[str], bool] | None) -> KeptStatus:
    own = state.settings.topics
    names = filter(shown, own) if shown else own
    return KeptStatus(
        history_bytes=state.settings.retention.history_bytes,
        topics=tuple(
            TopicKept(topic=name, history_bytes=own[name].history_bytes) for name in names
        ),
    )


def _topic(state: State, log: TopicLog, rows_max: int) -> TopicStatus:
    # One that is not durable yet could be gone after a crash, and who saw it would count on it.
    active = {
        name: one
        for name, one in log.subscriptions.items()
        if (one.active or one.expired) and one.lsn <= state.durable_lsn and not is_group(name)
    }
    of_topic = state.part(GroupIndex).in_topic(log)
    groups = tuple(_group(state, log, name) for name in nsmallest(rows_max, of_topic))
    # The slowest first: if a page cannot show all, these matter most.
    slowest = nsmallest(rows_max, active.items(), key=lambda item: (item[1].cursor, item[0]))
    publishers = {(name, 2): mark for name, mark in log.publishers.items()}
    publishers |= {(name, 1): mark for name, mark in log.unnumbered.items()}
    return TopicStatus(
        topic=log.topic,
        log=log.log,
        start=log.start,
        end=log.durable_end,
        stored_bytes=log.stored_bytes,
        subscriptions=tuple(
            SubscriptionStatus(
                subscriber=name,
                generation=subscription.generation,
                terms=subscription.terms,
                state=state.leases.state_of(name, subscription),
                silent_s=state.leases.silent_s(name),
                cursor=subscription.cursor,
                lag_messages=max(log.durable_end - subscription.cursor, 0),
                lag_s=lag_s(state, log, subscription.cursor),
                lost=state.kept(Rings).lost(log.topic, name),
            )
            for name, subscription in slowest
        ),
        subscriptions_left_out=max(len(active) - rows_max, 0),
        publishers=tuple(
            PublisherStatus(
                publisher=name,
                qos=qos,
                last_sequence=mark.last_sequence,
                last_offset=mark.base + mark.count - 1,
            )
            for (name, qos), mark in nsmallest(rows_max, publishers.items())
        ),
        publishers_left_out=max(len(publishers) - rows_max, 0),
        ring=state.kept(Rings).status(log.topic),
        groups=groups or UNSET,
        groups_left_out=max(len(of_topic) - rows_max, 0) or UNSET,
    )


def _group(state: State, log: TopicLog, name: str) -> GroupStatus:
    group = state.part(GroupIndex).of[log.topic_id][name]
    known = log.subscriptions[subscription_of_group(name)]
    now_s = state.leases.now_s
    held = [run for run in group.runs if run.is_held and not run.is_due(now_s)]
    waiting = [run for run in group.runs if run.how == "free" or run.is_due(now_s)]
    frontier = group.runs[-1].end if group.runs else known.cursor
    return GroupStatus(
        group=name,
        generation=known.generation,
        terms=group.terms,
        state="expired" if known.expired else "active",
        members=len(group.members),
        cursor=known.cursor,
        held=sum(run.end - run.first for run in held),
        held_by=len({run.member for run in held}),
        waiting=sum(run.end - run.first for run in waiting) + max(log.durable_end - frontier, 0),
        redelivering=sum(run.end - run.first for run in waiting if run.delivery),
        lag_s=lag_s(state, log, known.cursor),
    )


def lag_s(state: State, log: TopicLog, cursor: int) -> float:
    """Return the seconds of local time since the oldest unacknowledged message was stored."""
    if cursor >= log.durable_end or state.local_ns is None:
        return 0.0
    oldest = max(cursor, log.start)
    taken_ns = state.reader.timestamp_ns(log.topic_id, oldest)
    if taken_ns is None:
        return 0.0
    stored_ns = log.stored_ns(oldest, taken_ns)
    gap_ns = state.gap_ns if stored_ns <= state.begun_ns else 0
    return max(state.local_ns - stored_ns + gap_ns, 0) / 1e9


FEATURE: Final = Feature(
    name="status", verbs={Status: status}, endpoints={Status: None}, completes={Status: completed}
)
