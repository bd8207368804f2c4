"""MATCH and FETCH: a subscription by pattern, and reading all of its topics with one request."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from .limits import BODY_BYTES_MAX, FETCH_TOPICS_MAX, WAIT_MS_MAX
from .message_base import (
    BatchHeader,
    BytesMax,
    Count,
    Natural,
    Positive,
    Reply,
    Request,
    Start,
    Terms,
    TopicField,
)
from .patterns.pattern import Pattern


class Match(Request, frozen=True, kw_only=True, tag="MATCH"):
    """Subscribe to every topic that a pattern matches, now and later: idempotent.

    Answered by MATCHED, STALE, FENCED, LIMIT, TRUNCATED, OUT_OF_RANGE, MALFORMED or STORAGE_FULL.

    Each topic is an ordinary subscription of the sender, with the terms of the pattern. One that
    the sender has already stays as it is, unless its session is clean. A later topic is subscribed
    to as it is created, so that its first message is included. Topics that the key may not read are
    not matched.
    """

    match: Pattern
    control: Positive  # numbers MATCH, SUB and UNSUB within the epoch; a late copy is STALE (R12)
    start: Start | None = None  # of the topics that exist now; None: after the newest message
    seeks: bool | UnsetType = UNSET  # True: also move the subscriptions that exist to `start`
    terms: Terms = Terms()  # of the subscriptions; a clean session begins them again
    ends: bool = False  # end the pattern, and the subscriptions that no other one of the sender has


class Told(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The cursor of one topic, as in GET."""

    topic: TopicField
    generation: Positive
    cursor: Natural


class RingPlace(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A place among the batches at QoS 0 of all topics, within one start of the proxy."""

    boot: str
    number: Natural  # of the next batch wanted


class Fetch(Request, frozen=True, kw_only=True, tag="FETCH"):
    """Several GETs in one: acknowledge cursors, and read topics of a pattern that have messages.

    Answered by FETCHED, NOT_SUB or FENCED.
    """

    match: Pattern
    boot: str  # of the proxy that gave the generations in `told`
    told: Annotated[tuple[Told, ...], Meta(max_length=FETCH_TOPICS_MAX)] = ()
    messages_max: Count = 1  # of all topics together
    bytes_max: BytesMax = BODY_BYTES_MAX
    wait_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)] | UnsetType = UNSET  # as in GET
    # Also read what was put at QoS 0 from here on; of another start of the proxy: all that is held.
    ring: RingPlace | UnsetType = UNSET


class Matched(Reply, frozen=True, kw_only=True, tag="MATCHED"):
    """The pattern is subscribed to, or has ended."""

    topics: int  # that it matches now, or that have ended with it
    already: bool  # it was there; if it was to end: there was none
    ring: int = 0  # number of the next batch at QoS 0


class FetchedTopic(Struct, frozen=True, array_like=True):
    """What one topic has at the cursor of the sender."""

    topic: str
    generation: int
    log: str
    cursor: int  # as the proxy knows it
    shown: int  # messages below it were sent before
    batches: tuple[BatchHeader, ...]  # from the cursor on; none: ask by SUB or GET
    end: int  # durable end of the topic
    ring: int = 0  # the next place in its ring
    terms: Terms | None = None  # if they are not those of the pattern


class UnstoredBatch(Struct, frozen=True, array_like=True):
    """A batch that was put at QoS 0."""

    topic: str
    batch: BatchHeader  # its base is its place in the ring of the topic


class Fetched(Reply, frozen=True, kw_only=True, tag="FETCHED"):
    """Batches of several topics; the body frame is their bodies, in this order.

    A topic without batches has an answer that only its own GET gets, such as LOST.
    """

    topics: tuple[FetchedTopic, ...] = ()
    unstored: tuple[UnstoredBatch, ...] = ()  # their bodies come last
    ring: int = 0  # number of the next batch at QoS 0 that is not in this answer
