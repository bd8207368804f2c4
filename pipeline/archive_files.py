"""Where an archive is: in a folder, or in an object store that speaks the protocol of S3.

A file comes whole, under a name that no other file has, or not at all. In a folder that is a
rename, and it is synced; an object appears when all of it has arrived, and is durable then. Which
store, and with which credentials, say the variables AWS_* of each process that reads or writes.
"""

from __future__ import annotations

import os
import platform
import secrets
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from hashlib import sha256
from io import BufferedRandom
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final, Protocol

from pyarrow.fs import FileSelector, FileSystem, LocalFileSystem

from reliable_pubsub.common.core.errors import ConfigurationError, DamagedError, PubSubError
from reliable_pubsub.common.core.limits import MIB
from reliable_pubsub.common.system import sync_directory, sync_file

from .core.places import S3, delta_options, is_in_objects, objects_error, readable

LOG: Final = "_delta_log"
Location = str | os.PathLike[str]  # of an archive, as `core.places.check_archive` has it
REQUEST_BYTES: Final = 8 * MIB  # of an object that is read or written from end to end


class ArchivePlace(Protocol):
    """Where an archive is. Paths of its files are below it."""

    name: str  # as it was given
    address: str  # the same for a process in another directory
    options: dict[str, str] | None  # for `deltalake`

    def begin(self) -> None:
        """Make what must be there before the table is made.

        Raises:
            ConfigurationError: it cannot be made.
        """

    def entries(self) -> set[str]:
        """What is there.

        Raises:
            ConfigurationError, StorageFailedError: it cannot be asked.
        """

    def check_seen(self) -> None:
        """In a task: see that this machine sees what the driver has made.

        Raises:
            ConfigurationError: it does not.
        """

    def new_file(self, below: str) -> BufferedRandom:
        """A file to be written and kept, or that no reader ever sees."""

    def keep(self, file: BufferedRandom, path: str) -> None:
        """Give a file its name; when this returns it is durable.

        Raises:
            ConfigurationError, StorageFailedError: the store did not take it.
        """

    def lacks(self, path: str) -> bool:
        """Whether a file is gone. Where each look costs a request, its reader finds out."""

    def sync_log(self, versions: Collection[int]) -> None:
        """Commits survive power loss; `deltalake` leaves that to the system."""

    def failure(self, error: Exception) -> PubSubError:
        """What it means that `deltalake` cannot read the log."""


def place_of(archive: Location) -> ArchivePlace:
    """The place of an archive."""
    text = os.fspath(archive)
    return Objects(text) if is_in_objects(text) else Folder(Path(text))


class Folder:
    """A folder of a file system that all machines see."""

    def __init__(self, path: Path) -> None:
        """Nothing is looked at yet."""
        self._path = path
        self.name = str(path)
        self.address = str(path.absolute())
        self.options: dict[str, str] | None = None

    def begin(self) -> None:
        try:
            self._path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"{self.name}: cannot be made: {error.strerror}") from error

    def entries(self) -> set[str]:
        return {path.name for path in self._path.iterdir()} if self._path.is_dir() else set()

    def check_seen(self) -> None:
        if not self._path.is_dir():
            raise ConfigurationError(
                f"{self.name}: is not there on {platform.node()}, where this task runs. The driver "
                "has made it, so that machine does not see the folder of the archive: give one "
                "that all machines of the cluster have mounted at the same path"
            )

    def new_file(self, below: str) -> BufferedRandom:
        folder = self._path / below
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / f"{secrets.token_hex(8)}.part").open("x+b")

    def keep(self, file: BufferedRandom, path: str) -> None:
        file.flush()
        sync_file(file.fileno())
        kept = Path(file.name).rename(self._path / path)
        for parent in (kept.parent, kept.parent.parent, self._path):
            sync_directory(parent)

    def lacks(self, path: str) -> bool:
        return not (self._path / path).is_file()

    def sync_log(self, versions: Collection[int]) -> None:
        for version in versions:
            path = self._path / LOG / f"{version:020}.json"
            if path.exists():  # else a checkpoint has taken its place
                with path.open("rb") as file:
                    sync_file(file.fileno())
        sync_directory(self._path / LOG)
        if 0 in versions:
            sync_directory(self._path)

    def failure(self, error: Exception) -> PubSubError:
        return DamagedError(
            f"{self.name}/{LOG}: cannot be read or written: {error}. Nothing was changed: bring "
            "the folder back, or archive to another one"
        )


class Objects:
    """A prefix of a bucket."""

    def __init__(self, address: str) -> None:
        """Nothing is asked yet."""
        self.name = self.address = address
        self.options: dict[str, str] | None = delta_options(os.environ)

    def begin(self) -> None:
        """Do nothing: a prefix is there when an object is."""

    def entries(self) -> set[str]:
        system, prefix = _opener(self.address)
        with _explained(self.address):
            found = system.get_file_info(FileSelector(prefix, allow_not_found=True))
        return {one.base_name for one in found}

    def check_seen(self) -> None:
        """Do nothing: an object that cannot be put says so."""

    def new_file(self, below: str) -> BufferedRandom:
        return TemporaryFile()  # its name will have its checksum, and an object is not renamed

    def keep(self, file: BufferedRandom, path: str) -> None:
        address = f"{self.address}/{path}"
        system, key = _opener(address)
        file.seek(0)
        with _explained(address), system.open_output_stream(key) as target:
            shutil.copyfileobj(file, target, REQUEST_BYTES)

    def lacks(self, path: str) -> bool:
        return False

    def sync_log(self, versions: Collection[int]) -> None:
        """Do nothing: what the store has acknowledged is durable."""

    def failure(self, error: Exception) -> PubSubError:
        return objects_error(self.address, error)


def _opener(address: str) -> tuple[FileSystem, str]:
    """What opens a file, and the file's path there."""
    if not is_in_objects(address):
        return LocalFileSystem(), address
    path = address.removeprefix(S3)
    with _explained(address):
        system, _ = FileSystem.from_uri(S3 + path.partition("/")[0])
    return system, path


@contextmanager
def _explained(address: str) -> Iterator[None]:
    """Raise what an object store says as a PubSubError."""
    try:
        yield
    except OSError as error:
        raise objects_error(address, error) from error


@contextmanager
def open_file(address: str) -> Iterator[Any]:
    """Open a file of an archive; pyarrow reads it.

    Raises:
        DamagedError: it is not there, or cannot be read.
        ConfigurationError, StorageFailedError: the object store cannot be asked.
    """
    system, path = _opener(address)
    try:
        with system.open_input_file(path) as file:
            yield file
    except OSError as error:
        if is_in_objects(address) and not isinstance(error, FileNotFoundError):
            raise objects_error(address, error) from error
        raise DamagedError(
            f"{address}: cannot be read: {error.strerror or readable(error)}"
        ) from error


def digest_and_size(address: str) -> tuple[str, int]:
    """SHA-256 of a file, and how many bytes it has. Raises as `open_file`."""
    digest = sha256()
    with open_file(address) as file:
        while chunk := file.read(REQUEST_BYTES):
            digest.update(chunk)
        return digest.hexdigest(), file.tell()
