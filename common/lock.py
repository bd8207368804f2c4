"""One process at a time: an advisory lock that the kernel frees when its holder dies."""

from __future__ import annotations

import fcntl
import gc
import os
import weakref
from collections.abc import Callable
from pathlib import Path

from .core.errors import ConfigurationError, InUseError
from .owner import denied_to
from .system import system_errors

_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _close_in_child() -> None:
    """Close the inherited descriptors in a forked child, else it keeps its parent's locks."""
    for lock in list(_held):
        lock.file.close()


os.register_at_fork(after_in_child=_close_in_child)


class FileLock:
    """An exclusive flock on a small file, held until `close` or the end of the process."""

    def __init__(
        self, path: Path, *, what: str, make_way: Callable[[], bool] | None = None
    ) -> None:
        """Take the lock, without waiting.

        Args:
            what: what the lock protects, for the error text.
            make_way: called when this process wants the lock again: releases it, or returns False.

        Raises:
            InUseError: another process holds it, or this one, which does not release it.
            ConfigurationError: the file cannot be made or opened.
        """
        self.make_way = make_way
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with system_errors(
            lambda error: ConfigurationError(
                f"{what}: cannot open {path}: {error.strerror}{denied_to(path, error)}"
            )
        ):
            self.file = os.fdopen(os.open(path, flags, 0o600), "rb+", buffering=0)
        _held.add(self)  # before it has the lock: this may be broken off at any line
        try:
            if not self._take():
                gc.collect()  # an unreferenced client of this process may hold it
                if not self._take() and not (self._ask_holder() and self._take()):
                    raise InUseError(path=str(path.parent), what=what, is_here=bool(self._here()))
        except BaseException:
            self.close()
            raise

    def _take(self) -> bool:
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _here(self) -> list[FileLock]:
        """The holders in this process: one, and what was broken off before it had the lock."""
        same = os.path.sameopenfile
        return [
            lock
            for lock in list(_held)
            if lock is not self
            and not lock.file.closed
            and same(lock.file.fileno(), self.file.fileno())
        ]

    def _ask_holder(self) -> bool:
        """Ask the holders in this process to release it; return whether one did."""
        made_way = [lock.make_way is not None and lock.make_way() for lock in self._here()]
        return True in made_way

    def close(self) -> None:
        """Release the lock, even while a forked child has the file open."""
        if not self.file.closed:
            fcntl.flock(self.file, fcntl.LOCK_UN)
            self.file.close()
        _held.discard(self)

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def make_directory(path: Path, *, what: str) -> None:
    """Make a private directory (mode 0700) if there is none.

    Raises:
        ConfigurationError: it cannot be made, or a file has this name.
    """
    with system_errors(
        lambda error: ConfigurationError(
            f"{what}: cannot make {path}: {error.strerror}{denied_to(path, error)}"
        )
    ):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
