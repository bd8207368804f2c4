"""Notifications to the service manager (systemd, Type=notify): datagrams to a Unix socket.

Source: sd_notify(3), which gives the same lines of code as the whole protocol.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from typing import Final

from . import threads

EXTEND_S: Final = 60.0  # requested by a start that takes long
_EXTEND_EVERY_S: Final = 5.0


class ServiceManager:
    """The service manager that started this process, if it wants notifications."""

    def __init__(self) -> None:
        """Find it; its variables are for this process and not for its children."""
        environment = os.environ
        self._address = environment.get("NOTIFY_SOCKET", "")
        watched = environment.get("WATCHDOG_USEC", "")
        is_mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        is_watched = self._address and is_mine and watched.isdecimal()
        # Half the time, so that one word that comes late does not count as silence.
        self._watchdog_s = int(watched) / 2e6 if is_watched else None
        self._said_s = self._extended_s = -1e9
        self._link: socket.socket | None = None
        if self._address:  # opened now: later no descriptor may be left, and silence is a hang
            self._link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._link.setblocking(False)

    def tell(self, *lines: str) -> None:
        """Send assignments such as READY=1. Without a service manager nothing is sent.

        A datagram that is not taken (a full queue, a manager that restarts) is dropped: the
        manager then acts as if the process was silent, as it should.
        """
        if self._link is None:
            return
        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]  # an abstract socket
        with suppress(OSError):
            self._link.sendto("\n".join(lines).encode(), address)

    def ready(self, status: str) -> None:
        """The process serves now."""
        self.tell("READY=1", f"STATUS={status}")

    def starting(self, status: str) -> None:
        """The start takes longer than the manager would wait."""
        now_s = time.monotonic()
        if now_s - self._extended_s >= _EXTEND_EVERY_S:
            self._extended_s = now_s
            self.tell(f"EXTEND_TIMEOUT_USEC={int(EXTEND_S * 1e6)}", f"STATUS={status}")

    def reloading(self) -> None:
        """Settings are read again; `ready` says when that is done."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The process ends."""
        self.tell("STOPPING=1")

    def alive(self, now_s: float) -> None:
        """Note that the loop turns; call it often. The manager is notified as often as it asked.

        It is not notified once a thread has died, so that it restarts this process.

        Args:
            now_s: monotonic clock.
        """
        is_due = self._watchdog_s is not None and now_s - self._said_s >= self._watchdog_s
        if is_due and not threads.why_dead():
            self._said_s = now_s
            self.tell("WATCHDOG=1")
