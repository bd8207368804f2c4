"""Which client ids, topics and stored bytes are charged to which key. Pure.

An id is charged to the key that last began a session or put under it, a topic to the key that
created it. A record keeps this across a restart (`Charged`). An id or a topic that ends is no
longer charged at once; the record is removed later (rule R26).
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from reliable_pubsub.common.core.message_base import Role

Charge = Literal["publisher", "subscriber", "topic"]  # what is charged to a key: an id, or a topic


class StoredCharge(Struct, frozen=True, gc=False):
    """The key to which an id or a topic is charged."""

    kind: Charge
    name: str
    key: str  # its name


class Account(Struct):
    """What is charged to one key."""

    ids: set[tuple[Role, str]] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    stored_bytes: int = 0  # of bodies, put under these ids


class Accounts:
    """The accounts of all keys, and the bytes under each id, charged to a key or not."""

    def __init__(self) -> None:
        self.of: dict[str, Account] = {}  # by name of the key
        self.stored_bytes = 0  # under all ids
        self.ended: dict[tuple[Charge, str], None] = {}  # no longer charged, with a record still
        self._key_of: dict[tuple[Charge, str], str] = {}
        self._stored: dict[tuple[Role, str], int] = {}  # bytes by id

    def key_of(self, kind: Charge, name: str) -> str | None:
        """The name of the key to which an id or a topic is charged; None: to none."""
        return self._key_of.get((kind, name))

    def charges(self) -> list[StoredCharge]:
        """All charges, in order."""
        return [StoredCharge(*one, key) for one, key in sorted(self._key_of.items())]

    def stored_under(self, role: Role, name: str) -> int:
        """The bytes stored under an id."""
        return self._stored.get((role, name), 0)

    def charge(self, charged: StoredCharge) -> None:
        """Charge an id or a topic to a key, and no longer to another."""
        one = (charged.kind, charged.name)
        self.end(*one)
        self.ended.pop(one, None)
        self._key_of[one] = charged.key
        account = self.of.setdefault(charged.key, Account())
        if charged.kind == "topic":
            account.topics.add(charged.name)
        else:
            account.ids.add((charged.kind, charged.name))
            account.stored_bytes += self.stored_under(charged.kind, charged.name)

    def end(self, kind: Charge, name: str) -> None:
        """End the charge of an id or a topic that no longer exists."""
        key = self._key_of.pop((kind, name), None)
        if key is None:
            return
        self.ended[kind, name] = None
        account = self.of[key]
        if kind == "topic":
            account.topics.discard(name)
        else:
            account.ids.discard((kind, name))
            account.stored_bytes -= self.stored_under(kind, name)
        if not (account.ids or account.topics):
            del self.of[key]

    def stored(self, role: Role, name: str, size_bytes: int) -> int:
        """Count bytes stored under an id (below 0: removed); return how many are left."""
        one = (role, name)
        self.stored_bytes += size_bytes
        left = self._stored.get(one, 0) + size_bytes
        if left:
            self._stored[one] = left
        else:
            self._stored.pop(one, None)
        key = self._key_of.get(one)
        if key is not None:
            self.of[key].stored_bytes += size_bytes
        return left
