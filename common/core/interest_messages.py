"""SUBSCRIPTIONS: who would get messages of which topics, page by page."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from .message_base import Natural, QoS, Reply, Request
from .patterns.pattern import Pattern


class SubscriptionPlace(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A place in the order of the rows: by topic or pattern, and there by group."""

    match: Pattern
    group: str | None = None  # after this group; nil: after all that is subscribed to `match`


class SubscriptionRow(Struct, frozen=True, array_like=True):
    """What is subscribed to one topic, or by one pattern, as one group or as none."""

    match: Pattern  # of the kind exact: a topic
    group: str  # "": subscribers without a group
    qos: QoS  # the highest that is asked for
    subscribers: int  # of a group: its members; with 0 its messages wait for the next one


class Subscriptions(Request, frozen=True, kw_only=True, tag="SUBSCRIPTIONS"):
    """Ask for one page of what is subscribed to topics; needs no session.

    Answered by SUBSCRIPTIONS_REPORT or MALFORMED (the pattern cannot be read). With rights, what
    the key may put to is shown.
    """

    match: Pattern  # which topics; subscriptions by pattern are shown if they may share a topic
    after: SubscriptionPlace | UnsetType = UNSET  # from the page before; absent: the first page
    boot: str = ""  # of the answer that `known` is from
    known: Natural = 0  # `version` of an earlier first page: has it changed?


class SubscriptionsReport(Reply, frozen=True, kw_only=True, tag="SUBSCRIPTIONS_REPORT"):
    """One page; each row was true, and durable, as the page was made."""

    version: int  # grows with each change within one start of the proxy, perhaps without one
    unchanged: bool = False  # it is still the known version; the other fields are empty
    rows: tuple[SubscriptionRow, ...] = ()  # a page may have none, and yet not be the last
    next: SubscriptionPlace | UnsetType = UNSET  # ask again with `after`; absent: the last page
