"""Maps the `start` of a subscription or a reading to an offset, once (rule R18).

A time is converted to an offset here; everything after that uses the offset. A start before the
topic's beginning is refused with TRUNCATED, one beyond its end with OUT_OF_RANGE; a start that a
client named is never silently replaced by another.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime

from reliable_pubsub.common.core.answers import OutOfRange, Truncated
from reliable_pubsub.common.core.message_base import Start
from reliable_pubsub.common.core.requests import History, Sub

from .records import Decision
from .replies import echo
from .state import State
from .subscriptions import Subscription
from .topic_log import TopicLog


def chosen_offset(
    state: State,
    request: Sub,
    log: TopicLog,
    known: Subscription | None,
    start: Start,
    now_ns: int,
) -> int | Decision:
    """The cursor of a subscription with a `start`, but never below its own cursor."""
    place = first_offset(state, request, log, known, start, now_ns)
    own = own_offset(state, request, known)
    if isinstance(place, Decision):
        if not (isinstance(place.reply, Truncated) and own >= log.start):
            return place
        place = log.start  # the removed messages were acknowledged
    skipped = known.skipped if known is not None and request.cursor == 0 else None
    if skipped is not None and start.at != "last" and place < skipped[1]:
        return max(place, skipped[0])  # they were never acknowledged
    return max(place, own)


def own_offset(state: State, request: Sub, known: Subscription | None) -> int:
    """The acknowledged cursor, if the request has a cursor besides its start; else 0.

    A clean session keeps no cursor: the next one begins at its `start`.
    """
    if request.cursor is None:
        return 0
    if known is None or not known.active:
        kinds = {request.terms.session, *([known.terms.session] if known else [])}
        if "clean" in kinds:
            return 0
    return max(request.cursor, known.cursor if known else 0)


def first_offset(
    state: State,
    request: Sub,
    log: TopicLog,
    known: Subscription | None,
    start: Start,
    now_ns: int,
) -> int | Decision:
    """The offset of `start`; `last` is the cursor of the previous subscription."""
    if start.at == "last" and known is not None:
        return known.cursor  # if retention has removed it since, the first GET says LOST
    return start_offset(state, request, log, start, log.end, now_ns)


def start_offset(
    state: State, request: Sub | History, log: TopicLog, start: Start, end: int, now_ns: int
) -> int | Decision:
    """Return the offset that `start` names, or the refusal.

    `last` without an earlier subscription is the topic's start: nothing was delivered yet.

    Args:
        end: of the messages that the client may read.
        now_ns: wall clock; an age is counted in local time.
    """
    match start.at:
        case "earliest" | "last":
            return log.start
        case "newest":
            return max(end - start.value, log.start)
        case "offset":
            return named_offset(state, request, log, start.value, end)
        case "time":
            return _at_time(state, request, log, start.value, end, now_ns)
        case "age":
            time_ns: int | None = now_ns - start.value
            if state.local_ns is not None:
                time_ns = log.time_of_age(state.local_ns - start.value, now_ns - start.value)
            if time_ns is None:
                return end
            return _at_time(state, request, log, max(time_ns, 0), end, now_ns)
        case _:
            return end


def named_offset(
    state: State, request: Sub | History, log: TopicLog, offset: int, end: int
) -> int | Decision:
    """An offset that a client named, or the refusal."""
    if offset < log.start:
        return truncated(state, request, log, f"offset {offset} is no longer stored")
    if offset > end and isinstance(request, Sub):  # HISTORY gets an empty answer
        return _out_of_range(
            state, request, log, f"offset {offset} is not reached yet; {log.start} to {end} can be"
        )
    return offset


def _at_time(
    state: State, request: Sub | History, log: TopicLog, time_ns: int, end: int, now_ns: int
) -> int | Decision:
    newest_ns = max(now_ns, log.timestamp_ns)
    if time_ns > newest_ns and isinstance(request, Sub):
        return _out_of_range(
            state,
            request,
            log,
            f"{_moment(time_ns)} is in the future; here it is {_moment(now_ns)}",
        )
    if log.start:
        oldest_ns = state.reader.timestamp_ns(log.topic_id, log.start)
        if time_ns < (log.timestamp_ns + 1 if oldest_ns is None else oldest_ns):
            return truncated(
                state,
                request,
                log,
                f"messages taken since {_moment(time_ns)} are no longer all stored",
            )
    index = bisect_left(log.segments, time_ns, key=lambda segment: segment.timestamp_ns)
    if index == len(log.segments):
        return end
    segment = log.segments[index]
    found = state.reader.first_since(log.topic_id, segment.base, segment.end, time_ns)
    return min(_undurable_since(state, log, time_ns, end) if found is None else found, end)


def _undurable_since(state: State, log: TopicLog, time_ns: int, end: int) -> int:
    for _, record in state.undurable:
        batch = record.batch
        if batch is not None and batch.topic_id == log.topic_id and batch.timestamp_ns >= time_ns:
            return batch.base
    return end


def truncated(state: State, request: Sub | History, log: TopicLog, why: str) -> Decision:
    """Refuse a start below the first stored message."""
    start_ns = state.reader.timestamp_ns(log.topic_id, log.start)
    taken = f", taken at {_moment(start_ns)}" if start_ns is not None else ""
    return Decision(
        Truncated(
            **echo(state, request),
            start=log.start,
            start_ns=start_ns,
            text=f"topic {request.topic!r}: {why}; the first that is left is offset "
            f"{log.start}{taken}: begin there, or with `earliest`",
        ),
        visible_at=log.trim_lsn,
    )


def _out_of_range(state: State, request: Sub | History, log: TopicLog, why: str) -> Decision:
    return Decision(
        OutOfRange(
            **echo(state, request),
            start=log.start,
            end=log.durable_end,
            text=f"topic {request.topic!r}: {why}; nothing was changed. To begin with what is "
            "put from here on, say `now`",
        )
    )


def _moment(time_ns: int) -> str:
    """A time in readable form, followed by its nanoseconds."""
    try:
        text = datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return f"{time_ns} ns"
    return f"{text} ({time_ns} ns)"
