"""The push socket and the requests of its peers; `pushes.py` has the rules."""

from __future__ import annotations

from collections.abc import Callable, Container
from contextlib import suppress
from typing import TypeVar

from msgspec import Struct

from reliable_pubsub.common.access.authentication import Authentication
from reliable_pubsub.common.access.entrance import Entrance
from reliable_pubsub.common.access.sockets import Context
from reliable_pubsub.common.core.endpoint import with_any_port
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.patterns.matching import Kinds
from reliable_pubsub.relay.core.interest_table import InterestTable
from reliable_pubsub.relay.fan_out import FanOut

from .push.pushes import Down, Pushes

Bound = TypeVar("Bound")


class EndpointSettings(Struct, frozen=True, kw_only=True):
    """The endpoint of pushed data, or of QoS 0 data."""

    endpoint: str
    # The endpoint is the default: if it is in use, any free port will do; peers learn the port.
    is_default: bool = False


class Push:
    """The socket of pushes; used by the loop thread only."""

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
        self.socket = self._fan_out.socket
        self.endpoint = self._fan_out.endpoint
        self.pushes = Pushes(
            boot=boot, endpoint=self.endpoint, table=table, kinds=kinds, socket=self._fan_out
        )

    def send(self, down: Down) -> None:
        """Send frames to every peer that wants their topic."""
        self._fan_out.send(down.topic, down.frames)

    def new_turn(self) -> None:
        """A turn of the loop begins."""
        self._fan_out.new_turn()

    def listen(self) -> bool:
        """Read the subscriptions of peers; return whether there may be more."""
        is_more = self._fan_out.listen(self.pushes.links)
        self.pushes.is_used |= self._fan_out.plain_count > 0
        return is_more

    def expire(self, now_s: float) -> None:
        """Forget the links whose lease has ended."""
        self._fan_out.forget(self.pushes.links.expire(now_s))
        self._fan_out.forget_ended()

    def cut(self, keys: Container[str]) -> None:
        """End the connections of these keys, whose rights have changed."""
        self._fan_out.cut(keys)

    def close(self) -> None:
        """Unbind."""
        self._fan_out.close()


def bind(settings: EndpointSettings, bind_to: Callable[[str], Bound]) -> Bound:
    """Bind to the endpoint, or to a free port beside it if a default endpoint is in use.

    Raises:
        ConfigurationError: the endpoint cannot be bound.
    """
    if settings.is_default:
        with suppress(ConfigurationError):
            return bind_to(settings.endpoint)
        return bind_to(with_any_port(settings.endpoint))
    return bind_to(settings.endpoint)
