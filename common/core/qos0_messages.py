"""RING and LISTENERS: what subscribers and publishers ask about messages at QoS 0."""

from __future__ import annotations

from .limits import BODY_BYTES_MAX
from .message_base import (
    BytesMax,
    Count,
    Natural,
    Positive,
    Reply,
    Request,
    TopicField,
)


class Ring(Request, frozen=True, kw_only=True, tag="RING"):
    """Read the QoS 0 messages in the ring of a topic. No cursor is moved.

    Answered by MESSAGE, NO_MESSAGES_YET, NOT_SUB, STALE or FENCED.
    """

    topic: TopicField
    generation: Positive
    boot: str  # places in the ring are valid during one start of the proxy
    place: Natural  # the next place wanted
    messages_max: Count = 1
    bytes_max: BytesMax = BODY_BYTES_MAX


class Listeners(Request, frozen=True, kw_only=True, tag="LISTENERS"):
    """Ask for the listeners of a topic; needs no session. Answered by LISTENERS_REPORT."""

    topic: TopicField


class ListenersReport(Reply, frozen=True, kw_only=True, tag="LISTENERS_REPORT"):
    """The listeners of a topic."""

    topic: str
    subscriptions: int  # active ones, including those of relays
    pushed: bool = False  # whether the push tree wants it; filled in by the server
    ingress_endpoint: str = ""  # where QoS 0 messages are sent; filled in by the server
