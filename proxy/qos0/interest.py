"""The topics with a listener at QoS 0, which are announced to the publishers."""

from __future__ import annotations

from msgspec import Struct

from reliable_pubsub.common.core.limits import INGRESS_PATTERNS_MAX
from reliable_pubsub.common.core.patterns.matching import Pattern
from reliable_pubsub.common.core.status import IngressStatus
from reliable_pubsub.relay.core.interest_table import Capped
from reliable_pubsub.relay.core.unstored import offer_prefixes

from ..core.state import State
from ..patterns.index import PatternIndex
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

    def __init__(self, endpoint: str = "") -> None:
        """Create it; nothing is announced yet.

        Args:
            endpoint: of the ingress; sent to publishers.
        """
        self.endpoint = endpoint
        self.counts = {"taken": 0, "unwanted": 0, "refused": 0}  # offers; the shell counts
        self._version = 0  # of the state's interest, when it was looked at last
        self._capped = Capped(INGRESS_PATTERNS_MAX)
        self._prefixes: frozenset[bytes] = frozenset()

    def status(self) -> IngressStatus:
        """The row of the ingress in a STATUS."""
        return IngressStatus(endpoint=self.endpoint, patterns=len(self._prefixes), **self.counts)

    def changes(self, state: State) -> Want | None:
        """The changes to announce to publishers; None: no changes."""
        pushes = state.kept(Pushes)
        if not pushes.has_changed() and self._version == state.interest_version:
            return None
        self._version = state.interest_version
        exact = frozenset(Pattern("exact", topic) for topic in state.listened_topics)
        wanted = exact | frozenset(state.part(PatternIndex).all()) | pushes.wanted()
        before = self._prefixes
        patterns = self._capped.take(wanted)
        self._prefixes = offer_prefixes(patterns, pushes.kinds, wanted)
        if before == self._prefixes:
            return None
        return Want(self._prefixes - before, before - self._prefixes)
