"""The shell of a feature: its socket, and what the loop does for it. `shells.py` lists them."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence, Sized
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import zmq
from msgspec import Struct

from reliable_pubsub.common.access.authentication import Authentication
from reliable_pubsub.common.access.connections import Connections
from reliable_pubsub.common.access.entrance import Entrance
from reliable_pubsub.common.access.sockets import Context
from reliable_pubsub.common.core.endpoint import with_any_port
from reliable_pubsub.common.core.errors import ConfigurationError

from .committer import Committer
from .core.engine import Engine
from .server_settings import EndpointSettings, ServerSettings
from .store import Store

if TYPE_CHECKING:
    from .postgres_store import PostgresStore

Bound = TypeVar("Bound")


class Surroundings(Struct):
    """What a proxy has when its extensions are made."""

    context: Context
    settings: ServerSettings
    authentication: Authentication
    entrance: Entrance
    boot: str  # random name of this start of the proxy
    publisher_endpoint: str
    subscriber_endpoint: str
    store: Store | PostgresStore
    committer: Committer
    wake: Callable[[], None]  # the loop
    scrapes: Any  # of the metrics endpoint; None: there is none


class Extension:
    """The shell of a feature; used by the loop thread only. What it does not need does nothing."""

    socket: zmq.Socket[bytes] | None = None
    is_unasked = False  # of the socket: it is served whenever it wakes
    connections: Connections | None = None  # of the socket, for the guard
    ready = ""  # its part of the ready line
    asked: Sized = ()  # while it is not empty, `work` has something to do

    def parts(self) -> Sequence[object]:
        """Return the values that its feature has in memory."""
        return ()

    def outputs(self) -> Mapping[type[Any], Callable[[Any], None]]:
        """Return what carries out the outputs of its feature, by type."""
        return {}

    def begin(self, engine: Engine) -> None:
        """Continue what the process before this one has left."""

    def new_turn(self) -> None:
        """A turn of the loop begins."""

    def take(self, engine: Engine) -> bool:
        """Take what has come to the socket; return whether there may be more."""
        return False

    def work(self, engine: Engine, now_s: float) -> None:
        """Do one more piece, of bounded cost, of what it was asked for."""

    def tick(self, engine: Engine, now_s: float, judged_s: float) -> None:
        """Do what is due by time; `judged_s` is the time by which silence is judged."""

    def cut(self, keys: Container[str]) -> None:
        """End the connections of these keys, whose rights have changed."""

    def close(self) -> None:
        """Unbind."""


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
