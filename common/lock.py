"""One process at a time: an advisory lock that the kernel frees when its holder dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from .errors import ConfigurationError, InUseError


class FileLock:
    """An exclusive flock on a small file, held until `close` or the end of the process."""

    def __init__(self, path: Path, *, what: str) -> None:
        """Take the lock at once or not at all.

        Args:
            what: what the lock protects, for the error text.

        Raises:
            InUseError: another process holds it.
            ConfigurationError: the file cannot be made or opened.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            raise ConfigurationError(f"{what}: cannot open {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise InUseError(path=str(path.parent), what=what) from error

    def close(self) -> None:
        """Free the lock."""
        os.close(self._descriptor)

    def __enter__(self) -> FileLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def make_directory(path: Path, *, what: str) -> None:
    """Make a private directory (mode 0700) if there is none.

    Raises:
        ConfigurationError: it cannot be made, or a file stands there.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{what}: cannot make {path}: {error.strerror}") from error
