"""Make docs/reference/benchmarks.md from benchmarks.json beside it: figures by version, plotted.

After a run of `scripts/bench peers` on a machine without other work, add its figures there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

DATA: Final = Path(__file__).parents[1] / "docs" / "reference" / "benchmarks.json"
WIDTH: Final = 100  # of a plot, in pixels
HEIGHT: Final = 32
MARGIN: Final = 4
HEAD: Final = """# Benchmarks by version

`scripts/bench peers` on 2 cores without other work: medians, and in brackets the ratio to Redis in
the same run, above 1 if this project is better. A plot begins at zero.
[Speed](../concepts/speed.md) explains the work. [benchmarks.json](benchmarks.json) also has the
other brokers.

"""


class Work(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one kind of work took, here and elsewhere."""

    work: str
    unit: str
    here: float
    redis: float
    nats: float
    mosquitto: float
    rabbitmq: float
    to_redis: float  # the median of the ratios of the rounds


class BenchmarkRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run of the benchmark."""

    version: str
    date: str
    command: str
    machine: str
    works: tuple[Work, ...]


def plot(values: Sequence[float]) -> str:
    """Return a line through the values, as SVG within a line of text."""
    across, up = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN
    steps, most = max(len(values) - 1, 1), max(values)
    points = [
        (MARGIN + across * place / steps, HEIGHT - MARGIN - up * value / most)
        for place, value in enumerate(values)
    ]
    line = " ".join(f"{x:.0f},{y:.0f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="3"/>' for x, y in points)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    label = " ".join(f"{value:g}" for value in values)
    return (
        f'<svg {size} fill="currentColor" role="img" aria-label="{label}">'
        f'<polyline points="{line}" fill="none" stroke="currentColor"/>{dots}</svg>'
    )


def benchmarks_page() -> str:
    """Return the page: a row for each kind of work, a column for each version."""
    runs = msgspec.json.decode(DATA.read_bytes(), type=tuple[BenchmarkRun, ...])
    by_work = {one.work: [one] for one in runs[0].works}
    for run in runs[1:]:
        for one in run.works:
            by_work[one.work].append(one)
    head = ["work", *(f"{run.version}, {run.date}" for run in runs), "plot"]
    lines = [head, ["---", *("---:" for _ in runs), "---"]]
    for name, works in by_work.items():
        figures = (f"{one.here:,.6g} ({one.to_redis:g})" for one in works)
        lines.append([f"{name}, {works[0].unit}", *figures, plot([one.here for one in works])])
    return HEAD + "".join(f"| {' | '.join(line)} |\n" for line in lines)
