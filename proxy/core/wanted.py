"""The topics with a listener at QoS 0, which are announced to the publishers."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from reliable_pubsub.common.core.limits import INGRESS_PATTERNS_MAX
from reliable_pubsub.relay.core.interest_table import Capped
from reliable_pubsub.relay.core.pattern import Pattern
from reliable_pubsub.relay.core.unstored import offer_prefixes

from .pushes import Pushes
from .records import Expired, Record, Subscribed, Unsubscribed
from .ring import Rings
from .rules import Rules


class Want(Struct, frozen=True):
    """Prefixes of offers that are wanted from now on, and those that no longer are."""

    added: frozenset[bytes]
    removed: frozenset[bytes]


class Wanted:
    """Topics with a subscription that listens, and the interest of push links.

    Publishers filter by it (docs/decisions/0021), so a message that has no listener does not
    leave its publisher.
    """

    def __init__(self, pushes: Pushes, rings: Rings) -> None:
        """Create an empty index of listeners.

        Args:
            pushes: has the interest of push links.
            rings: their counts of lost messages are reset when a subscription begins or ends.
        """
        self._pushes = pushes
        self._rings = rings
        self._capped = Capped(INGRESS_PATTERNS_MAX)
        self._topics: set[str] = set()
        self._prefixes: frozenset[bytes] = frozenset()
        self._is_changed = True

    @property
    def count(self) -> int:
        """The number of prefixes announced to publishers."""
        return len(self._prefixes)

    def is_listened_to(self, topic: str) -> bool:
        """Whether a subscription listens."""
        return topic in self._topics

    def restart(self, broker: Rules) -> None:
        """Read all subscriptions of a new state."""
        self._topics = {name for name, log in broker.topics.items() if log.listening}
        self._is_changed = True

    def look_at(self, broker: Rules, records: Iterable[Record]) -> None:
        """Records were applied: subscriptions may have begun or ended."""
        for record in records:
            if not isinstance(record, Subscribed | Unsubscribed | Expired):
                continue
            log = broker.topic_with(record.topic_id)
            if isinstance(record, Unsubscribed) or (
                isinstance(record, Subscribed) and record.shown == record.cursor
            ):
                self._rings.forget(log.topic, record.subscriber)
            if log.listening:
                self._topics.add(log.topic)
            else:
                self._topics.discard(log.topic)
            self._is_changed = True

    def changes(self) -> Want | None:
        """The changes to announce to publishers; None: no changes."""
        if not (self._pushes.has_changed() or self._is_changed):
            return None
        self._is_changed = False
        exact = frozenset(Pattern("exact", topic) for topic in self._topics)
        patterns = self._capped.take(exact | self._pushes.wanted())
        before, self._prefixes = self._prefixes, offer_prefixes(patterns, self._pushes.kinds)
        if before == self._prefixes:
            return None
        return Want(self._prefixes - before, before - self._prefixes)
