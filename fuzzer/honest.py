"""The honest pair: a publisher and a subscriber of the library, each in a process of its own."""

from __future__ import annotations

import json
import time
from math import inf
from pathlib import Path

from reliable_pubsub import Publisher, Subscriber

from .attacks import Scene
from .board import Board

DRAIN_S = 10.0  # without a message for this long, no more messages will come


def payload(number: int) -> bytes:
    """Content of the honest publisher's message 1, 2, 3, ...: 100 bytes that tell their place."""
    return b"%d." % number + b"x" * 90


def publish(board: Board, scene: Scene, endpoint: str, puts_per_s: float = inf) -> None:
    """Put until the board says to end; every put is acknowledged before the next.

    Args:
        puts_per_s: pace; a put that is late makes the next ones come sooner, up to a second.
    """

    def heard_nothing(endpoint: str, attempt: int, attempts: int) -> None:
        if attempt:
            board.add("silences")

    with Publisher(scene.publisher, endpoint=endpoint, on_silence=heard_nothing) as publisher:
        number, due_s = 0, time.monotonic()
        while not board["publishing_ends"]:
            number += 1
            begun_s = time.monotonic()
            if due_s > begun_s:
                time.sleep(due_s - begun_s)
                begun_s = due_s
            due_s = max(due_s, begun_s - 1.0) + 1 / puts_per_s
            publisher.put(scene.topic, payload(number))
            board.longest("put_us", time.monotonic() - begun_s)
            board["puts"] = number


def subscribe(
    board: Board, scene: Scene, endpoint: str, output: str, *, is_pushed: bool = False
) -> None:
    """Write a line for each message until everything is there, and nothing follows."""
    deliveries = "pushed_deliveries" if is_pushed else "deliveries"
    with (
        Path(output).open("w") as file,
        Subscriber(scene.subscriber, endpoint=endpoint) as subscriber,
    ):
        subscriber.subscribe(scene.topic, push=is_pushed)
        ending = False
        last_s = time.monotonic()
        while True:
            found = subscriber.get(
                scene.topic, max_messages=100, timeout_s=DRAIN_S if ending else 0.1
            )
            for message in found:
                line = {
                    "topic": message.topic,
                    "offset": message.offset,
                    "message_id": message.message_id,
                    "payload": message.payload.decode(errors="replace"),
                }
                file.write(json.dumps(line) + "\n")
            board[deliveries] += len(found)
            if found:
                board.longest(f"{deliveries}_us", time.monotonic() - last_s)
                last_s = time.monotonic()
            if ending and not found:
                return
            all_there = board[deliveries] >= board["puts"] + board["accomplice_puts"]
            if board["delivering_ends"]:
                ending = True
                if all_there and not subscriber.get(scene.topic, timeout_s=0.2):
                    return
