"""The HTTP server of the console: uvicorn, around the routes and their guard."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import uvicorn

from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.terminal import say

from .access import ConsoleClients
from .app import Console
from .guard import RequestGuard, new_token
from .watch import Watch

STOP_S = 2  # that requests have to end


class PageServer:
    """One console: its server, its looks, its clients."""

    def __init__(
        self,
        place: socket.socket,
        address: str,
        subscribers: str,
        publishers: str,
        relays: Sequence[str],
        retry: RetryPolicy,
    ) -> None:
        """Create it around a socket that listens.

        Args:
            address: where it was asked to listen: the host of the link.
        """
        self._place = place
        self._watch = Watch(subscribers, relays, retry)
        self._access = ConsoleClients(subscribers, publishers, retry)
        token, port = new_token(), place.getsockname()[1]
        host = address.rpartition(":")[0]
        host = "127.0.0.1" if host == "*" else host
        guarded = RequestGuard(
            Console(self._watch, self._access, subscribers).app,
            token=token,
            host=host.strip("[]"),
            port=port,
        )
        config = uvicorn.Config(
            guarded,
            lifespan="off",
            log_level="warning",
            ws="none",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=STOP_S,
        )
        self._server = _Server(config)
        self._server.ready = f"ready: console http://{host}:{port}/?token={token}"

    def run(self) -> None:
        """Serve until `stop`."""
        self._watch.start()
        try:
            self._server.run(sockets=[self._place])
        finally:
            self._watch.close()
            self._access.close()

    def stop(self) -> None:
        """End soon; for a signal handler."""
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """Says when it is ready; leaves the signals to the command."""

    ready = ""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        await super().startup(sockets)
        say(self.ready)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: `stopped_by_signals` has them."""
        yield
