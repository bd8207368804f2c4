"""Is a file damaged, or can the system not read or write it? SQLite's error code tells."""

from __future__ import annotations

import sqlite3
from typing import Final

from .errors import DamagedError, StorageFailedError

# Of a data directory; what else may be at hand is one that cp made while the proxy ran.
RESTORE_A_COPY: Final = (
    "restore a copy of the data directory (`reliable-pubsub backup` makes copies, also while the "
    "proxy runs; one that cp made while it ran is damaged from the beginning)"
)
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def error_of(
    error: sqlite3.Error | UnicodeDecodeError, text: str, *, remedy: str = "restore a copy"
) -> DamagedError:
    """The error of ours that an error of SQLite means; text that is none is damage too.

    Returns:
        StorageFailedError where the disk is full, read-only or failing: nothing is to be restored
        or removed then; else DamagedError.
    """
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code in _DAMAGE:
        return DamagedError(f"{text}; {remedy}")
    return StorageFailedError(f"{text}; nothing is lost: look at the disk, then start again")
