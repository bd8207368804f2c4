"""The entrance of a process: which connections may come in, at all its endpoints together.

Each connection is counted when libzmq has accepted it, and ended immediately if it is too many
(rule R35). While every newcomer would be ended, the kernel keeps them out where it can, so that
they cost nothing (`ListenerGate`). `core/inflow.py` decides.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from msgspec import UNSET

from ..core.keys import ServerKeys
from ..core.status import ConnectionsStatus
from .connections import Connections, counts_bytes
from .core.inflow import ConnectionBounds, Inflow, begun_text, over_text
from .sockets import descriptors_for_connections

EVENTS_MAX: Final = 256  # of an endpoint that one look of the loop takes


class Entrance:
    """Shared by the endpoints of a process, by their guards, and by its loop."""

    def __init__(
        self,
        bounds: ConnectionBounds,
        keys: ServerKeys | None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Create it open, without an endpoint.

        Args:
            keys: of the endpoints; with them each connection costs a handshake.
            warn: called when connections begin to be kept out, and when that is over.
        """
        self._has_keys = keys is not None
        self._inflow = Inflow(self._effective(bounds), time.monotonic())
        self._warn = warn
        self._endpoints: list[Connections] = []
        self._lock = threading.Lock()
        self._present = 0  # connections that came in, and have not ended

    def _effective(self, bounds: ConnectionBounds) -> ConnectionBounds:
        descriptors = descriptors_for_connections()
        return bounds.with_means(has_keys=self._has_keys, descriptors=descriptors)

    def change(self, bounds: ConnectionBounds) -> None:
        """Decide by these bounds from now on; called by any thread."""
        with self._lock:
            self._inflow.change(self._effective(bounds), time.monotonic())

    def leads_to(self, endpoint: Connections) -> None:
        """Decide which connections this endpoint accepts."""
        self._endpoints.append(endpoint)

    def admits(self, address: str) -> bool:
        """Count a new connection; return False if it must be closed.

        Args:
            address: of the peer; "": not known.
        """
        with self._lock:
            is_in = self._inflow.admits(address, self._present, time.monotonic())
            self._present += is_in
        return is_in

    def left(self) -> None:
        """Count the end of an accepted connection."""
        with self._lock:
            self._present -= 1

    def look(self, now_s: float) -> None:
        """Count connections where no guard does; open and close the gates. Called by the loop."""
        for endpoint in self._endpoints:
            endpoint.look(EVENTS_MAX)
        with self._lock:
            before = self._inflow.episode
            is_closed = self._inflow.look(self._present, now_s)
            after = self._inflow.episode
        for endpoint in self._endpoints:
            if endpoint.gate is not None:
                endpoint.gate.set_open(is_open=not is_closed and not endpoint.is_shut)
        if before is None and after is not None:
            self._warn(begun_text(after, self._inflow.bounds))
        elif before is not None and after is None:
            self._warn(over_text(before, self._inflow.closed_s, now_s))

    def status(self) -> ConnectionsStatus:
        """Return the row in a STATUS."""
        inflow, now_s = self._inflow, time.monotonic()
        with self._lock:
            episode = inflow.episode
            return ConnectionsStatus(
                connections=self._present,
                connections_max=inflow.bounds.connections_max,
                connections_per_s_max=inflow.bounds.per_s_max,
                came=inflow.came_count,
                kept_out=inflow.kept_out_count
                + sum(one.gate.kept_out() for one in self._endpoints if one.gate),
                closed_s=inflow.closed_s,
                closed_by=UNSET if episode is None else episode.closed.reason,
                since_s=UNSET if episode is None else now_s - episode.since_s,
                unknown_keys=sum(one.unknown_keys for one in self._endpoints),
                failed_handshakes=sum(one.failed_handshakes for one in self._endpoints),
                is_memory_bounded=counts_bytes(),
            )
