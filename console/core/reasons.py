"""Who is slow, and why, in a sentence that says what to do. Pure."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from reliable_pubsub.common.core.status import GroupStatus, SubscriptionStatus
from reliable_pubsub.common.core.wording import counted

SLOW_LAG_S: Final = 1.0  # what waits for less is on its way
SILENT_S: Final = 10.0  # a client that waits for messages asks more often

Kind = Literal["silent", "stuck", "too slow", "catching up", "unmanned", "expired", "new"]


class Reason(Struct, frozen=True):
    """Why a subscription lags."""

    kind: Kind
    text: str


def reason_of_subscription(
    one: SubscriptionStatus, rate: float | None, put_rate: float | None
) -> Reason | None:
    """Why a subscription is slow; None: it is not.

    Args:
        rate: messages it acknowledges in a second. put_rate: those that come. None: not known.
    """
    if one.state == "expired":
        return Reason(
            "expired",
            f"Its lease has ended: not heard for {roughly(one.silent_s)}. It holds nothing "
            "stored; if it returns, what was removed meanwhile is reported to it as lost.",
        )
    if not one.lag_messages or one.lag_s < SLOW_LAG_S or not one.terms.qos:
        return None
    if one.silent_s >= SILENT_S:
        left_s = one.lease_left_s
        then = (
            f"Its lease ends in {roughly(left_s)}."
            if left_s is not None
            else "It has no lease, so its messages stay stored until it returns or is ended."
        )
        return Reason(
            "silent",
            f"Not heard for {roughly(one.silent_s)}: its process has ended, or hangs. {then}",
        )
    return _by_rate(rate, put_rate, one.lag_messages, one.cursor)


def reason_of_group(
    one: GroupStatus, rate: float | None, put_rate: float | None, lag_messages: int
) -> Reason | None:
    """The same of a group.

    Args:
        lag_messages: that have not ended.
    """
    if not lag_messages or one.lag_s < SLOW_LAG_S:
        return None
    if not one.members:
        return Reason("unmanned", "The group has no member: start one, or end the group.")
    if one.held and not one.waiting:
        return Reason(
            "stuck" if not rate else "catching up",
            f"All {one.held:,} messages that are left are in the hands of {one.held_by:,} of "
            f"{one.members:,} members.",
        )
    if not one.held:
        return Reason(
            "silent",
            f"{counted(one.members, 'member')} joined, and none holds a message: they have "
            "ended, or do not ask.",
        )
    if one.redelivering and not rate:
        return Reason(
            "stuck",
            f"{one.redelivering:,} messages were given back, or their lease ended, and wait for "
            "another delivery: their processing fails, or takes longer than the lease.",
        )
    return _by_rate(rate, put_rate, lag_messages, one.cursor)


def _by_rate(rate: float | None, put_rate: float | None, lag: int, cursor: int) -> Reason:
    if rate is None:
        return Reason("new", "It lags; its speed is known after the next look.")
    if rate == 0:
        return Reason(
            "stuck",
            f"It asks, and acknowledges nothing: the message at offset {cursor:,} is in its "
            "hands, and takes long or fails each time.",
        )
    net = rate - (put_rate or 0.0)
    if net > 0:
        return Reason(
            "catching up",
            f"Acknowledges {per_s(rate)}, and {per_s(put_rate or 0.0)} are put: done in about "
            f"{roughly(lag / net)}.",
        )
    return Reason(
        "too slow",
        f"Acknowledges {per_s(rate)} while {per_s(put_rate or 0.0)} are put, so its lag grows. "
        "It needs less work for each message, or a group with more members.",
    )


def per_s(rate: float) -> str:
    """`12.5/s`."""
    return f"{rate:,.0f}/s" if rate >= 100 or rate == 0 else f"{rate:,.1f}/s"


def roughly(seconds: float) -> str:
    """A time in the largest unit that leaves two digits or so: `12 s`, `3 min`, `5 h`, `4 d`."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
