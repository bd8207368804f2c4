"""STATUS and CLIENTS: what a proxy reports about itself."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from .limits import STATUS_ROWS_MAX, STATUS_TOPICS_MAX
from .message_base import GroupTerms, Reply, Request, Role, Terms
from .rights import Quota

SubscriptionState = Literal["active", "suspended", "expired"]
EntranceBound = Literal["connections_max", "connections_per_s_max"]
LEASES_TO_EXPIRY: Final = 2  # of silence, after which a subscription expires (rule R17)


class SubscriptionStatus(Struct, frozen=True, kw_only=True):
    """One subscription, as STATUS shows it."""

    subscriber: str
    generation: int
    terms: Terms
    state: SubscriptionState
    silent_s: float  # since its last request, or since the start of the proxy
    cursor: int
    lag_messages: int
    lag_s: float  # age of the oldest message not yet acknowledged; 0 if there is none
    lost: int | UnsetType = UNSET  # QoS 0 messages that it read too late; unset: none

    @property
    def lease_left_s(self) -> float | None:
        """Seconds until it expires unless its subscriber is heard; None: it has no lease."""
        if not self.terms.lease_ms or self.state == "expired":
            return None
        return max(LEASES_TO_EXPIRY * self.terms.lease_ms / 1000 - self.silent_s, 0.0)


class GroupStatus(Struct, frozen=True, kw_only=True):
    """One group, as STATUS shows it."""

    group: str
    generation: int
    terms: GroupTerms
    state: SubscriptionState
    members: int  # that have joined and not left
    cursor: int  # every message below it has ended
    held: int  # messages in the hands of members
    held_by: int  # members
    waiting: int  # messages that have not ended and are not held
    redelivering: int  # of these, were delivered before
    lag_s: float  # age of the oldest message that has not ended; 0 if there is none


class PublisherStatus(Struct, frozen=True, kw_only=True):
    """One publisher of a topic at one level, as STATUS shows it."""

    publisher: str
    qos: int
    last_sequence: int
    last_offset: int


class RingStatus(Struct, frozen=True, kw_only=True):
    """The QoS 0 messages of a topic since the start of the proxy, as STATUS shows them."""

    end: int  # messages, so far
    held: int  # of them are still in the ring
    held_bytes: int


class TopicStatus(Struct, frozen=True, kw_only=True):
    """One topic, as STATUS shows it."""

    topic: str
    log: str
    start: int
    end: int  # durable
    stored_bytes: int  # bodies
    subscriptions: tuple[SubscriptionStatus, ...]
    subscriptions_left_out: int  # above the rows of one page
    publishers: tuple[PublisherStatus, ...]
    publishers_left_out: int
    ring: RingStatus | UnsetType = UNSET  # unset: nothing was put at QoS 0
    groups: tuple[GroupStatus, ...] | UnsetType = UNSET  # unset: none
    groups_left_out: int | UnsetType = UNSET  # unset: none


class CommitterStatus(Struct, frozen=True, kw_only=True):
    """The writing thread, as STATUS shows it."""

    queued_records: int
    commits: int
    records: int
    last_commit_ms: float
    storage_full: bool
    log_held_bytes: int | UnsetType = UNSET  # of the store's WAL, while another program holds it


class PushStatus(Struct, frozen=True, kw_only=True):
    """The push endpoint, as STATUS shows it."""

    endpoint: str
    links: int  # nodes below: relays and subscribers
    plain: int  # prefixes that plain ZeroMQ subscribers want
    sent: int  # batches
    dropped: int  # wanted batches that did not fit in the queue
    queued: int  # batches


class StagingStatus(Struct, frozen=True, kw_only=True):
    """Transactions that are not committed, as STATUS shows them."""

    transactions: int
    batches: int
    staged_bytes: int
    writers: int  # publishers that have committed a transaction


class TopicKept(Struct, frozen=True, kw_only=True):
    """How many bytes of acknowledged messages a topic with its own settings keeps."""

    topic: str
    history_bytes: int


class KeptStatus(Struct, frozen=True, kw_only=True):
    """How many bytes of acknowledged messages topics keep, as STATUS shows it."""

    history_bytes: int
    topics: tuple[TopicKept, ...] = ()  # those with settings of their own


class IngressStatus(Struct, frozen=True, kw_only=True):
    """The endpoint that receives QoS 0 messages, as STATUS shows it."""

    endpoint: str
    patterns: int  # announced to publishers
    taken: int  # batches
    unwanted: int  # batches without a listener when they arrived
    refused: int  # batches that are malformed, or of a fenced process


class ConnectionsStatus(Struct, frozen=True, kw_only=True):
    """The connections of all endpoints of a process, as STATUS and NODE_REPORT show them."""

    connections: int  # now, those that say nothing included
    connections_max: int
    connections_per_s_max: int
    came: int  # that came in, since the start
    kept_out: int  # that were ended as they came or not answered, repeated ones included
    closed_s: float  # that connections were kept out, since the start
    closed_by: EntranceBound | UnsetType = UNSET  # unset: none were in the last 10 s
    since_s: float | UnsetType = UNSET  # how long ago that began
    unknown_keys: int = 0  # connections refused because of their key
    failed_handshakes: int = 0  # others: without a key where one is needed, or no ZMTP 3
    is_memory_bounded: bool = True  # False: the system does not count what a connection sends

    @property
    def used(self) -> float:
        """Share of the bound that is used."""
        return self.connections / self.connections_max

    @property
    def text(self) -> str:
        """What came, in words."""
        return (
            f"{self.connections:,} of {self.connections_max:,}, {self.came:,} came; of more than "
            f"{self.connections_per_s_max:,} a second some are kept out"
            + f"; {self.unknown_keys:,} had unknown keys" * (self.unknown_keys > 0)
            + "; memory of one connection: NOT BOUNDED HERE" * (not self.is_memory_bounded)
        )

    @property
    def warning(self) -> str:
        """Since when connections are kept out, and why; "": they are not."""
        if not isinstance(self.since_s, float):
            return ""
        return (
            f"CONNECTIONS ARE KEPT OUT, since {self.since_s:,.0f} s ({self.closed_by}); "
            f"{self.kept_out:,} were kept out (docs/how-to/operating.md)"
        )


class ClientStatus(Struct, frozen=True, kw_only=True):
    """One client id, as CLIENTS shows it."""

    client: str
    role: Role
    epoch: int
    subscriptions: int  # that have not ended
    numbered: bool  # a publisher whose numbers are compared


class QuotaUse(Struct, frozen=True, kw_only=True):
    """How much of one quota a key uses, as STATUS shows it."""

    quota: Quota
    used: int  # of bytes_per_s_max: at the bound, the next is BUSY
    most: int | UnsetType = UNSET  # unset: it is not bounded


class AccountStatus(Struct, frozen=True, kw_only=True):
    """What is charged to one key, as STATUS shows it."""

    key: str  # its name; keys of one name share their quotas
    uses: tuple[QuotaUse, ...]  # connections and bytes a second: if they are bounded

    @property
    def noted(self) -> tuple[QuotaUse, ...]:
        """The quotas that are in use or bounded, which people are shown."""
        return tuple(one for one in self.uses if one.used or one.most is not UNSET)

    @property
    def fullest(self) -> float:
        """The largest share of a bound that is used."""
        return max((share for _, share in self.shares), default=0.0)

    @property
    def shares(self) -> tuple[tuple[Quota, float], ...]:
        """The share of each bound that is used; of a bound of 0, nothing can be."""
        return tuple(
            (one.quota, one.used / max(one.most, 1))
            for one in self.uses
            if not isinstance(one.most, UnsetType)
        )


class Status(Request, frozen=True, kw_only=True, tag="STATUS"):
    """Ask for one page of the proxy's state; needs no session. Answered by STATUS_REPORT."""

    after_topic: str = ""  # topics are listed in order; "" is the first page
    topics_max: Annotated[int, Meta(ge=1, le=STATUS_TOPICS_MAX)] = STATUS_TOPICS_MAX
    # Subscriptions of each topic, and publishers; with 0 it costs the proxy next to nothing.
    rows_max: Annotated[int, Meta(ge=0, le=STATUS_ROWS_MAX)] = STATUS_ROWS_MAX


class Clients(Request, frozen=True, kw_only=True, tag="CLIENTS"):
    """Ask for one page of the client ids that the proxy knows; needs no session.

    Answered by CLIENTS_REPORT.
    """

    after_client: str = ""  # ids are listed in order; "" is the first page
    clients_max: Annotated[int, Meta(ge=1, le=STATUS_ROWS_MAX)] = STATUS_ROWS_MAX


class StatusReport(Reply, frozen=True, kw_only=True, tag="STATUS_REPORT"):
    """One page of the proxy's state."""

    topics: tuple[TopicStatus, ...]
    next_topic: str | UnsetType = UNSET  # ask again with `after_topic`; unset: this was the last
    topics_count: int
    sessions_count: int
    dropped_requests: int  # MALFORMED answers since the start
    requests_count: int = 0  # well-formed requests since the start
    committer: CommitterStatus | UnsetType = UNSET  # filled in by the server
    push: PushStatus | UnsetType = UNSET  # filled in by the server
    staging: StagingStatus | UnsetType = UNSET  # unset: there never was a transaction
    ingress: IngressStatus | UnsetType = UNSET  # filled in by the server
    waiting_gets: int | UnsetType = UNSET  # unset: none
    kept: KeptStatus | UnsetType = UNSET  # on the first page
    # The endpoints for requests, filled in by the server: a client of one finds the other.
    publisher_endpoint: str | UnsetType = UNSET
    subscriber_endpoint: str | UnsetType = UNSET
    store_path: str = ""
    standbys: int | UnsetType = UNSET  # proxies that stand by; unset: this store has none
    why_dead: str | UnsetType = UNSET  # why the process needs a restart; unset: it does not
    # On the first page, those nearest to a bound first; unset: no key has any. A key that may not
    # see all topics is shown its own.
    accounts: tuple[AccountStatus, ...] | UnsetType = UNSET
    accounts_left_out: int | UnsetType = UNSET  # above STATUS_ACCOUNTS_MAX; unset: none
    paused: str | UnsetType = UNSET  # the reason why an operator has paused puts; unset: puts go on
    connections: ConnectionsStatus | UnsetType = UNSET  # filled in by the server
    clock_steps: int | UnsetType = (
        UNSET  # how often the clock was set since the start; unset: never
    )
    # By which the newest timestamp is ahead of the proxy's clock; unset: it is not.
    timestamps_ahead_s: float | UnsetType = UNSET


class ClientsReport(Reply, frozen=True, kw_only=True, tag="CLIENTS_REPORT"):
    """One page of the client ids."""

    clients: tuple[ClientStatus, ...]
    next_client: str | UnsetType = UNSET  # ask again with `after_client`; unset: the last page
