"""One topic: its offsets, its publishers' numbering, and what retention may remove.

Bodies are not here. The log knows the offsets of batches in segments of about 1 MiB, so that a
gigabyte of history costs a thousand small entries and not one for each message.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict

from reliable_pubsub.common.core.dead_letter import is_dead
from reliable_pubsub.common.core.limits import MIB, NUMBER_MAX
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.core.settings import OnBound

from .batches import LogBatch
from .lower_bounds import LowerBounds
from .stored import StoredPublisher, StoredSegment, StoredTopic
from .subscriptions import Subscription

SEGMENT_BYTES: Final = MIB
SEGMENT_BATCHES: Final = 4096
SET_NS_MIN: Final = 10**9  # a smaller difference of two clocks is no sign that one was set
TRIM_SEGMENTS_MAX: Final = 16  # in one record, so that no commit takes long

CutBytes = tuple[tuple[str, int], ...]  # by publisher


class Retention(Struct, frozen=True, kw_only=True):
    """What a topic keeps, and what happens at its bound (rules R10 and R17)."""

    history_bytes: int = 256 * MIB  # of messages that every subscriber has acknowledged
    history_s: float = 86_400.0
    topic_bytes_max: int = 4096 * MIB  # in all
    on_bound: OnBound = "reject"  # at the bound: FULL, LOST, or the slowest expire
    history_messages: int = NUMBER_MAX  # kept of those that every subscriber has acknowledged
    waiting_messages_max: int = NUMBER_MAX  # for one subscription; `on_bound` says what happens


@dataclass(slots=True)
class PublisherMark:
    """The newest batch of one publisher."""

    first_sequence: int
    count: int
    base: int
    crc: int
    lsn: int  # record number of that batch; 0: durable since the start

    @property
    def last_sequence(self) -> int:
        """The publisher's highest stored sequence."""
        return self.first_sequence + self.count - 1


@dataclass(slots=True)
class Segment:
    """A run of neighbouring batches."""

    base: int
    end: int
    body_bytes: int
    batches: int
    timestamp_ns: int
    since_ns: int  # local time of its last batch: its age counts from here (rule R36)
    bytes_by: dict[str, int]  # by publisher

    @property
    def value(self) -> StoredSegment:
        """The same, as it is restored."""
        return StoredSegment(
            self.base,
            self.end,
            self.body_bytes,
            self.batches,
            self.timestamp_ns,
            self.since_ns,
            dict(self.bytes_by),
        )


@dataclass(slots=True)
class TopicLog:
    """What the broker knows of one topic."""

    topic_id: int
    topic: str
    log: str
    retention: Retention
    start: int = 0  # first stored offset
    end: int = 0  # offset of the next append
    durable_end: int = 0  # what readers see
    timestamp_ns: int = 0  # of the newest batch
    stored_bytes: int = 0
    lsn: int = 0  # record number of its creation
    trim_lsn: int = 0  # record number of the last trim
    removed_to: int = 0  # messages below it were removed by operators, as far as it is remembered
    segments: deque[Segment] = field(default_factory=deque)
    read_segments: int = 0  # of the oldest: those below the watermark when it was last looked at
    read_bytes: int = 0  # of these
    going: deque[tuple[int, Segment]] = field(default_factory=deque)  # trimmed, still on disk
    publishers: dict[str, PublisherMark] = field(default_factory=dict)  # at QoS 2
    unnumbered: dict[str, PublisherMark] = field(default_factory=dict)  # at QoS 1
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    listening: set[str] = field(default_factory=set)  # of the subscriptions
    holding: LowerBounds[str] = field(default_factory=LowerBounds)  # by durable cursor
    ended: dict[str, dict[str, None]] = field(  # by session kind, the newest last
        default_factory=lambda: {"clean": {}, "persistent": {}}
    )
    put_by: Role = field(init=False)  # whose ids its batches have

    def __post_init__(self) -> None:
        """Dead letters are put by subscribers."""
        self.put_by = "subscriber" if is_dead(self.topic) else "publisher"

    @classmethod
    def restore(cls, stored: StoredTopic, retention: Retention) -> TopicLog:
        """Rebuild from the store; everything in it is durable."""
        log = cls(
            topic_id=stored.topic_id,
            topic=stored.topic,
            log=stored.log,
            retention=retention,
            start=stored.start,
            end=stored.end,
            durable_end=stored.end,
            timestamp_ns=stored.timestamp_ns,
            stored_bytes=sum(segment.body_bytes for segment in stored.segments),
            segments=deque(
                Segment(**{**asdict(one), "bytes_by": dict(one.bytes_by)})
                for one in stored.segments
            ),
            publishers={p.publisher: _mark(p) for p in stored.publishers if p.qos == 2},
            unnumbered={p.publisher: _mark(p) for p in stored.publishers if p.qos == 1},
            subscriptions={
                s.subscriber: Subscription(
                    s.generation,
                    s.cursor,
                    s.cursor,
                    s.active,
                    0,
                    s.shown,
                    s.terms,
                    s.expired,
                    s.shown,
                    s.moved,
                    s.skipped,
                )
                for s in stored.subscriptions
            },
        )
        for name in log.subscriptions:
            log.index_subscription(name)
        log.unnumbered = dict(sorted(log.unnumbered.items(), key=lambda item: item[1].base))
        return log

    def index_subscription(self, name: str) -> None:
        """A subscription has begun, ended, or changed its terms."""
        one = self.subscriptions.get(name)
        if one is not None and one.listens:
            self.listening.add(name)
        else:
            self.listening.discard(name)
        if one is not None and one.holds:
            self.holding.add(name, one.durable_cursor)
        for names in self.ended.values():
            names.pop(name, None)
        if one is not None and not one.active:
            self.ended[one.terms.session][name] = None

    @property
    def live_count(self) -> int:
        """Its subscriptions that have not ended."""
        return len(self.subscriptions) - sum(map(len, self.ended.values()))

    def append(self, batch: LogBatch, lsn: int, local_ns: int | None = None) -> None:
        """Append a batch.

        Args:
            local_ns: local time; None: the batch's timestamp.
        """
        assert batch.base == self.end, (batch.base, self.end)
        assert batch.timestamp_ns > self.timestamp_ns, (batch.timestamp_ns, self.timestamp_ns)
        self.end = end = batch.base + batch.count
        self.timestamp_ns = batch.timestamp_ns
        size = len(batch.body)
        self.stored_bytes += size
        marks = self.publishers if batch.qos == 2 else self.unnumbered
        if batch.qos == 1:
            marks.pop(batch.publisher, None)  # the most recent is kept last
        marks[batch.publisher] = PublisherMark(
            batch.first_sequence, batch.count, batch.base, batch.crc, lsn
        )
        add_to_segments(
            self.segments, batch.base, end, size, batch.timestamp_ns, batch.publisher, local_ns
        )

    def bytes_below(self, start: int, cut_bytes: CutBytes = ()) -> Mapping[str, int]:
        """The bytes of the segments below an offset, and of a part of the next, by publisher."""
        going = Counter(dict(cut_bytes))
        for segment in self.segments:
            if segment.end > start:
                break
            going.update(segment.bytes_by)
        return going

    def trim(self, start: int, lsn: int, *, cut_batches: int = 0, cut_bytes: CutBytes = ()) -> None:
        """Remove the segments below the new start.

        Args:
            cut_batches: removed from the first segment that stays, with their bytes by publisher.
        """
        assert self.start <= start <= self.end, (self.start, start, self.end)
        while self.segments and self.segments[0].end <= start:
            removed = self.segments.popleft()
            self.stored_bytes -= removed.body_bytes
            if self.read_segments:
                self.read_segments -= 1
                self.read_bytes -= removed.body_bytes
            self.going.append((lsn, removed))
        if cut_batches:
            self._cut(self.segments[0], start, lsn, cut_batches, dict(cut_bytes))
        self.start = start
        self.trim_lsn = lsn

    def _cut(
        self, segment: Segment, start: int, lsn: int, batches: int, bytes_by: dict[str, int]
    ) -> None:
        """Remove the beginning of the first segment that stays."""
        size = sum(bytes_by.values())
        taken_ns, since_ns = segment.timestamp_ns, segment.since_ns
        gone = Segment(segment.base, start, size, batches, taken_ns, since_ns, bytes_by)
        self.going.append((lsn, gone))
        self.stored_bytes -= size
        if self.read_segments:
            self.read_bytes -= size
        segment.bytes_by = without(segment.bytes_by, bytes_by)
        segment.base = start
        segment.body_bytes -= size
        segment.batches -= batches

    def low_watermark(self, without: Collection[str] = ()) -> int:
        """The lowest durable acknowledged cursor; below it a message may go (rule R10).

        Args:
            without: subscribers that do not count.
        """
        if without:
            cursors = [one.durable_cursor for name, one in self._held() if name not in without]
            lowest = min(cursors, default=None)
        else:
            found = self.holding.lowest(self._holds_from)
            lowest = None if found is None else int(found[0])
        return self.durable_end if lowest is None else max(lowest, self.kept_from)

    def _holds_from(self, name: str) -> int | None:
        one = self.subscriptions.get(name)
        return one.durable_cursor if one is not None and one.holds else None

    def _held(self) -> list[tuple[str, Subscription]]:
        return [(name, one) for name, one in self.subscriptions.items() if one.holds]

    @property
    def kept_from(self) -> int:
        """The first offset that a subscription may still get, if the bound loses the oldest.

        It follows from the durable end alone, so no record of a loss is needed.
        """
        if self.retention.on_bound != "lose_oldest":
            return 0
        return max(self.durable_end - self.retention.waiting_messages_max, 0)

    def over_quota(self, count: int) -> list[tuple[str, Subscription]]:
        """The subscriptions that would exceed their bound with `count` more messages."""
        highest = self.end + count - self.retention.waiting_messages_max
        slowest = self.holding.take_below(highest, self._holds_from)
        for name in slowest:
            self.holding.add(name, self.subscriptions[name].durable_cursor)
        over = [(name, self.subscriptions[name]) for name in slowest]
        return [pair for pair in over if pair[1].cursor < highest]

    @property
    def ages_at_ns(self) -> int | None:
        """Return the local time at which the oldest segment is too old; None: no segment."""
        if not self.segments:
            return None
        return self.segments[0].since_ns + int(self.retention.history_s * 1e9)

    def age_from(self, begun_ns: int, older_ns: int = 0) -> None:
        """Let what another process stored be no younger than the start of this one.

        Args:
            begun_ns: local time of that start.
            older_ns: by which it is older than was thought.
        """
        for segment in self.segments:
            if segment.since_ns > begun_ns and older_ns:
                break
            segment.since_ns = min(segment.since_ns, begun_ns) - older_ns

    def stored_ns(self, offset: int, timestamp_ns: int) -> int:
        """Return the local time at which a batch was stored.

        Its segment knows that of its last batch. The difference to that one's timestamp is right
        unless the clock was set between the two; the segment before bounds it.
        """
        index = bisect_right(self.segments, offset, key=lambda segment: segment.base) - 1
        if index < 0:
            return timestamp_ns
        segment = self.segments[index]
        since_ns = segment.since_ns - max(segment.timestamp_ns - timestamp_ns, 0)
        return max(since_ns, self.segments[index - 1].since_ns) if index else since_ns

    def time_of_age(self, cut_ns: int, time_ns: int) -> int | None:
        """Return the first timestamp of messages stored at a local time or later.

        It is the time of the wall clock, unless that clock was set since. None: all are older.

        Args:
            cut_ns: the local time.
            time_ns: the time that the wall clock would have shown then.
        """
        index = bisect_left(self.segments, cut_ns, key=lambda segment: segment.since_ns)
        if index == len(self.segments):
            return None if self.segments else time_ns
        segment = self.segments[index]
        is_restored = segment.since_ns == segment.timestamp_ns
        shift_ns = (segment.since_ns - segment.timestamp_ns) - (cut_ns - time_ns)
        if is_restored or abs(shift_ns) < SET_NS_MIN:
            return time_ns
        before_ns = self.segments[index - 1].timestamp_ns if index else 0
        return max(segment.timestamp_ns - (segment.since_ns - cut_ns), before_ns + 1)

    def segment_values(self) -> list[StoredSegment]:
        """The segments that the disk still holds, as values."""
        return [s.value for s in (*(segment for _, segment in self.going), *self.segments)]

    def trims_durable(self, lsn: int) -> None:
        """Trims up to record number `lsn` are durable."""
        while self.going and self.going[0][0] <= lsn:
            self.going.popleft()

    def start_due(self, now_ns: int) -> int | None:
        """Return the start by retention: without the oldest acknowledged segments above the limits.

        None: it stays.

        Args:
            now_ns: local time.
        """
        if not self.segments:
            return None
        floor = self.low_watermark()
        oldest_ns = now_ns - int(self.retention.history_s * 1e9)
        history_bytes = self._bytes_below(floor)
        history_messages = max(floor - self.start, 0)
        start = self.start
        for index, segment in enumerate(self.segments):
            if segment.end > floor or index == TRIM_SEGMENTS_MAX:
                break
            after = history_messages - (segment.end - start)  # kept if this segment goes
            if (
                history_bytes <= self.retention.history_bytes
                and segment.since_ns >= oldest_ns
                and after < self.retention.history_messages
            ):
                break
            history_bytes -= segment.body_bytes
            history_messages = after
            start = segment.end
        return start if start > self.start else None

    def _bytes_below(self, floor: int) -> int:
        """The bytes of whole segments below the watermark; its cost follows how far that moved."""
        newest = self.segments[-1]  # may still grow, so it is not in the sum that is kept
        while self.read_segments < len(self.segments) - 1:
            segment = self.segments[self.read_segments]
            if segment.end > floor:
                break
            self.read_segments += 1
            self.read_bytes += segment.body_bytes
        while self.read_segments and self.segments[self.read_segments - 1].end > floor:
            self.read_segments -= 1
            self.read_bytes -= self.segments[self.read_segments].body_bytes
        return self.read_bytes + (newest.body_bytes if newest.end <= floor else 0)

    def start_without(
        self, excess_bytes: int, *, all_may_go: bool, without: Collection[str] = ()
    ) -> int | None:
        """The start of the topic after `excess_bytes` are removed; None if they may not be.

        Args:
            all_may_go: remove unacknowledged messages, too.
            without: subscribers that do not count.
        """
        floor = self.end if all_may_go else self.low_watermark(without)
        for segment in self.segments:
            if segment.end > floor:
                return None
            excess_bytes -= segment.body_bytes
            if excess_bytes <= 0:
                return segment.end
        return None

    def slowest_first(self) -> list[tuple[str, Subscription]]:
        """The subscriptions that keep messages stored, the lowest cursor first."""
        return sorted(self._held(), key=lambda pair: (pair[1].durable_cursor, pair[0]))


def _mark(stored: StoredPublisher) -> PublisherMark:
    return PublisherMark(stored.first_sequence, stored.count, stored.base, stored.crc, 0)


def without(bytes_by: Mapping[str, int], gone: Mapping[str, int]) -> dict[str, int]:
    """The bytes of each publisher that are left."""
    left = {name: size - gone.get(name, 0) for name, size in bytes_by.items()}
    return {name: size for name, size in left.items() if size}


def add_to_segments(
    segments: deque[Segment],
    base: int,
    end: int,
    body_bytes: int,
    timestamp_ns: int,
    publisher: str,
    local_ns: int | None = None,
) -> None:
    """Add a batch to the newest segment, or begin one; used live and at start-up."""
    since_ns = timestamp_ns if local_ns is None else local_ns
    segment = segments[-1] if segments else None
    if segment and segment.body_bytes < SEGMENT_BYTES and segment.batches < SEGMENT_BATCHES:
        segment.end = end
        segment.body_bytes += body_bytes
        segment.batches += 1
        segment.timestamp_ns, segment.since_ns = timestamp_ns, since_ns
        segment.bytes_by[publisher] = segment.bytes_by.get(publisher, 0) + body_bytes
    else:
        bytes_by = {publisher: body_bytes}
        segments.append(Segment(base, end, body_bytes, 1, timestamp_ns, since_ns, bytes_by))
