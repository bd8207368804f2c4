"""A real PostgreSQL server for tests."""

from __future__ import annotations

import atexit
from functools import cache

import pytest

from reliable_pubsub.lab.rig.postgres_server import PROGRAMS, PostgresServer

needs_postgresql = pytest.mark.skipif(
    not PROGRAMS, reason="PostgreSQL is not installed (apt-get install postgresql)"
)


@cache
def shared_server() -> PostgresServer:
    """A server for all tests of this process that do not kill it."""
    server = PostgresServer("full_page_writes=off", "wal_level=minimal", "max_wal_senders=0")
    atexit.register(server.close)
    return server
