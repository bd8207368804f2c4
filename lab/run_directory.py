"""The directory of one run: emptied, and locked as long as the run takes."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path

from reliable_pubsub.common.core.errors import ConfigurationError


@contextmanager
def claimed(
    directory: Path, is_earlier_run: Callable[[Set[str]], bool], marker: str, content: bytes
) -> Iterator[Path]:
    """Give the directory with nothing in it but a marker; a second run there is refused meanwhile.

    The lock is on the directory itself, so its entries are removed, and it stays.

    Args:
        is_earlier_run: whether these names are what an earlier run has left.
        marker: name of a file that marks the directory as that of a run.

    Raises:
        ConfigurationError: another run uses it, it holds something else, or it cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _unusable(directory, error) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _empty(directory, is_earlier_run)
            (directory / marker).write_bytes(content)
        except BlockingIOError:
            raise ConfigurationError(
                f"{directory}: another run uses this directory now; nothing was changed. Wait "
                "until it has ended, or choose another --dir"
            ) from None
        except OSError as error:
            raise _unusable(directory, error) from error
        yield directory.resolve()
    finally:
        os.close(lock)


def _unusable(directory: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"{directory}: cannot be used: {error.strerror}")


def _empty(directory: Path, is_earlier_run: Callable[[Set[str]], bool]) -> None:
    names = set(os.listdir(directory))
    if names and not is_earlier_run(names):
        raise ConfigurationError(
            f"{directory}: is not empty, and holds something else than an earlier run; nothing "
            "was removed. Choose another --dir"
        )
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
