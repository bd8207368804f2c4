"""Planted faults of SUBSCRIPTIONS: a change that is reported as none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from reliable_pubsub.proxy.core.engine import Engine
from reliable_pubsub.proxy.core.state import Record
from reliable_pubsub.proxy.core.stored import StoredState
from reliable_pubsub.proxy.core.subscription_records import Expired

from .simulation import Variant


class VersionBeginsAgain(Engine):
    """After a full disk the versions of other subscriptions are used once more."""

    def failed(self, stored: StoredState, why: str, *, now_s: float) -> None:
        super().failed(stored, why, now_s=now_s)
        self.state.interest_version = self._new_state(stored).interest_version


class LeasesEndUnseen(Engine):
    """The end of a lease is no new version."""

    def _apply(self, records: Sequence[Record]) -> None:
        before = self.state.interest_version
        super()._apply(records)
        if all(isinstance(one, Expired) for one in records):
            self.state.interest_version = before


FAULTS_OF_INTERESTS: Final[Mapping[str, Variant]] = {
    "interests: version begins again": Variant(engine=VersionBeginsAgain),
    "interests: end of a lease unseen": Variant(engine=LeasesEndUnseen),
}
