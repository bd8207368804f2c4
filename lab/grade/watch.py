"""Keeps a submission within its limits, and ends all that it has started. Linux.

It runs in the process that grades one submission. Where the system permits it, that process has
its own network, with loopback alone, its own process ids, so that one call ends every process of
the submission, even a detached one, and its own control groups, which bound its processes and give
it the same share of the CPU as any other submission. `not_enforced` says what is missing.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from reliable_pubsub.common.system import IS_LINUX

from ..rig.reaper import REAPER
from .core.limits import Limits, Usage, beyond
from .run import RunEnded

LOOK_AGAIN_S: Final = 0.05
DISK_EVERY: Final = 8  # looks
FILES_MAX: Final = 50_000
CLEAN_TRIES: Final = 200
PR_SET_CHILD_SUBREAPER: Final = 36
SIOCSIFFLAGS, IFF_UP_RUNNING = 0x8914, 0x41
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
TASKS_MAX: Final = 2_000  # processes and threads, of the judge too: a JVM has many threads
GROUPS: Final = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup/cpu"))  # version 1
ONE_GROUP: Final = Path("/sys/fs/cgroup")  # version 2
OWN_EVERYTHING: Final = ("--net", "--pid", "--fork", "--kill-child", "--mount-proc")
OWN_NETWORK: Final = ("--net",)


@cache
def isolation() -> tuple[str, ...]:
    """Return the command that gives a process its own network and process ids; () if none can."""
    root = () if os.geteuid() == 0 else ("--map-root-user",)
    program = shutil.which("unshare") if IS_LINUX else None
    for flags in (OWN_EVERYTHING, OWN_NETWORK) if program else ():
        command = (str(program), *root, *flags)
        if subprocess.run([*command, "true"], capture_output=True).returncode == 0:
            return command
    return ()


def not_enforced(has_groups: bool) -> list[str]:
    """Return what the limits do not cover on this system."""
    found = ["Files written outside the run's folders stay; only the size of each is limited."]
    if not isolation():
        found.append("The network is open: `unshare --net` is not permitted here.")
    if "--pid" not in isolation():
        found.append("A process that detaches itself may outlive the run: no own process ids.")
    if not has_groups:
        found.append("A fork bomb can slow down this machine: no control group can be made here.")
    return found


def _groups(name: str) -> list[Path]:
    """Return the control groups of a submission."""
    parents = GROUPS if GROUPS[0].is_dir() else (ONE_GROUP,)
    return [parent / name for parent in parents]


def join_groups(name: str) -> bool:
    """Put this process into groups of its own; return whether they bound its processes."""
    try:
        for group in _groups(name):
            group.mkdir()
            if (group / "pids.max").exists():
                (group / "pids.max").write_text(str(TASKS_MAX))
            (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        return False
    return (_groups(name)[0] / "pids.max").exists()


def remove_groups(name: str) -> None:
    """Remove the groups of a submission whose processes have ended."""
    for group in _groups(name):
        for _ in range(CLEAN_TRIES):  # the system ends processes a moment after they are killed
            try:
                group.rmdir()
            except OSError as error:
                if error.errno != errno.EBUSY:
                    break
                time.sleep(LOOK_AGAIN_S / 10)


def begin(limits: Limits) -> None:
    """Prepare this process: everything that a submission starts stays below it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    if most == resource.RLIM_INFINITY or most > limits.disk_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits.disk_bytes, limits.disk_bytes))
    if not IS_LINUX:
        return
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket, suppress(OSError):
        request = struct.pack("16sh14x", b"lo", IFF_UP_RUNNING)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, request)


class LimitWatch:
    """A thread that looks at what a submission uses, and ends it when it is too much."""

    def __init__(self, limits: Limits, folder: Path) -> None:
        """Begin to look.

        Args:
            folder: all its files.
        """
        self.broken: str | None = None
        self._limits, self._folder = limits, folder
        self._began_s = time.monotonic()
        self._disk_bytes = 0
        threading.Thread(target=self._look, name="limits", daemon=True).start()

    def check(self) -> None:
        """Raise RunEnded if a limit was passed."""
        if self.broken is not None:
            text = f"the submission {self.broken}; all its processes were ended"
            raise RunEnded(text, rule="the submission stays within its limits")

    def clean(self) -> None:
        """End every process of the submission, and what it has started."""
        for _ in range(CLEAN_TRIES if IS_LINUX else 0):
            if os.getpid() == 1:
                with suppress(ProcessLookupError):
                    os.kill(-1, signal.SIGKILL)
            living = [pid for pid, fields in descendants() if fields[0] != "Z"]
            for pid in living:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not living:
                return
            time.sleep(LOOK_AGAIN_S / 10)

    def _look(self) -> None:
        looks = 0
        while IS_LINUX and self.broken is None:
            if looks % DISK_EVERY == 0:
                self._disk_bytes = disk_bytes(self._folder, self._limits.disk_bytes)
            looks += 1
            self.broken = beyond(self._usage(), self._limits)
            time.sleep(LOOK_AGAIN_S)
        self.clean()

    def _usage(self) -> Usage:
        reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s, memory_bytes, written_bytes, count = reaped.ru_utime + reaped.ru_stime, 0, 0, 0
        for pid, fields in descendants():
            if fields[0] == "Z":
                continue
            count += 1
            cpu_s += (int(fields[11]) + int(fields[12])) / TICKS_PER_S
            memory_bytes += int(fields[21]) * PAGE_BYTES
            written_bytes += _written_bytes(pid)
        return Usage(
            cpu_s=cpu_s,
            memory_bytes=memory_bytes,
            disk_bytes=self._disk_bytes,
            written_bytes=written_bytes,
            time_s=time.monotonic() - self._began_s,
            processes=count,
        )


def descendants() -> Iterator[tuple[int, list[str]]]:
    """Find all processes below this one, with the fields of /proc/PID/stat from the state on.

    The reaper is left out: it ends what is left when this process was killed.
    """
    found: dict[int, list[str]] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            stat = Path("/proc", name, "stat").read_text(errors="replace")
            found[int(name)] = stat.rpartition(")")[2].split()
    below = {os.getpid()}
    is_growing = True
    while is_growing:
        more = {pid for pid, fields in found.items() if int(fields[1]) in below} - below
        is_growing = bool(more)
        below |= more
    own = {os.getpid(), REAPER.pid}
    return iter([(pid, found[pid]) for pid in sorted((below & found.keys()) - own)])


def _written_bytes(pid: int) -> int:
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            if line.startswith("write_bytes:"):
                return int(line.split()[1])
    return 0


def disk_bytes(folder: Path, enough_bytes: int) -> int:
    """Return what a folder takes on disk; stop counting when it is too much."""
    total = files = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            files += 1
            if files > FILES_MAX:
                return enough_bytes + 1
        if total > enough_bytes:
            break
    return total
