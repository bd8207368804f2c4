"""Two hostile parties that work together: what one puts the other asks for.

Both are known to the proxy and speak the protocol; each request is forbidden to clients in their
place, or allowed. What one alone cannot reach two can: stored bodies that are no batch, counts that
lie, places that do not exist (MBFuzzer, USENIX Security 2025). On the honest topic they put only
what is valid, and every answer must be the one that the protocol names.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any

import msgspec
import zmq

from reliable_pubsub.common.core.answers import (
    AnyReply,
    Conflict,
    Duplicate,
    Fenced,
    Gap,
    HelloAck,
    LogChanged,
    MessageBatches,
    NoMessagesYet,
    NotSub,
    PutAck,
    Stale,
    SubAck,
    UnsubAck,
)
from reliable_pubsub.common.core.batch import Batch, crc32
from reliable_pubsub.common.core.limits import BATCH_MESSAGES_MAX
from reliable_pubsub.common.core.message_base import Start
from reliable_pubsub.common.core.requests import (
    Ack,
    AnyRequest,
    Get,
    Hello,
    History,
    Put,
    Sub,
    Unsub,
)
from reliable_pubsub.common.core.wire import decode_reply, encode, encode_batch

from .attacks import Scene
from .board import HONEST_TOPIC, IDLE, Board

PUBLISHER, SUBSCRIBER = "accomplice", "accomplice"  # two clients, one for each role
OWN = "their-own-topic"
PAUSE_S = 0.02  # between two requests of the pair
ANSWER_MS = 10_000
EARLIEST = Start("earliest")
OTHER = encode_batch(Batch([b"another content"]))

Answers = tuple[type[AnyReply], ...]
MESSAGES: Answers = (MessageBatches, NoMessagesYet)


def payload(number: int) -> bytes:
    """Content of the accomplice's message 1, 2, 3, ... on the honest topic."""
    return b"accomplice %d" % number


class WrongAnswerError(AssertionError):
    """The proxy answered what the protocol does not name there."""


class _Party:
    """One REQ socket, one request under way."""

    def __init__(self, client: str, endpoint: str) -> None:
        self.client = client
        self.epoch = 1
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.REQ)
        self._socket.setsockopt(zmq.RCVTIMEO, ANSWER_MS)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(endpoint)
        self._request = 0

    def ask(
        self, kind: type[AnyRequest], expected: Answers, body: bytes | None = None, **fields: Any
    ) -> AnyReply:
        """Ask; the answer must be one of those expected."""
        self._request += 1
        who = {"client": self.client, "epoch": self.epoch, "request": self._request}
        if body is not None:
            fields = {"crc": crc32(body)} | fields
        request = msgspec.convert(who | fields, kind)
        self._socket.send_multipart(encode(request, body))
        reply = decode_reply(self._socket.recv_multipart())[0]
        if not isinstance(reply, expected) or reply.request != request.request:
            raise WrongAnswerError(f"{request} was answered {reply}")
        return reply


class Publishing:
    """The one that puts."""

    def __init__(self, endpoint: str, chance: random.Random) -> None:
        """Get an epoch."""
        self.last: dict[str, int] = {}  # sequence, by topic
        self._chance = chance
        self._party = _Party(PUBLISHER, endpoint)
        nonce = b"accomplice-1"
        self._party.ask(Hello, (HelloAck,), role="publisher", nonce=nonce)

    def put(self, topic: str) -> None:
        """What any client may do: the next message."""
        number = self.last.get(topic, 0) + 1
        self._put(topic, number, (PutAck,), encode_batch(Batch([payload(number)])))
        self.last[topic] = number

    def harass(self, topic: str) -> None:
        """One request that must change nothing."""
        last = self.last[topic]
        good = encode_batch(Batch([payload(last)]))
        moves: list[Callable[[], AnyReply]] = [
            lambda: self._put(topic, last, (Duplicate,), good),
            lambda: self._put(topic, last, (Conflict,), OTHER),
            lambda: self._put(topic, last + 2, (Gap,), OTHER),
            lambda: self._put(topic, last, (Gap,), OTHER, count=2),
            lambda: self._put(topic, last + 1, (Fenced,), OTHER, epoch=0),
            lambda: self._put(topic, last + 1, (Fenced,), OTHER, epoch=2**62),
            lambda: self._put(topic, 2**62, (Gap,), OTHER, count=BATCH_MESSAGES_MAX),
            lambda: self._party.ask(
                Hello, (Fenced,), role="publisher", nonce=b"another-one", topics=[topic]
            ),
        ]
        self._chance.choice(moves)()

    def lie(self, topic: str) -> None:
        """A body that is no batch, a count that is not true: this topic cannot be read."""
        number = self.last.get(topic, 0) + 1
        count = self._chance.choice([1, 7, BATCH_MESSAGES_MAX])
        body = self._chance.randbytes(self._chance.randrange(200))
        self._put(topic, number, (PutAck,), body, count=count)
        self.last[topic] = number + count - 1

    def _put(
        self, topic: str, number: int, expected: Answers, body: bytes, count: int = 1, **more: Any
    ) -> AnyReply:
        fields = {"topic": topic, "first_sequence": number, "count": count} | more
        return self._party.ask(Put, expected, body, **fields)


class Subscribing:
    """The one that gets."""

    def __init__(self, endpoint: str, chance: random.Random) -> None:
        """Get an epoch."""
        self._chance = chance
        self._party = _Party(SUBSCRIBER, endpoint)
        self._control = 0
        self._held: dict[str, SubAck] = {}
        self._party.ask(Hello, (HelloAck,), role="subscriber", nonce=b"accomplice-2")

    def move(self, topic: str) -> None:
        """One request, in its place or not."""
        held = self._held.get(topic)
        if held is None:
            self._subscribe(topic, start=self._chance.choice([None, EARLIEST]))
            return
        mine: dict[str, Any] = {"topic": topic, "generation": held.generation, "boot": held.boot}
        nowhere: dict[str, Any] = {"cursor": 2**62}
        again: dict[str, Any] = {"cursor": 0, "log": held.log}
        not_mine: Answers = (Stale, NotSub)
        moves: list[Callable[[], object]] = [
            lambda: self._party.ask(Get, MESSAGES, **mine, cursor=held.cursor, messages_max=50),
            lambda: self._party.ask(Get, MESSAGES, **mine, cursor=0, bytes_max=0),
            lambda: self._party.ask(Get, (LogChanged,), **mine | nowhere),
            lambda: self._party.ask(Ack, (LogChanged,), **mine | nowhere),
            lambda: self._party.ask(Get, not_mine, **mine | {"generation": 2**62}, cursor=0),
            lambda: self._party.ask(Get, not_mine, **mine | {"boot": "another"}, cursor=0),
            lambda: self._party.ask(Ack, not_mine, **mine | {"generation": 2**62}, cursor=0),
            lambda: self._party.ask(Sub, (Stale, SubAck), topic=topic, control=1, **again),
            lambda: self._party.ask(Get, (Fenced,), **mine | {"epoch": 0}, cursor=0),
            lambda: self._party.ask(
                History, MESSAGES, topic=topic, start=EARLIEST, messages_max=50
            ),
            lambda: self._subscribe(topic, **again),
            lambda: self._subscribe(topic, cursor=2**62, log="another", expected=(LogChanged,)),
            lambda: self._leave(topic),
        ]
        self._chance.choice(moves)()

    def _subscribe(self, topic: str, *, expected: Answers = (SubAck,), **fields: Any) -> None:
        self._control += 1
        reply = self._party.ask(Sub, expected, topic=topic, control=self._control, **fields)
        if isinstance(reply, SubAck):
            self._held[topic] = reply

    def _leave(self, topic: str) -> None:
        self._control += 1
        self._party.ask(Unsub, (UnsubAck,), topic=topic, control=self._control)
        del self._held[topic]


def conspire(board: Board, scene: Scene, publishers: str, subscribers: str, seed: int) -> None:
    """Work until the board says to end; a wrong answer ends the process with a traceback."""
    os.nice(19)
    chance = random.Random(seed)
    publishing, subscribing = Publishing(publishers, chance), Subscribing(subscribers, chance)
    while not board["all_end"]:
        time.sleep(PAUSE_S)
        if board["accomplices_do"] == IDLE:
            continue
        honest = board["accomplices_do"] == HONEST_TOPIC
        topic = scene.topic if honest else OWN
        work(publishing, subscribing, topic, honest, chance)
        board["accomplice_puts"] = publishing.last.get(scene.topic, 0)
        board.add("accomplice_answers")


def work(
    publishing: Publishing,
    subscribing: Subscribing,
    topic: str,
    honest: bool,
    chance: random.Random,
) -> None:
    """One action of one of them."""
    if topic not in publishing.last or (honest and chance.random() < 0.3):
        publishing.put(topic)
    elif not honest and chance.random() < 0.3:
        publishing.lie(topic)
    elif honest and chance.random() < 0.5:
        publishing.harass(topic)
    else:
        subscribing.move(topic)
