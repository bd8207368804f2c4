"""The options of the source: every name, what it may be, and the closest name for a wrong one.

Pure: Spark gives text, `parse_options` gives checked values. Names are Kafka's where the meaning is
the same, so that a query can be moved by changing the format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final, Literal, get_args

from msgspec import Struct

from reliable_pubsub.common import names
from reliable_pubsub.common.endpoint import check_endpoint
from reliable_pubsub.common.errors import UsageError
from reliable_pubsub.common.limits import NUMBER_MAX
from reliable_pubsub.common.retry import RetryPolicy
from reliable_pubsub.common.settings import SUBSCRIBER_ENDPOINT
from reliable_pubsub.common.wording import did_you_mean

Table = Literal["messages", "topics", "subscriptions", "publishers", "deliveries"]
Edge = Literal["earliest", "latest"]

MAX_OFFSETS_PER_TRIGGER: Final = 100_000  # a long backlog must not become one batch
MAX_RECORDS_PER_PARTITION: Final = 50_000

OPTIONS: Final[Mapping[str, str]] = {
    "endpoint": "the proxy's endpoint for subscribers",
    "allowPlaintext": "true: the endpoint may be on another machine; traffic is not encrypted",
    "subscribe": "topics, separated by commas",
    "subscribePattern": "a regular expression; topics whose whole name matches, also later ones",
    "startingOffsets": 'earliest (default), latest, or JSON such as {"a": 23, "b": "latest"}',
    "startingTimestamp": "begin with the first message taken at this time or later",
    "endingOffsets": "as startingOffsets (exclusive); latest is the default of a batch",
    "endingTimestamp": "end before the first message taken at this time or later",
    "maxOffsetsPerTrigger": "messages of one batch of a stream, over all topics",
    "maxBytesPerTrigger": "bytes of one batch of a stream, by the average size in each topic",
    "minPartitions": "at least so many tasks, where there are so many messages",
    "maxRecordsPerPartition": "messages of one task",
    "failOnDataLoss": "true (default): stop where messages are gone; false: go on behind them",
    "includeHeaders": "false leaves the column out",
    "subscriber": "id under which the proxy knows this query's place: lag, retention",
    "table": "messages (default), topics, subscriptions, publishers, deliveries",
    "histories": "for the table deliveries: the folder of --history files",
    "timeoutMs": "milliseconds to wait for one answer of the proxy",
    "retries": "how often to ask again",
}


class Positions(Struct, frozen=True):
    """Where to begin, or to end, in each topic."""

    edge: Edge  # of topics that are not named
    offsets: Mapping[str, int | Edge] = {}
    timestamp_ns: int | None = None  # if given, it decides for all topics

    def of(self, topic: str) -> int | Edge:
        """The position in a topic, where time does not decide."""
        return self.offsets.get(topic, self.edge)


class SourceOptions(Struct, frozen=True, kw_only=True):
    """What a query wants to read."""

    endpoint: str
    topics: tuple[str, ...] = ()
    pattern: str = ""  # exactly one of the two for messages
    starting: Positions
    ending: Positions | None = None  # None: the end of a batch, no end of a stream
    trigger_rows_max: int = MAX_OFFSETS_PER_TRIGGER
    trigger_bytes_max: int | None = None
    partitions_min: int = 1
    partition_rows_max: int = MAX_RECORDS_PER_PARTITION
    fail_on_data_loss: bool = True
    include_headers: bool = True
    subscriber: str = ""  # "": none
    table: Table = "messages"
    histories: str = ""
    retry: RetryPolicy = RetryPolicy()

    def wants(self, topic: str) -> bool:
        """Whether a topic is to be read."""
        if self.pattern:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics


def parse_options(
    given: Mapping[str, str], *, instant_ns: Callable[[str], int | None]
) -> SourceOptions:
    """Check the options of a query.

    Args:
        given: names in any case, as Spark hands them over; `path` is what `.load("a,b")` says.
        instant_ns: reads a point in time.

    Raises:
        UsageError: a name that does not exist (with the closest), or a value that cannot be.
    """
    words = Words(known_options(given, OPTIONS))
    table = words.table()
    topics, pattern = words.topics(needed=table == "messages")
    endpoint = words.text("endpoint", SUBSCRIBER_ENDPOINT)
    check_endpoint(endpoint, words.flag("allowPlaintext", default=False))
    if words.has("histories") != (table == "deliveries"):
        raise UsageError(
            "option 'histories' names the folder of --history files for table=deliveries; they "
            "are given together"
        )
    subscriber = words.text("subscriber", "")
    ending = words.positions("ending", "latest", instant_ns)
    return SourceOptions(
        endpoint=endpoint,
        topics=topics,
        pattern=pattern,
        starting=words.positions("starting", "earliest", instant_ns) or Positions("earliest"),
        ending=ending,
        trigger_rows_max=words.number("maxOffsetsPerTrigger", 1, MAX_OFFSETS_PER_TRIGGER),
        trigger_bytes_max=words.number("maxBytesPerTrigger", 1, 0) or None,
        partitions_min=words.number("minPartitions", 1, 1),
        partition_rows_max=words.number("maxRecordsPerPartition", 1, MAX_RECORDS_PER_PARTITION),
        fail_on_data_loss=words.flag("failOnDataLoss", default=True),
        include_headers=words.flag("includeHeaders", default=True),
        subscriber=names.client_id(subscriber) if subscriber else "",
        table=table,
        histories=words.text("histories", ""),
        retry=words.retry(),
    )


def known_options(given: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """Options by their own names, whatever case Spark made of them; `path` is always known.

    Raises:
        UsageError: a name that does not exist, with the closest.
    """
    by_lower = {name.lower(): name for name in (*known, "path")}
    text: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() not in by_lower:
            advice = did_you_mean(name, known) or f"; known are {', '.join(known)}"
            raise UsageError(f"option {name!r:.60} is unknown{advice}")
        text[by_lower[name.lower()]] = value
    return text


class Words:
    """The text of the options, read as what each has to be."""

    def __init__(self, text: Mapping[str, str]) -> None:
        self._text = text

    def has(self, name: str) -> bool:
        return name in self._text

    def text(self, name: str, default: str) -> str:
        return self._text.get(name, default)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._text.get(name, str(default)).lower()
        if value not in ("true", "false"):
            raise self._wrong(name, "true or false")
        return value == "true"

    def number(self, name: str, low: int, default: int) -> int:
        if name not in self._text:
            return default
        text = self._text[name]
        if not re.fullmatch(r"[0-9]{1,19}", text) or not low <= int(text) <= NUMBER_MAX:
            raise self._wrong(name, f"a whole number from {low}")
        return int(text)

    def table(self) -> Table:
        for table in get_args(Table):
            if table == self._text.get("table", "messages"):
                found: Table = table
                return found
        raise self._wrong("table", f"one of {', '.join(get_args(Table))}")

    def topics(self, *, needed: bool) -> tuple[tuple[str, ...], str]:
        given = [name for name in ("subscribe", "subscribePattern", "path") if name in self._text]
        if not needed and not given:
            return (), ".*"
        if len(given) != 1:
            found = f"found {' and '.join(given)}" if given else "found none of them"
            raise UsageError(
                f"{found}; name topics by exactly one: subscribe=a,b or subscribePattern=regex or "
                '.load("a,b")'
            )
        text = self._text[given[0]]
        if given[0] == "subscribePattern":
            try:
                re.compile(text)
            except re.error as error:
                raise self._wrong(given[0], f"a regular expression ({error})") from error
            return (), text
        return tuple(names.exact(topic.strip()) for topic in text.split(",")), ""

    def positions(
        self, which: str, edge: Edge, instant_ns: Callable[[str], int | None]
    ) -> Positions | None:
        """`startingOffsets` or `startingTimestamp`, and the same for the end."""
        offsets, timestamp = f"{which}Offsets", f"{which}Timestamp"
        if offsets in self._text and timestamp in self._text:
            raise UsageError(f"found {offsets} and {timestamp}; give one of them")
        if timestamp in self._text:
            time_ns = instant_ns(self._text[timestamp])
            if time_ns is None:
                raise self._wrong(timestamp, "2026-11-21T08:30:00Z, or milliseconds since 1970")
            return Positions(edge, timestamp_ns=time_ns)
        if offsets not in self._text:
            return None
        text = self._text[offsets].strip()
        if text in get_args(Edge):
            return Positions("earliest" if text == "earliest" else "latest")
        try:
            by_topic = json.loads(text)
        except ValueError:
            by_topic = None
        if not isinstance(by_topic, dict) or not all(map(_is_position, by_topic.values())):
            raise self._wrong(offsets, 'earliest, latest, or JSON such as {"a": 23, "b": "latest"}')
        return Positions(edge, {names.topic(topic): place for topic, place in by_topic.items()})

    def retry(self) -> RetryPolicy:
        usual = RetryPolicy()
        timeout_ms = self.number("timeoutMs", 1, int(usual.timeout_s * 1000))
        return RetryPolicy(
            timeout_s=timeout_ms / 1000, retries_max=self.number("retries", 0, usual.retries_max)
        )

    def _wrong(self, name: str, expected: str) -> UsageError:
        return UsageError(f"option {name}: found {self._text[name]!r:.80}, expected {expected}")


def _is_position(value: object) -> bool:
    if isinstance(value, str):
        return value in get_args(Edge)
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= NUMBER_MAX
