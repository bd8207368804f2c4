"""Maps the `start` of a subscription or a reading to an offset, once (rule R18).

A time is converted to an offset here; everything after that uses the offset. A start before the
topic's beginning is refused with TRUNCATED, one beyond its end with OUT_OF_RANGE; a start that a
client named is never silently replaced by another.
"""

from __future__ import annotations

from datetime import UTC, datetime

from reliable_pubsub.common.core.messages import History, OutOfRange, Start, Sub, Truncated

from .records import Decision, appended
from .rules import Rules
from .topic_log import TopicLog


class Starting(Rules):
    """The rules for start positions."""

    def _place(
        self, request: Sub | History, log: TopicLog, start: Start, end: int, now_ns: int
    ) -> int | Decision:
        """The offset that `start` names, or the refusal.

        `last` without an earlier subscription is the topic's start: nothing was delivered yet.

        Args:
            end: of the messages that the client may read.
            now_ns: wall clock, for ages and to refuse times in the future.
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
        if offset > end and isinstance(request, Sub):  # HISTORY gets an empty answer
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
    """A time in readable form, followed by its nanoseconds."""
    try:
        text = datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return f"{time_ns} ns"
    return f"{text} ({time_ns} ns)"
