"""What counts for which key: client ids, topics, and the bytes stored under the ids. Pure.

An id counts for the key that has last begun a session or put under it, a topic for the key that
made it. A record says so (`Charged`), so it holds after a restart; what is no longer there counts
no more at once, and its record is removed later (rule R26).
"""

from __future__ import annotations

from msgspec import Struct, field

from reliable_pubsub.common.core.message_base import Role

from .records import Charge, Charged


class Account(Struct):
    """What counts for one key."""

    ids: set[tuple[Role, str]] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    stored_bytes: int = 0  # of bodies, put under these ids


class Accounts:
    """The accounts of all keys, and the bytes under each id, charged to a key or not."""

    def __init__(self) -> None:
        """Nothing is stored, and nothing counts for any key."""
        self.of: dict[str, Account] = {}  # by name of the key
        self.stored_bytes = 0  # under all ids
        self.ended: dict[tuple[Charge, str], None] = {}  # count no more, and still have a record
        self._key_of: dict[tuple[Charge, str], str] = {}
        self._stored: dict[tuple[Role, str], int] = {}  # bytes by id

    def key_of(self, kind: Charge, name: str) -> str | None:
        """The name of the key for which an id or a topic counts; None: for none."""
        return self._key_of.get((kind, name))

    def charges(self) -> list[Charged]:
        """All that counts for a key, in order."""
        return [Charged(*one, key) for one, key in sorted(self._key_of.items())]

    def stored_under(self, role: Role, name: str) -> int:
        """The bytes stored under an id."""
        return self._stored.get((role, name), 0)

    def charge(self, charged: Charged) -> None:
        """Let an id or a topic count for a key, and no longer for another."""
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
        """An id or a topic is there no more."""
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
        """Count bytes that are stored under an id, or, below 0, removed; return what is left."""
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
