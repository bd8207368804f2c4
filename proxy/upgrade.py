"""Upgrade of a store that an older version made; a copy of it is kept beside it."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from reliable_pubsub.common.core.errors import DamagedError
from reliable_pubsub.common.damage import RESTORE_A_COPY
from reliable_pubsub.common.system import sync_directory, sync_file

from .core.schema import SCHEMA_VERSION, UPGRADES
from .stored_state import has_own_schema


def upgrade(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Bring a store to the version of this program, in one transaction.

    The copy (`proxy.sqlite3.version-3`) is made first, and stays.

    Args:
        connection: the writing one, of the file `path`.
        version: of the store.

    Raises:
        DamagedError: the version is not one that can be upgraded, or the store is not as that
            version made it; nothing was changed.
        sqlite3.Error, OSError: the copy or the upgrade could not be written; nothing was changed.
    """
    if version == SCHEMA_VERSION:
        return
    if version not in UPGRADES:
        raise DamagedError(
            f"{path} has schema version {version}, this program reads {SCHEMA_VERSION}"
        )
    copy_store(connection, path.with_name(f"{path.name}.version-{version}"))
    connection.execute("BEGIN IMMEDIATE")
    try:
        for one in range(version, SCHEMA_VERSION):
            for script in UPGRADES[one]:
                for statement in _statements(script):
                    connection.execute(statement)  # `executescript` would commit before it
        if not has_own_schema(connection):
            raise DamagedError(
                f"{path}: its tables are not as version {version} made them; {RESTORE_A_COPY}"
            )
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _statements(script: str) -> list[str]:
    """The statements of a script, without its comments."""
    return [one for one in re.sub(r"--[^\n]*", "", script).split(";") if one.strip()]


def copy_store(connection: sqlite3.Connection, target: Path) -> None:
    """Copy a store into a file, which appears under its name when it is whole."""
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with closing(sqlite3.connect(partial)) as copy:
            connection.backup(copy)
        sync_file(descriptor)
    finally:
        os.close(descriptor)
    partial.rename(target)
    sync_directory(target.parent)
