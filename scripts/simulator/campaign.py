"""Many seeds, in several processes: which of them failed, and what went wrong in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import as_completed
from dataclasses import dataclass, field

from scripts.worker_pool import worker_pool

from .faults import FAULTS
from .simulation import SOUND, Outcome, run_seed
from .swarm import CLASSES, Shape

SEEDS_PER_TASK = 50
SEEDS_THAT_COVER = 300  # in this many seeds from 0, every class of faults happens


@dataclass
class Tally:
    """What seeds have shown."""

    failed: list[Outcome] = field(default_factory=list)
    seeds: Counter[str] = field(default_factory=Counter)  # in how many a class of faults happened
    times: Counter[str] = field(default_factory=Counter)  # how often it did in all of them

    def count(self, outcome: Outcome) -> None:
        """Take one seed."""
        if outcome.violations:
            self.failed.append(outcome)
        self.times.update(outcome.counts)
        self.seeds.update(name for name, times in outcome.counts.items() if times)

    @property
    def never_seen(self) -> list[str]:
        """Classes of faults that did not happen: their rules were not put to the test."""
        return [name for name in CLASSES if not self.seeds[name]]

    def add(self, other: Tally) -> None:
        """Take what other seeds have shown."""
        self.failed += other.failed
        self.seeds += other.seeds
        self.times += other.times


def run_seeds(
    seeds: range, fault: str | None, shape: Shape, *, on_seed: Callable[[Outcome], None] | None
) -> Tally:
    """Run seeds in this process.

    Args:
        on_seed: called with each outcome and its trace; None: no traces are kept.
    """
    tally = Tally()
    for seed in seeds:
        variant = FAULTS[fault] if fault else SOUND
        outcome = run_seed(seed, variant, shape, tracing=on_seed is not None)
        tally.count(outcome)
        if on_seed is not None:
            on_seed(outcome)
    return tally


def run_campaign(
    seeds: range, fault: str | None, shape: Shape, *, jobs: int, on_seeds: Callable[[int], None]
) -> Tally:
    """Run seeds in `jobs` processes.

    Args:
        on_seeds: called with the number of seeds that a task has newly done.
    """
    tally = Tally()
    tasks = [
        seeds[first : first + SEEDS_PER_TASK] for first in range(0, len(seeds), SEEDS_PER_TASK)
    ]
    with worker_pool(jobs) as pool:
        running = {
            pool.submit(run_seeds, task, fault, shape, on_seed=None): len(task) for task in tasks
        }
        for task in as_completed(running):
            tally.add(task.result())
            on_seeds(running[task])
    tally.failed.sort(key=lambda outcome: outcome.seed)
    return tally
