"""The axes of a report: where a moment and a value lie, and which of them get a label."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

PLOT_WIDTH = 1000.0
LEFT, RIGHT = 10.0, 34.0  # so that marks and labels at both ends are whole


class TimeAxis(Struct, frozen=True):
    """From the begin to the end of a run."""

    begin_ns: int
    end_ns: int

    def x(self, at_ns: float) -> float:
        """Where a moment lies."""
        share = (at_ns - self.begin_ns) / (self.end_ns - self.begin_ns)
        return LEFT + min(max(share, 0), 1) * (PLOT_WIDTH - LEFT - RIGHT)

    @property
    def unit(self) -> str:
        """Of its labels."""
        return "s" if self.end_ns - self.begin_ns >= 2e9 else "ms"

    def ticks(self, count: int) -> Sequence[tuple[float, str]]:
        """At most about `count` round moments, as (x, label)."""
        size_ns = 1e9 if self.unit == "s" else 1e6
        length = (self.end_ns - self.begin_ns) / size_ns
        step = round_step(length / count)
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        return [
            (self.x(self.begin_ns + index * step * size_ns), f"{index * step:.{decimals}f}")
            for index in range(int(length / step + 1e-9) + 1)
        ]

    def moment(self, at_ns: int) -> str:
        """A moment for people: since the begin of the run."""
        since_ns = at_ns - self.begin_ns
        return f"{since_ns / 1e9:.3f} s" if self.unit == "s" else f"{since_ns / 1e6:.3f} ms"


def round_step(least: float) -> float:
    """The least of 1, 2, 5, 10, 20, 50, ... (and 0.5, 0.2, ...) that is not below `least`."""
    size: float = 10.0 ** math.floor(math.log10(least))
    return next(step * size for step in (1, 2, 5, 10) if step * size >= least * 0.999)


def value_ticks(value_max: int, count: int = 3) -> Sequence[int]:
    """0, and round values up to at least `value_max`."""
    step = max(int(round_step(max(value_max, 1) / count)), 1)
    return [index * step for index in range(math.ceil(max(value_max, 1) / step) + 1)]
