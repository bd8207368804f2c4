"""Limits the connections of a process, in number and rate. Pure.

Each connection costs a handshake, so a bucket limits them: a number per second, and bursts of ten
seconds of that. While the bucket is in debt, addresses that took much of it are refused, and all
addresses if the debt exceeds a limit (docs/decisions/0026).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ...core.limits import CONNECTIONS_MAX
from ...core.status import EntranceBound
from .allowance import Bucket

BURST_S: Final = 10  # the bucket holds so many seconds of its rate
ADDRESS_SHARE: Final = 1 / 8  # of rate and burst; an address that has taken more is kept out first
OTHERS_SHARE: Final = 1 / 4  # of the burst: the debt above which everyone is kept out
ADDRESSES_MAX: Final = 1024  # that are counted
CALM_S: Final = 10.0  # without keeping any out, after which an episode is over
# A handshake with keys costs a proxy 1.2 to 1.7 ms of CPU, one without 0.2 (docs/decisions/0045).
PER_S_WITH_KEYS: Final = 100
PER_S_WITHOUT_KEYS: Final = 1000


class ConnectionBounds(Struct, frozen=True, kw_only=True):
    """How many connections a process has, all its endpoints together, and how fast they come."""

    connections_max: int = CONNECTIONS_MAX
    per_s_max: int = 0  # 0: by what a handshake costs

    def with_means(self, *, has_keys: bool, descriptors: int) -> ConnectionBounds:
        """The bounds of a process with or without keys, that has so many descriptors for them."""
        usual = PER_S_WITH_KEYS if has_keys else PER_S_WITHOUT_KEYS
        return ConnectionBounds(
            connections_max=min(self.connections_max, descriptors),
            per_s_max=self.per_s_max or usual,
        )


class Closed(Struct, frozen=True):
    """Connections are kept out."""

    reason: EntranceBound
    addresses: frozenset[str] = frozenset()  # of these; empty: of everyone


class Episode(Struct, frozen=True):
    """A time in which connections were kept out again and again, without a pause of CALM_S."""

    since_s: float
    closed: Closed  # at its beginning
    closed_before_s: float  # that connections were kept out, until then


class Inflow:
    """The connections that came in, and the addresses that are refused."""

    def __init__(self, bounds: ConnectionBounds, now_s: float) -> None:
        self._begin(bounds, now_s)
        self._look_at_s = now_s
        self._refused: Closed | None = None  # the last one since the last look
        self._closed_at_s = now_s  # at the last look that kept some out
        self.came_count = self.kept_out_count = 0
        self.closed: Closed | None = None
        self.closed_s = 0.0  # since the start
        self.episode: Episode | None = None

    def change(self, bounds: ConnectionBounds, now_s: float) -> None:
        """Use these limits from now on; if they differ, forget earlier connections.

        The same bounds again give no second burst.
        """
        if bounds != self.bounds:
            self._begin(bounds, now_s)

    def _begin(self, bounds: ConnectionBounds, now_s: float) -> None:
        self.bounds = bounds
        self._burst = BURST_S * bounds.per_s_max
        self._bucket = Bucket(self._burst, bounds.per_s_max, now_s)
        self._by_address: dict[str, Bucket] = {}

    def admits(self, address: str, present: int, now_s: float) -> bool:
        """Count a connection; return whether it may stay.

        Args:
            address: where it comes from; "": not known.
            present: connections without it.
        """
        taken = self._bucket_of(address, now_s)
        refused = self._for_everyone(present, now_s)
        is_in_debt = self._bucket.left(now_s) < 0
        if refused is None and is_in_debt and taken is not None and taken.left(now_s) < 0:
            refused = Closed("connections_per_s_max", frozenset({address}))
        if refused is not None:
            self._refused = refused
            self.kept_out_count += 1
            return False
        self.came_count += 1
        self._bucket.take(1, now_s)
        if taken is not None:
            taken.take(1, now_s)
        return True

    def look(self, present: int, now_s: float) -> bool:
        """Update the state since the last call; return whether all newcomers are refused."""
        if self.closed is not None:
            self.closed_s += now_s - self._look_at_s
        self._look_at_s = now_s
        everyone = self._for_everyone(present, now_s)
        self.closed, self._refused = everyone or self._refused, None
        if self.closed is not None:
            self._closed_at_s = now_s
            self.episode = self.episode or Episode(now_s, self.closed, self.closed_s)
        elif now_s >= self._closed_at_s + CALM_S:
            self.episode = None
        return everyone is not None

    def _for_everyone(self, present: int, now_s: float) -> Closed | None:
        if present >= self.bounds.connections_max:
            return Closed("connections_max")
        if -self._bucket.left(now_s) > OTHERS_SHARE * self._burst:
            return Closed("connections_per_s_max")
        return None

    def _bucket_of(self, address: str, now_s: float) -> Bucket | None:
        """Return what an address may take; None: it is not counted by itself."""
        bucket = self._by_address.get(address)
        if bucket is None and address:
            if len(self._by_address) >= ADDRESSES_MAX:
                self._by_address = {
                    known: one for known, one in self._by_address.items() if one.used(now_s) > 0
                }
            if len(self._by_address) >= ADDRESSES_MAX:
                return None
            rate = max(int(self.bounds.per_s_max * ADDRESS_SHARE), 1)
            bucket = self._by_address[address] = Bucket(BURST_S * rate, rate, now_s)
        return bucket


def begun_text(episode: Episode, bounds: ConnectionBounds) -> str:
    """The warning when connections begin to be kept out."""
    who, closed = "all addresses", episode.closed
    if closed.addresses:
        who = ", ".join(sorted(closed.addresses))
    what = (
        f"there are {bounds.connections_max:,} of them (connections_max)"
        if closed.reason == "connections_max"
        else f"more come than {bounds.per_s_max:,} a second, and {BURST_S * bounds.per_s_max:,} "
        "at once (connections_per_s_max)"
    )
    return (
        f"warning: connections are kept out, at first from {who}: {what}. Clients try again by "
        "themselves; open connections continue. `reliable-pubsub status` shows for how long; "
        "what to do is in docs/how-to/operating.md"
    )


def over_text(episode: Episode, closed_s: float, now_s: float) -> str:
    """The line when none have been kept out for CALM_S."""
    return (
        f"going on: no connections are kept out any more; they were for "
        f"{closed_s - episode.closed_before_s:,.1f} of {now_s - episode.since_s:,.0f} s"
    )
