"""The push socket and the requests of its peers; `pushes.py` has the rules."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import zmq

from reliable_pubsub.common.access.authentication import Authentication
from reliable_pubsub.common.access.entrance import Entrance
from reliable_pubsub.common.access.sockets import Context
from reliable_pubsub.common.core.patterns.matching import Kinds
from reliable_pubsub.relay.core.interest_table import InterestTable
from reliable_pubsub.relay.fan_out import FanOut

from .core.engine import Engine
from .extension import Extension, bind
from .push.pushes import Down, Pushes
from .server_settings import EndpointSettings


class Push(Extension):
    """The socket of pushes."""

    is_unasked = True  # its EVENTS may take long (common/access/guard.py)

    def __init__(
        self,
        context: Context,
        settings: EndpointSettings,
        authentication: Authentication | None = None,
        entrance: Entrance | None = None,
        *,
        boot: str,
    ) -> None:
        """Bind.

        Raises:
            ConfigurationError: the endpoint cannot be bound.
        """
        kinds = Kinds()
        table: InterestTable[bytes] = InterestTable(strategy="dedup", kinds=kinds)
        self._fan_out = bind(
            settings, lambda to: FanOut(context, to, table, kinds, authentication, entrance)
        )
        self.socket: zmq.Socket[bytes] = self._fan_out.socket
        self.endpoint = self._fan_out.endpoint
        self.ready = f"push={self.endpoint}"
        self.pushes = Pushes(
            boot=boot, endpoint=self.endpoint, table=table, kinds=kinds, socket=self._fan_out
        )

    def send(self, down: Down) -> None:
        """Send frames to every peer that wants their topic."""
        self._fan_out.send(down.topic, down.frames)

    def parts(self) -> Sequence[object]:
        """Return the links and what they want."""
        return (self.pushes,)

    def outputs(self) -> Mapping[type[Any], Callable[[Any], None]]:
        """Send pushes."""
        return {Down: self.send}

    def new_turn(self) -> None:
        """A turn of the loop begins."""
        if self.pushes.is_used:
            self._fan_out.new_turn()

    def take(self, _engine: Engine) -> bool:
        """Read the subscriptions of peers; return whether there may be more."""
        is_more = self._fan_out.listen(self.pushes.links)
        self.pushes.is_used |= self._fan_out.plain_count > 0
        return is_more

    def tick(self, _engine: Engine, _now_s: float, judged_s: float) -> None:
        """Forget the links whose lease has ended."""
        self._fan_out.forget(self.pushes.links.expire(judged_s))
        self._fan_out.forget_ended()

    def cut(self, keys: Container[str]) -> None:
        """End the connections of these keys, whose rights have changed."""
        self._fan_out.cut(keys)

    def close(self) -> None:
        """Unbind."""
        self._fan_out.close()
