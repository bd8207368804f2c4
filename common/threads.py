"""Threads that must run until asked to end, and the shortages that they survive.

An error ends a thread silently: the process continues without it, and without its checks. So
threads are started here. A death is logged with its traceback and recorded, and the health checks,
the status and the watchdog report it (rule R34).
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from .core.errors import DescriptorsError
from .log_lines import writes_json

SHORTAGE_S: Final = 0.1  # pause after an error that a lack of descriptors or memory has caused
REPORT_S: Final = 60.0  # between two reports of the same shortage
_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_LOG = logging.getLogger("reliable_pubsub.threads")
_deaths: dict[str, str] = {}  # by the name of the thread: its error


def start(run: Callable[[], object], *, name: str) -> threading.Thread:
    """Start a daemon thread, and record its death if an error ends it."""
    thread = threading.Thread(target=_recorded, args=(run, name), name=name, daemon=True)
    thread.start()
    return thread


def why_dead() -> str:
    """Return which threads of this process have died, and why; "" if none has."""
    return "; ".join(f"the thread {name} has died: {why}" for name, why in _deaths.items())


def dead_count() -> int:
    """Return how many threads of this process have died."""
    return len(_deaths)


def _recorded(run: Callable[[], object], name: str) -> None:
    try:
        run()
    except BaseException as error:
        _deaths[name] = f"{type(error).__name__}: {error}"
        if not writes_json():
            raise  # the interpreter writes the traceback
        _LOG.critical("the thread %s has died; restart this process", name, exc_info=True)


def is_shortage(error: BaseException) -> bool:
    """Return whether a lack of descriptors or memory has caused an error."""
    return isinstance(error, DescriptorsError) or getattr(error, "errno", None) in _SHORT


class Shortage:
    """Lets one piece of work survive a lack of descriptors or memory; used by one thread."""

    def __init__(self, what: str, warn: Callable[[str], None] = _LOG.warning) -> None:
        """Begin without a shortage.

        Args:
            what: names the work in the warning.
            warn: called at the first shortage, and once in REPORT_S while there are more.
        """
        self._what, self._warn = what, warn
        self._report_at_s = float("-inf")

    @contextmanager
    def survived(self, pause_s: float = SHORTAGE_S) -> Iterator[None]:
        """Suppress a shortage that ends the block, and pause; the caller retries."""
        try:
            yield
        except Exception as error:
            if not is_shortage(error):
                raise
            now_s = time.monotonic()
            if now_s >= self._report_at_s:
                self._report_at_s = now_s + REPORT_S
                self._warn(
                    f"warning: {self._what} is delayed ({error}): this process is out of "
                    "file descriptors or memory. It continues when there are some again; raise "
                    "LimitNOFILE (`ulimit -n`) if this is usual"
                )
            time.sleep(pause_s)
