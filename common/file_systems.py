"""The file system of an address: a folder, or a bucket that speaks S3; its errors with what to do.

Both are a file system of pyarrow. The variables AWS_* select the store and its credentials.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .core.errors import ConfigurationError, PubSubError
from .core.places import S3, folder_error, is_in_objects, objects_error

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


@contextmanager
def file_system(address: str) -> Iterator[tuple[FileSystem, str]]:
    """Give the file system of an address, and the path there; raise its errors as PubSubErrors.

    Raises:
        ConfigurationError: pyarrow is not installed, or the place cannot be used.
        StorageFailedError: the object store has failed.
    """
    try:
        from pyarrow.fs import FileSystem, LocalFileSystem
    except ImportError as error:
        raise ConfigurationError(
            f"{address}: an object store needs pyarrow, which is not installed: "
            "pip install 'reliable-pubsub[s3]'"
        ) from error
    try:
        if is_in_objects(address):
            path = address.removeprefix(S3)
            yield FileSystem.from_uri(S3 + path.partition("/")[0])[0], path
        else:
            yield LocalFileSystem(), address
    except OSError as error:
        raise place_error(address, error) from error


def place_error(address: str, error: Exception) -> PubSubError:
    """Return what a failure at an address means."""
    if is_in_objects(address) and not isinstance(error, FileNotFoundError):
        return objects_error(address, error)
    return folder_error(address, error)
