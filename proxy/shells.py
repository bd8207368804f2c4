"""The shells of the features: a proxy without them has two ROUTER sockets and a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .auditing import Auditing
from .extension import Extension, Surroundings
from .ingress import Ingress
from .observation import Observation
from .push_sockets import Push


def _push(at: Surroundings) -> Push:
    return Push(at.context, at.settings.push, at.authentication, at.entrance, boot=at.boot)


def _ingress(at: Surroundings) -> Ingress:
    return Ingress(at.context, at.settings.ingress, at.authentication, at.entrance)


SHELLS: Final[tuple[Callable[[Surroundings], Extension], ...]] = (
    *(_push, _ingress),
    *(Auditing, Observation),
)
