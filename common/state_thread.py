"""`StateThread`: the state file of an asyncio client, in a thread of its own.

A disk that hangs then stops the calls of this client, and not the event loop.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from . import threads

T = TypeVar("T")
SOON_S: Final = 0.001  # a job is waited for this long; most writes are done then, which is cheaper


class _Job(Generic[T]):
    """One job; its outcome is there when `done` is free."""

    def __init__(self, do: Callable[[], T]) -> None:
        self.do = do
        self.done = threading.Lock()
        self.done.acquire()
        self.result: T | None = None
        self.error: BaseException | None = None
        self.wake: Callable[[], object] | None = None

    def work(self) -> None:
        """Run the job in the thread."""
        try:
            self.result = self.do()
        except BaseException as error:
            self.error = error
        self.done.release()
        if self.wake is not None:
            with suppress(RuntimeError):  # the event loop has ended
                self.wake()

    def outcome(self) -> T:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        result: Any = self.result
        return result  # type: ignore[no-any-return]


class StateThread:
    """Runs jobs on a client's state in order, even if a caller was cancelled."""

    def __init__(self) -> None:
        """Create it; the first use starts the thread."""
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._has_begun = False
        weakref.finalize(self, self._jobs.put, None).atexit = False

    def _begin(self, do: Callable[[], T]) -> _Job[T]:
        if not self._has_begun:
            # A daemon: the program may end while the disk hangs. It refers to the queue only.
            threads.start(partial(_work, self._jobs), name="state")
            self._has_begun = True
        job = _Job(do)
        self._jobs.put(job)
        return job

    async def do(self, do: Callable[[], T]) -> T:
        """Run a job on the state; it completes even if this is cancelled."""
        job = self._begin(do)
        if not job.done.acquire(timeout=SOON_S):
            loop = asyncio.get_running_loop()
            woken = asyncio.Event()
            job.wake = partial(loop.call_soon_threadsafe, woken.set)
            if not job.done.acquire(blocking=False):  # else it was done just before that
                await woken.wait()
        return job.outcome()

    def finish(self) -> None:
        """Wait, without an event loop, until everything is done."""
        if self._has_begun:
            self._begin(lambda: None).done.acquire()


def _work(jobs: SimpleQueue[_Job[Any] | None]) -> None:
    while (job := jobs.get()) is not None:
        job.work()
        del job  # while this waits it keeps no client alive
