"""Newcomers: clients with a known key that connect while others attack, and how long that takes.

Some come from the address of the hostile, some from another one. As a client of the library does,
each opens its connection again when nothing has answered for the time of one attempt.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import zmq
from msgspec import Struct

from reliable_pubsub.common.core.settings import Settings
from reliable_pubsub.common.core.status import Status, StatusReport
from reliable_pubsub.common.core.wire import decode_reply, encode
from reliable_pubsub.common.transport import use_keys_of

ADDRESSES: Final = {"from the same address": "127.0.0.1", "from another address": "127.0.0.77"}
ATTEMPT_S: Final = Settings().ack_timeout
PATIENCE_S: Final = 30.0
PER_S: Final = 2.0  # of each sort
CLIENT: Final = "honest-newcomer"
WAIT_MS: Final = 10


class Waited(Struct, frozen=True):
    """How long the newcomers of one sort took to their first answer."""

    seconds: tuple[float, ...]  # of those that got one
    came: int

    @property
    def median_s(self) -> float:
        return statistics.median(self.seconds)


class _Newcomer:
    """One client, from its first attempt to its answer."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, source: str) -> None:
        self._context, self._endpoint, self._source = context, endpoint, source
        self.begun_s = time.monotonic()
        self._open()

    def _open(self) -> None:
        self._attempt_s = time.monotonic()
        self.socket = self._context.socket(zmq.REQ)
        self.socket.setsockopt(zmq.LINGER, 0)
        use_keys_of(self._endpoint, self.socket)
        self.socket.connect(self._endpoint.replace("tcp://", f"tcp://{self._source}:0;"))
        self.socket.send_multipart(encode(Status(client=CLIENT, epoch=0, request=1, rows_max=0)))

    def is_answered(self) -> bool:
        """Whether the answer is there; opens the connection again when an attempt is over."""
        with suppress(zmq.Again):
            reply, _ = decode_reply(self.socket.recv_multipart(zmq.NOBLOCK))
            assert isinstance(reply, StatusReport), reply
            return True
        if time.monotonic() >= self._attempt_s + ATTEMPT_S:
            self.socket.close()
            self._open()
        return False


def newcomers(
    endpoint: str, seconds: float, tick: Callable[[float], None] = lambda _: None
) -> dict[str, Waited]:
    """Start newcomers of each sort for this long, and wait for their answers.

    Args:
        endpoint: with keys that may ask for STATUS.
        tick: called with the seconds that have passed.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    waiting: list[tuple[str, _Newcomer]] = []
    taken: dict[str, list[float]] = {sort: [] for sort in ADDRESSES}
    came = 0
    begun_s = looked_s = time.monotonic()
    until_s = begun_s + seconds
    try:
        while (now_s := time.monotonic()) < until_s or waiting:
            if now_s < until_s and now_s >= begun_s + came / PER_S:
                came += 1
                waiting += [
                    (sort, _Newcomer(context, endpoint, source))
                    for sort, source in ADDRESSES.items()
                ]
            for one in list(waiting):
                sort, newcomer = one
                if newcomer.is_answered():
                    taken[sort].append(now_s - newcomer.begun_s)
                elif now_s < newcomer.begun_s + PATIENCE_S:
                    continue
                newcomer.socket.close()
                waiting.remove(one)
            tick(now_s - looked_s)
            looked_s = now_s
            _wait([newcomer.socket for _, newcomer in waiting])
    finally:
        context.destroy(linger=0)
    return {sort: Waited(tuple(found), came) for sort, found in taken.items()}


def _wait(sockets: Sequence[zmq.Socket[bytes]]) -> None:
    poller = zmq.Poller()
    for one in sockets:
        poller.register(one, zmq.POLLIN)
    poller.poll(WAIT_MS)
