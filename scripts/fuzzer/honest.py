"""The honest pair: a publisher and a subscriber of the library, each in a process of its own."""

from __future__ import annotations

import json
import time
from pathlib import Path

from reliable_pubsub import ProxyUnreachableError, Publisher, Subscriber

from .attacks import Scene
from .board import Board

DRAIN_S = 300.0  # without a message for this long, the ones that are missing will not come


def payload(number: int) -> bytes:
    """Content of the honest publisher's message 1, 2, 3, ...: 100 bytes that tell their place."""
    return b"%d." % number + b"x" * 90


def publish(board: Board, scene: Scene, endpoint: str) -> None:
    """Put until the board says to end; every put is acknowledged before the next."""
    with Publisher(scene.publisher, endpoint=endpoint) as publisher:
        number = 0
        while not board["publishing_ends"]:
            number += 1
            begun_s = time.monotonic()
            publisher.put(scene.topic, payload(number))
            board.longest("put_us", time.monotonic() - begun_s)
            board["puts"] = number


def subscribe(board: Board, scene: Scene, endpoint: str, output: str, slot: str) -> None:
    """Write a line for each message until everything is there, and nothing follows.

    Args:
        slot: of the board, for the deliveries; names whether they are pushed.
    """
    with (
        Path(output).open("w") as file,
        Subscriber(scene.subscriber, endpoint=endpoint) as subscriber,
    ):
        subscriber.subscribe(scene.topic, push=slot == "pushed_deliveries")
        last_s = time.monotonic()
        while True:
            ending = board["delivering_ends"]
            timeout_s = DRAIN_S if ending and board[slot] < board["puts"] else 0.1
            try:
                found = subscriber.get(scene.topic, max_messages=100, timeout_s=timeout_s)
            except ProxyUnreachableError:  # a silence, which the board shows
                continue
            for message in found:
                line = {
                    "topic": message.topic,
                    "offset": message.offset,
                    "message_id": message.message_id,
                    "payload": message.payload.decode(errors="replace"),
                }
                file.write(json.dumps(line) + "\n")
            board[slot] += len(found)
            if found:
                board.longest(f"{slot}_us", time.monotonic() - last_s)
                last_s = time.monotonic()
            elif ending:
                return
