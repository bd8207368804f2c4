"""Intruders: peers with a key that speak CURVE properly, and ask for what is not theirs.

Each connection has a key that is not known, or a known key with an id of the honest, or a known key
with its own id and a request beyond its rights. An unknown key must get nothing, a known one DENIED
or nothing. They are sockets of libzmq, because a raw socket has no CURVE.
"""

from __future__ import annotations

import os
import random
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

import zmq
from msgspec import Struct

from reliable_pubsub.common.core.answers import Denied
from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.message_base import Reply, Start
from reliable_pubsub.common.core.patterns.matching import Pattern
from reliable_pubsub.common.core.requests import Ack, Get, Hello, History, Put, Sub, Unsub
from reliable_pubsub.common.core.status import Status
from reliable_pubsub.common.core.transaction_messages import Stage
from reliable_pubsub.common.core.tree_messages import InterestRequest, Node
from reliable_pubsub.common.core.wire import encode
from reliable_pubsub.common.transport import use_keys_of
from reliable_pubsub.relay.core.unstored import Offer, encode_offer, topic_frame
from reliable_pubsub.relay.core.wire import decode_node_reply

from .attacks import Scene
from .board import Board
from .crowd import TURN_S
from .malformed import BODY

OWN_ID, OWN_TOPIC = "intruder", "intruders-own"  # what its rights are for
LOOK_S: Final = 0.25  # after the beginning and once more; then the connection ends
SOCKETS_MAX: Final = 4_000
HIGHER_EPOCH: Final = 1_000  # it would fence the honest client

Guise = Literal["wrong key", "stolen id", "beyond rights"]
GUISES: Final[tuple[Guise, ...]] = ("wrong key", "stolen id", "beyond rights")
_KINDS: Final[Mapping[str, int]] = {
    "publisher": zmq.DEALER,
    "subscriber": zmq.DEALER,
    "relay": zmq.DEALER,
    "push": zmq.SUB,
    "relay_push": zmq.SUB,
    "ingress": zmq.XPUB,
}


class Target(Struct, frozen=True):
    """An endpoint, as it is reached with a known key and with another one."""

    name: str  # publisher, subscriber, push, ingress, relay, relay_push
    known: str
    unknown: str


def publishers_requests(client: str, scene: Scene, chance: random.Random) -> list[Any]:
    """Requests of which each would change something of the honest publisher, or of its topic."""
    body: Any = {"topic": scene.topic, "count": 1, "crc": crc32(BODY)}
    common: Any = {"client": client, "request": 1}
    at = {"epoch": HIGHER_EPOCH} | common
    return [
        Hello(**at, role="publisher", nonce=chance.randbytes(8), topics=(scene.topic,)),
        Put(**at, **body, first_sequence=chance.randrange(1, 10**6)),
        Stage(**at, **body, transaction=1, task=0, attempt=b"attempt-1", chunk=0),
    ]


def subscribers_requests(client: str, scene: Scene, chance: random.Random) -> list[Any]:
    """The same for the honest subscriber."""
    at: Any = {"client": client, "request": 1, "epoch": HIGHER_EPOCH}
    of: Any = {"topic": scene.topic, "generation": 1, "boot": "", "cursor": 10**9}
    link = chance.randbytes(16)
    wanted = (Pattern("exact", scene.topic),)
    return [
        Hello(**at, role="subscriber", nonce=chance.randbytes(8)),
        Sub(**at, topic=scene.topic, control=10**6, start=Start("earliest")),
        Unsub(**at, topic=scene.topic, control=10**6),
        Get(**at, **of),
        Ack(**at, **of),
        History(**at, topic=scene.topic, start=Start("earliest")),
        Status(**at),
        InterestRequest(**at, link=link, version=1, digest=bytes(32), patterns=wanted),
        Node(**at),
    ]


def is_of_the_id_alone(request: Any, client: str) -> bool:
    """Whether a key may ask this under its own id: it concerns nothing but that id."""
    return (client == OWN_ID and isinstance(request, Unsub)) or (
        isinstance(request, Hello) and not request.topics and client == OWN_ID
    )


class _Role:
    """What the connections of a guise are at a target, and all that they may say."""

    def __init__(self, target: Target, guise: Guise, scene: Scene, chance: random.Random) -> None:
        """Make it once: the CPU of the attackers is that of the attacked, too."""
        self.target, self.guise = target, guise
        client = OWN_ID
        if guise != "beyond rights":
            is_publisher = target.name in ("publisher", "ingress")
            client = scene.publisher if is_publisher else scene.subscriber
        make = publishers_requests if target.name == "publisher" else subscribers_requests
        self.requests = [
            [b"", *encode(one, BODY if isinstance(one, Put | Stage) else None)]
            for one in make(client, scene, chance)
            if not is_of_the_id_alone(one, client)
        ]
        offer = Offer(
            publisher=client, epoch=HIGHER_EPOCH, first_sequence=1, count=1, crc=crc32(BODY)
        )
        self.offer = encode_offer(scene.topic, offer, BODY)
        self.subscription = topic_frame(scene.topic)


class _Connection:
    """One connection, from the first look to its end."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], role: _Role, chance: random.Random
    ) -> None:
        self._role, target = role, role.target
        self.guise = role.guise
        self.socket = context.socket(_KINDS[target.name])
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RECONNECT_IVL, -1)  # a refused one does not come again
        endpoint = target.unknown if role.guise == "wrong key" else target.known
        use_keys_of(endpoint, self.socket)
        self.socket.connect(endpoint)
        if _KINDS[target.name] == zmq.DEALER:
            with suppress(zmq.Again):  # it has been refused already
                self.socket.send_multipart(chance.choice(role.requests), zmq.NOBLOCK)
        elif _KINDS[target.name] == zmq.SUB:
            self.socket.subscribe(role.subscription)

    def heard(self) -> list[list[bytes]]:
        """What has come, without the subscriptions that the ingress announces."""
        found = []
        with suppress(zmq.Again):
            while True:
                found.append(self.socket.recv_multipart(zmq.NOBLOCK))
        if self._role.target.name != "ingress":
            return found
        if found:
            with suppress(zmq.Again):
                self.socket.send_multipart(self._role.offer, zmq.NOBLOCK)
        return []


def answer(frames: list[bytes]) -> Reply | None:
    """A reply; None: it is something else."""
    try:
        return decode_node_reply(frames[1:3]) if frames[0] == b"" else None
    except (MalformedError, IndexError):
        return None


def intrude(
    board: Board,
    scene: Scene,
    targets: Sequence[Target],
    rate: float,
    seed: int,
) -> None:
    """The process of the intruders: connections at a given rate, at each target in turn.

    Args:
        rate: connections a second.
    """
    os.nice(19)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, SOCKETS_MAX)
    chance = random.Random(seed)
    roles = [_Role(one, guise, scene, chance) for one in targets for guise in GUISES]
    due: deque[tuple[float, int, _Connection]] = deque()  # when, looks that are left
    next_s, number = time.monotonic(), 0
    while not board["all_end"]:
        now_s = time.monotonic()
        while due and due[0][0] <= now_s:
            _, left, one = due.popleft()
            judge(board, one)
            if left:
                due.append((now_s + LOOK_S, left - 1, one))
            else:
                one.socket.close()
        next_s = max(next_s, now_s - 0.1)
        while board["flood"] and next_s <= now_s and len(due) < SOCKETS_MAX // 2:
            one = _Connection(context, roles[number % len(roles)], chance)
            due.append((now_s + LOOK_S, 1, one))
            number += 1
            board.add("intrusions")
            next_s += 1 / rate
        time.sleep(TURN_S)
    context.destroy(linger=0)


def judge(board: Board, one: _Connection) -> None:
    """Count what a connection got; all but DENIED to a known key is a fault of the proxy."""
    for frames in one.heard():
        if isinstance(answer(frames), Denied) and one.guise != "wrong key":
            board.add("denials")
        else:
            board.add("answers_beyond_rights")
