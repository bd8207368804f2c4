"""A link whose frames and bytes are counted: a relay of TCP to an endpoint on this machine."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from msgspec import Struct

from .core.zmtp_frames import FrameCounter

CHUNK_BYTES = 65_536


class Passed(Struct, frozen=True):
    """What has passed a link, both ways together."""

    frames: int
    bytes: int

    def since(self, before: Passed) -> Passed:
        """The difference."""
        return Passed(self.frames - before.frames, self.bytes - before.bytes)


class CountedLink:
    """Everything that connects to `endpoint` is connected to another one."""

    def __init__(self, endpoint: str) -> None:
        """Listen on a port of its own; `endpoint` is a TCP endpoint of this machine."""
        self._port = int(endpoint.rsplit(":", 1)[1])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._counters: list[FrameCounter] = []
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, name="counted link", daemon=True).start()

    @property
    def passed(self) -> Passed:
        """What has passed so far."""
        with self._lock:
            return Passed(
                sum(one.frames for one in self._counters), sum(one.bytes for one in self._counters)
            )

    def close(self) -> None:
        """Close everything."""
        with self._lock:
            self._listener.close()
            for end in self._ends:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                there = socket.create_connection(("127.0.0.1", self._port))
                with self._lock:
                    self._ends += [here, there]
                for source, target in ((here, there), (there, here)):
                    threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        counter = FrameCounter()
        with self._lock:
            self._counters.append(counter)
        with suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                with self._lock:
                    counter.feed(data)  # first, so that what has arrived has been counted
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
