"""What keys and rights cost: a connection, and a put of 100 bytes and of 100 KB.

Each as the time that the client waits, and as CPU of the proxy, which other work on the machine
changes less. Three proxies run side by side and are measured in turn: without keys, with keys, and
with rights as well. They run at durability `snapshot`, so that no disk is waited for.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from reliable_pubsub import Publisher, secure
from reliable_pubsub.common.core.status import Status
from reliable_pubsub.common.core.wire import encode
from reliable_pubsub.common.key_files import new_pair
from reliable_pubsub.common.transport import ReqTransport

from .cpu_costs import cpu_ns
from .measuring import ANSWER_S, Row, compared, folder, proxy

CLIENT: Final = "bench-security"
SIZES: Final = {"100 bytes": (100, 500), "100 KB": (100_000, 100)}  # bytes, puts of a round
CONNECTION: Final = "connection to the first answer"
CONNECTIONS: Final = 40  # of a round
_SNAPSHOT: Final = {"durability": "snapshot"}


class _Running(Struct, frozen=True):
    """One proxy, with the endpoint as the client reaches it, and what was measured there."""

    endpoint: str
    pid: int
    waited_us: dict[str, list[float]]  # by work; one for each round
    cpu_us: dict[str, list[float]]


def security_rows(rounds: int) -> list[Row]:
    """All of it."""
    works: dict[str, Callable[[str], list[float]]] = {
        CONNECTION: connect,
        **{f"put of {size}": partial(put, *SIZES[size]) for size in SIZES},
    }
    with all_proxies(list(works)) as found:
        for _ in range(rounds):
            for one in found.values():
                for name, work in works.items():
                    before_ns = cpu_ns(one.pid)
                    taken_s = work(one.endpoint)
                    used_ns = cpu_ns(one.pid) - before_ns
                    one.waited_us[name].append(1e6 * statistics.median(taken_s))
                    one.cpu_us[name].append(1e-3 * used_ns / len(taken_s))
    keyless, keyed, governed = found["no keys"], found["keys"], found["keys and rights"]
    rows = []
    for name in works:
        for what, of in (("", "waited_us"), (", CPU of the proxy", "cpu_us")):
            plain, encrypted, decided = (
                getattr(one, of)[name] for one in (keyless, keyed, governed)
            )
            rows += [
                compared(f"{name}{what}, with keys", "us", encrypted, plain, "no keys"),
                compared(f"{name}{what}, with rights", "us", decided, encrypted, "keys"),
            ]
    return rows


@contextmanager
def all_proxies(works: Sequence[str]) -> Iterator[Mapping[str, _Running]]:
    """The three proxies, by name; nothing of the works is measured yet."""
    with ExitStack() as stack:
        keys = stack.enter_context(folder())
        for name in ("proxy", CLIENT):
            new_pair(keys, name)
        public = (keys / f"{CLIENT}.key").read_text()
        found = {"no keys": _started(stack, {}, works)}
        encrypted = {"secret_key": str(keys / "proxy.key_secret")}
        found["keys"] = _started(stack, encrypted, works, keys)
        clients = keys / "clients"
        clients.mkdir()
        (clients / f"{CLIENT}.key").write_text(public)
        rights = {CLIENT: {"put": ["bench"], "status": ["*"]}}
        (clients / "rights.yaml").write_text(msgspec.yaml.encode(rights).decode())
        governed = {**encrypted, "clients": str(clients)}
        found["keys and rights"] = _started(stack, governed, works, keys)
        yield found


def _started(
    stack: ExitStack, settings: Mapping[str, str], works: Sequence[str], keys: Path | None = None
) -> _Running:
    running = stack.enter_context(proxy(msgspec.yaml.encode({**_SNAPSHOT, **settings}).decode()))
    endpoint = running.publishers
    if keys is not None:
        own = keys / f"{CLIENT}.key_secret"
        endpoint = secure(endpoint, str(keys / "proxy.key"), str(own))
    return _Running(
        endpoint, running.pid, {name: [] for name in works}, {name: [] for name in works}
    )


def connect(endpoint: str) -> list[float]:
    """Seconds from a new socket to its first answer, of each connection."""
    request = encode(Status(client="status-0badcafe", epoch=0, request=1))
    taken_s = []
    for _ in range(CONNECTIONS):
        begun_s = time.perf_counter()
        transport = ReqTransport(endpoint)
        transport.send(request)
        if transport.receive(ANSWER_S) is None:
            raise RuntimeError(f"no answer of {endpoint}")
        taken_s.append(time.perf_counter() - begun_s)
        transport.close()
    return taken_s


def put(size_bytes: int, puts: int, endpoint: str) -> list[float]:
    """Seconds of each put, from its call to its answer."""
    payload, taken_s = b"x" * size_bytes, []
    with Publisher(CLIENT, endpoint=endpoint) as publisher:
        publisher.connect()
        for _ in range(puts):
            begun_s = time.perf_counter()
            publisher.put("bench", payload)
            taken_s.append(time.perf_counter() - begun_s)
    return taken_s
