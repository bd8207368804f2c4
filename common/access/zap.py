"""Answers ZAP (RFC 27): libzmq asks for each connection whether its public key may connect."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import zmq
from zmq.auth import Authenticator

from .. import threads
from ..system import WakeUp
from .core.line_rate import LineRate
from .sockets import ZAP_DOMAIN, Context

LINES_S_MAX: Final = 5  # of the log and the audit log; other refusals are counted
WARN_S: Final = 60.0  # between two warnings
_LOG = logging.getLogger("reliable_pubsub.keys")


class Zap(Authenticator):
    """One thread for all sockets of a context, from construction to `close`.

    It refuses for the time being (status 300), not for good (400). After a 400 the peer's libzmq
    never connects again, so that a client would have to be started again once its key is known.
    After a 300 it tries again, with growing pauses.

    The thread of `zmq.auth` waits by asyncio, which takes most of the CPU of an answer. Here
    nothing else is awaited, so this one waits by `poll`.
    """

    def __init__(
        self,
        context: Context,
        is_known: Callable[[str], bool],
        *,
        write: Callable[[str, int], None],
        warn: Callable[[str], None],
    ) -> None:
        """Bind, and answer from now on. All arguments are called by the thread.

        Args:
            is_known: whether a public key is let in.
            write: writes to the audit log which key was refused, and how many have no line.
            warn: reports to an operator that keys are refused.
        """
        super().__init__(context, log=_LOG)
        self._is_known, self._write, self._warn = is_known, write, warn
        self._refused_count, self._warn_at_s = 0, float("-inf")
        self._lines = LineRate(LINES_S_MAX)
        self.configure_curve_callback(ZAP_DOMAIN, self)
        self.start()
        self._stop = WakeUp()
        self._thread = threads.start(self._run, name="zap")

    def close(self) -> None:
        """Stop answering."""
        self._stop.wake()
        self._thread.join()
        self._stop.close()
        self.stop()

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether a key is let in. Called by `zmq.auth`."""
        is_known = self._is_known(key.decode())
        if not is_known:
            self._log_refusal(key.decode())
        return is_known

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self.zap_socket, zmq.POLLIN)
        poller.register(self._stop.descriptor, zmq.POLLIN)
        while self._stop.descriptor not in dict(poller.poll()):
            asked = self.handle_zap_message(self.zap_socket.recv_multipart())
            with suppress(StopIteration):  # it waits for nothing
                asked.send(None)

    def _send_zap_reply(
        self, request_id: bytes, status_code: bytes, status_text: bytes, user_id: str = "anonymous"
    ) -> None:
        code = b"300" if status_code == b"400" else status_code
        super()._send_zap_reply(request_id, code, status_text, user_id)

    def _log_refusal(self, key: str) -> None:
        """Report a refusal; more than LINES_S_MAX in a second are counted only."""
        now_s = time.monotonic()
        self._refused_count += 1
        if self._lines.admits(now_s):
            left_out = self._lines.take_left_out()
            more = f" ({left_out} more were refused without a line)" if left_out else ""
            _LOG.warning("refused a connection: unknown key %s%s", key, more)
            self._write(key, left_out)
        if now_s >= self._warn_at_s:
            self._warn_at_s = now_s + WARN_S
            count, self._refused_count = self._refused_count, 0
            self._warn(
                f"warning: {count:,} connections with unknown keys were refused, the last one with "
                f"{key}. The audit log and the metric failed_handshakes have the others; this line "
                f"comes at most every {WARN_S:.0f} s"
            )
