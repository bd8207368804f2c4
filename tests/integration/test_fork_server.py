"""Processes that tests fork instead of starting."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .fork_server import ForkedProcess, helper
from .harness import Process

THREADS, PROCESSES = 4, 10


def exit_code_of(process: ForkedProcess) -> int:
    while (code := process.poll()) is None:
        pass
    return code


def test_the_end_of_a_process_may_be_asked_for_by_several_threads(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out, ThreadPoolExecutor(THREADS) as threads:
        for _ in range(PROCESSES):
            process = helper().start(
                [sys.executable, "-m", "this"],
                cwd=tmp_path,
                env=dict(os.environ),
                stdout=out,
                stderr=out,
            )
            assert process is not None
            assert list(threads.map(exit_code_of, [process] * THREADS)) == [0] * THREADS


def test_a_program_may_be_text_and_has_its_arguments_exit_code_and_traceback(
    tmp_path: Path,
) -> None:
    program = (
        "import sys; print(__name__, *sys.argv, sys.path[0] == ''); sys.exit(int(sys.argv[1]))"
    )
    for argument, code in (("7", 7), ("x", 1)):
        process = Process("program", [sys.executable, "-c", program, argument], tmp_path, code)
        assert process.wait() == code
        assert process.stdout == f"__main__ -c {argument} True\n"
        assert ("Traceback" in process.stderr) == (argument == "x")
