"""Messages that a proxy stored, and was killed before it could write so. Pure.

Its `stored` line comes when a batch is durable, and before any answer that rests on it. So a
message of which others have evidence may be missing there only if the proxy was killed, or has lost
its term, after the put began and before the evidence. Needed where no auditor has read the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

from reliable_pubsub.common.core.journal import Ok, Seen

from .run_index import Attempts, Life


def starts_after_a_kill(lives: Iterable[Life]) -> list[int]:
    """When proxies began whose life before had no end of its own."""
    starts = []
    killed: set[str] = set()
    for life in sorted(lives, key=lambda life: life.began_ns):
        if life.role != "proxy":
            continue
        if life.process in killed:
            starts.append(life.began_ns)
        killed.discard(life.process)
        if life.code in (None, "NOT_SERVING"):  # the outcome of a commit may be unknown
            killed.add(life.process)
    return starts


def unlogged_stores(
    starts: Sequence[int],
    puts: Mapping[tuple[str, str], Attempts],
    gets: Iterable[Ok],
) -> Iterator[tuple[str, Seen]]:
    """Topic and message of each sighting that the proxy may have had no time to write of.

    Args:
        starts: see `starts_after_a_kill`.
        puts: by topic and publisher, then by sequence and CRC-32.
        gets: what subscribers were given.
    """

    def between(begin_ns: int, end_ns: int) -> bool:
        place = bisect_right(starts, begin_ns)
        return place < len(starts) and starts[place] < end_ns

    if not starts:
        return
    for (topic, publisher), attempts in puts.items():
        for put in attempts.values():
            if put.offset is not None and between(put.invoked_ns, put.acknowledged_ns):
                yield topic, Seen(put.offset, publisher, put.sequence, put.crc)
    for get in gets:
        for seen in get.messages:
            mine = puts.get((get.topic, seen.publisher), {}).get((seen.sequence, seen.crc))
            if between(mine.invoked_ns if mine is not None else 0, get.at_ns):
                yield get.topic, seen
