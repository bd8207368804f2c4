"""The one retry loop: Lazy Pirate, with the socket, the clock and chance as arguments.

Source: the ZeroMQ Guide, chapter 4, "Client-Side Reliability (Lazy Pirate Pattern)".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Protocol

from msgspec import Meta, Struct

from .arguments import check_fields
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


def ask(
    request: Request,
    body: bytes | None,
    *,
    transport: Transport,
    clock: Clock,
    retry: RetryPolicy,
    chance: Callable[[], float],
    on_silence: Silence = unheard,
    on_postponed: Postponed = unheard_answer,
) -> tuple[AnyReply, bytes]:
    """Send a request until its answer comes; every attempt carries the same bytes.

    An answer that does not repeat client, epoch and request number belongs to another request
    and is dropped (rule R1). FULL, BUSY and STORAGE_FULL are asked again like silence, on the
    same socket, because the proxy is there.

    Raises:
        ProxyUnreachableError: every attempt went unanswered. The outcome is unknown; the
            sequence inside the request makes it safe to ask again, now or after a restart.
        TryLaterError: the last attempt was answered with FULL, BUSY or STORAGE_FULL.
        MalformedError: the proxy cannot read this request, or speaks another protocol.
    """
    frames = encode_request(request, body)
    verb = type(request).__struct_config__.tag
    begin_s = clock.now_s()
    later: TryLater | None = None
    silent = False
    for attempt in range(retry.retries_max + 1):
        if attempt:
            clock.sleep(retry.pause_before(attempt, chance()))
        try:
            transport.send(frames)
            answer = _receive_matching(request, transport=transport, clock=clock, retry=retry)
        except BaseException:  # after an interrupt, too, the socket must not send again
            transport.reopen()
            raise
        if answer is None:
            transport.reopen()  # a REQ socket that misses its reply must not send again
            later = None
            on_silence(transport.endpoint, attempt + 1, retry.retries_max + 1)
            silent = True
            continue
        if silent:
            on_silence(transport.endpoint, 0, retry.retries_max + 1)
            silent = False
        if isinstance(answer[0], TryLater):
            later = answer[0]
            on_postponed(later, attempt + 1, retry.retries_max + 1)
        else:
            return answer
    if later is not None:
        raise TryLaterError(code=later.code, text=later.text, attempts=retry.retries_max + 1)
    raise ProxyUnreachableError(
        endpoint=transport.endpoint,
        attempts=retry.retries_max + 1,
        waited_s=clock.now_s() - begin_s,
        verb=str(verb),
    )


def _receive_matching(
    request: Request, *, transport: Transport, clock: Clock, retry: RetryPolicy
) -> tuple[AnyReply, bytes] | None:
    """Wait for the answer to this request; None when the time of one attempt is over."""
    frames = transport.receive(retry.timeout_s)
    if frames is None:
        return None
    reply, body = decode_reply(frames)
    if isinstance(reply, Malformed) and reply.request in (0, request.request):
        raise MalformedError(
            f"{transport.endpoint} cannot read our request: {reply.text}", is_our_request=True
        )
    matches = (reply.client, reply.epoch, reply.request) == (
        request.client,
        request.epoch,
        request.request,
    )
    # A REQ socket gets one reply for each request: if that one does not match, the reply is lost.
    return (reply, body) if matches else None
