"""The messages between two nodes of the tree; docs/internals/protocol.md has their wire form.

A node asks, the node above it answers, as with every request. The whole set is sent each time, or
only its digest, so that a copy, a loss or another order of these messages has no effect.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from .answers import Refusal
from .limits import INTEREST_PATTERNS_MAX, LINK_BYTES, RELAYS_BELOW_MAX
from .message_base import ClientField, Natural, Reply, Request
from .patterns.pattern import Pattern
from .status import ConnectionsStatus

LinkId = Annotated[bytes, Meta(min_length=LINK_BYTES, max_length=LINK_BYTES)]
DIGEST_BYTES = 32


class InterestRequest(Request, frozen=True, kw_only=True, tag="INTEREST"):
    """This link wants these patterns and nothing else; or, without them, still the same.

    Answered by INTEREST_ACK, LOOP, LIMIT or MALFORMED. Needs no session (`epoch` is ignored).
    """

    link: LinkId  # random, made with each link; its data socket is subscribed to `00 link`
    version: Natural  # of the set: 1, 2, 3, ...; an older one has no effect
    digest: Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
    patterns: Annotated[tuple[Pattern, ...], Meta(max_length=INTEREST_PATTERNS_MAX)] | None = None
    below: Annotated[tuple[ClientField, ...], Meta(max_length=RELAYS_BELOW_MAX)] = ()


class InterestAck(Reply, frozen=True, kw_only=True, tag="INTEREST_ACK"):
    """What the node above has of this link."""

    version: int  # 0: it knows nothing of the link
    wanted: bool  # the whole set is to be sent again: it is unknown, or its digest differs
    applied: int  # the version by which data is sent; 0: the data socket is not known yet
    lease_s: float  # after this long without a message, the link is forgotten
    push_endpoint: str  # where the data socket connects
    is_full: bool = False  # the set is above the cap: everything is sent
    unknown_kinds: tuple[str, ...] = ()  # some kinds not known here: everything is sent


class Loop(Refusal, frozen=True, kw_only=True, tag="LOOP"):
    """The node above is itself below: data would circulate forever. Nothing was changed."""


class Node(Request, frozen=True, kw_only=True, tag="NODE"):
    """Ask a node of the tree for itself and its neighbours. Answered by NODE_REPORT."""


class AboveStatus(Struct, frozen=True, kw_only=True):
    """A node that this one gets data from."""

    endpoint: str
    settled: bool  # it has our newest set and sends data by it
    refused: str = ""  # why not, in its words
    is_full: bool = False  # it sends everything
    said: int = 0  # messages about interest, so far


class BelowStatus(Struct, frozen=True, kw_only=True):
    """A link that this node sends data to."""

    client: str
    patterns: int
    is_full: bool  # above the cap: everything is sent
    is_relay: bool = False  # it has links below itself
    wants: tuple[str, ...] = ()  # the first of its patterns, in words


class NodeReport(Reply, frozen=True, kw_only=True, tag="NODE_REPORT"):
    """One node, as it sees itself."""

    node: str
    push_endpoint: str
    strategy: str
    above: tuple[AboveStatus, ...]
    below: tuple[BelowStatus, ...]
    below_left_out: int  # above the rows of one report
    plain: int  # prefixes that plain ZeroMQ subscribers want
    patterns: int  # asked for above
    is_full: bool  # above our cap: everything is asked for
    unknown_kinds: tuple[str, ...]  # some of them
    received: int  # data messages from above
    sent_singly: int  # copies for one link alone
    malformed: int  # data messages that are no push frame; passed on by prefix
    from_cache: int  # requests answered here
    shared: int  # requests that waited for another one's answer
    passed: int  # requests passed on
    dropped: int  # requests dropped, because no answer came or too many waited
    connections: ConnectionsStatus | UnsetType = UNSET  # filled in by the server
    why_dead: str | UnsetType = UNSET  # as in STATUS_REPORT


AnyInterestReply = InterestAck | Loop | NodeReport
