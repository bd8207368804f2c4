"""Who may ask for what: rights before a verb, quotas after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub.common.access.core.authorisation import ShownTopics, denied
from reliable_pubsub.common.access.core.needs import Need
from reliable_pubsub.common.core.interest_messages import Subscriptions
from reliable_pubsub.common.core.limits import NUMBER_MAX
from reliable_pubsub.common.core.pattern_messages import Fetch, Match
from reliable_pubsub.common.core.requests import AnyRequest
from reliable_pubsub.common.core.status import Status, StatusReport
from reliable_pubsub.common.core.transaction_messages import Commit
from reliable_pubsub.common.core.tree_messages import InterestRequest, Node

from ..core.broker import without_waiting
from ..core.feature import Arrival, Feature, Runtime, Sender
from ..core.records import Decision
from ..core.state import Hooks, State
from ..core.stored import StoredState
from ..status.interests import subscriptions
from ..status.report import status
from ..transactions.staging import Staging
from .quotas import Quotas
from .records import CHARGE, count_stored, end_charge, ended_charges, restore
from .uses import key_uses, with_uses


def admit(engine: Runtime, request: AnyRequest, arrival: Arrival) -> AnyRequest | None:
    """Refuse what the key may not do; answer what may be shown in part; charge the rest."""
    key, authority = arrival.key, engine.state.authority
    if not authority.has_rights:
        return request
    # Before the endpoint is checked, so that a stolen id is logged whichever it tries.
    if is_denied(engine, request, arrival.reply_to, key):
        return None
    if not arrival.is_here:
        return request
    if (shown := authority.shown(key, request)) is not None:
        part = part_of(engine, request, key, arrival.now_ns, shown)
        engine.answer(arrival.reply_to, part.reply, part.body, part.visible_at, arrival.now_s)
        return None
    engine.sender = Sender(authority.charged(key, request), arrival.role, arrival.now_s)
    if isinstance(request, Match | Fetch):
        request = replace(request, key=authority.keys_of(key, request))
    return request


def is_denied(
    engine: Runtime, request: AnyRequest | InterestRequest | Node, reply_to: Any, key: str
) -> bool:
    """Whether the key lacks a right; if so, answer that."""
    more = needs_of_staged(engine.state, request)
    denial = engine.state.authority.denial(key, request, more)
    if denial is not None:
        engine.outputs.append(denial)
        engine.answer(reply_to, denied(denial, request, boot=engine.state.boot))
    return denial is not None


def judged(engine: Runtime, request: AnyRequest, decision: Decision) -> Decision:
    """Charge what a decision stores to its key, or refuse it."""
    state = engine.state
    if not state.authority.has_rights and state.settings.stored_bytes_max >= NUMBER_MAX:
        return decision
    return state.kept(Quotas).judged(state, request, decision, engine.sender)


def needs_of_staged(state: State, request: AnyRequest | InterestRequest | Node) -> Iterator[Need]:
    """A COMMIT needs the right to put to each topic that it names by its staged batches.

    Another key with the same id may have staged them, and rights may have changed since.
    """
    if not isinstance(request, Commit):
        return
    one = state.part(Staging).of(request.client, request.transaction)
    staged = (batch for part in request.parts for batch in one.batches(part) or ())
    for topic in {batch.topic: None for batch in staged}:
        yield Need("put", topic)


def part_of(
    engine: Runtime, request: AnyRequest, key: str, now_ns: int, shown: ShownTopics
) -> Decision:
    """SUBSCRIPTIONS or a STATUS of what a key may be shown, without figures of the whole proxy."""
    state = engine.state
    if isinstance(request, Subscriptions):
        part = subscriptions(state, request, b"", now_ns, shown)
    else:
        assert isinstance(request, Status)
        report = status(state, request, b"", now_ns, shown).reply
        assert isinstance(report, StatusReport)
        uses = key_uses(state, only=state.authority.name_of(key, request))
        part = Decision(with_uses(request, replace(report, sessions_count=0, staging=UNSET), uses))
    return without_waiting(state, request, part) if engine.disk_hangs else part


def count_groups(state: State, _stored: StoredState) -> None:
    """Count the stored groups, once."""
    state.kept(Quotas).begin(state)


FEATURE: Final = Feature(
    name="access",
    admit=admit,
    judge=judged,
    tables=(CHARGE,),
    due=ended_charges,
    hooks=Hooks(restore=[restore, count_groups], stored=[count_stored], gone=[end_charge]),
)
