"""The options of the source: every name, what it may be, and the closest name for a wrong one.

Pure: Spark gives text, `parse_options` gives checked values. Names are Kafka's where the meaning is
the same, so that a query can be moved by changing the format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from math import inf
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import asdict, fields

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.endpoint import check_endpoint
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.keys import keys_of_endpoint
from reliable_pubsub.common.core.limits import NUMBER_MAX
from reliable_pubsub.common.core.places import check_archive
from reliable_pubsub.common.core.retry import RETRIES_MAX, RetryPolicy
from reliable_pubsub.common.core.schemas import convert, json_decoder
from reliable_pubsub.common.core.settings import SUBSCRIBER_ENDPOINT
from reliable_pubsub.common.core.start import at_time, parse_start
from reliable_pubsub.common.core.wording import did_you_mean, plain, refused

MILLISECONDS_MIN: Final = 10**11  # of 1973; a smaller number is taken for seconds, and refused
Table = Literal["messages", "topics", "subscriptions", "publishers"]
LogEdge = Literal["earliest", "latest"]
OffsetOption = Annotated[int, Meta(ge=0, le=NUMBER_MAX)] | LogEdge

MAX_OFFSETS_PER_TRIGGER: Final = 100_000  # a long backlog must not become one batch
MAX_RECORDS_PER_PARTITION: Final = 50_000

Positive = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
T = TypeVar("T", bound=Struct)
USUAL: Final = RetryPolicy()


class ProxyWords(Struct, frozen=True, kw_only=True, rename="camel"):
    """The options of source and sink that say how the proxy is asked."""

    endpoint: str
    allow_plaintext: bool = False
    path: str = ""  # what `.load("a,b")` or `.save("a")` says
    timeout_ms: Positive = int(USUAL.timeout_s * 1000)
    retries: Annotated[int, Meta(ge=0, le=NUMBER_MAX)] = RETRIES_MAX

    def asked(self) -> dict[str, Any]:
        """Return these options by the names of their fields, and how to ask again.

        Raises:
            ConfigurationError: the endpoint cannot be, as of `common.core.endpoint`.
        """
        check_endpoint(
            self.endpoint,
            self.allow_plaintext,
            allowing="set option allowPlaintext to true",
            encrypted=keys_of_endpoint(self.endpoint) is not None,
        )
        retry = RetryPolicy(timeout_s=self.timeout_ms / 1000, retries_max=self.retries)
        return {**asdict(self), "retry": retry}


class SourceWords(ProxyWords, frozen=True, kw_only=True, rename="camel"):
    """The options of the source, as written. docs/how-to/pipeline.md has their meanings."""

    endpoint: str = SUBSCRIBER_ENDPOINT
    subscribe: str | UnsetType = UNSET
    subscribe_pattern: str | UnsetType = UNSET
    starting_offsets: str | UnsetType = UNSET
    starting_timestamp: str | UnsetType = UNSET
    ending_offsets: str | UnsetType = UNSET
    ending_timestamp: str | UnsetType = UNSET
    trigger_rows_max: Positive = field(default=MAX_OFFSETS_PER_TRIGGER, name="maxOffsetsPerTrigger")
    trigger_rows_min: Positive = field(default=1, name="minOffsetsPerTrigger")
    max_trigger_delay: str = "15m"
    partitions_min: Positive = field(default=1, name="minPartitions")
    partition_rows_max: Positive = field(
        default=MAX_RECORDS_PER_PARTITION, name="maxRecordsPerPartition"
    )
    fail_on_data_loss: bool = True
    fail_on_missing_topic: bool = True
    missing_topic_timeout: str = "1m"
    include_headers: bool = True
    subscriber: str = ""
    table: Table = "messages"
    archive: str = ""  # "": the proxy


def option_names(kind: type[Struct]) -> list[str]:
    """Return the names that people write; `path` is not one of them."""
    return [one.encode_name for one in fields(kind) if one.name != "path"]


_INSTEAD: Final[Mapping[str, str]] = {  # by the lower name of an option of Kafka
    "kafka.bootstrap.servers": "'endpoint' says where the proxy is, such as tcp://127.0.0.1:5556",
    "kafka.group.id": "'subscriber' is an id under which the proxy knows the place of the query",
    "groupidprefix": "'subscriber' is an id under which the proxy knows the place of the query",
    "kafka.security.protocol": "keys encrypt traffic: reliable-pubsub keys --help",
    "assign": "a topic has no partitions: name topics by 'subscribe'",
    "startingoffsetsbytimestamp": "'startingTimestamp' is a time for all topics",
    "startingoffsetsbytimestampstrategy": "'startingTimestamp' begins at the end, where no message "
    "is so late",
    "endingoffsetsbytimestamp": "'endingTimestamp' is a time for all topics",
    "kafkaconsumer.polltimeoutms": "'timeoutMs' is the patience of a request",
    "fetchoffset.retryintervalms": "'timeoutMs' is the patience of a request; pauses grow by "
    "themselves",
    "fetchoffset.numretries": "'retries' says how often a request is sent again",
}
OPTIONS: Final = option_names(SourceWords)
# What Spark's catalog adds to the options of each table that it makes, in any order.
_OF_THE_CATALOG: Final = frozenset({"owner", "provider"})
_VIEW: Final = "write CREATE TEMPORARY VIEW name USING reliable_pubsub OPTIONS (...)"


class Positions(Struct, frozen=True):
    """Where to begin, or to end, in each topic."""

    edge: LogEdge  # of topics that are not named
    offsets: Mapping[str, int | LogEdge] = {}
    timestamp_ns: int | None = None  # if given, it decides for all topics

    def of(self, topic: str) -> int | LogEdge:
        """The position in a topic, where time does not decide."""
        return self.offsets.get(topic, self.edge)


class SourceOptions(SourceWords, frozen=True, kw_only=True):
    """What a query wants to read."""

    topics: tuple[str, ...] = ()
    pattern: str = ""  # exactly one of the two for messages
    starting: Positions
    ending: Positions | None = None  # None: the end of a batch, no end of a stream
    trigger_delay_s: float = 900.0  # after which a smaller batch begins
    missing_topic_s: float = inf  # how long a named topic may be missing in a stream
    retry: RetryPolicy = USUAL

    def wants(self, topic: str) -> bool:
        """Whether a topic is to be read."""
        if self.pattern:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Check the options of a query.

    Args:
        given: names in any case, as Spark hands them over; `path` is what `.load("a,b")` says.

    Raises:
        UsageError: a name that does not exist (with the closest), or a value that cannot be.
    """
    words = typed_options(given, SourceWords)
    asked = words.asked()
    topics, pattern = _topics(words)
    starting = _positions("starting", words.starting_offsets, words.starting_timestamp, "earliest")
    delay_s = _seconds("maxTriggerDelay", words.max_trigger_delay)
    missing_s = _seconds("missingTopicTimeout", words.missing_topic_timeout)
    made = {
        "topics": topics,
        "pattern": pattern,
        "starting": starting or Positions("earliest"),
        "ending": _positions("ending", words.ending_offsets, words.ending_timestamp, "latest"),
        "trigger_delay_s": delay_s,
        "missing_topic_s": missing_s if words.fail_on_missing_topic else inf,
        "subscriber": names.client_id(words.subscriber) if words.subscriber else "",
        "archive": check_archive(words.archive),
    }
    found = SourceOptions(**asked | made)
    if found.archive and (found.subscriber or found.table != "messages"):
        raise UsageError(
            "option 'archive' reads messages of an archive: it goes with neither 'subscriber' nor "
            "another 'table', which are the proxy's"
        )
    _check_positions("startingOffsets", found.starting, found)
    _check_positions("endingOffsets", found.ending, found)
    return found


def _check_positions(name: str, positions: Positions | None, options: SourceOptions) -> None:
    """See that only topics which are read have a position.

    Raises:
        UsageError: another one has.
    """
    for topic in positions.offsets if positions is not None else ():
        if not options.wants(topic):
            read = (
                f"subscribePattern={options.pattern}"
                if options.pattern
                else ", ".join(options.topics)
            )
            raise UsageError(
                f"option {name}: topic {topic!r} is not read; the query reads {read}"
                f"{did_you_mean(topic, options.topics)}"
            )


def typed_options(given: Mapping[str, str], kind: type[T]) -> T:
    """Options by their own names, whatever case Spark made of them, with their types.

    Raises:
        UsageError: a name that does not exist (with the closest), or a value that cannot be.
    """
    if _OF_THE_CATALOG & given.keys():
        raise UsageError(
            "a topic is no table of Spark's catalog (CREATE TABLE), which forgets the options of a "
            f"query: {_VIEW}; it can be read and inserted into"
        )
    by_lower = {one.encode_name.lower(): one for one in fields(kind)}
    values: dict[str, object] = {}
    for name, text in given.items():
        option = by_lower.get(name.lower())
        if option is None:
            known = option_names(kind)
            advice = _of_kafka(name) or did_you_mean(name, known)
            advice = advice or f"; known are {', '.join(known)}"
            raise UsageError(f"option {name!r:.60} is unknown{advice}")
        one_of_a_few = get_origin(plain(option.type)) is Literal
        try:
            values[option.encode_name] = convert(
                text.lower() if one_of_a_few else text, option.type, strict=False
            )
        except msgspec.ValidationError as error:
            raise UsageError(
                f"option {option.encode_name}: {refused(text, option.type)}"
            ) from error
    return convert(values, kind)


def _of_kafka(name: str) -> str:
    """What takes the place of an option of Spark's Kafka source or sink; "" if it has no such."""
    instead = _INSTEAD.get(name.lower())
    if instead is None and name.lower().startswith("kafka."):
        return "; it is a setting of Kafka's client, and there is none here: leave it out"
    return f" here; {instead}" if instead else ""


def _seconds(name: str, text: str) -> float:
    """Return the seconds of an age such as 90s or 15m."""
    try:
        age = parse_start(f"age {text.strip()}")
    except UsageError as error:
        raise _wrong(name, text, "a time such as 500ms, 90s, 15m, 1h") from error
    return age.value / 1e9


def _wrong(name: str, text: str, expected: str) -> UsageError:
    return UsageError(f"option {name}: found {text!r:.80}, expected {expected}")


def _topics(words: SourceWords) -> tuple[tuple[str, ...], str]:
    """The topics, or the pattern."""
    ways = {
        "subscribe": words.subscribe,
        "subscribePattern": words.subscribe_pattern,
        "path": words.path or UNSET,
    }
    given = {name: text for name, text in ways.items() if not isinstance(text, UnsetType)}
    if words.table != "messages" and not given:
        return (), ".*"
    if len(given) != 1:
        ask = 'name topics by exactly one: subscribe=a,b or subscribePattern=regex or .load("a,b")'
        if given:
            raise UsageError(f"found {' and '.join(given)}; {ask}")
        raise UsageError(
            f"found none of them; {ask}. A table of Spark's catalog (CREATE TABLE, saveAsTable) "
            f"forgets options: DROP TABLE removes it, and no message with it; {_VIEW}"
        )
    ((name, text),) = given.items()
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise _wrong(name, text, f"a regular expression ({error})") from error
        return (), text
    return tuple(names.exact(topic.strip()) for topic in text.split(",")), ""


def _positions(
    which: str,
    offsets: str | UnsetType,
    timestamp: str | UnsetType,
    edge: LogEdge,
) -> Positions | None:
    """`startingOffsets` or `startingTimestamp`, and the same for the end."""
    if not isinstance(timestamp, UnsetType):
        if offsets is not UNSET:
            raise UsageError(f"found {which}Offsets and {which}Timestamp; give one of them")
        time_ns = instant_ns(timestamp)
        if time_ns is None:
            expected = "2026-11-21T08:30:00Z, or milliseconds since 1970 (not seconds)"
            raise _wrong(f"{which}Timestamp", timestamp, expected)
        return Positions(edge, timestamp_ns=time_ns)
    if isinstance(offsets, UnsetType):
        return None
    text = offsets.strip()
    if text in get_args(LogEdge):
        return Positions("earliest" if text == "earliest" else "latest")
    try:
        by_topic = json_decoder(dict[str, OffsetOption]).decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        expected = 'earliest, latest, or JSON such as {"a": 23, "b": "latest"}'
        raise _wrong(f"{which}Offsets", offsets, expected) from error
    return Positions(edge, {names.topic(topic): place for topic, place in by_topic.items()})


def instant_ns(text: str) -> int | None:
    """Return an ISO 8601 time or milliseconds as nanoseconds since 1970; None for other text.

    A time without zone is UTC: on a cluster the zone of a machine means nothing.
    """
    if re.fullmatch(r"[0-9]{1,15}", text):
        time_ms = int(text)
        return None if 0 < time_ms < MILLISECONDS_MIN else time_ms * 1_000_000
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at_time(instant.replace(tzinfo=instant.tzinfo or UTC)).value
