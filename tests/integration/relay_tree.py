"""Relays under test: real processes, and ends of the tree in this one, watched and counted."""

from __future__ import annotations

import time

import zmq

from reliable_pubsub.common.core.batch import Batch, crc32
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.patterns.matching import Pattern
from reliable_pubsub.common.core.wire import encode, encode_batch
from reliable_pubsub.relay.above import NodeAbove
from reliable_pubsub.relay.core.push import Pushed, PushFrames, decode_push, encode_push
from reliable_pubsub.relay.core.wire import decode_node_reply
from tests.integration.harness import PATIENCE_S, eventually

SILENCE_MS = 150  # what was sent before something that has arrived, would have arrived too


def exact(*topics: str) -> frozenset[Pattern]:
    return frozenset(Pattern("exact", topic) for topic in topics)


def prefix(*texts: str) -> frozenset[Pattern]:
    return frozenset(Pattern("prefix", text) for text in texts)


class Source:
    """A plain publisher of push frames in this process: the top of a tree."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.socket = context.socket(zmq.XPUB)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        self.endpoint = f"tcp://127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.wanted: set[bytes] = set()
        self.heard = 0  # messages about interest
        self._ends: dict[str, int] = {}

    def listen(self) -> set[bytes]:
        """Take what is said from below; return the prefixes that are wanted."""
        while self.socket.poll(0):
            said = self.socket.recv()
            self.heard += 1
            if said[:1] == b"\1":
                self.wanted.add(said[1:])
            else:
                self.wanted.discard(said[1:])
        return self.wanted

    def wants(self, *prefixes: bytes) -> None:
        """Wait until exactly these are wanted."""
        eventually(lambda: self.listen() == set(prefixes), f"interest in {prefixes}")

    def push(self, topic: str, payload: bytes = b"x") -> None:
        """Send one batch of one message, the next of its topic."""
        body = encode_batch(Batch([payload]))
        base = self._ends.get(topic, 0)
        self._ends[topic] = base + 1
        header = BatchHeader(base, 1, "p", base + 1, base + 1, crc32(body), len(body))
        pushed = Pushed(boot="boot", log=f"log.{topic}", batch=header)
        self.socket.send_multipart(encode_push(topic, pushed, body))


class Leaf:
    """The lower end of a link in this process, as a subscriber has one."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        name: str = "leaf",
        push_via: str = "",
    ) -> None:
        self.above = NodeAbove(context, endpoint, name, cap=128, push_via=push_via)

    def want(self, patterns: frozenset[Pattern]) -> None:
        """Want these, and wait until the node above sends by them."""
        self.above.want(patterns, frozenset())
        self.settle()

    def tell(self, patterns: frozenset[Pattern]) -> None:
        """Want these, and have that acknowledged, without a word on the data socket."""
        self.above.want(patterns, frozenset())
        message = self.above.wish.message(time.monotonic() + PATIENCE_S)
        assert message is not None
        self.above.interest.send_multipart([b"", *encode(message)])
        reply = decode_node_reply(self.above.interest.recv_multipart()[1:])
        self.above.wish.answered(reply, time.monotonic())
        assert self.above.wish.acknowledged == message.version

    def settle(self) -> None:
        def look() -> bool:
            self.above.turn(time.monotonic())
            return self.above.wish.settled

        eventually(look, "settled link")

    def take(self) -> PushFrames:
        """The next data."""
        assert self.above.data.poll(int(PATIENCE_S * 1000)), "no data came"
        return decode_push(self.above.data.recv_multipart())

    def topics(self, last: str) -> list[str]:
        """The topics of all data up to one of `last`, this included."""
        topics: list[str] = []
        while not topics or topics[-1] != last:
            topics.append(self.take().topic)
        return topics

    def is_silent(self) -> bool:
        return not self.above.data.poll(SILENCE_MS)
