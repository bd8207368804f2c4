"""A feed of subscriptions: the pages of the proxy's reports, as changes. Pure.

The proxy is polled; while nothing changes, that is one small request. The last report is kept here,
so a change is found whatever happened between two looks, also a restart of the proxy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.interest_messages import (
    SubscriptionPlace,
    SubscriptionRow,
    Subscriptions,
    SubscriptionsReport,
)
from reliable_pubsub.common.core.message_base import QoS
from reliable_pubsub.common.core.names import ExactTopic
from reliable_pubsub.common.core.patterns.matching import EVERYTHING, canonical
from reliable_pubsub.common.core.patterns.pattern import Pattern, Topics

from ...core.session import PublisherSession

EVERY_S: Final = 1.0  # between two looks
EveryS = Annotated[float, Meta(ge=0.01, le=86_400)]
EVERY_TOPIC: Final = EVERYTHING

Rows = Mapping[tuple[Pattern, str], SubscriptionRow]


class InterestChange(Struct, frozen=True):
    """What is subscribed to one topic or by one pattern has begun, changed or ended."""

    kind: Literal["begins", "changes", "ends"]
    topics: Topics  # one topic; or a pattern, which may be of topics that do not exist yet
    group: str  # "": all subscribers without a group, together
    qos: QoS  # the highest that is asked for; if it ends: that was
    subscribers: int  # of a group: its members; with 0 its messages wait for the next one


def changes(before: Rows, after: Rows) -> Iterator[InterestChange]:
    """The changes from one set of rows to another, in the order of topics and patterns."""
    for place in sorted(before.keys() | after.keys()):
        was, now = before.get(place), after.get(place)
        if now is None:
            yield _change("ends", before[place], subscribers=0)
        elif was is None:
            yield _change("begins", now, now.subscribers)
        elif was != now:
            yield _change("changes", now, now.subscribers)


def _change(
    kind: Literal["begins", "changes", "ends"], row: SubscriptionRow, subscribers: int
) -> InterestChange:
    is_topic = row.match.kind == "exact"
    topics = ExactTopic(row.match.text) if is_topic else row.match
    return InterestChange(kind, topics, row.group, row.qos, subscribers)


class _Seen(Struct, frozen=True):
    """What the last look has found; one value, so that an interrupted look changes nothing."""

    rows: Rows = {}
    boot: str = ""  # of the proxy that it is from
    version: int = 0
    changes: deque[InterestChange] = field(default_factory=deque)  # not taken yet


class InterestWatch:
    """One feed: the last report, and the changes that were not taken from it yet."""

    def __init__(
        self,
        topics: Topics,
        *,
        every_s: float,
        timeout_s: float | None,
        now_s: Callable[[], float],
    ) -> None:
        """Begin with nothing; see `Publisher.interests`.

        Raises:
            InvalidNameError, InvalidPatternError.
        """
        if isinstance(topics, Pattern):
            self.match = canonical(topics)
        else:
            self.match = Pattern("exact", names.exact(topics))
        self._every_s = every_s
        self.timeout_s = float("inf") if timeout_s is None else timeout_s
        self._now_s = now_s
        self._next_look_s = now_s()
        self._seen = _Seen()

    def pauses(self) -> Iterator[float]:
        """The pauses in seconds before each look, until there is a change or the time is over."""
        deadline_s = self._now_s() + self.timeout_s
        while not self._seen.changes:
            yield max(min(self._next_look_s, deadline_s) - self._now_s(), 0.0)
            if self._now_s() >= deadline_s:
                return

    def take(self) -> InterestChange | None:
        """The next change."""
        return self._seen.changes.popleft() if self._seen.changes else None

    def look(self, session: PublisherSession) -> Conversation[None]:
        """Ask the proxy for all pages, and find what is different.

        Raises:
            InDoubtError: no answer; what was told stays, so a later look finds the changes.
        """
        self._next_look_s = self._now_s() + self._every_s
        rows: dict[tuple[Pattern, str], SubscriptionRow] = {}
        first = page = yield from self._page(session, UNSET)
        if first.unchanged:
            return
        rows.update(_by_place(page))
        while page.next is not UNSET:
            page = yield from self._page(session, page.next)
            rows.update(_by_place(page))
        found = deque((*self._seen.changes, *changes(self._seen.rows, rows)))
        # Of the first page: what changed between the pages is then looked at again.
        self._seen = _Seen(rows, first.boot, first.version, found)

    def _page(
        self, session: PublisherSession, after: SubscriptionPlace | UnsetType
    ) -> Conversation[SubscriptionsReport]:
        is_first = after is UNSET
        request = Subscriptions(
            **session.head(),
            match=self.match,
            after=after,
            boot=self._seen.boot if is_first else "",
            known=self._seen.version if is_first else 0,
        )
        reply = yield from session.asking(request)
        if not isinstance(reply, SubscriptionsReport):
            session.refused(reply)
        return reply


def _by_place(page: SubscriptionsReport) -> Rows:
    return {(row.match, row.group): row for row in page.rows}
