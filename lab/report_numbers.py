"""What a report counts: messages, latencies and lives of each process."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from reliable_pubsub.common.core.journal import AnyLine, Begin, Failed, Invoke, Ok, Seen, Unknown

from .core.verdict import MessageKey


class Numbers(Struct):
    """Of one process. Messages, not operations; latencies in nanoseconds, as they were seen."""

    acknowledged: int = 0
    unknown: int = 0
    failed: int = 0
    delivered: int = 0
    redelivered: int = 0  # among the delivered
    put_latencies_ns: list[int] = []  # from `invoke` to `ok`, of one put
    delivery_latencies_ns: list[int] = []  # until the first delivery here; see `_Begun`
    first_at_ns: list[int] = []  # when each of these deliveries was
    handed_over: list[tuple[int, int]] = []  # when, how many messages


class _Begun:
    """When messages began: by the call of put, or, of a publisher without a journal, by the time
    at which the proxy took them; that is of a wall clock, so it is good for comparison only."""

    def __init__(self) -> None:
        self._puts: dict[MessageKey, int] = {}
        self._since_1970: dict[tuple[str, int], int] = {}  # by life: to add to its clock

    def life(self, line: Begin) -> None:
        if line.wall_ns:
            self._since_1970[line.process, line.pid] = line.wall_ns - line.at_ns

    def put(self, line: Invoke, sequence: int) -> None:
        self._puts.setdefault(MessageKey(line.topic, line.process, sequence), line.at_ns)

    def latency_ns(self, line: Ok, seen: Seen) -> int | None:
        began_ns = self._puts.get(MessageKey(line.topic, seen.publisher, seen.sequence))
        if began_ns is not None:
            return line.at_ns - began_ns
        since_1970 = self._since_1970.get((line.process, line.pid))
        if since_1970 is None or not seen.timestamp_ns:
            return None
        return max(line.at_ns + since_1970 - seen.timestamp_ns, 0)


def numbers(lines: Sequence[AnyLine]) -> dict[str, Numbers]:
    """Count, by process."""
    counted: dict[str, Numbers] = defaultdict(Numbers)
    open_puts: dict[tuple[str, int, int], tuple[int, int]] = {}  # when it began, messages
    begun = _Begun()
    heard: dict[str, set[MessageKey]] = defaultdict(set)
    for line in lines:
        if isinstance(line, Begin):
            begun.life(line)
        elif isinstance(line, Invoke) and line.op == "put":
            call = (line.process, line.pid, line.call)
            count = max(len(line.crcs), 1)
            open_puts[call] = (open_puts.get(call, (line.at_ns, 0))[0], count)
            for sequence in range(line.sequence, line.sequence + count):
                begun.put(line, sequence)
        elif isinstance(line, Ok | Failed | Unknown) and line.op == "put":
            began_ns, count = open_puts.pop((line.process, line.pid, line.call), (line.at_ns, 1))
            _count_put(counted[line.process], line, began_ns, count)
        elif isinstance(line, Ok) and line.op == "get":
            _count_deliveries(counted[line.process], line, begun, heard[line.process])
    for (process, _, _), (_, count) in open_puts.items():
        counted[process].unknown += count  # its life ended before an answer came
    return counted


def _count_put(counted: Numbers, line: Ok | Failed | Unknown, began_ns: int, messages: int) -> None:
    if isinstance(line, Ok):
        counted.acknowledged += line.count or messages
        counted.put_latencies_ns.append(line.at_ns - began_ns)
    elif isinstance(line, Unknown):
        counted.unknown += messages
    else:
        counted.failed += messages


def _count_deliveries(counted: Numbers, line: Ok, begun: _Begun, heard: set[MessageKey]) -> None:
    counted.handed_over.append((line.at_ns, len(line.messages)))
    for seen in line.messages:
        key = MessageKey(line.topic, seen.publisher, seen.sequence)
        counted.delivered += 1
        counted.redelivered += seen.delivery_count > 1
        if key not in heard and (latency_ns := begun.latency_ns(line, seen)) is not None:
            counted.delivery_latencies_ns.append(latency_ns)
            counted.first_at_ns.append(line.at_ns)
        heard.add(key)


def percentile(values: Sequence[int], share: float) -> int:
    """The value below or at which that share of the values lies (nearest rank)."""
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]
