"""LOG_CHANGED: the log is not the one that the client knows (rule R14).

The store was replaced, or restored from an older copy. A log is recognised by its id, by its end,
and by a witness: the timestamp of the batch before a cursor.
"""

from __future__ import annotations

from reliable_pubsub.common.core.answers import LogChanged
from reliable_pubsub.common.core.requests import Ack, Dead, DeliveryRequest, Get, History, Sub

from .records import Decision
from .replies import echo
from .state import State
from .topic_log import TopicLog


def log_changed(
    state: State, request: Sub | History, log: TopicLog, cursor: int | None
) -> Decision | None:
    """Check the position a client brings against the log (rule R14)."""
    if request.log is not None and request.log != log.log:
        return not_this_log(state, request, log, f"the log is now {log.log!r}")
    if cursor is None:
        return None
    if cursor > log.durable_end:
        return not_this_log(
            state, request, log, f"offset {cursor} is beyond its end {log.durable_end}"
        )
    if request.witness_ns is None or cursor <= log.start:
        return None
    held_ns = state.reader.timestamp_ns(log.topic_id, cursor - 1)
    if held_ns is not None and held_ns != request.witness_ns:
        return not_this_log(
            state, request, log, f"offset {cursor - 1} holds another message than before"
        )
    return None


def not_this_log(
    state: State,
    request: Sub | Get | Ack | Dead | History | DeliveryRequest,
    log: TopicLog,
    why: str,
) -> Decision:
    """Refuse a position that is not one of this log."""
    is_empty = log.durable_end == log.start
    held = "nothing" if is_empty else f"offsets {log.start} to {log.durable_end - 1}"
    text = (
        f"topic {request.topic!r}: {why}; the proxy was replaced or set back to an older copy. It "
        f"holds {held}. Choose with --on-log-changed (on_log_changed): `rewind` reads from its "
        "start and may repeat, `adopt` continues at its end and may miss"
    )
    reply = LogChanged(
        **echo(state, request),
        topic=request.topic,
        log=log.log,
        start=log.start,
        end=log.durable_end,
        text=text,
    )
    return Decision(reply)


def witness_ns(state: State, log: TopicLog, cursor: int) -> int | None:
    """The timestamp of the batch before a cursor, by which this log is recognised (R14)."""
    if cursor == log.end:
        return log.timestamp_ns if log.end else None
    if cursor <= log.start:
        return None
    return state.reader.timestamp_ns(log.topic_id, cursor - 1)
