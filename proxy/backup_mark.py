"""The file whose time tells when the last backup was made, in the data directory that it copied."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

LAST_BACKUP_NAME: Final = "last-backup"


def mark_backup(data_dir: Path) -> None:
    """Record that a backup was made now; a directory that cannot be written stays without."""
    file = data_dir / LAST_BACKUP_NAME
    with suppress(OSError):
        flags = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(file, flags, 0o600)  # no link: the directory may be another user's
        try:
            os.utime(descriptor)
            if os.geteuid() == 0:
                owner = data_dir.stat()
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
        finally:
            os.close(descriptor)
