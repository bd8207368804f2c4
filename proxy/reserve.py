"""Space reserved for a full disk: a file of zeros, removed when the disk is full.

Removing messages needs space, because SQLite first writes the removal to its log. So this file
takes a part of the disk while there is room. Commits that store no message may use it (rule R37).
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from reliable_pubsub.common.core.limits import MIB
from reliable_pubsub.common.system import fill_file
from reliable_pubsub.common.threads import is_shortage

RESERVE_NAME: Final = "reserve"
RESERVE_BYTES: Final = 8 * MIB
_SHARE: Final = 16  # of a small disk, at most one part in this many
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """The file in one data directory."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / RESERVE_NAME

    def make(self) -> bool:
        """Take the space, if it is not taken; return whether it is.

        Without a free descriptor it is not taken yet. A system that cannot take it for another
        reason has no reserve.
        """
        disk = os.statvfs(self.path.parent)
        size_bytes = min(RESERVE_BYTES, disk.f_frsize * disk.f_blocks // _SHARE)
        try:
            if self.path.exists() and self.path.stat().st_size >= size_bytes:
                return True
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
            descriptor = os.open(self.path, flags, 0o600)
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(descriptor, 0, size_bytes)
                else:
                    fill_file(descriptor, size_bytes)
            finally:
                os.close(descriptor)
        except OSError as error:
            self.release()
            return error.errno not in _NO_SPACE and not is_shortage(error)
        return True

    def release(self) -> bool:
        """Give the space back; return whether there was any."""
        try:
            self.path.unlink()
        except OSError:
            return False
        return True

    def free_bytes(self) -> int:
        """Return the free space of the disk."""
        with suppress(OSError):
            disk = os.statvfs(self.path.parent)
            return disk.f_frsize * disk.f_bavail
        return 0
