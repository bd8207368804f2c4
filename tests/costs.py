"""What the test files cost: waiting, and CPU, with that of all processes that the tests started.

The gate prints the dearest (`scripts/check`); any other run does with `--costs 10`.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_COSTS: Final = "costs"  # what a worker of xdist hands over


def _cpu_s(pid: int) -> float:
    """CPU of a process, its ended children, and its living children likewise.

    More than `os.times()` knows: that counts a child only when it was waited for by this process.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        below = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # it has ended in between
        return 0.0
    own_s = sum(map(int, stat[11:15])) / _TICKS_PER_S
    return own_s + sum(_cpu_s(int(child)) for text in below for child in text.split())


class Costs:
    """Sums by test file, of this process or of all workers."""

    def __init__(self, shown: int) -> None:
        """Nothing was measured yet.

        Args:
            shown: files in the table.
        """
        self._shown = shown
        self._cpu_s: defaultdict[str, float] = defaultdict(float)
        self._wall_s: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Measure one test with its fixtures."""
        file = item.nodeid.partition("::")[0]
        begin_s, cpu_s = time.monotonic(), _cpu_s(os.getpid())
        try:
            return (yield)
        finally:
            self._wall_s[file] += time.monotonic() - begin_s
            self._cpu_s[file] += max(0.0, _cpu_s(os.getpid()) - cpu_s)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the sums to the process that started this worker."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_COSTS] = [dict(self._cpu_s), dict(self._wall_s)]

    def pytest_testnodedown(self, node: Any) -> None:
        """Add the sums of a worker."""
        handed = getattr(node, "workeroutput", {}).get(_COSTS, ({}, {}))
        for sums, more in zip((self._cpu_s, self._wall_s), handed, strict=True):
            for file, seconds in more.items():
                sums[file] += seconds

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the files that cost most CPU."""
        total_s = sum(self._cpu_s.values())
        terminalreporter.section(f"test files by CPU, {total_s:.0f} s in all")
        for file in sorted(self._cpu_s, key=self._cpu_s.__getitem__, reverse=True)[: self._shown]:
            wait_s = self._wall_s[file] - self._cpu_s[file]
            terminalreporter.write_line(
                f"{self._cpu_s[file]:7.1f} s CPU {max(0.0, wait_s):7.1f} s waiting  {file}"
            )
