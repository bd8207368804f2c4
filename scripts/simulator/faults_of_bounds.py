"""Planted faults of what happens at a bound; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from reliable_pubsub.common.core.requests import Get
from reliable_pubsub.proxy.core.appending import make_room
from reliable_pubsub.proxy.core.reading import get, subscription_of
from reliable_pubsub.proxy.core.records import Decision, Trimmed
from reliable_pubsub.proxy.core.state import Record, State
from reliable_pubsub.proxy.core.subscription_records import Expired
from reliable_pubsub.proxy.core.topic_log import TopicLog

from .faulty_parts import Rules, with_request
from .simulation import Variant

Room = Decision | tuple[Record, ...]


def let_one_more_wait(
    state: State, request: Any, log: TopicLog, count: int, body_bytes: int
) -> Room:
    """The message that is put does not count."""
    return make_room(state, request, log, count - 1, body_bytes)


def at_the_bound(state: State, request: Get) -> Get:
    """A subscriber below the bound continues there, without a report of the loss."""
    found = subscription_of(state, request)
    if isinstance(found, Decision):
        return request
    return replace(request, cursor=max(request.cursor, found[0].kept_from))


def _expire_at_most(most: int) -> Rules:
    """What slow subscriptions have not read is removed, and not all of them expire."""

    def expire(*given: Any) -> Room:
        room = make_room(*given)
        if isinstance(room, Decision):
            return room
        spared = [one for one in room if isinstance(one, Expired)][most:]
        return tuple(one for one in room if one not in spared)

    return {make_room: expire}


def keep_what_is_on_the_account(record: Trimmed, state: State) -> None:
    """What retention removes still counts for the key that put it."""
    cut_batches, cut_bytes = record.cut_batches, record.cut_bytes
    log = state.topic_by_id[record.topic_id]
    log.trim(record.start, state.lsn, cut_batches=cut_batches, cut_bytes=cut_bytes)


FAULTS_OF_BOUNDS: Mapping[str, Variant] = {
    "quota: one message more": Variant(rules={make_room: let_one_more_wait}),
    "quota: passed over in silence": Variant(rules=with_request(get, at_the_bound)),
    "account: nothing is given back": Variant(rules={Trimmed.apply: keep_what_is_on_the_account}),
    "expire: one alone": Variant(rules=_expire_at_most(1)),
    "expire: taken, but not expired": Variant(rules=_expire_at_most(0)),
}
