"""Where an archive is: in a folder, or in an object store that speaks the protocol of S3.

Both are a file system of pyarrow. A task writes a file under a name that ends in `.part`, and
renames it when it is complete. Each process that reads or writes objects selects the store and its
credentials by the variables AWS_*.
"""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from pyarrow.fs import FileSelector, FileType

from reliable_pubsub.common.core.errors import ConfigurationError, PubSubError
from reliable_pubsub.common.core.limits import MIB
from reliable_pubsub.common.core.places import delta_options, is_in_objects
from reliable_pubsub.common.file_systems import file_system, place_error
from reliable_pubsub.common.system import sync_directory, sync_file

LOG: Final = "_delta_log"
Location = str | os.PathLike[str]  # of an archive, as `core.places.check_archive` has it
_READ_BYTES: Final = 8 * MIB


class NewFile:
    """A file that is being written; no reader sees it. pyarrow writes to it as to any file."""

    closed = False

    def __init__(self, stream: Any) -> None:
        """Take an open file."""
        self._stream = stream
        self._digest = sha256()
        self.bytes = 0

    @property
    def sha256(self) -> str:
        """Return the checksum of the bytes that were written."""
        return self._digest.hexdigest()

    def write(self, chunk: Any) -> None:
        """Write a chunk of bytes."""
        self._digest.update(chunk)
        self.bytes += len(chunk)
        self._stream.write(chunk)

    def tell(self) -> int:
        """Return the number of bytes that were written."""
        return self.bytes

    def flush(self) -> None:
        """Do nothing: the file is published as a whole."""

    def close(self) -> None:
        """Do nothing: `ArchivePlace.new_file` closes the file."""


class ArchivePlace:
    """The place of an archive. Paths of its files are below it."""

    def __init__(self, archive: Location) -> None:
        """Prepare; nothing is read yet."""
        self.name = os.fspath(archive)  # as it was given
        self.is_local = not is_in_objects(self.name)
        # The same for a process in another directory.
        self.address = str(Path(self.name).absolute()) if self.is_local else self.name
        self.options = None if self.is_local else delta_options(os.environ)  # for `deltalake`

    def entries(self) -> set[str]:
        """Return the names that are there.

        Raises:
            ConfigurationError, StorageFailedError: the place cannot be read.
        """
        with file_system(self.address) as (system, path):
            found = system.get_file_info(FileSelector(path, allow_not_found=True))
        return {one.base_name for one in found}

    def check_seen(self) -> None:
        """In a task: check that this machine sees what the driver has made.

        Raises:
            ConfigurationError: it does not.
        """
        with file_system(self.address) as (system, path):
            kind = system.get_file_info(path).type
        if kind != FileType.Directory:
            raise ConfigurationError(
                f"{self.name}: is not there on {platform.node()}, where this task runs. The driver "
                "has made it, so that machine does not see the folder of the archive: give one "
                "that all machines of the cluster have mounted at the same path"
            )

    @contextmanager
    def new_file(self, below: str) -> Iterator[tuple[NewFile, str]]:
        """Open a file, and give the path that it has until it is published.

        Raises:
            ConfigurationError, StorageFailedError: it cannot be written.
        """
        part = f"{below}/{secrets.token_hex(8)}.part"
        with file_system(f"{self.address}/{part}") as (system, path):
            if self.is_local:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            with system.open_output_stream(path) as stream:
                yield NewFile(stream), part

    def publish(self, part: str, path: str) -> None:
        """Give a closed file its name. When this returns, the file is durable.

        Raises:
            ConfigurationError, StorageFailedError: the store did not take it.
        """
        if self.is_local:
            _sync(Path(self.address, part))
        with file_system(f"{self.address}/{part}") as (system, old):
            system.move(old, old.removesuffix(part) + path)
        if self.is_local:  # an object is durable when the store has acknowledged it
            kept = Path(self.address, path)
            for parent in (kept.parent, kept.parent.parent, self.address):
                sync_directory(Path(parent))

    def lacks(self, path: str) -> bool:
        """Return whether a file is missing. A missing object is found by its reader."""
        return self.is_local and not Path(self.address, path).is_file()

    def sync_log(self, versions: Collection[int]) -> None:
        """Make commits survive power loss; `deltalake` leaves that to the system."""
        if not self.is_local:
            return
        log = Path(self.address, LOG)
        for version in versions:
            path = log / f"{version:020}.json"
            if path.exists():  # else a checkpoint has replaced it
                _sync(path)
        sync_directory(log)
        if 0 in versions:
            sync_directory(log.parent)

    def failure(self, error: Exception) -> PubSubError:
        """Return the error of a log that `deltalake` cannot read or write."""
        return place_error(f"{self.address}/{LOG}", error)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        sync_file(file.fileno())


@contextmanager
def open_file(address: str) -> Iterator[Any]:
    """Open a file of an archive; pyarrow reads it.

    Raises:
        DamagedError: it is missing, or cannot be read.
        ConfigurationError, StorageFailedError: the object store cannot be used.
    """
    with file_system(address) as (system, path), system.open_input_file(path) as file:
        yield file


def digest_and_size(address: str) -> tuple[str, int]:
    """Return the SHA-256 of a file and its size in bytes. Raises as `open_file`."""
    digest = sha256()
    with open_file(address) as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
        return digest.hexdigest(), file.tell()
