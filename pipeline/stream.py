"""A streaming query's decisions in their order, without Spark: what its driver asks of a source.

Spark calls these from one process, in an order that research and tests have taken down:
initial twice, `latest` before each batch with the end of the last one, `ranges` for each batch (the
same again after a crash), `processed` late or never.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.retry import Clock
from reliable_pubsub.common.core.wording import did_you_mean
from reliable_pubsub.common.transport import SystemClock

from .core.loss import DataLossError
from .core.offsets import Offsets, TopicOffset, from_json, to_json
from .core.options import SourceOptions
from .core.planning import (
    Extents,
    MessageRange,
    admitted,
    ending_offsets,
    ranges_between,
    refuse_unknown,
    resumed_offsets,
    starting_offsets,
    unknown,
)
from .core.progress import lag_messages
from .proxy_topics import ProxyTopics, ends_of

if TYPE_CHECKING:  # it needs deltalake, and a proxy does not
    from .archive_topics import ArchiveTopics

Json = dict[str, Any]
Topics: TypeAlias = "ProxyTopics | ArchiveTopics"  # what a driver asks

_log = logging.getLogger("reliable_pubsub.pipeline")


class QueryStream:
    """One streaming query over topics. Everything that must survive is in Spark's checkpoint."""

    def __init__(self, options: SourceOptions, topics: Topics, clock: Clock | None = None) -> None:
        self._options = options
        self._topics = topics
        self._clock = clock or SystemClock()
        self._waiting_since_s: dict[str, float] = {}  # by missing topic
        self._skipped: dict[str, dict[int, int]] = {}  # by topic: ends of lost ranges, by begin
        self._batch_s = self._clock.now_s()  # when the last batch was planned
        self._first: Json | None = None
        self._target: dict[str, int] | None = None  # AvailableNow: where this run ends
        self._reached: Mapping[str, TopicOffset] = {}  # the end of the batch that was planned last

    def initial(self) -> Json:
        """Where a query without checkpoint begins; the same at every call of a run.

        With a subscriber the proxy remembers it, so it is the same in every run too.

        Raises:
            UsageError, DataLossError: `startingOffsets` cannot be.
            ProxyUnreachableError.
        """
        if self._first is None:
            extents = self._topics.extents()
            self._wait_for_topics(extents)
            begun = starting_offsets(self._options, extents, self._topics.find_time, self._skip)
            if self._topics.keeps_place:
                begun = self._begin_places(begun, {t: e.end for t, e in extents.items()})
            self._first = to_json(begun)
        return self._first

    def _begin_places(
        self, begun: Mapping[str, TopicOffset], ends: Mapping[str, int]
    ) -> dict[str, TopicOffset]:
        """Where the query begins: at the cursors of its subscriptions.

        "The latest", and a time that has not come, are told without an offset: the next run must
        not move the subscription to what is the end then.
        """
        starting = self._options.starting
        by_time = starting.timestamp_ns is not None
        begin: dict[str, TopicOffset] = {}
        for topic, place in begun.items():
            at_end = place.offset == ends[topic] if by_time else starting.of(topic) == "latest"
            begin[topic] = self._topics.begin_place(topic, None if at_end else place)
        return begin

    def prepare_available_now(self) -> None:
        """Fix where this run ends: at what is stored now."""
        self._target = self._ends()

    def _ends(self) -> dict[str, int]:
        return ending_offsets(self._options.ending, self._topics.extents(), self._topics.find_time)

    def latest(self, start: Mapping[str, Any], rows_max: int | None) -> Json:
        """Return the end of the next batch; `start` itself if there is nothing new.

        Args:
            start: the end of the last batch. Spark asks only when that one is finished, so the
                proxy may count it as processed.
            rows_max: of the trigger; None reads everything.

        Raises:
            DataLossError: the next messages were removed.
            UsageError: a named topic is missing for too long.
            ProxyUnreachableError.
        """
        known = from_json(start)
        extents = self._topics.extents()
        self._wait_for_topics(extents)
        ends = self._ends()
        if self._target is not None:
            target = self._target
            extents = {t: e for t, e in extents.items() if t in target or t in known}
            ends = {topic: min(end, target.get(topic, 0)) for topic, end in ends.items()}
        self._topics.tell_places(known)
        resumed = resumed_offsets(known, extents, self._options, self._skip)
        if self._target is None and self._waits_for_more(resumed, ends):
            self._reached = known
            return dict(start)
        self._batch_s = self._clock.now_s()
        reached = admitted(known, resumed, ends, rows_max)
        self._reached = self._topics.witnessed(reached, known)
        return to_json(self._reached)

    def _waits_for_more(self, resumed: Offsets, ends: Mapping[str, int]) -> bool:
        """Return whether the next batch would be too small, and is not late yet."""
        backlog = sum(max(ends.get(topic, 0) - one.offset, 0) for topic, one in resumed.items())
        late = self._clock.now_s() - self._batch_s >= self._options.trigger_delay_s
        return backlog < self._options.trigger_rows_min and not late

    def _wait_for_topics(self, extents: Extents) -> None:
        """Note the named topics that are missing.

        Raises:
            UsageError: one is missing for longer than the options allow.
        """
        now_s = self._clock.now_s()
        missing = unknown(self._options, extents)
        for topic in missing:
            if topic not in self._waiting_since_s:
                _log.warning("there is no topic %r yet; the query reads it when it appears", topic)
        self._waiting_since_s = {one: self._waiting_since_s.get(one, now_s) for one in missing}
        for topic, since_s in self._waiting_since_s.items():
            if now_s - since_s >= self._options.missing_topic_s:
                advice = did_you_mean(topic, self._topics.names)
                raise UsageError(
                    f"there is no topic {topic!r}{advice}. The query waited {now_s - since_s:.0f} "
                    "s for it (missingTopicTimeout). To wait without a limit, set "
                    "failOnMissingTopic=false"
                )

    def _skip(self, loss: DataLossError) -> None:
        """Log a loss that the options allow, and count it for the progress."""
        known = self._skipped.setdefault(loss.topic, {})
        if known.get(loss.first) != loss.end:
            _log.warning("%s", loss.skipped)
        known[loss.first] = loss.end

    def ends(self) -> Json:
        """Return the current ends of the topics, and further values for the progress of a batch.

        Spark asks after `latest`. `lag_messages` are those after the batch planned last,
        `waiting_for` the named topics that are missing, `skipped` the messages that this run left
        out with failOnDataLoss=false.
        """
        ends = ends_of(self._topics.extents())
        shown: Json = {**to_json(ends), "lag_messages": lag_messages(self._reached, ends)}
        if self._waiting_since_s:
            shown["waiting_for"] = sorted(self._waiting_since_s)
        if self._skipped:
            shown["skipped"] = {
                topic: sum(max(end - first, 0) for first, end in some.items())
                for topic, some in sorted(self._skipped.items())
            }
        return shown

    def ranges(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[MessageRange]:
        """The tasks of a batch; the same for the same two offsets, whatever the proxy holds."""
        return ranges_between(
            from_json(start),
            from_json(end),
            rows_max=self._options.partition_rows_max,
            ranges_min=self._options.partitions_min,
        )

    def processed(self, end: Mapping[str, Any]) -> None:
        """Spark says so, one batch late."""
        self._topics.tell_places(from_json(end))


def batch_ranges(options: SourceOptions, topics: Topics) -> list[MessageRange]:
    """The tasks of a batch query: from where it begins to where it ends.

    Raises:
        UsageError, DataLossError, ProxyUnreachableError.
    """
    extents = topics.extents()
    refuse_unknown(options, extents)
    begun = starting_offsets(
        options, extents, topics.find_time, lambda loss: _log.warning("%s", loss.skipped)
    )
    ends = ending_offsets(options.ending, extents, topics.find_time)
    return ranges_between(
        begun,
        admitted(begun, begun, ends, None),
        rows_max=options.partition_rows_max,
        ranges_min=options.partitions_min,
    )
