"""What keys and rights cost: a handshake, and a put of 100 bytes and of 100 KB.

Three proxies run side by side and are measured in turn: without keys, with keys, and with rights as
well. They run at durability `snapshot`, so that no disk is waited for.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from reliable_pubsub import Publisher, secure
from reliable_pubsub.common.core.messages import Status
from reliable_pubsub.common.core.wire import encode_request
from reliable_pubsub.common.key_files import new_pair
from reliable_pubsub.common.transport import ReqTransport

from .measuring import ANSWER_S, Row, compared, folder, proxy

CLIENT: Final = "bench-security"
SIZES: Final = {"100 bytes": (100, 500), "100 KB": (100_000, 100)}  # bytes, puts of a round
HANDSHAKES: Final = 40  # of a round
STEPS_PER_ROUND: Final = 3
_SNAPSHOT: Final = {"durability": "snapshot"}


class _Measured(Struct, frozen=True):
    """One proxy, with the endpoint as the client reaches it."""

    endpoint: str
    handshake_us: list[float] = msgspec.field(default_factory=list)  # one for each round
    put_us: dict[str, list[float]] = msgspec.field(
        default_factory=lambda: {size: [] for size in SIZES}
    )


def security_rows(rounds: int, tick: Callable[[], None]) -> list[Row]:
    """All of it."""
    with all_proxies() as found:
        for _ in range(rounds):
            for one in found.values():
                one.handshake_us.append(handshake_us(one.endpoint))
                for size, taken in one.put_us.items():
                    taken.append(put_us(one.endpoint, *SIZES[size]))
                tick()
    keyless, keyed, governed = found["no keys"], found["keys"], found["keys and rights"]
    first = "connection to the first answer"
    rows = [
        compared(f"{first}, with keys", "us", keyed.handshake_us, keyless.handshake_us, "no keys"),
        compared(f"{first}, with rights", "us", governed.handshake_us, keyed.handshake_us, "keys"),
    ]
    for size in SIZES:
        plain, encrypted, decided = (one.put_us[size] for one in (keyless, keyed, governed))
        rows += [
            compared(f"put of {size}, with keys", "us", encrypted, plain, "no keys"),
            compared(f"put of {size}, with rights", "us", decided, encrypted, "keys"),
        ]
    return rows


@contextmanager
def all_proxies() -> Iterator[Mapping[str, _Measured]]:
    """The three proxies."""
    with ExitStack() as stack:
        keys = stack.enter_context(folder())
        for name in ("proxy", CLIENT):
            new_pair(keys, name)
        public = (keys / f"{CLIENT}.key").read_text()
        found = {"no keys": _Measured(_running(stack, {}))}
        rights = {CLIENT: {"put": ["bench"], "status": ["*"]}}
        for case, said in (("keys", None), ("keys and rights", rights)):
            clients = keys / case.replace(" ", "-")
            clients.mkdir()
            (clients / f"{CLIENT}.key").write_text(public)
            if said is not None:
                (clients / "rights.yaml").write_text(msgspec.yaml.encode(said).decode())
            settings = {"secret_key": str(keys / "proxy.key_secret"), "clients": str(clients)}
            endpoint = _running(stack, settings)
            found[case] = _Measured(_reached(endpoint, keys))
        yield found


def _running(stack: ExitStack, settings: Mapping[str, str]) -> str:
    text = msgspec.yaml.encode({**_SNAPSHOT, **settings}).decode()
    return stack.enter_context(proxy(text)).publishers


def _reached(endpoint: str, keys: Path) -> str:
    return secure(endpoint, str(keys / "proxy.key"), str(keys / f"{CLIENT}.key_secret"))


def handshake_us(endpoint: str) -> float:
    """Microseconds from a new socket to its first answer; the median of some."""
    request = encode_request(Status(client="status-0badcafe", epoch=0, request=1))
    taken = []
    for _ in range(HANDSHAKES):
        begun_s = time.perf_counter()
        transport = ReqTransport(endpoint)
        transport.send(request)
        if transport.receive(ANSWER_S) is None:
            raise RuntimeError(f"no answer of {endpoint}")
        taken.append(time.perf_counter() - begun_s)
        transport.close()
    return 1e6 * statistics.median(taken)


def put_us(endpoint: str, size_bytes: int, puts: int) -> float:
    """Microseconds of a put, answered; the median of some."""
    payload, taken = b"x" * size_bytes, []
    with Publisher(CLIENT, endpoint=endpoint) as publisher:
        publisher.put("bench", payload)
        for _ in range(puts):
            begun_s = time.perf_counter()
            publisher.put("bench", payload)
            taken.append(time.perf_counter() - begun_s)
    return 1e6 * statistics.median(taken)
