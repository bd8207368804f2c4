"""The topics of a proxy, as the driver of a query asks for them: extents, times, its own place."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import closing

from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub.common.core.batch import StoredBatch
from reliable_pubsub.common.core.errors import (
    DeniedError,
    FencedError,
    LostError,
    PubSubError,
    TruncatedError,
)
from reliable_pubsub.common.core.message_base import Role, Start
from reliable_pubsub.common.core.retry import Clock, RetryPolicy
from reliable_pubsub.common.core.start import at_time
from reliable_pubsub.common.core.status import StatusReport
from reliable_pubsub.common.status_client import StatusClient
from reliable_pubsub.common.transport import SystemClock
from reliable_pubsub.subscriber.core.place import Place
from reliable_pubsub.subscriber.external_cursor import ExternalCursor
from reliable_pubsub.subscriber.reader import LogReader

from .core.offsets import Offsets, TopicOffset
from .core.options import SourceOptions
from .core.planning import TopicExtent
from .core.sides import swapped

EXTENTS_S = 0.1  # an idle query asks about 90 times a second; the proxy is asked 10 times

_log = logging.getLogger("reliable_pubsub.pipeline")


def status_of(endpoint: str, retry: RetryPolicy) -> StatusReport:
    """Ask a proxy once for everything that it knows.

    Raises:
        ProxyUnreachableError.
    """
    with closing(StatusClient(endpoint, retry)) as status:
        return status.ask()


def endpoints_by_role(given: str, retry: RetryPolicy) -> dict[Role, str]:
    """Return both endpoints of a proxy, given one of them. See `swapped`.

    Raises:
        ProxyUnreachableError.
    """
    with closing(StatusClient(given, retry)) as status:
        try:
            report = status.summary()
        except DeniedError:  # a key may use its own endpoint without the right to ask
            return {"publisher": given, "subscriber": given}
    publishers, subscribers = report.publisher_endpoint, report.subscriber_endpoint
    if publishers is UNSET or subscribers is UNSET:
        return {"publisher": given, "subscriber": given}
    return {
        "publisher": swapped(given, subscribers, publishers),
        "subscriber": swapped(given, publishers, subscribers),
    }


class ProxyTopics:
    """Asks the proxy for a driver. It has sockets, so it stays in the process that made it."""

    def __init__(
        self,
        options: SourceOptions,
        *,
        status: StatusClient | None = None,
        reader: LogReader | None = None,
        kept: ExternalCursor | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Prepare; the proxy is asked at the first call.

        Args:
            status, reader, kept, clock: the world outside, where a test brings its own.
        """
        self._options = options
        endpoint, retry = options.endpoint, options.retry
        self._status = status or StatusClient(endpoint, retry)
        self._reader = reader or LogReader(endpoint, retry=retry)
        self._kept = kept
        if kept is None and options.subscriber:
            self._kept = ExternalCursor(options.subscriber, endpoint, retry=retry)
        self._clock = clock or SystemClock()
        self._extents: dict[str, TopicExtent] = {}
        self.names: Collection[str] = ()  # of all topics, at the last look
        self._asked_s = float("-inf")
        self._times: dict[tuple[str, TopicExtent, int], int] = {}
        self._told: dict[str, TopicOffset] = {}

    @property
    def keeps_place(self) -> bool:
        """Whether the proxy knows a subscription of this query."""
        return self._kept is not None

    def extents(self, age_s_max: float = EXTENTS_S) -> dict[str, TopicExtent]:
        """The topics that the query wants, as they were at most so long ago.

        Raises:
            ProxyUnreachableError.
        """
        if self._clock.now_s() - self._asked_s >= age_s_max:
            report = self._status.ask(rows_max=0)
            self.names = [topic.topic for topic in report.topics]
            self._extents = {
                topic.topic: TopicExtent(topic.log, topic.start, topic.end)
                for topic in report.topics
                if self._options.wants(topic.topic)
            }
            self._asked_s = self._clock.now_s()
        return self._extents

    def find_time(self, topic: str, extent: TopicExtent, time_ns: int) -> int:
        """The offset of the first message taken at a time or later; the end if there is none."""
        key = (topic, extent, time_ns)
        if key not in self._times:
            self._times = {k: v for k, v in self._times.items() if k[0] != topic or k[2] != time_ns}
            found = self._one_batch(topic, at_time(time_ns), extent.log)
            self._times[key] = min(found.offset, extent.end) if found else extent.end
        return self._times[key]

    def _one_batch(self, topic: str, start: int | Start, log: str) -> StoredBatch | None:
        batches = self._reader.read(topic, start, log=log, messages_max=1, bytes_max=0)
        return batches[0] if batches else None

    def witnessed(self, offsets: Offsets, known: Offsets) -> dict[str, TopicOffset]:
        """The same offsets with their witnesses; those that are known are not asked for."""
        found: dict[str, TopicOffset] = {}
        for topic, place in offsets.items():
            if place == known.get(topic) or place.offset == 0:
                found[topic] = place
                continue
            try:
                batch = self._one_batch(topic, place.offset - 1, place.log)
            except (TruncatedError, LostError):
                batch = None  # the batch of the witness was removed
            witness_ns = batch.header.timestamp_ns if batch else None
            found[topic] = replace(place, witness_ns=witness_ns)
        return found

    def begin_place(self, topic: str, place: TopicOffset | None) -> TopicOffset:
        """Begin the subscription of a query, or resume it.

        Args:
            place: None begins at the end of the topic.

        Returns:
            The greater of the place and where the subscription stood.
        """
        assert self._kept is not None
        wanted = Place(place.log, place.offset, place.witness_ns) if place is not None else None
        now = self._kept.tell(topic, wanted)
        return TopicOffset(now.log, now.cursor, now.witness_ns)

    def tell_places(self, offsets: Offsets) -> None:
        """Everything below is processed. It is a hint for lag and retention: no error leaves."""
        if self._kept is None:
            return
        try:
            for topic, place in offsets.items():
                before = self._told.get(topic)
                if before is None or before.log != place.log or before.offset < place.offset:
                    self._kept.tell(topic, Place(place.log, place.offset, place.witness_ns))
                    self._told[topic] = place
        except FencedError as error:
            _log.warning("subscriber %s: %s", self._options.subscriber, error)
            self._kept = None  # a newer query has this id, and tells its own place
        except PubSubError as error:
            _log.warning("subscriber %s was not moved on: %s", self._options.subscriber, error)

    def close(self) -> None:
        self._status.close()
        self._reader.close()
        if self._kept is not None:
            self._kept.close()


def ends_of(extents: Mapping[str, TopicExtent]) -> dict[str, TopicOffset]:
    """The ends of topics as offsets."""
    return {topic: TopicOffset(extent.log, extent.end) for topic, extent in extents.items()}
