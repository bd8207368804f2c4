"""Ends all that a judged program has started, also what has detached itself from it.

A process that loses its parent gets the nearest one above it that asked for orphans: this one
(PR_SET_CHILD_SUBREAPER, Linux). So whatever a judged program starts stays below us, in
any session and process group, and is found in /proc. Elsewhere only its process group is ended.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from .reaper import REAPER

TAKE_ORPHANS: Final = 36  # PR_SET_CHILD_SUBREAPER
LOOK_AGAIN_S: Final = 0.001
END_S_MAX: Final = 30.0  # a program may start processes faster than they can be killed


class Strays:
    """The orphans of judged programs; what this process had started before is none of them."""

    def __init__(self) -> None:
        """Take orphans from now on."""
        self._before: set[int] = set()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(TAKE_ORPHANS, 1, 0, 0, 0)
            self._before = _children(_parents(), os.getpid())

    def end(self) -> None:
        """Kill and reap all orphans and what is below them; the program itself has ended."""
        if sys.platform != "linux":
            return
        deadline_s = time.monotonic() + END_S_MAX
        while (victims := self._living()) and time.monotonic() < deadline_s:
            for pid in victims:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(LOOK_AGAIN_S)

    def _living(self) -> set[int]:
        parents = _parents()
        orphans = _children(parents, os.getpid()) - self._before - REAPER.own
        for pid in orphans:
            with suppress(ChildProcessError):  # reaped already
                os.waitpid(pid, os.WNOHANG)
        found, roots = set(orphans), orphans
        while roots:
            roots = {pid for pid, parent in parents.items() if parent in roots} - found
            found |= roots
        return found


def _children(parents: dict[int, int], pid: int) -> set[int]:
    return {child for child, parent in parents.items() if parent == pid}


def _parents() -> dict[int, int]:
    """The parent of each process."""
    found = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
            found[int(place.parent.name)] = int(place.read_text().rpartition(")")[2].split()[1])
    return found
