"""The answers that a proxy owes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reliable_pubsub.common.core.group_messages import Take
from reliable_pubsub.common.core.pattern_messages import Fetch
from reliable_pubsub.common.core.requests import Get
from reliable_pubsub.common.core.wire import decode_request

from .network import Reply

DISK_PATIENCE_S: Final = 0.04  # a slow commit may take twice as long
TICKS_OF_GRACE: Final = 4  # after which an answer is not late, but missing


class Debts:
    """The answers that one life of the proxy owes: each comes once, and in time (rule R2)."""

    def __init__(self) -> None:
        self._due: dict[int, float] = {}  # by when an answer has to come
        self._overdue: dict[int, int] = {}  # for how many ticks of the proxy
        self._count = 0

    def owed(self, frames: Sequence[bytes], reply: Reply, now_s: float) -> Reply:
        """Take a request; the reply given back may be used once."""
        self._count += 1
        number = self._count
        self._due[number] = now_s + _wait_s(frames) + DISK_PATIENCE_S

        def once(answer: list[bytes]) -> None:
            assert number in self._due, "a request has two answers"
            del self._due[number]
            self._overdue.pop(number, None)
            reply(answer)

        return once

    def judge(self, now_s: float) -> None:
        """A tick is over; a proxy that stood still has some time to notice."""
        for number, due_s in self._due.items():
            if now_s > due_s:
                self._overdue[number] = self._overdue.get(number, 0) + 1
                assert self._overdue[number] <= TICKS_OF_GRACE, "a request has no answer"


def _wait_s(frames: Sequence[bytes]) -> float:
    """How long a request is content to wait."""
    if b"wait_ms" not in frames[1]:
        return 0.0
    request, _ = decode_request(frames)
    return (request.wait_ms or 0) / 1000 if isinstance(request, Get | Take | Fetch) else 0.0
