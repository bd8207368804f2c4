"""A proxy that answers each line of its standard input with the names of its threads, as JSON.

Linux knows the threads of a process by number only; the benchmark shows what each one costs.
"""

from __future__ import annotations

import json
import runpy
import sys
import threading


def thread_names() -> dict[int, str]:
    """The Python threads of this process, by the number that /proc shows."""
    return {
        thread.native_id: thread.name
        for thread in threading.enumerate()
        if thread.native_id is not None
    }


def _answer() -> None:
    for _ in sys.stdin:
        print(json.dumps(thread_names()), flush=True)  # noqa: T201


if __name__ == "__main__":
    threading.Thread(target=_answer, name="names", daemon=True).start()
    runpy.run_module("reliable_pubsub.proxy", run_name="__main__", alter_sys=True)
