"""kill -9 of the database server: its synchronous standby is promoted, and the proxies continue."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

from reliable_pubsub.lab.rig.postgres_server import PostgresServer
from tests.postgres import needs_postgresql

from .harness import LOOK_AGAIN_S, Service, eventually
from .test_standby import Pair

if TYPE_CHECKING:
    from reliable_pubsub.proxy.postgres_store import PostgresStore  # needs psycopg

pytestmark = needs_postgresql


@pytest.fixture
def primary() -> Iterator[PostgresServer]:
    server = PostgresServer("max_wal_senders=4")
    yield server
    server.close()


@pytest.fixture
def second(primary: PostgresServer) -> Iterator[PostgresServer]:
    """The synchronous standby of the primary."""
    server = PostgresServer(copy_of=primary)
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'second'")
    primary.sql("SELECT pg_reload_conf()")
    state = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
    eventually(lambda: primary.sql(state), "synchronous standby")
    yield server
    server.close()


def _setting(store: PostgresStore, name: str) -> object:
    """What the session in which a store commits has: it takes a reloaded file later."""
    (value,) = store._opened.execute("SELECT current_setting(%s)", (name,)).fetchone() or (None,)
    return value


def test_nothing_acknowledged_is_lost_or_doubled_when_the_database_fails_over(
    service: Service, primary: PostgresServer, second: PostgresServer
) -> None:
    dsn = f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{second.port}/postgres"
    pair = Pair(service, dsn)
    first_proxy, other_proxy = pair.start_both()
    assert "durability=replicated" in first_proxy.stdout
    assert service.status().durability == "replicated"
    clients = pair.publish_and_get()

    primary.kill()
    eventually(lambda: "NOT_SERVING" in first_proxy.stderr, "that the proxy notices")
    second.promote()

    ready = lambda: f"{first_proxy.stdout}{other_proxy.stdout}".count("ready:") > 1  # noqa: E731
    eventually(ready, "a proxy that serves")
    pair.judge(*clients)


def test_a_commit_that_gave_up_waiting_for_the_standby_server_is_not_acknowledged(
    primary: PostgresServer,
) -> None:
    """The server confirms it with a warning only (SyncRepWaitForLSN)."""
    import threading
    from contextlib import closing

    from reliable_pubsub.proxy.core.storage import NotServingError
    from reliable_pubsub.proxy.postgres_store import PostgresStore
    from tests.fakes import a_beginning

    waits = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    with closing(PostgresStore(primary.dsn(), "sync")) as store:
        store.term_keeper.end()  # its beats would wait, too
        primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'absent'")
        primary.sql("SELECT pg_reload_conf()")
        eventually(
            lambda: _setting(store, "synchronous_standby_names") == "absent",
            "a session of the store that knows it",
        )

        ended, cancelled, numbers = threading.Event(), list[object](), count()

        def cancel() -> None:
            while not ended.wait(LOOK_AGAIN_S):
                cancelled.extend(primary.sql(waits))

        def has_waited() -> bool:
            primary.sql(f"CREATE TABLE tried_{next(numbers)} ()")
            return bool(cancelled)

        helper = threading.Thread(target=cancel, daemon=True)
        helper.start()
        # No commit waits before another process of the server, the checkpointer, knows it as well.
        eventually(has_waited, "commit that has waited")
        with pytest.raises(NotServingError, match="not where it should be"):
            store.commit(a_beginning())
        ended.set()
        helper.join()
