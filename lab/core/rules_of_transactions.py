"""Transactions are stored whole or not at all: a part of rule V11. Pure.

That each of their messages is stored once, and only if it was put, is for V2, as for any other.
"""

from __future__ import annotations

from .finding import Finding
from .run_index import Attempt, RunIndex


def check_whole(index: RunIndex, finding: Finding) -> None:
    """No transaction is stored in part."""
    if index.rollbacks_ns:
        return  # a proxy that was set back reports it itself, as LOG_CHANGED
    for (publisher, _, number), attempts in index.transactions.items():
        if any(one.place is None and len(one.put_by) > 1 for one in attempts.values()):
            continue  # which of the puts stored what is there cannot be known
        finding.checked += 1
        missing = [one for one in attempts.values() if not _stands(index, one)]
        if not missing or len(missing) == len(attempts):
            continue
        if any(_may_be_gone(index, one) for one in missing):
            continue
        there = len(attempts) - len(missing)
        first = missing[0]
        finding.broken(
            f"transaction {number} of {publisher} is stored in part: {there} of {len(attempts)} "
            f"messages are there, {first.key.message_id} on {first.topic!r} is not"
            + index.reported_to(first.topic),
            first.key,
        )


def _stands(index: RunIndex, attempt: Attempt) -> bool:
    log = index.logs.get(attempt.topic)
    place = log and log.place_of(attempt.publisher, attempt.sequence, attempt.crc)
    return place is not None


def _may_be_gone(index: RunIndex, attempt: Attempt) -> bool:
    """Whether retention may have removed it before the proxy recorded that it was stored."""
    log = index.logs.get(attempt.topic)
    return log is not None and bool(log.start) and not log.is_whole
