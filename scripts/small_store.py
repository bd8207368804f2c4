"""A small store with every sort of record, for `scripts/damage`."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from reliable_pubsub.common.core.batch import Batch, crc32
from reliable_pubsub.common.core.wire import encode_batch
from reliable_pubsub.proxy import store as store_module
from reliable_pubsub.proxy.check import check_store
from reliable_pubsub.proxy.core.records import Appended, Granted, TopicCreated, Trimmed
from reliable_pubsub.proxy.core.schema import SCHEMA_ROWS, meaning
from reliable_pubsub.proxy.core.state import Record
from reliable_pubsub.proxy.core.subscription_records import (
    ControlSeen,
    CursorMoved,
    Subscribed,
    Unsubscribed,
)
from reliable_pubsub.proxy.reserve import RESERVE_NAME
from reliable_pubsub.proxy.store import Store
from reliable_pubsub.proxy.stored_state import FILE_NAME, read_state

PAGE_BYTES = 512  # the smallest: each byte costs a run, and the format is the same
WAL_BYTES = 40_000  # written beforehand; the proxy has 8 MiB, and nothing else is in the rest
NOW_NS = 1_700_000_000_000_000_000


Files = Mapping[str, bytes]
Contents = tuple[object, ...]


class Subject(Struct, frozen=True):
    """A store in one state: its files, those of an older moment, and its contents."""

    state: str
    files: Files
    older: Files
    contents: Contents


def an_append(topic_id: int, base: int, publisher: str, sequence: int, count: int) -> Appended:
    """A batch with a body that tells where it belongs."""
    text = f"{topic_id}-{base}-{publisher}".encode()
    body = encode_batch(Batch([text + b"." * (7 * base % 150)] * count))
    time_ns = NOW_NS + 1000 * topic_id + base
    return Appended(topic_id, base, count, publisher, 1, sequence, time_ns, crc32(body), body)


def beginning() -> Iterator[list[Record]]:
    """Clients, topics, subscriptions, a first part of the messages."""
    yield [Granted("publisher", name, 1, b"nonce-" + name.encode()) for name in ("p", "q")]
    yield [Granted("subscriber", "s", 3, b"nonce-s"), Granted("subscriber", "u", 1, b"nonce-u")]
    yield [TopicCreated(n, f"topic{n}", f"0123456789abcdef.{n}") for n in (1, 2, 3)]
    yield [Subscribed(1, "s", 1, 0, 3, b"nonce-s", 1), Subscribed(2, "u", 1, 0, 1, b"nonce-u", 1)]
    for turn in range(6):
        base = 3 * turn
        yield [
            an_append(1, base, "p", 2 * turn + 1, 2),
            an_append(1, base + 2, "q", turn + 1, 1),
            an_append(2, turn, "p", turn + 1, 1),
        ]
    yield [Trimmed(1, 6, 18, NOW_NS + 1000 + 17), CursorMoved(1, "s", 1, 6, True)]


def sequel() -> Iterator[list[Record]]:
    """What is still in the log when the proxy is killed."""
    yield [Granted("publisher", "q", 2, b"nonce-q2"), ControlSeen("s", 3, b"nonce-s", 4)]
    for turn in range(4):
        base = 18 + 2 * turn
        yield [an_append(1, base, "p", 13 + 2 * turn, 2), CursorMoved(1, "s", 1, base, False)]
        yield [an_append(3, turn, "q", turn + 1, 1)]
    yield [Unsubscribed(2, "u", 1, 5, 1, b"nonce-u", 2), Trimmed(2, 2, 6, NOW_NS + 2000 + 5)]
    yield [an_append(2, 6, "p", 7, 3)]


def files_of(directory: Path) -> Files:
    """Every file of a directory, by name, but the reserve: nothing is read from it."""
    paths = (path for path in sorted(directory.iterdir()) if path.name != RESERVE_NAME)
    return {path.name: path.read_bytes() for path in paths}


def build(scratch: Path, state: str) -> Subject:
    """A store in one state. Copied while it is open: that is what kill -9 leaves."""
    directory = scratch / state
    directory.mkdir()
    with closing(sqlite3.connect(directory / FILE_NAME)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("VACUUM")
    setattr(store_module, "WAL_BYTES", WAL_BYTES)  # noqa: B010  (it is Final)
    store = Store(directory, "sync")
    for records in beginning():
        store.commit(records)
    # From here the log starts over; what it held follows the new frames.
    store.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    *commits, last = sequel()
    for records in commits:
        store.commit(records)
    older = files_of(directory)
    store.commit(last)
    if state == "stopped":
        store.close()
    files = files_of(directory)
    if state != "stopped":
        store.close()
    shutil.rmtree(directory)
    put_files(directory, files)
    return Subject(state, files, older, contents(directory))


def put_files(directory: Path, files: Files) -> None:
    """Make a directory with exactly these files."""
    directory.mkdir(exist_ok=True)
    for path in directory.iterdir():
        if path.name not in files:
            path.unlink()
    for name, content in files.items():
        (directory / name).write_bytes(content)


def contents(directory: Path) -> Contents:
    """Open as the proxy does; return everything that is in the store, by every way to it.

    Raises:
        DamagedError: refused.
    """
    store = Store(directory, "sync")
    try:
        checked = check_store(store.connection)
        state = read_state(store.connection, checked.segments)
        execute = store.connection.execute
        schema = [(*names, meaning(sql)) for *names, sql in execute(SCHEMA_ROWS)]
        found: list[object] = [state, checked, schema]
        for table in ("meta", "topic", "batch", "publisher", "subscription", "session"):
            found.append(execute(f"SELECT * FROM {table}").fetchall())
        found.append(
            execute(
                "SELECT topic_id, publisher, first_sequence, place FROM batch"
                " INDEXED BY batch_once WHERE qos = 2"
            ).fetchall()
        )
        found.append(execute("SELECT topic, topic_id FROM topic ORDER BY topic").fetchall())
        found += [execute(f"PRAGMA {name}").fetchall() for name in ("encoding", "integrity_check")]
        return tuple(found)
    finally:
        store.close()
