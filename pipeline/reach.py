"""Whether a task reaches a proxy whose endpoint is of one machine only (loopback, or `ipc:`).

Such an endpoint means another place on each machine. A task elsewhere finds nothing there and would
ask for minutes; here it looks once. Something does answer where a person has laid a tunnel.
"""

from __future__ import annotations

import platform
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec import Struct

from reliable_pubsub.common.core.endpoint import host_of, is_local
from reliable_pubsub.common.core.errors import ConfigurationError

PATIENCE_S: Final = 2.0
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NETWORK: Final = Path("/proc/self/ns/net")  # a container has its own loopback


class ReachCheck(Struct, frozen=True):
    """See whether this endpoint is reached from where you are."""

    endpoint: str
    planned_on: str  # `machine()` of where the endpoint was named


def machine() -> str:
    """Names the loopback interface that this process sees."""
    if _BOOT.exists() and _NETWORK.is_symlink():
        return f"{_BOOT.read_text().strip()} {_NETWORK.readlink()}"
    return platform.node()


def check_reachable(wish: ReachCheck) -> bool:
    """In a task: see whether something listens.

    Raises:
        ConfigurationError: the endpoint is of another machine.
    """
    host = host_of(wish.endpoint, bind=False)
    if host is None or not is_local(host) or machine() == wish.planned_on:
        return True
    try:
        _connect(wish.endpoint, host)
    except OSError as error:
        raise ConfigurationError(
            f"endpoint {wish.endpoint} is of the machine where the job was started, and this task "
            f"runs on another one ({platform.node()}), where nothing listens there. Nothing was "
            "read or put by it. Let the proxy listen on an address that the workers reach "
            "(--subscriber-endpoint, --publisher-endpoint of `reliable-pubsub proxy`, with keys: "
            "`reliable-pubsub keys`), and give that one with --endpoint or option endpoint"
        ) from error
    return True


def _connect(endpoint: str, host: str) -> None:
    if not host:
        with socket.socket(socket.AF_UNIX) as local:
            local.settimeout(PATIENCE_S)
            local.connect(endpoint.removeprefix("ipc://"))
        return
    port = int(endpoint.rpartition(":")[2])
    socket.create_connection((host, port), PATIENCE_S).close()


def reach_checks(endpoints: Iterable[str]) -> list[ReachCheck]:
    """What tasks of a job are to look at: the endpoints that are of this machine only."""
    here = machine()
    return [
        ReachCheck(one, here)
        for one in dict.fromkeys(endpoints)
        if (host := host_of(one, bind=False)) is not None and is_local(host)
    ]
