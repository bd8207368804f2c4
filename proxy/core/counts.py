"""What came in and went out since the start, by kind. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from reliable_pubsub.common.core.answers import MessageBatches, Refusal
from reliable_pubsub.common.core.requests import AnyRequest

# Seconds. A commit takes 0.1 ms on a good SSD and some 10 ms on a magnetic disk; after 1 s waiting
# requests get BUSY (`EngineTiming.disk_patience_s`).
COMMIT_BOUNDS_S: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)


class Counts:
    """Requests, answers and bodies since the start of the proxy."""

    def __init__(self) -> None:
        """Nothing has come."""
        self.requests: defaultdict[type[Any], int] = defaultdict(int)  # well-formed, by verb
        self.refusals: defaultdict[type[Any], int] = defaultdict(int)  # by the type of the answer
        self.received_bytes = 0  # bodies of requests
        self.sent_bytes = 0  # bodies of answers
        self.sent_messages = 0  # in answers, repeats included

    def request(self, request: AnyRequest, body: bytes) -> None:
        """A request was taken."""
        self.requests[type(request)] += 1
        self.received_bytes += len(body)

    def answer(self, reply: Any, frames: Sequence[bytes]) -> None:
        """An answer leaves."""
        if isinstance(reply, MessageBatches):
            first, last = reply.batches[0], reply.batches[-1]
            self.sent_messages += last.base + last.count - first.base
            self.sent_bytes += len(frames[-1])
        elif isinstance(reply, Refusal):
            self.refusals[type(reply)] += 1


class Durations:
    """How long something took, counted below fixed bounds. It has one writer at a time."""

    def __init__(self, bounds_s: Sequence[float] = COMMIT_BOUNDS_S) -> None:
        """Nothing was observed."""
        self.bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)  # each up to its bound; the last one: above all
        self.sum_s = 0.0

    def observe(self, duration_s: float) -> None:
        """Something took so long."""
        self.counts[bisect_left(self.bounds_s, duration_s)] += 1
        self.sum_s += duration_s


def name_of(kind: type[Any]) -> str:
    """The wire name of a verb or an answer: `PUT`, `STORAGE_FULL`."""
    return str(kind.__struct_config__.tag)
