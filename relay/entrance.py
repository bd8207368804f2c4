"""The entrance of a process: what has come to all its endpoints, and who is kept out for now.

Guards ask it, each from its own thread, and turn the gates of their endpoints; the loop asks it for
its status. `core/inflow.py` decides.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from msgspec import UNSET, UnsetType

from reliable_pubsub.common.core.keys import ServerKeys
from reliable_pubsub.common.core.status import ConnectionsStatus

from .connections import Connections
from .core.inflow import Closed, ConnectionBounds, Inflow, begun_text, over_text
from .sockets import descriptors_for_connections

LOOK_S: Final = 0.01  # between two looks, however often guards ask


class Entrance:
    """Shared by the guards of a process and its loop."""

    def __init__(
        self,
        bounds: ConnectionBounds,
        keys: ServerKeys | None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """It is open, and leads to no endpoint yet.

        Args:
            keys: of the endpoints; with them each connection costs a handshake.
            warn: called when connections begin to be kept out, and when that is over; by guards.
        """
        self._has_keys = keys is not None
        self._inflow = Inflow(self._effective(bounds), time.monotonic())
        self._warn = warn
        self._endpoints: list[Connections] = []
        self._lock = threading.Lock()
        self._look_at_s = float("-inf")
        self._found: tuple[Closed | None, bool] = None, False

    def _effective(self, bounds: ConnectionBounds) -> ConnectionBounds:
        descriptors = descriptors_for_connections()
        return bounds.with_means(has_keys=self._has_keys, descriptors=descriptors)

    def change(self, bounds: ConnectionBounds) -> None:
        """Decide by these bounds from now on; called by any thread."""
        with self._lock:
            self._inflow.change(self._effective(bounds), time.monotonic())

    def leads_to(self, endpoint: Connections) -> None:
        """Count the connections of an endpoint, if they can be kept out."""
        if endpoint.gate is None:
            return
        endpoint.came()  # from now on they are kept
        with self._lock:
            self._endpoints.append(endpoint)

    def look(self, now_s: float) -> tuple[Closed | None, bool]:
        """Who is kept out, and whether there is to be another look although nothing happens."""
        if now_s < self._look_at_s:
            return self._found
        with self._lock:
            self._look_at_s = now_s + LOOK_S
            before = self._inflow.episode
            came = [address for one in self._endpoints for address in one.came()]
            closed = self._inflow.look(came, self._count(), now_s)
            after = self._inflow.episode
            self._found = closed, after is not None
        if before is None and after is not None:
            self._warn(begun_text(after, self._inflow.bounds))
        elif before is not None and after is None:
            self._warn(over_text(before, self._inflow.closed_s, now_s))
        return self._found

    def status(self) -> ConnectionsStatus | UnsetType:
        """The row in a STATUS; unset: this system cannot keep connections out."""
        if not self._endpoints:
            return UNSET
        inflow, now_s = self._inflow, time.monotonic()
        with self._lock:
            episode, closed = inflow.episode, inflow.closed_s
            return ConnectionsStatus(
                connections=self._count(),
                connections_max=inflow.bounds.connections_max,
                connections_per_s_max=inflow.bounds.per_s_max,
                came=inflow.came_count,
                kept_out=sum(one.gate.kept_out() for one in self._endpoints if one.gate),
                closed_s=closed,
                closed_by=UNSET if episode is None else episode.closed.reason,
                since_s=UNSET if episode is None else now_s - episode.since_s,
            )

    def _count(self) -> int:
        return sum(map(len, self._endpoints))
