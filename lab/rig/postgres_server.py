"""A PostgreSQL server for the lab, the benchmark and tests, from the programs of Debian's package.

In a directory of its own, on a free port of loopback, without the server that the package starts.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any, Final

from reliable_pubsub.common.core.errors import ConfigurationError

from .child_process import Executed
from .own_ports import OwnPorts

PROGRAMS: Final = sorted(
    Path("/usr/lib/postgresql").glob("*/bin"), key=lambda at: int(at.parent.name)
)
PATIENCE_S: Final = 120.0
LOOK_AGAIN_S: Final = 0.02
_numbers = count(1)


class PostgresServer:
    """A server in a directory of its own, on a free port of loopback."""

    def __init__(self, *settings: str, copy_of: PostgresServer | None = None) -> None:
        """Make its files and start it.

        Args:
            settings: for example "fsync=off".
            copy_of: stream from this one, as its synchronous standby.

        Raises:
            ConfigurationError: PostgreSQL is not installed, or does not start.
        """
        if not PROGRAMS:
            raise ConfigurationError(
                "a PostgreSQL server is needed, which is not installed: apt-get install postgresql"
            )
        self.directory = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        self._as_user: dict[str, Any] = {}
        if os.getuid() == 0:  # which postgres refuses
            user = pwd.getpwnam("postgres")
            os.chown(self.directory, user.pw_uid, user.pw_gid)
            self._as_user = {"user": user.pw_uid, "group": user.pw_gid}
        self._ports = OwnPorts()
        self.port = int(self._ports.endpoint().rpartition(":")[2])
        self.data = self.directory / "data"
        if copy_of is None:
            self._run("initdb", "--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8")
        else:
            source = f"host=127.0.0.1 port={copy_of.port} user=postgres application_name=second"
            self._run("pg_basebackup", "--no-sync", "-R", "-c", "fast", "-d", source)
        self.settings = settings
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        said = [f"-c{one}" for one in ("listen_addresses=127.0.0.1", *self.settings)]
        program = str(PROGRAMS[-1] / "postgres")
        command = [program, "-D", str(self.data), "-p", str(self.port), *said]
        with (self.directory / "log").open("ab") as log:
            self._process = Executed(
                [*command, "-k", str(self.directory)],
                stdout=log,
                stderr=log,
                cwd="/",
                **self._as_user,
            )
        ready = ["pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.call([str(PROGRAMS[-1] / ready[0]), *ready[1:]]) != 0:
            if self._process.poll() is not None:
                raise ConfigurationError((self.directory / "log").read_text().strip())
            time.sleep(LOOK_AGAIN_S)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(PROGRAMS[-1] / program), "-D", str(self.data), *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            cwd="/",
            **self._as_user,
        )
        if done.returncode:
            raise ConfigurationError(f"{program} of PostgreSQL: {done.stderr.strip()}")

    @property
    def runs(self) -> bool:
        """Whether it lives."""
        return self._process.poll() is None

    def dsn(self, schema: str = "") -> str:
        """How to reach it; with a schema, an empty one for one test."""
        at = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        return f"{at}?options=-csearch_path%3D{schema}" if schema else at

    def new_schema(self) -> str:
        """How to reach an empty schema."""
        name = f"test{next(_numbers)}"
        self.sql(f"CREATE SCHEMA {name}")
        return self.dsn(name)

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        """Execute a statement beside the proxies."""
        import psycopg

        with psycopg.connect(self.dsn(), autocommit=True) as opened:
            found = opened.execute(statement.encode())
            return found.fetchall() if found.description else []

    def promote(self) -> None:
        """Make a standby the primary."""
        self._run("pg_ctl", "promote", "-w")

    def kill(self) -> None:
        """SIGKILL the server and its children, as power loss of its machine would."""
        self.signal(signal.SIGKILL)
        self._process.wait()

    def signal(self, number: int) -> None:
        """Send a signal to the server and its children."""
        if not self.runs:
            return
        os.kill(self._process.pid, signal.SIGSTOP)  # so that no child comes or is reaped meanwhile
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        for pid in (*map(int, children.read_text().split()), self._process.pid):
            os.kill(pid, number)

    def close(self) -> None:
        """Stop it and remove its files."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
        self._ports.close()
        shutil.rmtree(self.directory, ignore_errors=True)
