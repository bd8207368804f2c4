"""When each subscriber was heard last; `lease_ends.py` decides what follows."""

from __future__ import annotations

from reliable_pubsub.common.core.status import SubscriptionState

from .lower_bounds import LowerBounds
from .subscriptions import Subscription


class Leases:
    """When each subscriber was heard last; in memory only."""

    def __init__(self) -> None:
        """Create it before any subscriber is heard."""
        self.now_s = 0.0  # by which silence is judged (`Attention`), at the last request or tick
        self.since_s: float | None = None  # when this proxy began to listen
        self.heard_s: dict[str, float] = {}
        self.ends: LowerBounds[tuple[int, str]] = LowerBounds()  # by topic id and subscriber

    def forget(self, client: str) -> None:
        """Forget a subscriber that has no session."""
        self.heard_s.pop(client, None)

    def silent_s(self, client: str) -> float:
        """Seconds since a subscriber's last request, or since this proxy began to listen."""
        since_s = self.now_s if self.since_s is None else self.since_s
        return max(self.now_s - self.heard_s.get(client, since_s), 0.0)

    def state_of(self, client: str, subscription: Subscription) -> SubscriptionState:
        """The state of a subscription as STATUS shows it."""
        if subscription.expired:
            return "expired"
        lease_s = subscription.terms.lease_ms / 1000
        return "suspended" if lease_s and self.silent_s(client) > lease_s else "active"
