"""Ends child processes with their parent, however that ends: also by kill -9, without a handler.

A second process, the reaper, reads the existing process groups from a pipe. The pipe
ends with the process that writes to it; then the reaper kills those that are left. A death signal
(PR_SET_PDEATHSIG) is of Linux alone, ends with the thread, and is not for children of children.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
from contextlib import suppress
from threading import Lock
from typing import BinaryIO, Final


class Reaper:
    """The pipe to the reaper of this process, which is started when it is first needed."""

    def __init__(self) -> None:
        self.groups: set[int] = set()  # that end with this process
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the reaper, if it was started."""
        return self._process.pid if self._process else None

    @property
    def own(self) -> frozenset[int]:
        """The processes that this process has started through here, and the reaper."""
        return frozenset(self.groups | ({self._process.pid} if self._process else set()))

    def add(self, group: int) -> None:
        """From now on the process group ends with this process."""
        self.groups.add(group)
        self._say(f"+{group}\n")

    def remove(self, group: int) -> None:
        """Its first process is reaped: another one may get its number."""
        self.groups.discard(group)
        self._say(f"-{group}\n")

    def close(self) -> None:
        """End the reaper, and what it would kill."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate()

    def forget(self) -> None:
        """In a fork: forget the parent's reaper, which must end with the parent."""
        process, self._process, self._lock = self._process, None, Lock()
        self.groups.clear()
        if process is not None and process.stdin is not None:
            process.stdin.close()
            process.returncode = 0  # it is not our child

    def _say(self, line: str) -> None:
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", __file__],
                    bufsize=0,
                    cwd="/",
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C is not for it
                )
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):  # the reaper was killed
                self._process.stdin.write(line.encode())


REAPER: Final = Reaper()
atexit.register(REAPER.close)
os.register_at_fork(after_in_child=REAPER.forget)


def main(lines: BinaryIO) -> None:
    """Read the groups until the process that writes them has ended; kill those that are left."""
    groups: set[int] = set()
    for line in lines:
        (groups.add if line.startswith(b"+") else groups.discard)(int(line[1:]))
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.stdin.buffer)
