"""What publishers and subscribers share of a session: epoch, end and refusals. Pure."""

from __future__ import annotations

from collections.abc import Callable

from .errors import (
    ConflictError,
    FencedError,
    LimitError,
    LogChangedError,
    NotSubscribedError,
    OutOfRangeError,
    PubSubError,
    RefusedError,
    StageLostError,
    StaleError,
    TruncatedError,
)
from .messages import (
    AnyReply,
    Conflict,
    Fenced,
    Gap,
    HelloAck,
    Limit,
    LogChanged,
    NotSub,
    OutOfRange,
    StageLost,
    Stale,
    Truncated,
)


def claim_epoch(
    known_epoch: int, hello: Callable[[int], AnyReply], *, asked_epoch: int = 0, client: str
) -> int:
    """Get an epoch above the known one; FENCED names the current one, so ask above that.

    Args:
        hello: sends HELLO for an epoch, and returns the reply.
        asked_epoch: the last one this process requested. If its reply was lost, it is requested
            again, never a lower one: a late copy of that HELLO would fence its own sender.

    Raises:
        RefusedError: anything but HELLO_ACK and FENCED.

    Source: docs/decisions/0004.
    """
    epoch = max(known_epoch + 1, asked_epoch)
    while True:
        reply = hello(epoch)
        if isinstance(reply, HelloAck):
            return epoch
        if not isinstance(reply, Fenced):
            raise refusal(reply, client=client, epoch=epoch)
        epoch = reply.current_epoch + 1  # lower, if the proxy was replaced and knows less


def is_forgotten(reply: AnyReply, epoch: int) -> bool:
    """Whether the proxy has forgotten a granted session: a new one must begin."""
    return isinstance(reply, Fenced) and (reply.current_epoch < epoch or reply.forgotten is True)


def refusal(reply: AnyReply, *, client: str, epoch: int, topic: str = "") -> PubSubError:
    """The error for a refusal of the proxy."""
    match reply:
        case Fenced():
            return FencedError(client=client, epoch=epoch, current_epoch=reply.current_epoch)
        case Conflict():
            return ConflictError(reply.text)
        case Gap() | LogChanged():  # a gap: acknowledged messages are missing at the proxy
            return LogChangedError(reply.text)
        case NotSub():
            return NotSubscribedError(reply.text)
        case Stale():
            return StaleError(reply.text)
        case Truncated():
            return TruncatedError(
                reply.text, topic=topic, start=reply.start, start_ns=reply.start_ns
            )
        case OutOfRange():
            return OutOfRangeError(reply.text, topic=topic, start=reply.start, end=reply.end)
        case StageLost():
            return StageLostError(reply.text)
        case Limit():
            return LimitError(reply.text)
        case _:
            return RefusedError(f"the proxy answered {type(reply).__name__}, which fits no request")
