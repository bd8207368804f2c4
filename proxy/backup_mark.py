"""The file whose time tells when the last backup was made, in the data directory that it copied."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from reliable_pubsub.common.owner import give

LAST_BACKUP_NAME: Final = "last-backup"


def mark_backup(data_dir: Path) -> None:
    """Record that a backup was made now; a directory that cannot be written stays without."""
    file = data_dir / LAST_BACKUP_NAME
    with suppress(OSError):
        file.touch(mode=0o600)
        give([file], data_dir.stat())
