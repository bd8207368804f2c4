"""The one retry loop: Lazy Pirate, as a conversation; see `conversation.py`.

Source: the ZeroMQ Guide, chapter 4, "Client-Side Reliability (Lazy Pirate Pattern)".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Final, Protocol

from msgspec import Meta, Struct

from .arguments import check_fields
from .conversation import Conversation, Exchange, Pause, Reopen
from .errors import MalformedError, ProxyUnreachableError, TryLaterError
from .messages import AnyReply, Malformed, Natural, Request, TryLater
from .wire import decode_reply, encode_request


class Transport(Protocol):
    """One REQ socket to one endpoint."""

    endpoint: str

    def send(self, frames: Sequence[bytes]) -> None:
        """Send a request on a socket that has none in flight."""

    def receive(self, timeout_s: float) -> Sequence[bytes] | None:
        """Wait for the answer; None after `timeout_s`."""

    def reopen(self) -> None:
        """Discard the socket and its request in flight; open a new one."""


class Clock(Protocol):
    """Time, as an argument."""

    def now_s(self) -> float:
        """Seconds of the monotonic clock."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""


REOPEN: Final = Reopen()


class Silence(Protocol):
    """Called for attempts that went unanswered, to report them to the user."""

    def __call__(self, endpoint: str, attempt: int, attempts: int) -> None:
        """Attempt 1, 2, ... of `attempts` went unanswered; 0: an answer came after all."""


class Postponed(Protocol):
    """Called for attempts that were answered with FULL, BUSY or STORAGE_FULL."""

    def __call__(self, reply: TryLater, attempt: int, attempts: int) -> None:
        """The answer to attempt 1, 2, ... of `attempts`."""


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


def unheard_answer(reply: TryLater, attempt: int, attempts: int) -> None:
    """Ignore it. Implements `Postponed`."""


def poll_pause_s(empty_answers: int) -> float:
    """Seconds between two gets that find nothing: 1 ms, doubling to 64 ms."""
    return min(0.0005 * 2.0 ** min(empty_answers, 60), 0.064)


def asking(
    request: Request,
    body: bytes | None,
    *,
    endpoint: str,
    retry: RetryPolicy,
    chance: Callable[[], float],
    on_silence: Silence = unheard,
    on_postponed: Postponed = unheard_answer,
) -> Conversation[tuple[AnyReply, bytes]]:
    """Send a request until its answer comes; every attempt carries the same bytes.

    An answer that does not repeat client, epoch and request number belongs to another request
    and is dropped (rule R1). FULL, BUSY and STORAGE_FULL are asked again like silence, on the
    same socket, because the proxy is there.

    Args:
        endpoint: named in errors.

    Raises:
        ProxyUnreachableError: every attempt went unanswered. The outcome is unknown; the
            sequence inside the request makes it safe to ask again, now or after a restart.
        TryLaterError: the last attempt was answered with FULL, BUSY or STORAGE_FULL.
        MalformedError: the proxy cannot read this request, or speaks another protocol.
    """
    exchange = Exchange(encode_request(request, body), retry.timeout_s)
    attempts = retry.retries_max + 1
    waited_s = 0.0
    later: TryLater | None = None
    silent = False
    for attempt in range(1, attempts + 1):
        if attempt > 1:
            pause_s = retry.pause_before(attempt - 1, chance())
            waited_s += pause_s
            yield Pause(pause_s)
        frames = yield exchange
        answer = None
        if frames is None:
            waited_s += retry.timeout_s
        else:
            try:
                answer = _matching(request, frames, endpoint)
            except MalformedError:
                yield REOPEN
                raise
            if answer is None:
                yield REOPEN  # one reply for each request: the right one will not come
        if answer is None:
            later = None
            on_silence(endpoint, attempt, attempts)
            silent = True
            continue
        if silent:
            on_silence(endpoint, 0, attempts)
            silent = False
        if not isinstance(answer[0], TryLater):
            return answer
        later = answer[0]
        on_postponed(later, attempt, attempts)
    if later is not None:
        raise TryLaterError(code=later.code, text=later.text, attempts=attempts)
    verb = str(type(request).__struct_config__.tag)
    raise ProxyUnreachableError(endpoint=endpoint, attempts=attempts, waited_s=waited_s, verb=verb)


def _matching(
    request: Request, frames: Sequence[bytes], endpoint: str
) -> tuple[AnyReply, bytes] | None:
    """Read an answer; None if it belongs to another request."""
    reply, body = decode_reply(frames)
    if isinstance(reply, Malformed) and reply.request in (0, request.request):
        raise MalformedError(
            f"{endpoint} cannot read our request: {reply.text}", is_our_request=True
        )
    if (
        reply.request != request.request
        or reply.epoch != request.epoch
        or reply.client != request.client
    ):
        return None
    return reply, body
