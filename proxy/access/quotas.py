"""Quotas: how much the clients of one key may have. Pure.

The records of a decision show what it would create: a client id, topics, a subscription, a staged
batch, bytes to store. Before they are applied they are compared with the quotas of the key that
asked; above one of them the answer is LIMIT, or BUSY if only the rate of bytes is too high, and
there are no records.

What counts is what the proxy holds now (`accounts.py`), also from before a restart; not what has
ended or was removed. An allowed decision also gets the records that charge its ids and topics to
the key. Staged batches and groups are counted in memory only.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from math import ceil
from typing import Final, Literal, TypeVar

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from reliable_pubsub.common.access.core.allowance import Bucket
from reliable_pubsub.common.core.answers import Busy, Full, Limit
from reliable_pubsub.common.core.limits import TRANSACTION_BYTES_MAX
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.core.requests import AnyRequest
from reliable_pubsub.common.core.rights import KnownKey, Quota, Rights
from reliable_pubsub.common.core.transaction_messages import Commit

from ..core.feature import Sender
from ..core.records import Decision, Granted, TopicCreated, TopicDeleted, Trimmed
from ..core.replies import echo
from ..core.state import Record, State
from ..core.subscription_records import Subscribed
from ..groups.records import GroupChanged
from ..groups.state import GroupIndex, subscription_of_group
from ..transactions.records import Staged
from ..transactions.staging import Staging, held_bytes
from .accounts import Account, Accounts
from .records import Charged

_WORDS: Final[Mapping[_Counted, tuple[str, str]]] = {
    "clients_max": ("client ids", "Use the same ids again"),
    "topics_max": ("topics that it has made", "Use fewer names"),
    "subscriptions_max": (
        "subscriptions that have not ended",
        "Unsubscribe those that are gone, each under its id",
    ),
    "staged_bytes_max": (
        "bytes staged",
        "Commit or abort a transaction, and make smaller ones",
    ),
    "stored_bytes_max": (
        "bytes stored",
        "Let subscribers acknowledge them, and topics keep less history (history_bytes, history_s)",
    ),
}
PIECE_IDS: Final = 256  # whose subscriptions one piece of a count looks at
_GROUPS_SPARE: Final = 64
_BURST_S: Final = 2  # so many seconds of `bytes_per_s_max` may come at once
T = TypeVar("T")
_Counted = Literal[
    "clients_max", "topics_max", "subscriptions_max", "staged_bytes_max", "stored_bytes_max"
]
_Id = tuple[Role, str]
_NOTHING: Final = Account()


class _Running(Struct):
    """The part of a key's usage that is counted in memory only."""

    staging: set[str] = field(default_factory=set)  # publishers that stage with it
    groups: set[tuple[int, str]] = field(default_factory=set)  # by topic id and subscription
    groups_look_at: int = _GROUPS_SPARE  # at this many, those that have ended are removed
    bytes_per_s: int = 0  # that `bucket` is for
    bucket: Bucket | None = None

    def staged_bytes(self, state: State) -> int:
        """The bytes that are staged; forgets publishers without staged batches."""
        self.staging.intersection_update(state.part(Staging).clients)
        return sum(map(state.part(Staging).bytes_of, self.staging))

    def has_begun(self, state: State, groups: Iterator[tuple[int, str]]) -> None:
        """Count new groups, and now and then remove those that have ended."""
        self.groups.update(groups)
        if len(self.groups) >= self.groups_look_at:
            self.groups_look_at = 2 * self.still_in_groups(state) + _GROUPS_SPARE

    def still_in_groups(self, state: State) -> int:
        """How many groups were begun and have not ended; the others are forgotten."""
        self.groups = {
            (topic_id, name)
            for topic_id, name in self.groups
            if topic_id in state.subscribed.get(name, ())
        }
        return len(self.groups)

    def pace(self, now_s: float) -> int:
        """The recent rate in bytes per second; at the bound, the next request gets BUSY."""
        return 0 if self.bucket is None else ceil(self.bucket.used(now_s) / _BURST_S)


class Quotas:
    """Compares what keys have with what they may have."""

    def __init__(self, connections: Callable[[], Mapping[str, int]] = dict) -> None:
        """Nothing is counted yet.

        Args:
            connections: how many each key has that has a bound, by name.
        """
        self.connections = connections
        self._running: dict[str, _Running] = {}  # by name: keys of one name share their quotas
        self._has_begun = False
        self._now_s = 0.0  # of the newest request

    def begin(self, state: State) -> None:
        """Count the groups of a store: each for the key of the member that was in it first."""
        if self._has_begun:
            return
        self._has_begun = True
        for topic_id, groups in state.part(GroupIndex).of.items():
            for name, group in groups.items():
                member = next(iter(group.members), None)
                key = member and state.part(Accounts).key_of("subscriber", member)
                if key:
                    one = (topic_id, subscription_of_group(name))
                    self._running.setdefault(key, _Running()).groups.add(one)

    def uses(
        self, state: State, name: str, rights: Rights
    ) -> Generator[None, None, dict[Quota, int]]:
        """What a key uses of each quota but connections; yields after each piece of the count."""
        account = state.part(Accounts).of.get(name, _NOTHING)
        running = self._running.get(name) or _Running()
        subscriptions = yield from _subscriptions(state, account, running)
        found: dict[Quota, int] = {
            "clients_max": len(account.ids),
            "topics_max": len(account.topics),
            "subscriptions_max": subscriptions,
            "staged_bytes_max": running.staged_bytes(state),
            "stored_bytes_max": account.stored_bytes,
        }
        if rights.bytes_per_s_max is not UNSET:
            found["bytes_per_s_max"] = running.pace(max(self._now_s, state.leases.now_s))
        return found

    def judged(
        self, state: State, request: AnyRequest, decision: Decision, sender: Sender
    ) -> Decision:
        """A decision, which makes records, with what it charges to its key; or its refusal.

        Returns:
            LIMIT, if waiting does not help; FULL, if all keys together have too much stored; BUSY,
            if bytes came too fast.
        """
        client, role, self._now_s = sender.client, sender.role, sender.now_s
        full = _beyond_all(state, request, decision)
        if full is not None or client is None:
            return full or decision
        if client.rights.has_quotas:
            running = self._running.setdefault(client.name, _Running())
            refused = self._refused(state, request, decision, client, role, running)
            if refused is not None:
                return refused
            if any(isinstance(made, Staged) for made in decision.records):
                running.staging.add(request.client)
                if len(running.staging) > 2 * state.part(Staging).transactions + 1:
                    running.staging.intersection_update(state.part(Staging).clients)
            begun = (
                (made.topic_id, made.subscriber)
                for made in decision.records
                if isinstance(made, GroupChanged) and made.begins
            )
            running.has_begun(state, begun)
        charges = tuple(_charges(state, (role, request.client), decision, client.name))
        return replace(decision, records=decision.records + charges) if charges else decision

    def _refused(
        self,
        state: State,
        request: AnyRequest,
        decision: Decision,
        client: KnownKey,
        role: Role,
        running: _Running,
    ) -> Decision | None:
        account = state.part(Accounts).of.get(client.name, _NOTHING)
        one = (role, request.client)
        stored_bytes = _stored_bytes(decision)
        subscriptions = _subscriptions_begun(state, request, decision)
        owner = state.part(Accounts).key_of(*one)
        # An id that was charged to another key brings all that it has. One that was charged to none
        # is older than the rights of this proxy, and keeps what it has.
        takes_over = owner not in (None, client.name) and any(map(_holds_an_id, decision.records))
        if takes_over or (stored_bytes and owner is None):
            stored_bytes += state.part(Accounts).stored_under(*one)
        if takes_over and role == "subscriber":
            subscriptions += len(state.subscribed.get(request.client, ()))
        more: dict[_Counted, int] = {
            "clients_max": takes_over or (one not in account.ids and one not in state.sessions),
            "topics_max": len(set(_topics_made(state, decision))),
            "subscriptions_max": subscriptions,
            "staged_bytes_max": sum(
                held_bytes(staged) for staged in decision.records if isinstance(staged, Staged)
            ),
            "stored_bytes_max": stored_bytes,
        }
        for quota, count in more.items():
            most = getattr(client.rights, quota)
            if count and most is not UNSET:
                used = _used(state, account, running, quota)
                if quota == "stored_bytes_max" and used + count > most:
                    used -= _bytes_going(state, decision, client.name)
                if used + count > most:
                    return _beyond(state, request, client.name, quota, used, most)
        return self._paced(state, request, client, running, _body_bytes(request, decision))

    def _paced(
        self,
        state: State,
        request: AnyRequest,
        client: KnownKey,
        running: _Running,
        body_bytes: int,
    ) -> Decision | None:
        """BUSY while the key sends bytes too fast; else count those of the request."""
        rate = client.rights.bytes_per_s_max
        if rate is UNSET or not body_bytes:
            return None
        if running.bucket is None or running.bytes_per_s != rate:
            running.bytes_per_s = rate
            running.bucket = Bucket(_BURST_S * rate, rate, self._now_s)
        if running.bucket.left(self._now_s) > 0:
            running.bucket.take(body_bytes, self._now_s)
            return None
        text = (
            f"the key {client.name!r} sends more than {rate:,} bytes a second (bytes_per_s_max of "
            "its entry in rights.yaml); nothing was changed, ask again later"
        )
        return Decision(Busy(**echo(state, request), text=text))


def _body_bytes(request: AnyRequest, decision: Decision) -> int:
    """Bytes of the bodies in a request; those that a COMMIT appends came with STAGE."""
    if isinstance(request, Commit):
        return 0
    staged = (len(made.body) for made in decision.records if isinstance(made, Staged))
    return _stored_bytes(decision) + sum(staged)


def _stored_bytes(decision: Decision) -> int:
    """Bytes of the bodies that a decision stores."""
    batches = (made.batch for made in decision.records)
    return sum(len(batch.body) for batch in batches if batch is not None)


def _bytes_going(state: State, decision: Decision, key: str | None = None) -> int:
    """Bytes that a decision removes to make room.

    Args:
        key: the name of the key to which they are charged; None: all.
    """
    count = 0
    for made in decision.records:
        if isinstance(made, Trimmed):
            log = state.topic_by_id[made.topic_id]
            for publisher, size_bytes in log.bytes_below(made.start, made.cut_bytes).items():
                if key is None or state.part(Accounts).key_of(log.put_by, publisher) == key:
                    count += size_bytes
    return count


def _topics_made(state: State, decision: Decision) -> Iterator[str]:
    """The topics that a decision creates, also again after they were deleted."""
    for made in decision.records:
        if isinstance(made, TopicCreated):
            yield made.topic
        elif isinstance(made, TopicDeleted) and made.is_back:
            yield state.topic_by_id[made.topic_id].topic


def _charges(state: State, one: _Id, decision: Decision, key: str) -> Iterator[Charged]:
    """The records that charge to a key what a decision creates."""
    for topic in _topics_made(state, decision):
        yield Charged("topic", topic, key)
    if state.part(Accounts).key_of(*one) != key and any(map(_holds_an_id, decision.records)):
        yield Charged(*one, key)


def _holds_an_id(made: Record) -> bool:
    """Whether a record begins a session of the sender, or stores under its id."""
    return isinstance(made, Granted) or made.batch is not None


def _subscriptions_begun(state: State, request: AnyRequest, decision: Decision) -> int:
    """Those of the sender: a topic that it makes may begin subscriptions by pattern of others."""
    return sum(
        made.topic_id not in state.subscribed.get(made.subscriber, ())
        for made in decision.records
        if (isinstance(made, Subscribed) and made.subscriber == request.client)
        or (isinstance(made, GroupChanged) and made.begins)
    )


def _subscriptions(state: State, account: Account, running: _Running) -> Generator[None, None, int]:
    """How many subscriptions and groups a key has; yields after each piece."""
    count = running.still_in_groups(state)
    for number, (role, name) in enumerate(tuple(account.ids), 1):
        if role == "subscriber":
            count += len(state.subscribed.get(name, ()))
        if number % PIECE_IDS == 0:
            yield
    return count


def counted_at_once(pieces: Generator[None, None, T]) -> T:
    """The result of a count, made in one go."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            result: T = end.value
            return result


def _used(state: State, account: Account, running: _Running, quota: _Counted) -> int:
    """How much of a quota is used."""
    if quota == "stored_bytes_max":
        return account.stored_bytes
    if quota == "topics_max":
        return len(account.topics)
    if quota == "subscriptions_max":
        return counted_at_once(_subscriptions(state, account, running))
    if quota == "staged_bytes_max":
        return running.staged_bytes(state)
    return len(account.ids)


def _beyond(
    state: State, request: AnyRequest, name: str, quota: _Counted, used: int, most: int
) -> Decision:
    what, remedy = _WORDS[quota]
    text = (
        f"the key {name!r} has {used:,} {what}, and may have {most:,} ({quota} of its entry in "
        f"rights.yaml); nothing was changed. {remedy}, or ask the operator of the proxy for more "
        "(docs/how-to/security.md)"
    )
    return Decision(Limit(**echo(state, request), limit=most, text=text))


def _beyond_all(state: State, request: AnyRequest, decision: Decision) -> Decision | None:
    """FULL, if all keys together have as many bytes stored as the proxy may hold."""
    most, used = state.settings.stored_bytes_max, state.part(Accounts).stored_bytes
    more = _stored_bytes(decision) if used + TRANSACTION_BYTES_MAX > most else 0
    if not more or used + more - _bytes_going(state, decision) <= most:
        return None
    text = (
        f"this proxy holds {used:,} of {most:,} bytes of messages (stored_bytes_max, a setting of "
        "its file); nothing was changed. Let subscribers acknowledge, keep less history "
        "(history_bytes, history_s), delete topics that are not needed, or raise it"
    )
    return Decision(Full(**echo(state, request), text=text))
