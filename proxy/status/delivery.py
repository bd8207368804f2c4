"""DELIVERY: which subscribers have acknowledged a message. Read only; no state changes."""

from __future__ import annotations

from typing import Final

from reliable_pubsub.common.core.answers import Delivered, Limit
from reliable_pubsub.common.core.limits import DELIVERY_SUBSCRIBERS_MAX
from reliable_pubsub.common.core.requests import DeliveryRequest

from ..core.changed_log import not_this_log
from ..core.feature import Feature
from ..core.records import Decision
from ..core.replies import echo
from ..core.state import State


def delivery(state: State, request: DeliveryRequest, _body: bytes, _now_ns: int) -> Decision:
    """Compare an offset with the durable cursors of those that are subscribed now."""
    log = state.topic_or_next(request.topic)
    if request.log is not None and request.log != log.log:
        return not_this_log(state, request, log, f"the log is now {log.log!r}")
    if request.offset >= log.durable_end:
        return not_this_log(state, request, log, f"there is no message at offset {request.offset}")
    current = {name: one for name, one in sorted(log.subscriptions.items()) if one.holds}
    if len(current) > DELIVERY_SUBSCRIBERS_MAX:
        text = (
            f"this topic has {len(current):,} subscribers, and at most "
            f"{DELIVERY_SUBSCRIBERS_MAX:,} can be named in an answer; ask STATUS for their "
            "cursors"
        )
        return Decision(Limit(**echo(state, request), limit=DELIVERY_SUBSCRIBERS_MAX, text=text))
    reply = Delivered(
        **echo(state, request),
        acknowledged=tuple(n for n, s in current.items() if s.durable_cursor > request.offset),
        waiting=tuple(n for n, s in current.items() if s.durable_cursor <= request.offset),
    )
    newest = max((one.lsn for one in log.subscriptions.values()), default=0)
    return Decision(reply, visible_at=newest)


FEATURE: Final = Feature(
    name="delivery status",
    verbs={DeliveryRequest: delivery},
    endpoints={DeliveryRequest: "publisher"},
)
