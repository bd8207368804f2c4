"""What a commit of a database server promises, by the server's own settings. Pure.

Source: postgresql.org/docs/15/runtime-config-wal.html (fsync, synchronous_commit),
runtime-config-replication.html (synchronous_standby_names).
"""

from __future__ import annotations

from msgspec import Struct

from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.message_base import Durability, Promise


class ServerPromise(Struct, frozen=True):
    """The settings that count, as the server says them for our session."""

    fsync: str
    synchronous_commit: str
    synchronous_standby_names: str

    @property
    def waits_for_disk(self) -> bool:
        """Whether a commit is on the server's disk when it returns."""
        return self.fsync == "on" and self.synchronous_commit != "off"

    @property
    def waits_for_standby(self) -> bool:
        """Whether a commit is on the disk of a standby server, too."""
        names = self.synchronous_standby_names.strip()
        return bool(names) and self.synchronous_commit in ("on", "remote_apply")


def promise_of(server: ServerPromise, wanted: Durability) -> Promise:
    """What an acknowledgement means that leaves after a commit.

    Raises:
        ConfigurationError: the server does not keep what is wanted.
    """
    if wanted == "snapshot":
        raise ConfigurationError(
            "--durability snapshot acknowledges before anything is stored, which another proxy on "
            "the same database cannot take over; use sync or os with --store"
        )
    if wanted == "os":
        return "os"
    if not server.waits_for_disk:
        name = "fsync" if server.fsync != "on" else "synchronous_commit"
        raise ConfigurationError(
            f"durability sync is refused: the database server has {name} = off, so that a commit "
            f"which it has confirmed may be lost. Set {name} = on there, or start with "
            "--durability os"
        )
    return "replicated" if server.waits_for_standby else "sync"
