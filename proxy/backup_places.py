"""Where backups are: a directory, a series of them, a stream, or objects in a bucket (S3).

In a stream and in a bucket a backup is one tar file of the files that a start needs. It is made
from a checked copy in the temporary directory.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, Final

from reliable_pubsub.common.core.backup_series import moment_of
from reliable_pubsub.common.core.errors import (
    ConfigurationError,
    DamagedError,
    StorageFailedError,
    UsageError,
)
from reliable_pubsub.common.core.places import check_archive, is_in_objects
from reliable_pubsub.common.file_systems import file_system
from reliable_pubsub.common.lock import make_directory
from reliable_pubsub.common.owner import give

from .backup import BackedUp, back_up, new_copy, remove_what_was_killed
from .shutdown_marker import read_shutdown_marker
from .store import MARK_NAME
from .stored_state import FILE_NAME

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

STREAM: Final = "-"
TAR: Final = ".tar"
_CHUNK_BYTES: Final = 1 << 20
OnChecked = Callable[[int], None]  # called with the number of messages that were read so far


def place_of(address: str) -> _Folder | _Objects:
    """Return the place of a series of backups.

    Raises:
        UsageError: an address that is none, such as gs://.
    """
    address = check_archive(address)
    return _Objects(address) if is_in_objects(address) else _Folder(Path(address))


class _Folder:
    """Each backup is a data directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        return [one.name for one in self._folder.glob("*Z") if moment_of(one.name)]

    def add(self, name: str, source: Path, checked: OnChecked) -> tuple[str, BackedUp]:
        is_new = not self._folder.exists()
        make_directory(self._folder, what="backup")
        if is_new:
            give([self._folder], source.stat())
        target = self._folder / name
        remove_what_was_killed(self._folder, "*Z")
        return f"{target}", back_up(source, target, checked=checked)

    def take(self, name: str, target: Path, checked: OnChecked) -> BackedUp:
        return back_up(self._folder / name, target, checked=checked)

    def remove(self, name: str) -> None:
        """Remove a backup; one that is half removed has no name of a backup."""
        removed = self._folder / f".removed-{name}"
        try:
            (self._folder / name).rename(removed)
            for one in self._folder.glob(".removed-*"):  # also by a command that was killed
                shutil.rmtree(one)
        except OSError as error:
            raise StorageFailedError(
                f"{error.filename or removed}: {error.strerror}; the new backup was made, but an "
                "old one could not be removed"
            ) from error


def _sent(system: FileSystem, path: str, copy: Path) -> _Hashed:
    """Send a copy to an object; one that is interrupted leaves none, although closing makes one."""
    try:
        with system.open_output_stream(path) as stream:
            sent = _Hashed(stream)
            pack(copy, sent)
    except BaseException:
        with suppress(OSError):
            system.delete_file(path)
        raise
    return sent


class _Objects:
    """Each backup is an object `PREFIX/TIME.tar`."""

    def __init__(self, address: str) -> None:
        self._address = address

    def names(self) -> list[str]:
        with file_system(self._address) as (system, path):
            from pyarrow.fs import FileSelector

            found = system.get_file_info(FileSelector(path, allow_not_found=True))
        return [one.base_name.removesuffix(TAR) for one in found if one.base_name.endswith(TAR)]

    def add(self, name: str, source: Path, checked: OnChecked) -> tuple[str, BackedUp]:
        """Back up, and read the object again: it must be what was sent."""
        address = f"{self._address}/{name}{TAR}"
        with _copy_of(source, checked) as (copy, found), file_system(address) as (system, path):
            sent = _sent(system, path, copy)
            received = sha256()
            with system.open_input_stream(path) as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    received.update(chunk)
            if received.digest() != sent.hash.digest():
                system.delete_file(path)
                raise StorageFailedError(
                    f"{address}: the store returned other bytes than it was sent; the object was "
                    "removed. Run the same command again"
                )
        return address, found

    def take(self, name: str, target: Path, checked: OnChecked) -> BackedUp:
        address = f"{self._address}/{name}{TAR}"
        with file_system(address) as (system, path), system.open_input_stream(path) as stream:
            return unpack(stream, target, address, checked)

    def remove(self, name: str) -> None:
        with file_system(f"{self._address}/{name}{TAR}") as (system, path):
            system.delete_file(path)


class _Hashed:
    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.hash = sha256()

    def write(self, chunk: bytes) -> int:
        self.hash.update(chunk)
        self._stream.write(chunk)
        return len(chunk)


def back_up_to_stdout(source: Path, checked: OnChecked) -> BackedUp:
    """Write a backup to standard output, when it has been checked.

    Raises:
        UsageError: standard output is a terminal.
        StorageFailedError: it cannot be written. Others as `back_up`.
    """
    if sys.stdout.isatty():
        raise UsageError(
            "a backup is not text: redirect it, such as `reliable-pubsub backup - > backup.tar`"
        )
    with _copy_of(source, checked) as (copy, found):
        try:
            pack(copy, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        except OSError as error:
            raise StorageFailedError(
                f"standard output: {error.strerror}; the backup is not whole"
            ) from error
    return found


@contextmanager
def _copy_of(source: Path, checked: OnChecked) -> Iterator[tuple[Path, BackedUp]]:
    with TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        yield copy, back_up(source, copy, checked=checked)


def pack(directory: Path, stream: Any) -> None:
    """Write a backup as a tar file."""

    def private(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(fileobj=stream, mode="w|") as tar:
        for name in (MARK_NAME, FILE_NAME):
            tar.add(directory / name, arcname=name, filter=private)


def unpack(stream: IO[bytes], target: Path, origin: str, checked: OnChecked) -> BackedUp:
    """Make a data directory of a tar file that `pack` wrote.

    Args:
        origin: where the stream comes from, for the error text.

    Raises:
        DamagedError: it is no whole backup; nothing was made. Others as `back_up`.
    """

    def fill(partial: Path) -> Any:
        try:
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                for member in tar:
                    content = tar.extractfile(member) if member.isfile() else None
                    if content is None or member.name not in (MARK_NAME, FILE_NAME):
                        raise tarfile.ReadError(f"{member.name!r:.100} is no file of a backup")
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                    with os.fdopen(os.open(partial / member.name, flags, 0o600), "wb") as file:
                        shutil.copyfileobj(content, file, _CHUNK_BYTES)
        except (tarfile.TarError, FileExistsError) as error:
            raise DamagedError(f"{origin}: is no whole backup: {error}") from error
        if not (partial / FILE_NAME).exists():
            raise DamagedError(f"{origin}: is no whole backup: {FILE_NAME} is missing")
        return read_shutdown_marker(partial / MARK_NAME)

    if not target.parent.is_dir():
        raise ConfigurationError(f"{target}: {target.parent} does not exist: make it first")
    return new_copy(target, fill, like=target.parent, checked=checked)
