"""The smallest world in which a seed still breaks the same rule.

A greedy search, after the delta debugging of Zeller and Hildebrandt ("Simplifying and isolating
failure-inducing input", 2002): leave out classes of faults, half of them at once, then quarters,
down to single ones; then clients, messages, steps and faulty time. Leaving something out changes
what is drawn later, so every shape is judged by its own run; of several that fail, the one with the
shortest trace is kept. The same seed gives the same search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from .simulation import SOUND, WHOLE, Outcome, Variant, run_seed
from .swarm import CLASSES, Shape

RUNS_MAX: Final = 300  # of one search; a run takes some 10 ms
NUMBERS: Final[Mapping[str, Sequence[float]]] = {  # of `Shape`: what is tried
    "publishers": (1, 2),
    "subscribers": (0, 1, 2),
    "messages": (1, 2, 3, 4, 6, 8, 12),
    "steps": (0, 1, 2, 3, 4, 6, 8, 12),
    "faults_s": (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0),
}


class Shrunk(Struct, frozen=True):
    """A shape, and what its run showed, with the trace."""

    shape: Shape
    outcome: Outcome


def rule_of(outcome: Outcome) -> str:
    """The name of the first rule that was broken; "" if none was."""
    return outcome.violations[0].partition(":")[0] if outcome.violations else ""


def shrink(
    seed: int,
    variant: Variant = SOUND,
    shape: Shape = WHOLE,
    *,
    runs_max: int = RUNS_MAX,
    on_run: Callable[[], None] = lambda: None,
) -> Shrunk:
    """Leave out what the broken rule does not need, in at most `runs_max` runs.

    Args:
        shape: in which the seed breaks a rule.
        on_run: called after each run.
    """
    whole = run_seed(seed, variant, shape, tracing=True)
    assert whole.violations, f"seed {seed} breaks no rule in {shape}"
    search = _Search(seed, variant, rule_of(whole), runs_max, on_run)
    found = Shrunk(shape, whole)
    before = None
    while found.shape != before:
        before = found.shape
        found = _with_fewer_classes(search, found)
        for name in NUMBERS:
            found = _with_less(search, found, name)
    return found


class _Search:
    """Runs shapes, none of them twice, as long as runs are left."""

    def __init__(
        self, seed: int, variant: Variant, rule: str, runs_max: int, on_run: Callable[[], None]
    ) -> None:
        self._seed = seed
        self._variant = variant
        self._rule = rule
        self._runs_left = runs_max
        self._on_run = on_run
        self._known: set[Shape] = set()

    def shortest(self, shapes: Iterable[Shape]) -> Shrunk | None:
        """Of the shapes that break the rule, the one with the shortest trace; None if none does."""
        failing = [Shrunk(shape, outcome) for shape in shapes if (outcome := self._run(shape))]
        return min(failing, key=lambda one: len(one.outcome.trace), default=None)

    def _run(self, shape: Shape) -> Outcome | None:
        """What a shape showed; None if that is not the rule, is not new, or no run is left."""
        if shape in self._known or not self._runs_left:
            return None
        self._known.add(shape)
        self._runs_left -= 1
        outcome = run_seed(self._seed, self._variant, shape, tracing=True)
        self._on_run()
        return outcome if rule_of(outcome) == self._rule else None


def _with_fewer_classes(search: _Search, found: Shrunk) -> Shrunk:
    """Switch off classes of faults: all, then half of them, then fewer, until each is needed."""
    size = len(CLASSES)
    while size:
        counts = found.outcome.counts
        left = [name for name in CLASSES if name not in found.shape.without]
        left.sort(key=lambda name: counts.get(name, 0) > 0)  # first those that never happened
        parts = (left[first : first + size] for first in range(0, len(left), size))
        smaller = search.shortest(
            replace(found.shape, without=_in_order(found.shape.without, part)) for part in parts
        )
        if smaller is None:
            size //= 2
        else:
            found = smaller
    return found


def _in_order(without: Sequence[str], part: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in CLASSES if name in without or name in part)


def _with_less(search: _Search, found: Shrunk, name: str) -> Shrunk:
    """Lower one of the numbers, if that makes the run another one."""
    now = getattr(found.shape, name)
    lower: list[dict[str, Any]] = [
        {name: number} for number in NUMBERS[name] if now is None or number < now
    ]
    smaller = search.shortest(replace(found.shape, **change) for change in lower)
    return found if smaller is None or smaller.outcome == found.outcome else smaller
