"""Ports that stay reserved while the process that listens there is dead."""

from __future__ import annotations

import socket
from typing import Self

from reliable_pubsub.common.system import IS_LINUX

from .child_process import PROXY_ENDPOINTS


class OwnPorts:
    """Ports of loopback, for processes that are started again where they were.

    While a socket is bound and does not listen, the kernel gives its port to no other process that
    asks for any; one that names the port may listen there. So it is on Linux; elsewhere it is only
    unlikely that another takes it.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def endpoint(self) -> str:
        """Another one."""
        bound = socket.socket()
        self._sockets.append(bound)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        endpoint = f"tcp://127.0.0.1:{bound.getsockname()[1]}"
        if not IS_LINUX:
            bound.close()
        return endpoint

    def of_proxy(self) -> dict[str, str]:
        """All endpoints of a proxy, by their names."""
        return {name: self.endpoint() for name in PROXY_ENDPOINTS}

    def close(self) -> None:
        """Give them up."""
        for one in self._sockets:
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
