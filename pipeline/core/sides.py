"""Either of the proxy's two endpoints for requests is enough to find the other. Pure."""

from __future__ import annotations

from reliable_pubsub.common.core.endpoint import endpoints_of, host_of, tcp_endpoint
from reliable_pubsub.common.core.keys import SecureEndpoint, keys_of_endpoint


def swapped(given: str, other: str, own: str) -> str:
    """Return the given endpoint, or the own one if the given one is the other role's.

    The host stays as it was given: the proxy may listen on every interface, or know its host under
    another name. A port that neither has is that of a tunnel, and stays too.

    Args:
        other, own: the proxy's endpoints, as it has bound them.
    """
    keys = keys_of_endpoint(given)
    found = ",".join(_swapped(one, other, own) for one in endpoints_of(given))
    return found if keys is None else SecureEndpoint(found, keys)


def _swapped(given: str, other: str, own: str) -> str:
    host = host_of(given, bind=False)
    if not host or not own.startswith("tcp:"):
        return own if given == other else given
    if _port(given) != _port(other):
        return given
    return tcp_endpoint(host, _port(own))


def _port(endpoint: str) -> str:
    return endpoint.rpartition(":")[2]
