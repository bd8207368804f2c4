"""How often and how long to retry a request, and its transport. The loop is in `requester.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Annotated, Final, Literal, Protocol

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
        """Attempt 1, 2, ... of `attempts` (0: no limit) went unanswered.

        Attempt 0: an answer came after all.
        """


def unheard(endpoint: str, attempt: int, attempts: int) -> None:
    """Ignore it. Implements `Silence`."""


RETRIES_MAX: Final = 10  # of a call; `run` and loops ask until they are stopped
ANSWER_S: Final = 2.0  # that a call which waits for messages gives the answer to its last request


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How long to wait for an answer, how often to ask, how long to pause between."""

    timeout_s: Annotated[float, Meta(gt=0, le=86_400)] = 2.0
    # Attempts after the first. None: 10 for a call, and no limit for `run` and loops.
    retries_max: Natural | Literal["forever"] | None = None
    pause_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.1  # before the first retry; doubles
    pause_s_max: Annotated[float, Meta(ge=0, le=86_400)] = 10.0

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def attempts(self) -> float:
        """Return the attempts of a call; infinity: until it is answered."""
        if self.retries_max == "forever":
            return inf
        return (RETRIES_MAX if self.retries_max is None else self.retries_max) + 1

    def longest_s(self, attempt: int, attempts: float) -> float:
        """Return the most seconds that later attempts take, with their pauses."""
        if attempts == inf:
            return inf
        attempts = min(attempts, attempt + 10_000)
        pauses = sum(self.pause_before(one, 0.0) for one in range(attempt, int(attempts)))
        return pauses + self.timeout_s * (attempts - attempt)

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


def limit_s(wait_s: float) -> float | None:
    """The `timeout_s` of a call that waits this long; None: the policy decides.

    So it is if the call only looks, or waits without an end. The last answer has ANSWER_S more.
    """
    return None if wait_s in (0, inf) else wait_s + ANSWER_S


class Patience:
    """The time limit of a client's open call: its `timeout_s`, or the retry policy."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """Create it for calls without `timeout_s`.

        Args:
            now_s: the monotonic clock.
        """
        self.now_s = now_s
        self.timeout_s: float | None = None  # as the call says it
        self.until_s: float | None = None  # None: by the retry policy

    def begin(self, timeout_s: float | None, until_s: float | None = None) -> None:
        """Begin a call.

        Args:
            timeout_s: of the call; None: the retry policy decides.
            until_s: when it is over, if it began earlier.
        """
        self.timeout_s = timeout_s
        if until_s is None and timeout_s is not None:
            until_s = self.now_s() + timeout_s
        self.until_s = until_s

    def wait(self, wait_s: float, *, is_loop: bool = False) -> None:
        """Begin a call, or a step of a loop, that waits for messages.

        Args:
            wait_s: how long; 0 only looks, and by the policy. The last answer has ANSWER_S more.
            is_loop: without an end, it asks until it is stopped.
        """
        if wait_s == 0 or (wait_s == inf and not is_loop):
            self.begin(None)
        else:
            self.begin(wait_s, self.now_s() + wait_s + ANSWER_S)

    @property
    def left_s(self) -> float:
        """Return the seconds until the call ends; infinity: the policy decides."""
        return inf if self.until_s is None else self.until_s - self.now_s()
