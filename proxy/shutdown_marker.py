"""The shutdown marker: how the last proxy ran and ended, which says what its WAL may look like.

One small file, overwritten in place at each start and stop, within one sector, so that it needs no
space on a full disk.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

from reliable_pubsub.common.core.errors import StorageFailedError
from reliable_pubsub.common.core.message_base import Durability
from reliable_pubsub.common.core.schemas import json_decoder
from reliable_pubsub.common.system import sync_file

_BYTES: Final = 128  # always so long: no write changes the length
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class ShutdownMarker(Struct, frozen=True):
    """A proxy that uses, or used, a data directory."""

    durability: Durability
    machine_boot: str  # "" if unknown; while it is the same, no power was lost
    # The whole WAL was moved into the store file: it may be missing.
    wal_moved: bool = field(default=False, name="log_moved")


def machine_boot() -> str:
    """The kernel's boot id, which changes at each reboot; "" if the system has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def read_shutdown_marker(path: Path) -> ShutdownMarker | None:
    """Read the marker; None if it is missing or damaged."""
    try:
        content, _, crc = path.read_bytes().rstrip().rpartition(b" ")
        if int(crc, 16) == zlib.crc32(content):
            return json_decoder(ShutdownMarker).decode(content)
    except (OSError, ValueError, msgspec.DecodeError):
        pass
    return None


def write_shutdown_marker(path: Path, run: ShutdownMarker) -> None:
    """Write the marker and sync the file; the directory entry is not synced.

    Raises:
        StorageFailedError: it cannot be written.
    """
    content = msgspec.json.encode(run)
    line = b"%s %08x" % (content, zlib.crc32(content))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.write(descriptor, line.ljust(_BYTES - 1) + b"\n")
            sync_file(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageFailedError(f"{path}: cannot be written: {error.strerror}") from error
