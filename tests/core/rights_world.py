"""A proxy whose clients have keys and rights, for the tests of both."""

from __future__ import annotations

from typing import Any

from msgspec import convert

from reliable_pubsub.common.access.core.authorisation import Authority
from reliable_pubsub.common.core.message_base import Reply, Role
from reliable_pubsub.common.core.requests import Hello
from reliable_pubsub.common.core.rights import NOTHING, KnownKey, Rights
from reliable_pubsub.common.core.tree_messages import InterestRequest, Node
from reliable_pubsub.common.core.wire import decode_reply, encode
from reliable_pubsub.proxy.features import TABLES
from reliable_pubsub.relay.core.wire import decode_node_reply
from tests.fakes import MemoryProxy

Said = dict[str, Any]  # rights as an operator writes them


def key_of(name: str) -> str:
    """The public key of a name."""
    return f"{name:x<40}"


def authority(**said: Said | None) -> Authority:
    """What keys may do, by their names (`_` stands for `-`)."""
    names = {name.replace("_", "-"): one for name, one in said.items()}
    return Authority(
        {
            key_of(name): KnownKey(
                name=name, rights=NOTHING if one is None else convert(one, Rights)
            )
            for name, one in names.items()
        }
    )


def _endpoint_of(request: Any) -> Role:
    if isinstance(request, Hello):
        return request.role
    return TABLES.endpoints.get(type(request), "subscriber") or "subscriber"


class GovernedProxy(MemoryProxy):
    """A proxy in memory, asked over connections with keys."""

    def __init__(self, **said: Said | None) -> None:
        super().__init__()
        self.engine.govern(authority(**said))

    def ask_as(
        self,
        name: str,
        request: Any,
        body: bytes | None = None,
        *,
        over: str = "asker",
        role: Role | None = None,
    ) -> Reply | None:
        """Ask over a connection with the key of a name; None: there is no answer yet.

        Args:
            role: of the endpoint; None: of the one that takes this verb.
        """
        of_tree = isinstance(request, InterestRequest | Node)
        if role is None:
            role = "subscriber" if of_tree else _endpoint_of(request)
        self.engine.receive(
            encode(request, body),
            over,
            role=role,
            now_s=self.now_s,
            now_ns=self.now_ns,
            key=key_of(name),
        )
        return self.answer(over)

    def answer(self, over: str = "asker") -> Reply | None:
        """Make all durable; return the answer that has come."""
        self._carry_out()
        self.commit()
        self.frames_of_answer = frames = self._answers.pop(over, [])
        if not frames:
            return None
        return decode_reply(frames)[0] if len(frames) > 2 else decode_node_reply(frames)
