"""Differences between systems: waking a loop, making a file durable, memory of the process.

Linux has special calls for both; elsewhere (macOS) POSIX calls are used. Each name is looked up
where it is used, so that a test can remove it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from .core.errors import DescriptorsError, PubSubError

IS_LINUX: Final = sys.platform.startswith("linux")
_PAGE_BYTES: Final = resource.getpagesize()
_M_ARENA_MAX: Final = -8  # of malloc.h


@contextmanager
def system_errors(ours: Callable[[OSError], PubSubError]) -> Iterator[None]:
    """Turn an error of the system into a PubSubError.

    An OSError without a number is not the system's: a signal handler of the program raised it.

    Raises:
        DescriptorsError: none is left, which says nothing about the file.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        if error.errno in (errno.EMFILE, errno.ENFILE):
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            raise DescriptorsError(what="a file", needed=1, free=0, limit=limit) from error
        raise ours(error) from error


class WakeUp:
    """A descriptor that is readable from a call of `wake` until `heard`."""

    def __init__(self) -> None:
        """Create a descriptor that is not readable."""
        self._sender: socket.socket | None = None
        if hasattr(os, "eventfd"):
            self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            return
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)
        self.descriptor = self._receiver.fileno()

    def wake(self) -> None:
        """Make it readable; safe in a signal handler and from any thread."""
        if self._sender is None:
            os.eventfd_write(self.descriptor, 1)
            return
        with suppress(BlockingIOError):  # full, so it is readable
            self._sender.send(b"\0")

    def heard(self) -> None:
        """Make it unreadable until the next call."""
        if self._sender is None:
            os.eventfd_read(self.descriptor)
            return
        with suppress(BlockingIOError):
            while self._receiver.recv(4096):
                pass

    def close(self) -> None:
        """Free the descriptors."""
        if self._sender is None:
            os.close(self.descriptor)
            return
        self._sender.close()
        self._receiver.close()


def sync_file(descriptor: int) -> None:
    """Make a file durable, its length included.

    On macOS fsync leaves the data in the disk's own memory, which loses it with power; F_FULLFSYNC
    does not, and file systems without it return an error (fcntl(2) there).
    """
    if hasattr(fcntl, "F_FULLFSYNC"):
        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)


def sync_data(descriptor: int) -> None:
    """Make the data of a file durable, and only the metadata needed to read it."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        sync_file(descriptor)


def fill_file(descriptor: int, size_bytes: int) -> None:
    """Extend a file with zeros, so that a full disk is an error here and no signal at a page of it.

    Raises:
        OSError: there is no space.
    """
    while (end := os.fstat(descriptor).st_size) < size_bytes:
        os.pwrite(descriptor, bytes(size_bytes - end), end)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable: a new file may else be missing after power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: bytes) -> None:
    """Write a durable file that is there with all of its content, or not at all."""
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        sync_file(file.fileno())
    part.rename(path)
    sync_directory(path.parent)


def counts_memory() -> bool:
    """Whether the system says how much memory this process holds: Linux, with /proc mounted."""
    try:
        with closing(ResidentMemory()) as memory:
            return memory.resident_bytes() > 0
    except OSError:
        return False


class ResidentMemory:
    """The memory that this process holds, where `counts_memory`; it holds one descriptor."""

    def __init__(self) -> None:
        """Open the file in which the system reports it.

        Raises:
            OSError: it reports nothing.
        """
        self._descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def resident_bytes(self) -> int:
        """Return what it holds now."""
        return int(os.pread(self._descriptor, 256, 0).split()[1]) * _PAGE_BYTES

    def close(self) -> None:
        """Free the descriptor."""
        os.close(self._descriptor)


def give_back_memory() -> None:
    """Give freed memory back to the system, where its library can (glibc keeps most of it)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def share_one_heap() -> None:
    """Let all threads of this process allocate from one heap; call it before they are started.

    glibc gives each thread one of its own. Bodies of batches are made by one thread and freed by
    another, and what is free in one heap is of no use to the others: of a proxy that passed 100
    million messages half as much again was resident. The interpreter lock lets one thread allocate
    at a time, so they need not wait for each other. Source: mallopt(3).
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_ARENA_MAX, 1)


# The same for SQLite's syncs; ignored on systems without F_FULLFSYNC.
FULL_SYNC_PRAGMAS: Final = ("fullfsync = ON", "checkpoint_fullfsync = ON")
