"""Worlds with a key for all publishers and one for all subscribers; their accounts are judged.

Both may do everything, so nothing is refused: what is tried is that accounts follow what is stored,
through crashes, failed commits and retention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from reliable_pubsub.common.access.core.authorisation import Authority
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.core.rights import KnownKey, Rights
from reliable_pubsub.proxy.access.accounts import Accounts
from reliable_pubsub.proxy.core.state import State

_ALL: Final = ("*",)
_RIGHTS: Final = Rights(
    ids=_ALL, put=_ALL, get=_ALL, history=_ALL, dead_letters=_ALL, status=_ALL, admin=_ALL
)
KEYS: Final[Mapping[Role, str]] = {"publisher": "w" * 40, "subscriber": "r" * 40}
NO_KEYS: Final[Mapping[Role, str]] = {"publisher": "", "subscriber": ""}
NAMES: Final[Mapping[Role, str]] = {"publisher": "writers", "subscriber": "readers"}
AUTHORITY: Final = Authority(
    {KEYS[role]: KnownKey(name=NAMES[role], rights=_RIGHTS) for role in KEYS}
)


def judge_accounts(state: State) -> None:
    """What counts for each key is what is there: its ids, the bytes under them, and all topics."""
    counted: Counter[str] = Counter()
    for log in state.topics.values():
        for segment in log.segments:
            counted[NAMES[log.put_by]] += sum(segment.bytes_by.values())
        assert sum(s.body_bytes for s in log.segments) == log.stored_bytes
    accounts = state.part(Accounts)
    held = {name: one.stored_bytes for name, one in accounts.of.items() if one.stored_bytes}
    assert held == +counted, f"{held} count, {dict(+counted)} are stored"
    assert accounts.stored_bytes == counted.total()
    for role, client in state.sessions:
        assert accounts.key_of(role, client) == NAMES[role], f"the {role} {client!r} is not charged"
    for topic in state.topics.keys() - state.deleted_topics:
        assert accounts.key_of("topic", topic) is not None, f"topic {topic!r} is not charged"
