"""A link whose bytes are counted; for the benchmark and the tests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from contextlib import suppress


class CountingLink:
    """TCP to an endpoint, with the bytes of each way counted; it can hang, and be cut."""

    def __init__(self, endpoint: str) -> None:
        self._target = int(endpoint.rsplit(":", 1)[1])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.down_bytes = 0  # to the side that connected
        self.up_bytes = 0
        self.up_reads = 0  # about one for each small request of a socket that waits for replies
        self._passing = threading.Event()
        self._passing.set()
        self._pairs: list[Sequence[socket.socket]] = []
        threading.Thread(target=self._accept, name="counting link", daemon=True).start()

    def hang(self) -> None:
        """Pass nothing on, and read nothing: TCP fills up."""
        self._passing.clear()

    def go_on(self) -> None:
        self._passing.set()

    def cut(self) -> None:
        """Close the connections; new ones are accepted."""
        for pair in self._pairs:
            _shut(*pair)

    def close(self) -> None:
        self._listener.close()
        self._passing.set()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                there = socket.create_connection(("127.0.0.1", self._target))
                self._pairs.append((here, there))
                threading.Thread(target=self._pass, args=(here, there), daemon=True).start()

    def _pass(self, here: socket.socket, there: socket.socket) -> None:
        with here, there:  # until both ways have ended: a closed descriptor ends no waiting recv
            down = threading.Thread(target=self._copy, args=(there, here, "down"), daemon=True)
            down.start()
            self._copy(here, there, "up")
            down.join()

    def _copy(self, source: socket.socket, target: socket.socket, way: str) -> None:
        with suppress(OSError):
            while self._passing.wait() and (data := source.recv(65_536)):
                self._passing.wait()
                if way == "up":  # before they arrive, so that who has them finds them counted
                    self.up_bytes += len(data)
                    self.up_reads += 1
                else:
                    self.down_bytes += len(data)
                target.sendall(data)
        _shut(source, target)


def _shut(*ends: socket.socket) -> None:
    for one in ends:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
