"""Planted faults of what is forgotten; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from msgspec.structs import replace

from reliable_pubsub.proxy.core.applying import committed
from reliable_pubsub.proxy.core.batches import LogBatch
from reliable_pubsub.proxy.core.engine import Engine
from reliable_pubsub.proxy.core.records import Forgotten
from reliable_pubsub.proxy.core.state import Record, State

from .faulty_parts import Rules, store_that_forgets
from .simulation import Variant

_forget: Final = Forgotten.apply  # the sound one, while it is replaced


def _without_floor(kind: str) -> Rules:
    def forget_it(record: Forgotten, state: State) -> None:
        _forget(replace(record, floor=0) if record.kind == kind else record, state)

    return {_forget: forget_it}


def forget_numbers(state: State, lsn: int) -> list[LogBatch]:
    """The numbers of a publisher at QoS 2 are forgotten as those of one at QoS 1."""
    if state.settings.memory.unnumbered_max == 0:
        for log in state.topics.values():
            for name in islice(list(log.publishers), max(len(log.publishers) - 1, 0)):
                log.publishers.pop(name)
    return committed(state, lsn)


class AgesByTheWallClock(Engine):
    """Retention by age compares two readings of the wall clock."""

    def tick(self, *, now_s: float, now_ns: int) -> None:
        self._wall_ns = now_ns
        super().tick(now_s=now_s, now_ns=now_ns)

    def _due(self, now_s: float) -> Sequence[Record]:
        local_ns, self.state.local_ns = self.state.local_ns, self._wall_ns
        due = super()._due(now_s)
        self.state.local_ns = local_ns
        return due


def show_floor_too_soon(record: Forgotten, state: State) -> None:
    """FENCED names the epochs of the forgotten before it is durable that they are forgotten."""
    _forget(record, state)
    state.epoch_floor_lsn = 0


FAULTS_OF_FORGETTING: Final[Mapping[str, Variant]] = {
    # A late HELLO of a process that is dead is granted once its id is forgotten; a late GET of a
    # subscription that is forgotten moves the cursor of the next one.
    "forgotten epochs are granted": Variant(rules=_without_floor("session")),
    "forgotten ones speak for the next": Variant(rules=_without_floor("subscription")),
    "numbers are forgotten": Variant(rules={committed: forget_numbers}),
    "ages by the wall clock": Variant(engine=AgesByTheWallClock),
    "floor shown too soon": Variant(rules={_forget: show_floor_too_soon}),
    "floors not stored": Variant(
        store=store_that_forgets(lambda stored: replace(stored, epoch_floor=0, generation_floor=0))
    ),
}
