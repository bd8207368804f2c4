"""Planted faults of what happens at a bound; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from reliable_pubsub.common.core.requests import Dead, Get, Put
from reliable_pubsub.common.core.transaction_messages import Commit
from reliable_pubsub.proxy.core.appending import make_room
from reliable_pubsub.proxy.core.applying import trim
from reliable_pubsub.proxy.core.reading import get, subscription_of
from reliable_pubsub.proxy.core.records import Decision, Expired, Record, Trimmed
from reliable_pubsub.proxy.core.state import State
from reliable_pubsub.proxy.core.topic_log import TopicLog

from .simulation import Variant

Room = Decision | tuple[Record, ...]


def let_one_more_wait(
    state: State, request: Put | Commit | Dead, log: TopicLog, count: int, body_bytes: int
) -> Room:
    """The message that is put does not count."""
    return make_room(state, request, log, count - 1, body_bytes)


def skip_in_silence(state: State, request: Get, body: bytes, now_ns: int) -> Decision:
    """A subscriber below the bound continues at the bound, without a report of the loss."""
    found = subscription_of(state, request)
    if not isinstance(found, Decision):
        request = replace(request, cursor=max(request.cursor, found[0].kept_from))
    return get(state, request, body, now_ns)


def expire_one(
    state: State, request: Put | Commit | Dead, log: TopicLog, count: int, body_bytes: int
) -> Room:
    """Of several subscriptions that are too slow, one expires."""
    return _expire_only(1, make_room(state, request, log, count, body_bytes))


def expire_none(
    state: State, request: Put | Commit | Dead, log: TopicLog, count: int, body_bytes: int
) -> Room:
    """The messages that a slow subscription has not read are removed, and it does not expire."""
    return _expire_only(0, make_room(state, request, log, count, body_bytes))


def _expire_only(most: int, room: Room) -> Room:
    if isinstance(room, Decision):
        return room
    spared = [one for one in room if isinstance(one, Expired)][most:]
    return tuple(one for one in room if one not in spared)


def keep_what_goes_on_the_account(state: State, record: Trimmed) -> None:
    """What retention removes still counts for the key that put it."""
    state.topic_by_id[record.topic_id].trim(record, state.lsn)


FAULTS_OF_BOUNDS: Mapping[str, Variant] = {
    "quota: one message more": Variant(rules={make_room: let_one_more_wait}),
    "quota: passed over in silence": Variant(rules={get: skip_in_silence}),
    "account: nothing is given back": Variant(rules={trim: keep_what_goes_on_the_account}),
    "expire: one alone": Variant(rules={make_room: expire_one}),
    "expire: taken, but not expired": Variant(rules={make_room: expire_none}),
}
