"""`World`: the surroundings of a client. One private argument of every client, for tests.

Public constructors take what a user sets. Programs of this package and tests put another world in
place: a transport without a socket, a clock that jumps, a state that loses power, chance by a seed.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from msgspec import Struct

from .core.client_state import ClientState
from .core.recorder import Recorder
from .core.retry import Clock, Transport
from .transport import ReqTransport, SystemClock


class World(Struct, frozen=True, kw_only=True):
    """The surroundings of one client. Every field has the real thing as its default."""

    connect: Callable[[str], Transport] | None = (
        None  # to an endpoint; with it no settings are read
    )
    # To the endpoint of data: a publisher's `OfferLink` (QoS 0), a subscriber's `PushLink`.
    connect_data: Callable[[str], Any] | None = None
    clock: Clock = SystemClock()
    state: ClientState | None = None  # instead of the one in `state_dir`
    chance: Callable[[], float] = random.random  # 0 <= chance < 1
    token: Callable[[int], bytes] = secrets.token_bytes  # so many random bytes
    recorder: Recorder | None = None  # instead of that of the argument `journal`

    @property
    def is_real(self) -> bool:
        """Whether requests reach a proxy; then settings and environment are read."""
        return self.connect is None

    def transport(self, endpoint: str) -> Transport:
        """Connect to an endpoint, in the background."""
        return ReqTransport(endpoint) if self.connect is None else self.connect(endpoint)


REAL: Final = World()
_here = [REAL]


def world_here() -> World:
    """Return the world of clients that are given none."""
    return _here[-1]


@contextmanager
def every_client_in(world: World) -> Iterator[None]:
    """Let the clients that this process opens have this world (`reliable_pubsub.testing`)."""
    _here.append(world)
    try:
        yield
    finally:
        _here.remove(world)
