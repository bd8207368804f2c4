"""The database of a run that two proxies share: a PostgreSQL server, and perhaps its copy."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Final

from reliable_pubsub.common.core.errors import ConfigurationError

from ..core.scenario import DATABASE
from .link import Address
from .member import ScenarioMember
from .postgres_server import PostgresServer

COPY_NAME: Final = "second"
LOOK_AGAIN_S: Final = 0.05
COPYING_S_MAX: Final = 60.0


class Database(ScenarioMember):
    """A server that is killed and started again; or its copy is promoted, if there is one."""

    def __init__(self, directory: Path, *, with_copy: bool) -> None:
        """Start it.

        Raises:
            ConfigurationError: PostgreSQL is not installed, or does not start.
        """
        super().__init__(DATABASE, "database", directory)
        self._copy: PostgresServer | None = None
        try:
            self._server = PostgresServer("max_wal_senders=4")
            self._servers = [self._server]
            if with_copy:
                self._add_copy()
        except ConfigurationError as error:
            raise ConfigurationError(
                f"this scenario needs a PostgreSQL server of its own: {error}. Skipped: nothing "
                "was run"
            ) from error
        self.lives = 1

    def _add_copy(self) -> None:
        """From now on a commit is confirmed when the copy has it, too."""
        self._copy = PostgresServer(copy_of=self._server)
        self._servers.append(self._copy)
        self._server.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{COPY_NAME}'")
        self._server.sql("SELECT pg_reload_conf()")
        deadline_s = time.monotonic() + COPYING_S_MAX
        while not self._server.sql("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"):
            if time.monotonic() > deadline_s:
                raise ConfigurationError("the copy of the database does not follow")
            time.sleep(LOOK_AGAIN_S)

    def address(self) -> Address:
        """Where the server listens that is the primary now."""
        return ("127.0.0.1", self._server.port)

    def dsn(self, at: Address) -> str:
        """How a proxy reaches it, through its link."""
        return f"postgresql://postgres@{at[0]}:{at[1]}/postgres"

    @property
    def runs(self) -> bool:
        return self._server.runs

    @property
    def exit_code(self) -> int | None:
        return None if self.runs else -signal.SIGKILL

    def begin(self, command: list[str]) -> None:
        """Start it again, or promote its copy."""
        if self._copy is not None:
            self._server, self._copy = self._copy, None
            self._server.promote()
        elif not self.runs:
            self._server.start()
        self.lives += 1

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server and all its children."""
        self._server.signal(number)
        self.stopped = number == signal.SIGSTOP

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def kill(self) -> None:
        if self.runs:
            self._server.kill()
        self.stopped = False

    def end(self) -> None:
        """Kill it; it is started again by `begin`."""
        self.kill()

    def close(self) -> None:
        """Stop all servers, and remove their files."""
        for server in self._servers:
            server.close()
