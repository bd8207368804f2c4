"""`ProcessBroker`: a proxy in a process of its own, for tests that need sockets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from unittest.mock import patch

from ..rig.child_process import PROXY_ENDPOINTS, ChildProcess, proxy_command


class ProcessBroker:
    """A proxy on free ports of this machine, with its files in a directory."""

    def __init__(self, directory: Path) -> None:
        """Start it, and wait until it answers.

        Args:
            directory: gets the store and the log of the proxy; is made if it does not exist.
        """
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._endpoints: dict[str, str] = {}
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.end()

    def start(self) -> None:
        """Start it after `kill`, on the same store and ports; wait until it answers."""
        command = proxy_command(self._directory / "proxy-data", endpoints=self._endpoints)
        self._process = ChildProcess(command, self._directory / "proxy.log")
        found = self._process.endpoints()
        self._endpoints = {name: found[name] for name in PROXY_ENDPOINTS if name in found}

    def kill(self) -> None:
        """End it with `kill -9`."""
        self._process.kill()

    def restart(self) -> None:
        """Restart it after `kill -9`: everything that was acknowledged is still there."""
        self.kill()
        self.start()

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which clients, in other processes too, find this broker."""
        return {
            "RELIABLE_PUBSUB_PUBLISHER_ENDPOINT": self._endpoints["publishers"],
            "RELIABLE_PUBSUB_SUBSCRIBER_ENDPOINT": self._endpoints["subscribers"],
        }

    @contextmanager
    def serving(self) -> Iterator[Self]:
        """Serve every client that this process and its children open without an endpoint."""
        with patch.dict(os.environ, self.environment):
            yield self
