"""A range of the log, read by a task from the store of the proxy, past the proxy.

Offsets below the end that a proxy has told are durable and never change, so the rows that hold
them may be read by any process that can open the store: its file, on the machine of the proxy, or
its database. Each row is held against its checksums and against the log id that the query planned
with. What is not found there (removed meanwhile, another log, a store that cannot be opened) is
asked of the proxy, which alone can say why.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from reliable_pubsub.common.core.batch import StoredBatch
from reliable_pubsub.common.core.errors import PubSubError
from reliable_pubsub.common.core.limits import BODY_BYTES_MAX
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.wire import decode_batch
from reliable_pubsub.proxy.log_reader import StoreReader
from reliable_pubsub.proxy.stored_state import FILE_NAME, SqlConnection, open_reader, reading
from reliable_pubsub.subscriber.reader import LogReader

from .core.places import is_database
from .reading import ReadsLog

_log = logging.getLogger("reliable_pubsub.pipeline")


@contextmanager
def nearest_log(endpoint: str, retry: RetryPolicy, store: str) -> Iterator[ReadsLog]:
    """The log as a task reads it: from the store, if this machine can open it, or the proxy.

    Args:
        store: the proxy's data directory, or `postgresql://...`; "": the proxy.
    """
    with LogReader(endpoint, retry=retry) as proxy:
        connection = _opened(store) if store else None
        if connection is None:
            yield proxy
            return
        with closing(connection):
            yield StoredLog(connection, proxy)


def _opened(store: str) -> SqlConnection | None:
    """A connection that only reads; None: there is no such store on this machine."""
    try:
        if is_database(store):
            from reliable_pubsub.proxy.postgres_connection import connect_to_read

            return connect_to_read(store)
        path = Path(store, FILE_NAME)
        return open_reader(path) if path.exists() else None
    except PubSubError as error:
        _log.warning("%s; the proxy is asked", error)
        return None


class StoredLog:
    """Reads from a store what it has, and the rest from the proxy."""

    def __init__(self, connection: SqlConnection, proxy: ReadsLog) -> None:
        """Use an open connection, which only this may use."""
        self._connection = connection
        self._proxy = proxy
        self._rows = StoreReader(connection, cache_bytes_max=0)

    def read(
        self, topic: str, start: int, *, log: str, witness_ns: int | None, messages_max: int
    ) -> list[StoredBatch]:
        """The batches from an offset on; arguments and errors as of `LogReader.read`."""
        try:
            found = self._stored(topic, start, log, witness_ns, messages_max)
        except PubSubError as error:
            _log.warning("%s; the proxy is asked", error)
            found = []
        return found or self._proxy.read(
            topic, start, log=log, witness_ns=witness_ns, messages_max=messages_max
        )

    def _stored(
        self, topic: str, start: int, log: str, witness_ns: int | None, messages_max: int
    ) -> list[StoredBatch]:
        """What the store has of this log at an offset; none: nothing, or another message before it.

        Raises:
            DamagedError: a row is not what was written. NotServingError: the database is away.
        """
        with reading():
            row = self._connection.execute(
                "SELECT topic_id FROM topic WHERE topic = ? AND log = ?", (topic, log)
            ).fetchone()
        if row is None:
            return []
        (topic_id,) = row
        if witness_ns is not None and self._rows.timestamp_ns(topic_id, start - 1) != witness_ns:
            return []
        batches = self._rows.read(
            topic_id, start, messages_max=messages_max, bytes_max=BODY_BYTES_MAX
        )
        if not batches or batches[0].base > start:
            return []
        return [
            StoredBatch(one.header, decode_batch(one.body, one.count), max(start - one.base, 0))
            for one in batches
        ]
