"""Encrypted endpoints: which keys may connect, decided by ZAP before anything else is read.

ZAP (RFC 27) is answered by `zmq.auth`, in its own thread (`zap.py`). The folder or file of known
keys is read again when it changes, so that new and revoked keys, and other rights, need no restart.
What a key may do, `core/rights.py` decides.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Hashable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import zmq
from msgspec import UNSET

from ..core.errors import ConfigurationError
from ..core.key_expiry import expiry_warnings, next_change, unexpired
from ..core.keys import ServerKeys
from ..core.rights import NOTHING, KnownKey
from ..key_files import RIGHTS_FILE, public_files, read_clients
from ..threads import Shortage, is_shortage
from .audit import AuditLog
from .connections import Connection
from .core.attendance import Attendance, Excess
from .core.authorisation import Authority, Denial
from .sockets import Context
from .zap import Zap

LOOK_S: Final = 1.0  # how often the known keys are looked at
LAST_WORDS_S: Final = 1.0  # for the answer to a connection that is too many
_LOG = logging.getLogger("reliable_pubsub.keys")
_Signature = tuple[tuple[str, int, int, int], ...]


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
        self._known: dict[str, KnownKey] = {}  # by public key, without expired ones
        self._clients: dict[str, KnownKey] = {}
        self._own_expires = keys.own.expires if keys else None
        self._date_change = datetime.max.replace(tzinfo=UTC)  # of the keys, by expiry
        self._said: set[str] = set()  # warnings about dates
        self._zap: Zap | None = None
        self._audit: AuditLog | None = None
        self._audit_path = audit_path
        self._warn = warn
        self._attendance = Attendance()
        self._excessive: dict[Connection, float] = {}  # when each is to be ended
        self._has_file = False  # of rights; that it is gone is a mistake
        self._mistake = ""  # that was reported last
        self._looked_s = 0.0
        self._shortage = Shortage("the look at the known keys", warn)
        if keys is None:
            return
        if keys.clients:
            self._place = Path(keys.clients)
            self._signature = _signature(self._place)
            self._know(read_clients(self._place))
            self._has_file = os.path.lexists(self._place / RIGHTS_FILE)
            self._audit = AuditLog(Path(keys.audit_log) if keys.audit_log else audit_path, warn)
            if self._known and all(one.rights is NOTHING for one in self._known.values()):
                warn(
                    f"warning: {keys.clients} has no rights, so these keys may do nothing; say "
                    f"what each may do in {RIGHTS_FILE} (docs/how-to/security.md)"
                )
            self._zap = Zap(
                context, lambda key: key in self._known, write=self._audit.knocked, warn=warn
            )
        context.setsockopt(zmq.CURVE_SERVER, 1)
        context.setsockopt(zmq.CURVE_SECRETKEY, keys.own.secret.encode())

    def _know(self, clients: dict[str, KnownKey]) -> None:
        now = datetime.now(UTC)
        known = unexpired(clients, now)
        authority = Authority(known)  # may refuse: then nothing has changed
        self._clients, self._known, self.authority = clients, known, authority
        dates = {one.name: one.expires for one in clients.values()}
        dates["of this process"] = self._own_expires
        self._date_change = next_change(dates, now) or datetime.max.replace(tzinfo=UTC)
        for warning in expiry_warnings(dates, now):
            if warning not in self._said:
                self._said.add(warning)
                self._warn(f"warning: {warning}")

    @property
    def knows_keys(self) -> bool:
        """Whether each connection has a known key."""
        return self._zap is not None

    def sender(
        self, first: zmq.Frame, connection: Connection | None
    ) -> tuple[str | None, Excess | None]:
        """Whose a message is, where keys are known, by its first frame.

        Returns:
            The public key of its connection, None if it was revoked; and why it is not heard: its
            key has as many connections as it may. It is to be answered so, if it can be, and its
            connection ends a moment later.
        """
        try:
            key = str(first.get("User-Id"))
        except zmq.ZMQError:  # libzmq itself says it, of a connection that has ended
            return None, None
        if key not in self._known:
            return None, None
        return key, None if connection is None else self._excess(connection, self._known[key])

    def _excess(self, speaker: Connection, client: KnownKey) -> Excess | None:
        most = client.rights.connections_max
        if most is UNSET:
            return None
        excess = self._attendance.excess(client.name, speaker, most, _has_ended)
        if excess is not None and speaker not in self._excessive:
            self._excessive[speaker] = time.monotonic() + LAST_WORDS_S
            self.refused(
                Denial(
                    name=client.name,
                    lacking=client.name,
                    client="",
                    verb="CONNECT",
                    right="connections_max",
                    topic="",
                )
            )
        elif excess is None:
            self._excessive.pop(speaker, None)
        return excess

    def connections(self) -> dict[str, int]:
        """How many connections each key has that has a bound of them, by its name."""
        return self._attendance.counts(_is_gone)

    def end_excess(self, now_s: float) -> None:
        """End the connections that are too many, once they had time to take their answer."""
        due = [one for one, at_s in self._excessive.items() if now_s >= at_s]
        for connection in due:
            del self._excessive[connection]
            if not connection.has_ended():
                connection.cut()

    def look(self, now_s: float) -> frozenset[str]:
        """Read the known keys and rights again if they have changed.

        Returns:
            The keys that came, went, or have other rights. What cannot be read changes nothing.
        """
        if self._zap is None or now_s < self._looked_s + LOOK_S:
            return frozenset()
        self._looked_s = now_s
        before = self.authority
        with self._shortage.survived(pause_s=0.0):
            self._read_again()
        return before.changed(self.authority) if self.authority is not before else frozenset()

    def _read_again(self) -> None:
        try:
            signature = _signature(self._place)
            if signature == self._signature:
                self._end_expired()
                return
            clients = read_clients(self._place)
            if self._has_file and clients and not os.path.lexists(self._place / RIGHTS_FILE):
                raise ConfigurationError(
                    f"{self._place / RIGHTS_FILE} is gone: there are no rights any more, so no key "
                    "could do anything; leave the file empty to mean that"
                )
            self._know(clients)
            self._has_file = os.path.lexists(self._place / RIGHTS_FILE)
        except ConfigurationError as error:
            if self._mistake != str(error):  # it is read again until it can be
                self._mistake = str(error)
                self._warn(f"warning: keys and rights are unchanged: {error}")
            self._end_expired()
            return
        self._signature, self._mistake = signature, ""
        if not self._known:
            self._warn(f"warning: {self._place} no longer holds any key, so no client can connect")
        _LOG.info("%d keys are let in", len(self._known))

    def _end_expired(self) -> None:
        if datetime.now(UTC) >= self._date_change:
            self._know(self._clients)

    def refused(self, denial: Denial) -> None:
        """Write to the audit log that a request was refused."""
        if self._audit is not None:
            self._audit.refused(denial)

    @property
    def actions_log(self) -> AuditLog:
        """The audit log for what operators do; without keys it begins with that."""
        if self._audit is None:
            try:
                self._audit = AuditLog(self._audit_path, self._warn)
            except ConfigurationError as error:
                if error.__cause__ is not None and is_shortage(error.__cause__):
                    return AuditLog(None, self._warn)  # the next action tries again
                self._warn(f"warning: {error}; what operators do is logged only")
                self._audit = AuditLog(None, self._warn)
        return self._audit

    def close(self) -> None:
        """Stop the threads; before the context ends."""
        if self._audit is not None:
            self._audit.close()
        if self._zap is not None:
            self._zap.close()


def _is_gone(connection: Hashable) -> bool:
    assert isinstance(connection, Connection)
    return connection.is_gone()


def _has_ended(connection: Hashable) -> bool:
    assert isinstance(connection, Connection)
    return connection.has_ended()


def _signature(place: Path) -> _Signature:
    """Return values that change when a key or rights are added, changed or removed.

    Raises:
        ConfigurationError: the folder cannot be listed.
    """
    files = [*public_files(place), place / RIGHTS_FILE] if place.is_dir() else [place]
    found = []
    for file in files:
        try:
            facts = file.stat()  # of what a link leads to: that is what changes in a Secret
        except OSError:
            continue
        found.append((file.name, facts.st_mtime_ns, facts.st_ino, facts.st_size))
    return tuple(found)
