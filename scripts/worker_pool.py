"""Processes that share work, and end with the process that started them."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor


def worker_pool(jobs: int) -> ProcessPoolExecutor:
    """A pool of processes that outlive no `kill -9` of this one.

    Each holds the queue open for the others, so left alone they would wait for work forever.
    """
    return ProcessPoolExecutor(jobs, initializer=_end_with_parent)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
