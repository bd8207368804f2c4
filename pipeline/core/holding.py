"""Whether the proxy keeps what a load is going to put until something has read it. Pure.

What every subscription has acknowledged is history, and of that a topic keeps so many bytes. On a
topic without a subscription everything is history from its first moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET, Struct

from reliable_pubsub.common.core.errors import RefusedError
from reliable_pubsub.common.core.limits import MIB
from reliable_pubsub.common.core.status import StatusReport, TopicStatus

_ADVICE: Final = (
    "Give --subscriber ID: the proxy then keeps them until this id has read them (`pipeline "
    "archive --subscriber ID`, option subscriber of a query, or a subscriber of this id). Or raise "
    "history_bytes of the proxy"
)


class NotHeldError(RefusedError):
    """More is put than the proxy keeps for readers that come later."""

    code = "NOT_HELD"


class FileSplit(Struct, frozen=True):
    """A part of a file that one publisher puts."""

    publisher: str
    bytes: int  # in the file, which is about what its messages have


def status_of_topic(topic: str, report: StatusReport) -> TopicStatus | None:
    """What the proxy says of a topic; None if there is none."""
    return next((one for one in report.topics if one.topic == topic), None)


def is_held(topic: str, report: StatusReport) -> bool:
    """Whether a subscription keeps what is put from now on."""
    known = status_of_topic(topic, report)
    return known is not None and (
        known.subscriptions_left_out > 0
        or any(one.state != "expired" for one in known.subscriptions)
    )


def refuse_unheld(topic: str, splits: Sequence[FileSplit], report: StatusReport) -> None:
    """Check before a load that the proxy keeps the messages. Splits that have begun do not count.

    Args:
        report: STATUS with subscriptions and publishers.

    Raises:
        NotHeldError: it would remove the oldest while the newest are put.
    """
    if is_held(topic, report) or report.kept is UNSET:
        return
    known = status_of_topic(topic, report)
    begun = {one.publisher for one in known.publishers} if known else set()
    left_bytes = sum(one.bytes for one in splits if one.publisher not in begun)
    own = {one.topic: one.history_bytes for one in report.kept.topics}
    most = own.get(topic, report.kept.history_bytes)
    if left_bytes > most:
        raise NotHeldError(
            f"about {left_bytes / MIB:,.0f} MiB would be put on topic {topic!r}, which has no "
            f"subscription: the proxy keeps the newest {most / MIB:,.0f} MiB of them and removes "
            f"the others (history_bytes is {most:,}). Nothing was put. {_ADVICE}"
        )


def check_still_there(topic: str, put: int, first: int | None, report: StatusReport) -> None:
    """After a load: see that what was put is there, unless all subscriptions have read it.

    Args:
        put, first: messages of this run, and the lowest offset that one of them got.

    Raises:
        NotHeldError: some were removed.
    """
    known = status_of_topic(topic, report)
    if not put or known is None or is_held(topic, report):
        return
    if first is None or first < known.start:
        raise NotHeldError(
            f"{put:,} messages were put on topic {topic!r}, and of these the proxy has removed "
            f"those below offset {known.start:,} already: no subscription waits for them, and the "
            f"topic keeps only so much. {_ADVICE}, and load the files under another --base or name"
        )
