"""How often and how long to retry a request, and its transport. The loop is in `requester.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol

from msgspec import Meta, Struct

from .arguments import check_fields
from .message_base import Natural


class Transport(Protocol):
    """One request under way, at one endpoint after the other."""

    @property
    def endpoint(self) -> str:
        """The endpoint in use."""

    def send(self, frames: Sequence[bytes]) -> None:
        """Send a request on a socket that has none in flight."""

    def receive(self, timeout_s: float) -> Sequence[bytes] | None:
        """Wait for the answer; None after `timeout_s`."""

    def move_on(self) -> None:
        """After a timeout: use the next endpoint; earlier ones may still answer."""

    def reopen(self) -> None:
        """Discard every request in flight with its socket; open a new one."""


class Clock(Protocol):
    """Time, as an argument."""

    def now_s(self) -> float:
        """Seconds of the monotonic clock."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""


class Silence(Protocol):
    """Called for attempts that went unanswered, to report them to the user."""

    def __call__(self, endpoint: str, attempt: int, attempts: int) -> None:
        """Attempt 1, 2, ... of `attempts` went unanswered; 0: an answer came after all."""


def unheard(endpoint: str, attempt: int, attempts: int) -> None:
    """Ignore it. Implements `Silence`."""


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How long to wait for an answer, how often to ask, how long to pause between."""

    timeout_s: Annotated[float, Meta(gt=0, le=86_400)] = 2.0
    retries_max: Natural = 10  # attempts after the first
    pause_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.1  # before the first retry; doubles
    pause_s_max: Annotated[float, Meta(ge=0, le=86_400)] = 10.0

    def __post_init__(self) -> None:
        check_fields(self)

    def pause_before(self, retry: int, chance: float) -> float:
        """Seconds to pause before retry 1, 2, 3, ...

        Args:
            chance: 0 <= chance < 1; shortens the pause by up to a half (jitter), so that clients
                which lost the same proxy do not all come back at once.
        """
        longest: float = min(self.pause_s * 2.0 ** min(retry - 1, 60), self.pause_s_max)
        return longest * (1 - chance / 2)


def poll_pause_s(empty_answers: int) -> float:
    """Seconds between two gets that find nothing: 1 ms, doubling to 64 ms."""
    return min(0.0005 * 2.0 ** min(empty_answers, 60), 0.064)
