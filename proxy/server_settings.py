"""The settings of a proxy's process, and opening its store by them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from reliable_pubsub.common.access.core.inflow import ConnectionBounds
from reliable_pubsub.common.core.keys import ServerKeys
from reliable_pubsub.common.core.message_base import Durability
from reliable_pubsub.common.lock import make_directory

from .core.state import BrokerSettings
from .store import Store
from .wal_check import WalDamage

if TYPE_CHECKING:
    from .postgres_store import PostgresStore


class EndpointSettings(Struct, frozen=True, kw_only=True):
    """The endpoint of pushed data, or of QoS 0 data."""

    endpoint: str
    # The endpoint is the default: if it is in use, any free port will do; peers learn the port.
    is_default: bool = False


class ServerSettings(Struct, frozen=True, kw_only=True):
    """The endpoints, data directory, durability and limits of a proxy."""

    data_dir: Path
    publisher_endpoint: str
    subscriber_endpoint: str
    push: EndpointSettings
    ingress: EndpointSettings
    durability: Durability = "sync"
    snapshot_interval_s: float = 0.01
    accept_loss: bool = False
    store: str = ""  # connection string of PostgreSQL; "": SQLite in `data_dir`
    broker: BrokerSettings = BrokerSettings()
    keys: ServerKeys | None = None  # None: plaintext
    connections: ConnectionBounds = ConnectionBounds()


def opened_store(
    settings: ServerSettings,
    report_loss: Callable[[WalDamage], None],
    stand_by: Callable[[str], None],
) -> Store | PostgresStore:
    """Open the store, which may take until another process has ended."""
    if settings.store:
        from .postgres_store import PostgresStore  # psycopg is loaded only for that

        make_directory(settings.data_dir, what="data directory")  # of the audit log
        return PostgresStore(settings.store, settings.durability, say=stand_by)
    return Store(
        settings.data_dir,
        settings.durability,
        accept_loss=settings.accept_loss,
        report=report_loss,
    )
