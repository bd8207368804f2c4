"""Encrypted endpoints: whose keys are let in, asked by ZAP before anything else is read.

ZAP (RFC 27) is answered by `zmq.auth` in a thread of its own. The folder or file of known keys is
read again when it changes, so that new and revoked keys need no restart.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import zmq
from zmq.auth.thread import ThreadAuthenticator

from reliable_pubsub.common.core.certificates import PUBLIC_SUFFIX
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.keys import ServerKeys
from reliable_pubsub.common.key_files import read_clients

from .sockets import ZAP_DOMAIN, Context

LOOK_S: Final = 1.0  # how often the known keys are looked at
_LOG = logging.getLogger("reliable_pubsub.keys")
_Signature = tuple[tuple[str, int, int], ...]


class _Authenticator(ThreadAuthenticator):
    """Refuses for the time being (ZAP status 300), not for good (400).

    After a 400 the peer's libzmq never connects again, so that a client would have to be started
    again once its key is known. After a 300 it tries again, with growing pauses.
    """

    def _send_zap_reply(
        self, request_id: bytes, status_code: bytes, status_text: bytes, user_id: str = "anonymous"
    ) -> None:
        code = b"300" if status_code == b"400" else status_code
        super()._send_zap_reply(request_id, code, status_text, user_id)


class Authentication:
    """Lets connections into all sockets of a context, or refuses them."""

    def __init__(self, context: Context, keys: ServerKeys | None) -> None:
        """Encrypt every socket that the context makes from now on, and start to answer ZAP.

        Args:
            keys: None: endpoints stay plaintext, and everyone is let in.

        Raises:
            ConfigurationError: the known keys cannot be read.
        """
        self._known: dict[str, str] = {}  # name by public key
        self._zap: _Authenticator | None = None
        self._looked_s = 0.0
        if keys is None:
            return
        if keys.clients:
            self._place = Path(keys.clients)
            self._signature = _signature(self._place)
            self._known = read_clients(self._place)
            self._zap = _Authenticator(context, log=_LOG)
            self._zap.configure_curve_callback(ZAP_DOMAIN, self)
            self._zap.start()
        context.setsockopt(zmq.CURVE_SERVER, 1)
        context.setsockopt(zmq.CURVE_SECRETKEY, keys.own.secret.encode())

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether a key is let in; called by the thread."""
        is_known = key.decode() in self._known
        if not is_known:
            _LOG.warning("refused a connection: unknown key %s", key.decode())
        return is_known

    def admits(self, first: zmq.Frame) -> bool:
        """Whether the key of the connection that a message came on is still known."""
        return self._zap is None or first.get("User-Id") in self._known

    def look(self, now_s: float) -> None:
        """Read the known keys again if they have changed; what cannot be read changes nothing."""
        if self._zap is None or now_s < self._looked_s + LOOK_S:
            return
        self._looked_s = now_s
        signature = _signature(self._place)
        if signature == self._signature:
            return
        self._signature = signature
        try:
            self._known = read_clients(self._place)
        except ConfigurationError as error:
            _LOG.error("the known keys stay as they were: %s", error)
        else:
            _LOG.info("%d keys are let in", len(self._known))

    def close(self) -> None:
        """Stop the thread; before the context ends."""
        if self._zap is not None:
            self._zap.stop()


def _signature(place: Path) -> _Signature:
    """What changes when a key is added, changed or removed."""
    files = sorted(place.glob(f"*{PUBLIC_SUFFIX}")) if place.is_dir() else [place]
    found = []
    for file in files:
        try:
            facts = file.lstat()
        except OSError:
            continue
        found.append((file.name, facts.st_mtime_ns, facts.st_ino))
    return tuple(found)
