"""Processes that tests fork instead of starting."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .fork_server import ForkedProcess, helper
from .harness import REPOSITORY

THREADS, PROCESSES = 4, 10


def exit_code_of(process: ForkedProcess) -> int:
    while (code := process.poll()) is None:
        pass
    return code


def test_the_end_of_a_process_may_be_asked_for_by_several_threads(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out, ThreadPoolExecutor(THREADS) as threads:
        for _ in range(PROCESSES):
            process = helper(REPOSITORY).start(
                [sys.executable, "-m", "this"],
                cwd=tmp_path,
                env=dict(os.environ),
                stdout=out,
                stderr=out,
            )
            assert process is not None
            assert list(threads.map(exit_code_of, [process] * THREADS)) == [0] * THREADS
