"""A journal on disk: each line is one write to a file that only grows.

What the operating system has taken survives `kill -9`; so a killed process leaves every line it
wrote, and at most the last one torn. A process and its restarts write to one file.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

from .core.errors import ConfigurationError, StorageFailedError
from .core.journal import AnyLine, encode_line
from .core.recorder import Recorder
from .system import system_errors


class JournalFile:
    """A file of lines. Implements `recorder.JournalSink`."""

    def __init__(self, path: Path, process: str) -> None:
        """Open it, or make it (mode 0600).

        Args:
            process: whose lines these are: a client id, or the name of a proxy.

        Raises:
            ConfigurationError: it cannot be opened.
        """
        self.process = process
        self.pid = os.getpid()
        self._path = path
        with system_errors(
            lambda error: ConfigurationError(
                f"journal {path}: cannot be opened: {error.strerror}; its folder must exist and "
                "be writable"
            )
        ):
            # A raw file: each write is one system call.
            self._file = open(path, "ab+", buffering=0, opener=partial(os.open, mode=0o600))  # noqa: SIM115
            size = os.fstat(self._file.fileno()).st_size
            self._torn = size > 0 and os.pread(self._file.fileno(), 1, size - 1) != b"\n"

    def now_ns(self) -> int:
        """The monotonic clock of this machine."""
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        """The wall clock."""
        return time.time_ns()

    def write(self, line: AnyLine) -> None:
        """Append a line with one write; after a torn line it starts a new one.

        Raises:
            StorageFailedError: the line was not written, or only in part.
        """
        data = (b"\n" if self._torn else b"") + encode_line(line)
        with system_errors(lambda error: self._failed(str(error.strerror))):
            written = self._file.write(data) or 0
        self._torn = (written == 0 and self._torn) or 0 < written < len(data)
        if written < len(data):
            raise self._failed("it took only a part of a line")

    def _failed(self, why: str) -> StorageFailedError:
        return StorageFailedError(
            f"journal {self._path}: {why}. A journal with a hole would mislead, so nothing is done "
            "without it: make space and run the same command again, or leave out --journal"
        )

    def close(self) -> None:
        self._file.close()


def open_journal(
    journal: Path | str | Recorder | None, process: str, *, output: str = ""
) -> Recorder:
    """Return a recorder to a file, or the given one, or one that records nothing.

    Raises:
        ConfigurationError: the file cannot be opened.
    """
    if isinstance(journal, Recorder):
        return journal
    sink = None if journal is None else JournalFile(Path(journal), process)
    return Recorder(sink, output=output)
