"""Quotas: how much the clients of one key may have. Pure.

A decision says by its records what it would make: a client id, topics, a subscription, a staged
batch. Before they are applied they are compared with the quotas of the key that asked; beyond one
of them the answer is LIMIT, or BUSY if only the bytes came too fast, and there are no records.

What is counted is what the proxy holds now under the ids that the key has used since its start. No
record says which key made a topic or an id, so after a restart an id counts again when it is used,
and topics that were made before do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import UNSET, Struct, field

from reliable_pubsub.common.core.messages import (
    AnyRequest,
    Busy,
    Commit,
    Limit,
    Role,
)
from reliable_pubsub.common.core.rights import Client
from reliable_pubsub.relay.core.allowance import Bucket

from .broker import belongs
from .records import Appended, DeadLettered, Decision, Staged, Subscribed, TopicCreated
from .replies import echo
from .staging import held_bytes
from .state import State

_WORDS: Final[Mapping[_Counted, tuple[str, str]]] = {
    "clients_max": ("client ids", "Use the same ids again"),
    "topics_max": ("topics that it has made since the proxy started", "Use fewer names"),
    "subscriptions_max": (
        "subscriptions that have not ended",
        "Unsubscribe those that are gone, each under its id",
    ),
    "staged_bytes_max": (
        "bytes staged",
        "Commit or abort a transaction, and make smaller ones",
    ),
}
_BURST_S: Final = 2  # so many seconds of `bytes_per_s_max` may come at once
_Counted = Literal["clients_max", "topics_max", "subscriptions_max", "staged_bytes_max"]
_Id = tuple[Role, str]


class _Account(Struct):
    """What a key has used since the start; some of it may have ended."""

    ids: set[_Id] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    bytes_per_s: int = 0  # that `bucket` is for
    bucket: Bucket | None = None


class Quotas:
    """Compares what keys have with what they may have."""

    def __init__(self) -> None:
        """No key has anything."""
        self._accounts: dict[str, _Account] = {}  # by name: keys of one name share their quotas
        self._client: Client | None = None  # whose request is decided next
        self._now_s = 0.0

    def count_for(self, client: Client | None, now_s: float) -> None:
        """The decision that is judged next counts for this key; None: for no key.

        Args:
            now_s: monotonic clock.
        """
        self._client, self._now_s = client, now_s

    def judged(self, state: State, request: AnyRequest, decision: Decision) -> Decision:
        """A decision, or the refusal of what is more than the quotas of its key allow.

        Returns:
            LIMIT, if waiting does not help; BUSY, if its bytes came too fast.
        """
        client, self._client = self._client, None
        if client is None or client.rights is None or not decision.records:
            return decision
        account = self._accounts.setdefault(client.name, _Account())
        role: Role = "publisher" if belongs(request, "publisher") else "subscriber"
        one = (role, request.client)
        topics = {made.topic for made in decision.records if isinstance(made, TopicCreated)}
        more: dict[_Counted, int] = {
            "clients_max": one not in account.ids and one not in state.sessions,
            "topics_max": len(topics),
            "subscriptions_max": _subscriptions_begun(state, decision),
            "staged_bytes_max": sum(
                held_bytes(staged) for staged in decision.records if isinstance(staged, Staged)
            ),
        }
        for quota, count in more.items():
            most = getattr(client.rights, quota)
            if count and most is not UNSET:
                used = _used(state, account, quota, most - count)
                if used + count > most:
                    return _beyond(state, request, client.name, quota, used, most)
        busy = self._paced(state, request, client, account, _body_bytes(request, decision))
        if busy is not None:
            return busy
        account.ids.add(one)
        account.topics |= topics
        return decision

    def _paced(
        self,
        state: State,
        request: AnyRequest,
        client: Client,
        account: _Account,
        body_bytes: int,
    ) -> Decision | None:
        """BUSY while more bytes have come than the key may send; else take those of a request."""
        rate = client.rights.bytes_per_s_max if client.rights is not None else UNSET
        if rate is UNSET or not body_bytes:
            return None
        if account.bucket is None or account.bytes_per_s != rate:
            account.bytes_per_s = rate
            account.bucket = Bucket(_BURST_S * rate, rate, self._now_s)
        if account.bucket.left(self._now_s) > 0:
            account.bucket.take(body_bytes, self._now_s)
            return None
        text = (
            f"the key {client.name!r} sends more than {rate:,} bytes a second (bytes_per_s_max of "
            "its entry in rights.yaml); nothing was changed, ask again later"
        )
        return Decision(Busy(**echo(state, request), text=text))


def _body_bytes(request: AnyRequest, decision: Decision) -> int:
    """Bytes of the body that came with a request; what a COMMIT appends has come before."""
    if isinstance(request, Commit):
        return 0
    bodies = (
        made.letter.body if isinstance(made, DeadLettered) else made.body
        for made in decision.records
        if isinstance(made, Appended | Staged | DeadLettered)
    )
    return sum(map(len, bodies))


def _subscriptions_begun(state: State, decision: Decision) -> int:
    return sum(
        made.topic_id not in state.subscribed.get(made.subscriber, ())
        for made in decision.records
        if isinstance(made, Subscribed)
    )


def _used(state: State, account: _Account, quota: _Counted, enough: int) -> int:
    """How much of a quota is used; what has ended is left out once more than enough is."""
    if quota == "subscriptions_max":
        names = [name for role, name in account.ids if role == "subscriber"]
        return sum(len(state.subscribed.get(name, ())) for name in names)
    if quota == "staged_bytes_max":
        names = [name for role, name in account.ids if role == "publisher"]
        return sum(map(state.staging.bytes_of, names))
    if quota == "topics_max":
        if len(account.topics) > enough:  # the records that made some may have been discarded
            account.topics &= state.topics.keys()
        return len(account.topics)
    if len(account.ids) > enough:
        account.ids = {one for one in account.ids if _is_in_use(state, one)}
    return len(account.ids)


def _is_in_use(state: State, one: _Id) -> bool:
    role, name = one
    return one in state.sessions or (role == "publisher" and state.staging.bytes_of(name) > 0)


def _beyond(
    state: State, request: AnyRequest, name: str, quota: _Counted, used: int, most: int
) -> Decision:
    what, remedy = _WORDS[quota]
    text = (
        f"the key {name!r} has {used:,} {what}, and may have {most:,} ({quota} of its entry in "
        f"rights.yaml); nothing was changed. {remedy}, or ask the operator of the proxy for more "
        "(docs/security.md)"
    )
    return Decision(Limit(**echo(state, request), limit=most, text=text))
