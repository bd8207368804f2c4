"""Which messages a batch reads, and which task reads which of them. Pure.

Offsets of a topic are dense and never change, so a range [first, end) means the same messages at
every attempt, in every process. Ranges are half open everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.wording import did_you_mean

from .loss import DataLossError
from .offsets import Offsets, TopicOffset
from .options import Positions, SourceOptions


class TopicExtent(Struct, frozen=True):
    """What the proxy holds of a topic now."""

    log: str  # log id
    start: int  # first stored offset
    end: int  # the offset of the next message


Extents = Mapping[str, TopicExtent]  # by topic
FindTime = Callable[[str, TopicExtent, int], int]  # offset of the first message at a time or later
OnLoss = Callable[[DataLossError], None]  # hears of losses that the options allow


class MessageRange(Struct, frozen=True):
    """What one task reads: offsets first to end - 1 of a topic, all of them."""

    topic: str
    log: str
    first: int
    end: int
    witness_ns: int | None = None  # timestamp of the batch that holds first - 1, if known

    @property
    def count(self) -> int:
        """How many messages."""
        return self.end - self.first


# Where to begin and to end.


def refuse_unknown(options: SourceOptions, extents: Extents) -> None:
    """See that the topics that are named are there, where no later look will find them.

    Raises:
        UsageError: one is not.
    """
    missing = unknown(options, extents)
    if missing:
        advice = did_you_mean(missing[0], extents) or ""
        raise UsageError(f"there is no topic {missing[0]!r}{advice}")


def unknown(options: SourceOptions, extents: Extents) -> list[str]:
    """The topics that are named, or have a position, and are not there."""
    named = {*options.topics, *options.starting.offsets}
    if options.ending is not None:
        named |= options.ending.offsets.keys()
    return sorted(named - extents.keys())


def starting_offsets(
    options: SourceOptions, extents: Extents, find_time: FindTime, on_loss: OnLoss
) -> dict[str, TopicOffset]:
    """Where a query begins that has no checkpoint, in the topics that are there now.

    Raises:
        UsageError: an offset above the end.
        DataLossError: an offset that is no longer stored.
    """
    begun: dict[str, TopicOffset] = {}
    for topic, extent in extents.items():
        offset = _position(options.starting, topic, extent, find_time)
        if offset > extent.end:
            raise UsageError(
                f"startingOffsets: topic {topic!r} ends at offset {extent.end}, {offset} is above"
            )
        place = TopicOffset(extent.log, offset)
        begun[topic] = _still_there(topic, place, extent, options, on_loss)
    return begun


def ending_offsets(
    positions: Positions | None, extents: Extents, find_time: FindTime
) -> dict[str, int]:
    """The first offset that is not read, by topic; at most the end."""
    return {
        topic: extent.end
        if positions is None
        else min(_position(positions, topic, extent, find_time), extent.end)
        for topic, extent in extents.items()
    }


def _position(positions: Positions, topic: str, extent: TopicExtent, find_time: FindTime) -> int:
    if positions.timestamp_ns is not None:
        return find_time(topic, extent, positions.timestamp_ns)
    position = positions.of(topic)
    if isinstance(position, int):
        return position
    return extent.start if position == "earliest" else extent.end


# A query that continues.


def resumed_offsets(
    start: Offsets, extents: Extents, options: SourceOptions, on_loss: OnLoss
) -> dict[str, TopicOffset]:
    """Where reading continues: the checkpoint, compared with what the proxy has.

    Args:
        start: the end of the last batch. Topics that the query no longer wants stay as they are.
        extents: of the topics that it wants now; new ones begin at their start.

    Raises:
        DataLossError: messages after the checkpoint were removed, or the log is another one.
    """
    resumed = dict(start)
    for topic, place in resumed.items():
        if options.wants(topic):
            extent = extents.get(topic)
            resumed[topic] = (
                _gone(topic, place, options, on_loss)
                if extent is None
                else _still_there(topic, place, extent, options, on_loss)
            )
    for topic, extent in extents.items():
        if topic not in resumed:
            resumed[topic] = TopicOffset(extent.log, extent.start, first=extent.start)
    return resumed


def _gone(topic: str, place: TopicOffset, options: SourceOptions, on_loss: OnLoss) -> TopicOffset:
    why = "the proxy no longer has this topic: it was replaced"
    _lose(topic, place.offset, place.offset, why, options, on_loss)
    return place


def _still_there(
    topic: str, place: TopicOffset, extent: TopicExtent, options: SourceOptions, on_loss: OnLoss
) -> TopicOffset:
    """The place, if it is one of this log; else an error, or the first place that is."""
    there = (
        f"offsets {extent.start} to {extent.end - 1}" if extent.end > extent.start else "nothing"
    )
    if place.log != extent.log:
        why = f"its log was {place.log} and is now {extent.log} with {there}: another topic"
        _lose(topic, place.offset, place.offset, why, options, on_loss)
        return TopicOffset(extent.log, extent.start, first=extent.start)
    if place.offset > extent.end:
        why = f"the log has {there}: the proxy was set back to an older copy"
        _lose(topic, extent.end, place.offset, why, options, on_loss)
        return TopicOffset(extent.log, extent.end, first=extent.end)
    if place.offset < extent.start:
        why = f"the first that is left is {extent.start}"
        _lose(topic, place.offset, extent.start, why, options, on_loss)
        return TopicOffset(extent.log, extent.start, first=extent.start)
    return place


def _lose(
    topic: str, first: int, end: int, why: str, options: SourceOptions, on_loss: OnLoss
) -> None:
    loss = DataLossError(topic=topic, first=first, end=end, why=why)
    if options.fail_on_data_loss:
        raise loss
    on_loss(loss)


# Admission.


def admitted(
    start: Offsets, resumed: Offsets, ends: Mapping[str, int], rows_max: int | None
) -> dict[str, TopicOffset]:
    """How far a batch goes: each topic gets its share of `rows_max` by its backlog.

    A topic with a backlog always advances, so with more topics than `rows_max` a batch is larger.

    Args:
        start: the end of the last batch; a topic that does not advance keeps its very value, so
            that Spark sees no new batch.
        resumed: where reading goes on from there.
        ends: by topic; those that are not named do not advance.
        rows_max: None reads everything.
    """
    backlog = {topic: ends.get(topic, 0) - place.offset for topic, place in resumed.items()}
    total = sum(count for count in backlog.values() if count > 0)
    reached: dict[str, TopicOffset] = {}
    for topic, place in resumed.items():
        known = start.get(topic)
        goes_on = known is not None and (known.log, known.offset) == (place.log, place.offset)
        count = backlog[topic]
        if count <= 0:
            reached[topic] = known if known is not None and goes_on else place
            continue
        if rows_max is not None and total > rows_max:
            count = max(count * rows_max // total, 1)
        first = None if goes_on else place.offset
        reached[topic] = TopicOffset(place.log, place.offset + count, first=first)
    return reached


# Tasks.


def ranges_between(
    start: Offsets, end: Offsets, *, rows_max: int, ranges_min: int
) -> list[MessageRange]:
    """Cut a batch into tasks, each topic by its offsets.

    `start` may equal `end`, lack topics that `end` has, or lie after it (a query that begins at
    the latest offset and failed in its first batch): what is not there is simply not read.
    """
    whole: list[MessageRange] = []
    for topic in sorted(end):
        place = end[topic]
        begun = start.get(topic)
        first, witness_ns = place.first or 0, None
        if begun is not None and begun.log == place.log and begun.offset >= first:
            first, witness_ns = begun.offset, begun.witness_ns
        if place.offset > first:
            whole.append(MessageRange(topic, place.log, first, place.offset, witness_ns))
    total = sum(one.count for one in whole)
    cut: list[MessageRange] = []
    for one in whole:
        pieces = max(-(-one.count // rows_max), round(ranges_min * one.count / total), 1)
        cut += _cut(one, min(pieces, one.count))
    return cut


def _cut(whole: MessageRange, pieces: int) -> list[MessageRange]:
    """Equal pieces; only the first one knows the witness."""
    borders = [whole.first + whole.count * number // pieces for number in range(pieces + 1)]
    return [
        replace(whole, first=first, end=end, witness_ns=whole.witness_ns if number == 0 else None)
        for number, (first, end) in enumerate(pairwise(borders))
    ]
