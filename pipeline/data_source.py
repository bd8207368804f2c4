"""The format `reliable_pubsub`: what Spark calls, handed on to the files that decide.

Readers are pickled into tasks and task workers are forked, so no socket may live in them: what
a driver asks by is made in the process that asks, and not pickled with the reader; a task makes
its own reader of the log, and closes it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.surroundings import endpoint_here
from reliable_pubsub.subscriber.reader import LogReader

from .core.columns import COLUMNS, NAMED_COLUMNS
from .core.options import SourceOptions, parse_options
from .core.sink_options import SinkOptions, check_columns, parse_sink_options
from .core.tables import TABLES, Row, status_rows
from .proxy_topics import ProxyTopics, endpoints_by_role, status_of
from .reading import arrow_batches, leave_out_of_collections
from .sink import BatchSink, StreamSink
from .spark_errors import without_our_frames
from .stream import QueryStream, Topics, batch_ranges

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "reliable_pubsub"
T = TypeVar("T", SourceOptions, SinkOptions)


def _log_in_spark() -> None:
    """Write warnings to stderr in a process that Spark has started, so that they are in its log.

    No program runs in these processes that could add a handler.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    logger = logging.getLogger("reliable_pubsub.pipeline")
    if spec is not None and spec.name.startswith("pyspark.") and not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)


_log_in_spark()


@without_our_frames
class ReliablePubSubSource(DataSource):
    """`spark.read`, `readStream`, `df.write` and `writeStream` of the format."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Keep the options; they are judged when it is known what they are for."""
        self.options = options
        named = (value for name, value in options.items() if name.lower() == "endpoint")
        self._endpoint = next(named, None)

    @classmethod
    def name(cls) -> str:
        """Of the format."""
        return FORMAT

    def schema(self) -> str:
        """All columns of the table that is asked for.

        Raises:
            UsageError: an option is wrong.
        """
        return ", ".join(f"`{name}` {kind}" for name, kind in _columns(self.parsed()).items())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of a batch query."""
        options = self.parsed()
        _check_schema(schema, options)
        if options.table == "messages":
            return MessagesReader(options, schema, named=self._endpoint is not None)
        return TableReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Of a streaming query."""
        options = self.parsed()
        if options.table != "messages":
            raise UsageError(f"table={options.table} can be read, not streamed: use spark.read")
        _check_schema(schema, options)
        return MessagesStream(options, schema, named=self._endpoint is not None)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Of `df.write.mode("append")`.

        Raises:
            UsageError: an option or a column is wrong, or the mode is `overwrite`.
        """
        return BatchSink(self._sink(schema, overwrite, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Of `df.writeStream`. Raises as `writer`."""
        return StreamSink(self._sink(schema, overwrite, streaming=True))

    def _sink(self, schema: StructType, overwrite: bool, *, streaming: bool) -> SinkOptions:
        if overwrite:
            what = "output mode complete" if streaming else "mode overwrite"
            raise UsageError(f"a topic only grows: use mode append, not {what}")
        options = self.parsed_sink(streaming=streaming)
        check_columns({f.name: f.dataType.simpleString() for f in schema.fields}, options)
        return options if self._endpoint is None else at_its_endpoint(options, "publisher")

    def _with_endpoint(self, role: Role) -> Mapping[str, str]:
        """Return the options with their endpoint, or that of the settings, and with its keys.

        Raises:
            ConfigurationError: a setting or a key is wrong.
        """
        return {**self.options, "endpoint": endpoint_here("pipeline", role, self._endpoint)}

    def parsed(self) -> SourceOptions:
        """The options of a query, checked.

        Raises:
            UsageError: one is wrong.
        """
        return parse_options(self._with_endpoint("subscriber"))

    def parsed_sink(self, *, streaming: bool) -> SinkOptions:
        """The options of a query that writes, checked. Raises as `parsed`."""
        return parse_sink_options(self._with_endpoint("publisher"), streaming=streaming)


def _columns(options: SourceOptions) -> Mapping[str, str]:
    if options.table != "messages":
        return TABLES[options.table]
    return {n: kind for n, kind in COLUMNS.items() if n != "headers" or options.include_headers}


def _check_schema(schema: StructType, options: SourceOptions) -> None:
    """A user's own schema may leave columns out, or name more of a message; it has no others.

    Raises:
        UsageError: it has.
    """
    known = _columns(options)
    if options.table == "messages":
        known = {**known, **NAMED_COLUMNS}
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if known.get(field.name) != kind:
            raise UsageError(
                f"column {field.name!r} {kind} is not one of this source; it has "
                + ", ".join(f"{name} {kind}" for name, kind in known.items())
            )


def at_its_endpoint(options: T, role: Role) -> T:
    """Return options that name one of the proxy's endpoints with the one of a role.

    Raises:
        ProxyUnreachableError.
    """
    return replace(options, endpoint=endpoints_by_role(options.endpoint, options.retry)[role])


def topics_of(options: SourceOptions) -> Topics:
    """What the driver asks: a proxy, or an archive."""
    if options.archive:
        from .archive_topics import ArchiveTopics  # it needs deltalake, and a proxy does not

        return ArchiveTopics(options)
    return ProxyTopics(options)


@without_our_frames
class _Messages:
    """What batch and stream share: options, columns, the work of a task."""

    def __init__(self, options: SourceOptions, schema: StructType, *, named: bool = False) -> None:
        self._options = options
        self._schema = schema
        self._named = named and not options.archive  # by its user, perhaps by the other role's

    @property
    def _located(self) -> SourceOptions:
        """In the driver: the options with the endpoint for subscribers.

        Raises:
            ProxyUnreachableError.
        """
        if self._named:
            self._options = at_its_endpoint(self._options, "subscriber")
            self._named = False
        return self._options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the messages of a range."""
        if partition.value is None:
            return  # Spark's stand-in for "no partition"
        wanted, endpoint = partition.value
        leave_out_of_collections()
        options = self._options
        schema = to_arrow_schema(self._schema, timezone="UTC")
        if options.archive:
            from .archive_topics import archived_range

            yield from archived_range(
                wanted,
                options.archive,
                schema,
                fail_on_data_loss=options.fail_on_data_loss,
            )
            return
        with LogReader(endpoint, retry=options.retry) as reader:
            yield from arrow_batches(
                wanted, reader, schema, fail_on_data_loss=options.fail_on_data_loss
            )


@without_our_frames
class MessagesReader(_Messages, DataSourceReader):
    """Messages as they are stored when the query is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        """In the driver: the tasks."""
        options = self._located
        with closing(topics_of(options)) as topics:
            ranges = batch_ranges(options, topics)
        return [InputPartition((one, options.endpoint)) for one in ranges]


@without_our_frames
class MessagesStream(_Messages, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Messages as they come."""

    _query: QueryStream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_query": None}

    @property
    def query(self) -> QueryStream:
        """The decisions of this query, with sockets of this process."""
        if self._query is None:
            self._query = QueryStream(self._located, topics_of(self._located))
        return self._query

    def initialOffset(self) -> dict[str, Any]:
        return self.query.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Option maxOffsetsPerTrigger."""
        return ReadMaxRows(self._options.trigger_rows_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if isinstance(limit, ReadMaxRows):
            return self.query.latest(start, limit.max_rows)
        assert isinstance(limit, ReadAllAvailable), limit
        return self.query.latest(start, None)

    def reportLatestOffset(self) -> dict[str, Any]:
        """Spark shows it as `latestOffset` of the source in the progress, with `lag_messages`."""
        return self.query.ends()

    def prepareForTriggerAvailableNow(self) -> None:
        self.query.prepare_available_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = self.query.ranges(start, end)
        return [InputPartition((one, self._options.endpoint)) for one in ranges]

    def commit(self, end: dict[str, Any]) -> None:
        self.query.processed(end)


@without_our_frames
class TableReader(DataSourceReader):
    """One of the proxy's tables. One task reads it."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._names = schema.names

    def partitions(self) -> Sequence[InputPartition]:
        """One."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """In the task: the rows."""
        options = self._options
        names = list(TABLES[options.table])
        places = [names.index(name) for name in self._names]
        report = status_of(options.endpoint, options.retry)
        for row in status_rows(options.table, report, options.wants):
            yield tuple(row[place] for place in places)
