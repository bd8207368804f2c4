"""A connection to PostgreSQL that takes the statements of `core/schema.py` and `core/rows.py`.

Everything in this program that knows psycopg is here and in `postgres_store.py`.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from reliable_pubsub.common.core.connection_string import without_password
from reliable_pubsub.common.core.errors import ConfigurationError

from .core.storage import NotServingError
from .postgres_sql import Column, translated

try:
    import psycopg
    from psycopg.abc import Buffer
    from psycopg.adapt import Dumper
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.pq import Format
    from psycopg.types.numeric import Int8BinaryDumper
except ImportError as error:
    raise ConfigurationError(
        "a store in PostgreSQL needs psycopg, which is not installed: pip install "
        "'reliable-pubsub[postgres]' (in a clone '.[postgres]')"
    ) from error

# It warns of each lost connection, which we say ourselves.
logging.getLogger("psycopg").setLevel(logging.ERROR)
BODIES_AT_ONCE: Final = 32  # that a read of the log fetches: at most 32 MiB
ROWS_AT_ONCE: Final = 4096  # without bodies
_DEFAULTS: Final = {
    "target_session_attrs": "read-write",  # of several hosts the one that is the primary
    "connect_timeout": "2",
    "tcp_user_timeout": "2000",  # a cut cable ends a connection, as a closed one does
    "keepalives_idle": "1",
    "keepalives_interval": "1",
    "keepalives_count": "2",
    "application_name": "reliable-pubsub proxy",
}
# A proxy that is stopped between two statements keeps no locks; `lease.Standby` ends the others.
_ENCODINGS: Final = ("UTF8", "SQL_ASCII")  # that keep all text as we send it
_SESSION: Final = (
    "SET idle_in_transaction_session_timeout = '2s'",
    "SET default_transaction_isolation = 'read committed'",
    "SET statement_timeout = 0",
    # Of PostgreSQL 14 and later. A service without traffic commits nothing, and is not gone.
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'",
    "SET jit = off",
    "SET enable_sort = off",  # what is read in order has an index; a sort would go to the disk
)
OpenConnection = psycopg.Connection[tuple[Any, ...]]


class _ColumnDumper(Dumper):
    """An array, as it is; the statement says its type."""

    format = Format.BINARY

    def dump(self, obj: Column) -> Buffer:
        return obj.data


def connect(dsn: str, *, beside: OpenConnection | None = None) -> OpenConnection:
    """Open a connection in autocommit mode.

    Args:
        beside: connect to the server of this one, of several hosts.

    Raises:
        ConfigurationError: the text is not a connection string of PostgreSQL, or the database
            cannot keep every name.
        psycopg.OperationalError: the server is not there, or refuses.
    """
    merged = {**_DEFAULTS, **_parts(dsn), "client_encoding": "UTF8"}
    if beside is not None:
        merged |= {"host": beside.info.host, "port": str(beside.info.port)}
        merged.pop("hostaddr", None)
    try:
        opened: OpenConnection = psycopg.connect(make_conninfo("", **merged), autocommit=True)
    except psycopg.ProgrammingError as error:
        raise _not_understood(error) from error
    encoding = opened.info.parameter_status("server_encoding")
    if encoding not in _ENCODINGS:
        opened.close()
        raise ConfigurationError(
            f"the database of --store has the encoding {encoding}, which cannot keep every name of "
            "a topic; make one with createdb -T template0 -E UTF8"
        )
    opened.adapters.register_dumper(int, Int8BinaryDumper)  # one prepared statement for each SQL
    opened.adapters.register_dumper(Column, _ColumnDumper)
    for one in _SESSION:
        opened.execute(one.encode())
    return opened


def break_off(opened: OpenConnection) -> None:
    """End what another thread waits for on this connection, with an error there."""
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(opened.fileno())) as shared:
        shared.shutdown(socket.SHUT_RDWR)


def _parts(dsn: str) -> dict[str, Any]:
    try:
        return dict(conninfo_to_dict(dsn))
    except psycopg.ProgrammingError as error:
        raise _not_understood(error) from error


def _not_understood(error: psycopg.ProgrammingError) -> ConfigurationError:
    said = without_password(" ".join(str(error).split()))
    return ConfigurationError(
        f"--store is not a connection string of PostgreSQL ({said}); "
        "expected one such as postgresql://user@host/database"
    )


def dsn_without_password(dsn: str) -> str:
    """A connection string without its password.

    Raises:
        ConfigurationError: it is none.
    """
    parts = _parts(dsn)
    hosts = str(parts.get("host") or "").split(",")
    ports = str(parts.get("port") or "").split(",")
    ports += ports[-1:] * (len(hosts) - len(ports))
    at = ",".join(f"{host}:{port}".rstrip(":") for host, port in zip(hosts, ports, strict=False))
    return f"postgresql://{at}/{parts.get('dbname') or parts.get('user') or ''}"


@contextmanager
def as_not_serving(what: str) -> Iterator[None]:
    """Translate an error of the database: what is durable has to be read again."""
    try:
        yield
    except psycopg.Error as error:
        text = " ".join(str(error).split())
        raise NotServingError(f"{what}: {text or type(error).__name__}") from error


def elapsed_s() -> float:
    """A clock that also counts while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class PostgresConnection:
    """Implements `stored_state.Connection`."""

    def __init__(self, opened: OpenConnection, begun: Callable[[], None] = lambda: None) -> None:
        """Use an open connection.

        Args:
            begun: called within each transaction that is to write.
        """
        self.opened = opened
        self._begun = begun

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Any:
        """Execute a statement; what is read in the order of the log comes bit by bit."""
        with as_not_serving("the database cannot be read"):
            if sql == "BEGIN IMMEDIATE":
                self.opened.execute(b"BEGIN")
                self._begun()
                return None
            if sql.endswith("ORDER BY place"):
                return _Streamed(self.opened, sql, values)
            return self.opened.execute(translated(sql), values, binary=True)

    def close(self) -> None:
        """Close it."""
        self.opened.close()


class _Streamed:
    """Rows in the order of `place`, some at once: a topic may be larger than the memory."""

    def __init__(self, opened: OpenConnection, sql: str, values: Sequence[Any]) -> None:
        """Fetch nothing yet.

        Args:
            values: the first one is the place to begin at.
        """
        self._opened = opened
        self._sql = translated(sql.replace("SELECT ", "SELECT place, ", 1) + " LIMIT ?")
        self._first, *self._more = values
        self._rows_max = BODIES_AT_ONCE if ", body" in sql else ROWS_AT_ONCE

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while True:
            with as_not_serving("the database cannot be read"):
                values = (self._first, *self._more, self._rows_max)
                rows = self._opened.execute(self._sql, values, binary=True).fetchall()
            for _, *row in rows:
                yield tuple(row)
            if len(rows) < self._rows_max:
                return
            self._first = rows[-1][0] + 1

    def close(self) -> None:
        """Nothing is open between two fetches."""
