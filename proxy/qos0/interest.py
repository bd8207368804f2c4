"""The topics with a listener at QoS 0, which are announced to the publishers."""

from __future__ import annotations

from msgspec import Struct

from reliable_pubsub.common.core.limits import INGRESS_PATTERNS_MAX
from reliable_pubsub.common.core.patterns.matching import Pattern
from reliable_pubsub.relay.core.interest_table import Capped
from reliable_pubsub.relay.core.unstored import offer_prefixes

from ..core.state import State
from ..push.pushes import Pushes


class Want(Struct, frozen=True):
    """Prefixes of offers that are wanted from now on, and those that no longer are."""

    added: frozenset[bytes]
    removed: frozenset[bytes]


class Wanted:
    """Topics with a subscription that listens, patterns, and the interest of push links.

    Publishers filter by it (docs/decisions/0016), so a message that has no listener does not
    leave its publisher.
    """

    def __init__(self, pushes: Pushes) -> None:
        """Create it; nothing is announced yet.

        Args:
            pushes: has the interest of push links.
        """
        self._pushes = pushes
        self._capped = Capped(INGRESS_PATTERNS_MAX)
        self._prefixes: frozenset[bytes] = frozenset()

    @property
    def count(self) -> int:
        """The number of prefixes announced to publishers."""
        return len(self._prefixes)

    def changes(self, state: State) -> Want | None:
        """The changes to announce to publishers; None: no changes."""
        if not (self._pushes.has_changed() or state.are_listeners_changed):
            return None
        state.are_listeners_changed = False
        exact = frozenset(Pattern("exact", topic) for topic in state.listened_topics)
        wanted = exact | frozenset(state.patterns.all()) | self._pushes.wanted()
        before = self._prefixes
        patterns = self._capped.take(wanted)
        self._prefixes = offer_prefixes(patterns, self._pushes.kinds, wanted)
        if before == self._prefixes:
            return None
        return Want(self._prefixes - before, before - self._prefixes)
