"""Refuses what needs more file descriptors than are free, before anything is opened.

libzmq 4.3.5 ends the whole process (SIGABRT, src/epoll.cpp) if it finds none while it starts a
context. So whatever makes a context or a client asks here first.
"""

from __future__ import annotations

import os
import resource
from typing import Final

from .core.errors import DescriptorsError
from .threads import is_shortage

CONTEXT_DESCRIPTORS: Final = 5  # of a ZeroMQ context: two epolls, three eventfds
SOCKET_DESCRIPTORS: Final = 2  # its eventfd, and a connection
STATE_DESCRIPTORS: Final = 4  # lock, SQLite file, WAL, shared memory
CLIENT_DESCRIPTORS: Final = CONTEXT_DESCRIPTORS + SOCKET_DESCRIPTORS + STATE_DESCRIPTORS
SPARE_DESCRIPTORS: Final = 4  # for what other threads open meanwhile


def need_descriptors(count: int, what: str) -> None:
    """Make sure that this process may open this many files, and a few more.

    Args:
        what: needs them, for the error.

    Raises:
        DescriptorsError: it may not.
    """
    opened: list[int] = []
    try:
        opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        while len(opened) < count + SPARE_DESCRIPTORS:
            opened.append(os.dup(opened[0]))
    except OSError as error:
        if not is_shortage(error):
            raise
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise DescriptorsError(
            what=what, needed=count + SPARE_DESCRIPTORS, free=len(opened), limit=limit
        ) from error
    finally:
        for one in opened:
            os.close(one)
