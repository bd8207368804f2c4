"""Tells a damaged file from one that the system cannot read or write, by SQLite's error code."""

from __future__ import annotations

import sqlite3
from typing import Final

from .core.errors import DamagedError, StorageFailedError

# For a data directory; warn of copies that cp made while the proxy ran.
RESTORE_A_COPY: Final = (
    "restore a copy of the data directory (`reliable-pubsub backup` makes copies, also while the "
    "proxy runs; one that cp made while it ran is damaged from the beginning)"
)
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def damaged_error(
    error: sqlite3.Error | UnicodeDecodeError, text: str, *, remedy: str = "restore a copy"
) -> DamagedError:
    """Translate an SQLite error; undecodable text counts as damage.

    Returns:
        StorageFailedError if the disk is full, read-only or failing: then the file is intact;
        else DamagedError.
    """
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code in _DAMAGE:
        return DamagedError(f"{text}; {remedy}")
    return StorageFailedError(f"{text}; nothing is lost: look at the disk, then start again")
