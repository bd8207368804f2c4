"""A proxy that says on request what its threads are called, and how many functions they called.

Linux knows the threads of a process by number only; the benchmark shows what each one costs.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
from collections import Counter
from types import FrameType

COUNTS = "BENCH_COUNTS_CALLS"  # in the environment: functions are counted
_called: Counter[int] = Counter()


def thread_names() -> dict[int, str]:
    """The Python threads of this process, by the number that /proc shows."""
    return {
        thread.native_id: thread.name
        for thread in threading.enumerate()
        if thread.native_id is not None
    }


def thread_calls() -> dict[int, int]:
    """How many functions the Python threads of this process called, by the same number."""
    return {
        thread.native_id: _called[thread.ident]
        for thread in threading.enumerate()
        if thread.native_id is not None and thread.ident is not None
    }


def count_calls() -> None:
    """Count what this thread calls from now on, and every thread that is started."""

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            _called[threading.get_ident()] += 1

    threading.setprofile(count)
    sys.setprofile(count)


def _answer() -> None:
    for line in sys.stdin:
        found = thread_calls() if line.strip() == "calls" else thread_names()
        print(json.dumps(found), flush=True)  # noqa: T201


if __name__ == "__main__":
    threading.Thread(target=_answer, name="names", daemon=True).start()
    if os.environ.get(COUNTS):
        count_calls()
    runpy.run_module("reliable_pubsub.proxy", run_name="__main__", alter_sys=True)
