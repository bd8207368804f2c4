"""Encrypted endpoints: whose keys are let in, asked by ZAP before anything else is read.

ZAP (RFC 27) is answered by `zmq.auth`, in a thread of ours. The folder or file of known keys is
read again when it changes, so that new and revoked keys, and other rights, need no restart. What a
key may do, `core/rights.py` decides.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import zmq
from zmq.auth import Authenticator

from reliable_pubsub.common.core.certificates import PUBLIC_SUFFIX
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.keys import ServerKeys
from reliable_pubsub.common.core.rights import Client, has_rights
from reliable_pubsub.common.key_files import RIGHTS_FILE, read_clients
from reliable_pubsub.common.system import WakeUp

from .audit import AuditLog
from .core.rights import Authority, Denial
from .sockets import ZAP_DOMAIN, Context

LOOK_S: Final = 1.0  # how often the known keys are looked at
_LOG = logging.getLogger("reliable_pubsub.keys")
_Signature = tuple[tuple[str, int, int, int], ...]


class _Authenticator(Authenticator):
    """Answers ZAP in a thread, and refuses for the time being (status 300), not for good (400).

    After a 400 the peer's libzmq never connects again, so that a client would have to be started
    again once its key is known. After a 300 it tries again, with growing pauses.

    The thread of `zmq.auth` waits by asyncio, which takes most of the CPU of an answer. Nothing of
    ours is awaited, so this one waits by `poll`.
    """

    def start(self) -> None:
        """Bind, and answer from now on."""
        super().start()
        self._stop = WakeUp()
        self._thread = threading.Thread(target=self._run, name="zap", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop answering."""
        self._stop.wake()
        self._thread.join()
        self._stop.close()
        super().stop()

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


class Authentication:
    """Lets connections into all sockets of a context, or refuses them."""

    def __init__(
        self,
        context: Context,
        keys: ServerKeys | None,
        audit_path: Path | None = None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Encrypt every socket that the context makes from now on, and start to answer ZAP.

        Args:
            keys: None: endpoints stay plaintext, and everyone is let in.
            audit_path: where refused requests are written, if the keys do not say it; None: they
                are logged only.
            warn: called with what an operator should look at.

        Raises:
            ConfigurationError: the known keys cannot be read.
        """
        self.authority = Authority({})
        self._known: dict[str, Client] = {}  # by public key
        self._zap: _Authenticator | None = None
        self._audit: AuditLog | None = None
        self._warn = warn
        self._is_strict = False  # rights were said, and going back takes a restart
        self._looked_s = 0.0
        if keys is None:
            return
        if keys.clients:
            self._place = Path(keys.clients)
            self._signature = _signature(self._place)
            self._know(read_clients(self._place))
            self._audit = AuditLog(Path(keys.audit_log) if keys.audit_log else audit_path, warn)
            if self._known and not self.authority.has_rights:
                warn(
                    f"warning: {keys.clients} says no rights, so each of these keys may use any id "
                    f"and any topic; say them in {RIGHTS_FILE} (docs/security.md)"
                )
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

    def _know(self, clients: dict[str, Client]) -> None:
        self.authority = Authority(clients)
        self._known = clients
        self._is_strict = self._is_strict or self.authority.has_rights

    @property
    def knows_keys(self) -> bool:
        """Whether each connection has a known key."""
        return self._zap is not None

    def key_of(self, first: zmq.Frame) -> str | None:
        """The public key of the connection that a message came on; None: it was revoked.

        "" where every connection is let in.
        """
        if self._zap is None:
            return ""
        try:
            key = str(first.get("User-Id"))
        except zmq.ZMQError:  # libzmq itself says it, of a connection that has ended
            return None
        return key if key in self._known else None

    def look(self, now_s: float) -> frozenset[str]:
        """Read the known keys and rights again if they have changed.

        Returns:
            The keys that came, went, or have other rights. What cannot be read changes nothing.
        """
        if self._zap is None or now_s < self._looked_s + LOOK_S:
            return frozenset()
        self._looked_s = now_s
        signature = _signature(self._place)
        if signature == self._signature:
            return frozenset()
        self._signature = signature
        before = self.authority
        try:
            clients = read_clients(self._place)
            if self._is_strict and clients and not has_rights(clients):
                raise ConfigurationError(
                    f"{self._place}: no rights are said any more, which would let every key do "
                    "everything; restart with it to mean that"
                )
            self._know(clients)
        except ConfigurationError as error:
            self._warn(f"warning: the known keys and rights stay as they were: {error}")
            return frozenset()
        _LOG.info("%d keys are let in", len(self._known))
        return before.changed(self.authority)

    def refused(self, denial: Denial) -> None:
        """Write to the audit log that a request was refused."""
        if self._audit is not None:
            self._audit.write(denial)

    def close(self) -> None:
        """Stop the threads; before the context ends."""
        if self._audit is not None:
            self._audit.close()
        if self._zap is not None:
            self._zap.stop()


def _signature(place: Path) -> _Signature:
    """What changes when a key or rights are added, changed or removed."""
    files = [*sorted(place.glob(f"*{PUBLIC_SUFFIX}")), place / RIGHTS_FILE]
    if not place.is_dir():
        files = [place]
    found = []
    for file in files:
        try:
            facts = file.lstat()
        except OSError:
            continue
        found.append((file.name, facts.st_mtime_ns, facts.st_ino, facts.st_size))
    return tuple(found)
