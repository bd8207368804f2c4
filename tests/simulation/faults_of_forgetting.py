"""Planted faults of what is forgotten; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from msgspec.structs import replace

from reliable_pubsub.proxy.core.broker import Broker
from reliable_pubsub.proxy.core.records import Appended, Forgotten, Record, StoredState

from .simulated_store import SimulatedStore
from .simulation import Variant


class _Forgets(Broker):
    """Keeps no floor of one kind."""

    kind = ""

    def apply(self, records: Sequence[Record]) -> None:
        super().apply([self._without_floor(one) for one in records])

    def _without_floor(self, record: Record) -> Record:
        if isinstance(record, Forgotten) and record.kind == self.kind:
            return replace(record, floor=0)
        return record


class GrantsForgottenEpochs(_Forgets):
    """A late HELLO of a process that is dead is granted once its id is forgotten."""

    kind = "session"


class TakesTheNextForTheForgotten(_Forgets):
    """A late GET of a subscription that is forgotten moves the cursor of the next one."""

    kind = "subscription"


class ForgetsNumbers(Broker):
    """Who has put at QoS 2 is forgotten as those are that have put at QoS 1."""

    def committed(self, lsn: int) -> list[Appended]:
        if self._settings.memory.unnumbered_max == 0:
            for log in self.topics.values():
                for name in islice(list(log.publishers), max(len(log.publishers) - 1, 0)):
                    log.publishers.pop(name)
        return super().committed(lsn)


class FloorsNotStored(SimulatedStore):
    """After a restart the epochs of those that were forgotten are free again."""

    def state(self) -> StoredState:
        return replace(super().state(), epoch_floor=0, generation_floor=0)


class TellsTheFloorTooSoon(Broker):
    """FENCED names the epochs of the forgotten before it is durable that they are forgotten."""

    def apply(self, records: Sequence[Record]) -> None:
        super().apply(records)
        self.epoch_floor_lsn = 0


FAULTS_OF_FORGETTING: Final[Mapping[str, Variant]] = {
    "forgotten epochs are granted": Variant(broker=GrantsForgottenEpochs),
    "forgotten ones speak for the next": Variant(broker=TakesTheNextForTheForgotten),
    "numbers are forgotten": Variant(broker=ForgetsNumbers),
    "floor told too soon": Variant(broker=TellsTheFloorTooSoon),
    "floors not stored": Variant(store=FloorsNotStored),
}
