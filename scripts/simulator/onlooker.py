"""Asks for SUBSCRIPTIONS between all other events, and judges the answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub.common.core.interest_messages import (
    SubscriptionRow,
    Subscriptions,
    SubscriptionsReport,
)
from reliable_pubsub.common.core.patterns.matching import EVERYTHING
from reliable_pubsub.proxy.core.state import State
from reliable_pubsub.proxy.groups.state import is_group
from reliable_pubsub.proxy.status.interests import subscriptions

from .simulated_store import SimulatedStore

EVERY: Final = 10  # looks: then the rows are compared with the store
_ASKED: Final = Subscriptions(client="onlooker", epoch=0, request=1, match=EVERYTHING)


class Onlooker:
    """Watches one start of a proxy."""

    def __init__(self, store: SimulatedStore | None) -> None:
        """Has seen nothing.

        Args:
            store: what is durable; None: another proxy writes there, too.
        """
        self._store = store
        self._seen: dict[int, list[SubscriptionRow]] = {}  # by version
        self._looked_at: tuple[int, int] | None = None  # the newest record, and the version
        self._looks = 0

    def look(self, state: State) -> None:
        """Look, unless the answer would wait for the disk."""
        if state.interest_lsn > state.durable_lsn:
            return
        self._looks += 1
        store = self._store if self._looks % EVERY == 0 else None
        looks_at = state.lsn, state.interest_version
        if looks_at == self._looked_at and store is None:
            return  # nothing has been applied since
        self._looked_at = looks_at
        rows = list(_rows(state))
        before = self._seen.setdefault(state.interest_version, rows)
        assert rows == before, f"interests: version {state.interest_version} stands for two states"
        if store is not None:
            self._compare(rows, store)

    def _compare(self, rows: Iterable[SubscriptionRow], store: SimulatedStore) -> None:
        stored = store.state()
        counts: Counter[str] = Counter()
        for topic in stored.topics:
            live = [one for one in topic.subscriptions if one.active and not one.expired]
            if live and not topic.deleted:
                counts[topic.topic] = sum(not is_group(one.subscriber) for one in live)
        reported: Counter[str] = Counter()
        for row in rows:
            if row.match.kind == "exact":
                reported[row.match.text] += 0 if row.group else row.subscribers
        assert dict(reported) == dict(counts), f"interests: {reported} reported, {counts} stored"


def _rows(state: State) -> Iterator[SubscriptionRow]:
    asked = _ASKED
    while True:
        page = subscriptions(state, asked, b"", 0).reply
        assert isinstance(page, SubscriptionsReport)
        yield from page.rows
        if page.next is UNSET:
            return
        asked = replace(asked, after=page.next)
