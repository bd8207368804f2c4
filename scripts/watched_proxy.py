"""A proxy that says on request how its threads are called, and which functions they called.

Linux knows the threads of a process by number only; the benchmark shows what each one costs.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parent.parent
COUNTS = "BENCH_COUNTS_CALLS"  # in the environment: functions are counted
NAMES = "BENCH_NAMES_CALLS"  # or named
_called: Counter[int] = Counter()
_seen: dict[CodeType, None] = {}


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


def functions_called() -> list[tuple[str, str]]:
    """File (below the root) and name of each that was called since this was asked last."""
    seen = list(_seen)
    _seen.clear()
    paths = ((os.path.realpath(code.co_filename), code.co_qualname) for code in seen)
    return [(os.path.relpath(path, ROOT), name) for path, name in paths]


def count_calls() -> None:
    """Count what this thread calls from now on, and every thread that is started."""

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            _called[threading.get_ident()] += 1

    threading.setprofile(count)
    sys.setprofile(count)


def name_calls() -> None:
    """Note the functions, in the same threads."""

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            _seen[frame.f_code] = None

    threading.setprofile(note)
    sys.setprofile(note)


ANSWERS = {"names": thread_names, "calls": thread_calls, "functions": functions_called}


def _answer() -> None:
    for line in sys.stdin:
        print(json.dumps(ANSWERS[line.strip()]()), flush=True)  # noqa: T201


if __name__ == "__main__":
    threading.Thread(target=_answer, name="names", daemon=True).start()
    if os.environ.get(COUNTS):
        count_calls()
    if os.environ.get(NAMES):
        name_calls()
    runpy.run_module("reliable_pubsub.proxy", run_name="__main__", alter_sys=True)
