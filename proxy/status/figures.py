"""The figures of a proxy at one scrape: what metrics are made of. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args

from msgspec import Struct, UnsetType

from reliable_pubsub.common.core.answers import AnyReply, Refusal
from reliable_pubsub.common.core.limits import HELD_REQUESTS_MAX, WAITING_GETS_MAX
from reliable_pubsub.common.core.message_base import Promise
from reliable_pubsub.common.core.status import ConnectionsStatus, IngressStatus, PushStatus

from ..access.accounts import Accounts
from ..core.counts import name_of
from ..core.engine import UNWRITTEN_BYTES_MAX, Engine
from ..transactions.staging import Staging
from .survey import Survey

BOUNDS: Final = (  # the values of the label `bound`
    *("topics", "clients", "stored_bytes", "staged_bytes", "store_log_bytes", "topic_bytes"),
    *("subscriptions_per_topic", "publishers_per_topic", "waiting_messages"),
    *("held_answers", "unwritten_bytes", "waiting_gets", "connections"),
)
# All of them from the start: of a series that begins with 1, Prometheus sees no increase.
REFUSALS: Final = tuple(kind for kind in get_args(AnyReply) if issubclass(kind, Refusal))


class Histogram(Struct, frozen=True):
    """How long something took."""

    bounds_s: tuple[float, ...]
    counts: tuple[int, ...]  # each up to its bound; the last one: above all
    sum_s: float


class Figures(Struct, frozen=True, kw_only=True):
    """What one proxy does and holds."""

    durability: Promise
    survey: Survey
    requests: Mapping[str, int]  # by verb
    refusals: Mapping[str, int]  # by code
    malformed: int
    received_bytes: int
    sent_bytes: int
    sent_messages: int
    clients: int
    held_answers: int  # that wait for the disk
    oldest_answer_s: float  # how long the first of them has waited
    queued_records: int
    unwritten_bytes: int
    waiting_gets: int
    staged_bytes: int
    storage_full: bool
    clock_steps: int
    timestamps_ahead_s: float
    wal_held_bytes: int  # of the store's WAL, while another program holds it
    commits: Histogram
    committed_records: int
    push: PushStatus
    ingress: IngressStatus
    connections: ConnectionsStatus | UnsetType  # unset: the system does not count them
    standbys: int | None  # proxies that stand by; None: this store has none
    bounds: Mapping[str, float]  # by name: the share of it that is used


def figures_of(
    engine: Engine,
    survey: Survey,
    *,
    now_s: float,
    commits: Histogram,
    committed_records: int,
    wal_held_bytes: int,
    wal_bytes_max: int,
    push: PushStatus,
    ingress: IngressStatus,
    connections: ConnectionsStatus | UnsetType,
    standbys: int | None,
) -> Figures:
    """Collect the figures; the cost does not depend on what the proxy holds.

    Args:
        now_s: monotonic clock.
    """
    state, counts, answers = engine.state, engine.counts, engine.held
    settings = state.settings
    shares = (
        len(state.topics) / settings.topics_max,
        len(state.sessions) / settings.clients_max,
        state.part(Accounts).stored_bytes / settings.stored_bytes_max,
        state.part(Staging).held_bytes / settings.staged_bytes_max,
        wal_held_bytes / wal_bytes_max,
        survey.topic_bytes,
        survey.topic_subscriptions,
        survey.topic_publishers,
        survey.waiting_messages,
        len(answers) / HELD_REQUESTS_MAX,
        engine.unwritten_bytes / UNWRITTEN_BYTES_MAX,
        len(engine.waiting) / WAITING_GETS_MAX,
        connections.used if isinstance(connections, ConnectionsStatus) else 0.0,
    )
    return Figures(
        durability=state.durability,
        survey=survey,
        requests={name_of(kind): counts.requests[kind] for kind in engine.tables.verbs},
        refusals={name_of(kind): counts.refusals[kind] for kind in REFUSALS},
        malformed=engine.malformed_count,
        received_bytes=counts.received_bytes,
        sent_bytes=counts.sent_bytes,
        sent_messages=counts.sent_messages,
        clients=len(state.sessions),
        held_answers=len(answers),
        oldest_answer_s=max(now_s - answers[0].since_s, 0.0) if answers else 0.0,
        queued_records=state.lsn - state.durable_lsn,
        unwritten_bytes=engine.unwritten_bytes,
        waiting_gets=len(engine.waiting),
        staged_bytes=state.part(Staging).held_bytes,
        storage_full=state.is_storage_full,
        clock_steps=engine.local.steps,
        timestamps_ahead_s=engine.local.ahead_s,
        wal_held_bytes=wal_held_bytes,
        commits=commits,
        committed_records=committed_records,
        push=push,
        ingress=ingress,
        connections=connections,
        standbys=standbys,
        bounds=dict(zip(BOUNDS, shares, strict=True)),
    )
