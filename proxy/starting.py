"""Where a subscription or a reading begins (rule R18): `start` mapped to an offset, once.

Time is only an index: it is turned into an offset here, and from there on offsets count. What is
older than the topic's beginning is TRUNCATED, what is not reached yet OUT_OF_RANGE; a place that
somebody named is never quietly replaced by another.
"""

from __future__ import annotations

from datetime import UTC, datetime

from reliable_pubsub.common.messages import History, OutOfRange, Start, Sub, Truncated

from .records import Decision, appended
from .rules import Rules
from .topic_log import TopicLog


class Starting(Rules):
    """The rules for places to begin at."""

    def _place(
        self, request: Sub | History, log: TopicLog, start: Start, end: int, now_ns: int
    ) -> int | Decision:
        """The offset that `start` names, or why there is none.

        `last` is here that of a client which never subscribed: nothing was delivered to it yet.

        Args:
            end: of what the asker may see.
            now_ns: wall clock, for ages and for what lies in the future.
        """
        match start.at:
            case "earliest" | "last":
                return log.start
            case "newest":
                return max(end - start.value, log.start)
            case "offset":
                return self._at_offset(request, log, start.value, end)
            case "time":
                return self._at_time(request, log, start.value, end, now_ns)
            case "age":
                return self._at_time(request, log, max(now_ns - start.value, 0), end, now_ns)
            case _:
                return end

    def _at_offset(
        self, request: Sub | History, log: TopicLog, offset: int, end: int
    ) -> int | Decision:
        if offset < log.start:
            return self._truncated(request, log, f"offset {offset} is no longer stored")
        if offset > end and isinstance(request, Sub):  # who only reads finds nothing there yet
            return self._out_of_range(
                request, log, f"offset {offset} is not reached yet; {log.start} to {end} can be"
            )
        return offset

    def _at_time(
        self, request: Sub | History, log: TopicLog, time_ns: int, end: int, now_ns: int
    ) -> int | Decision:
        newest_ns = max(now_ns, log.timestamp_ns)
        if time_ns > newest_ns and isinstance(request, Sub):
            return self._out_of_range(
                request, log, f"{_moment(time_ns)} is in the future; here it is {_moment(now_ns)}"
            )
        if log.start:
            oldest_ns = self._reader.timestamp_ns(log.topic_id, log.start)
            if time_ns < (log.timestamp_ns + 1 if oldest_ns is None else oldest_ns):
                return self._truncated(
                    request,
                    log,
                    f"messages taken since {_moment(time_ns)} are no longer all stored",
                )
        for segment in log.segments:
            if segment.timestamp_ns >= time_ns:
                found = self._reader.first_since(log.topic_id, segment.base, segment.end, time_ns)
                return min(
                    self._undurable_since(log, time_ns, end) if found is None else found, end
                )
        return end

    def _undurable_since(self, log: TopicLog, time_ns: int, end: int) -> int:
        for _, record in self._undurable:
            batch = appended(record)
            if (
                batch is not None
                and batch.topic_id == log.topic_id
                and batch.timestamp_ns >= time_ns
            ):
                return batch.base
        return end

    def _truncated(self, request: Sub | History, log: TopicLog, why: str) -> Decision:
        start_ns = self._reader.timestamp_ns(log.topic_id, log.start)
        taken = f", taken at {_moment(start_ns)}" if start_ns is not None else ""
        return Decision(
            Truncated(
                **self._echo(request),
                start=log.start,
                start_ns=start_ns,
                text=f"topic {request.topic!r}: {why}; the first that is left is offset "
                f"{log.start}{taken}: begin there, or with `earliest`",
            ),
            visible_at=log.trim_lsn,
        )

    def _out_of_range(self, request: Sub | History, log: TopicLog, why: str) -> Decision:
        return Decision(
            OutOfRange(
                **self._echo(request),
                start=log.start,
                end=log.durable_end,
                text=f"topic {request.topic!r}: {why}; nothing was changed. To begin with what is "
                "put from here on, say `now`",
            )
        )


def _moment(time_ns: int) -> str:
    """A time for people, with the nanoseconds that machines compare."""
    try:
        text = datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return f"{time_ns} ns"
    return f"{text} ({time_ns} ns)"
