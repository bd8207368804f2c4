"""Planted faults of a publisher whose state is set back; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.publisher.core.outbox import Changes, Outbox
from reliable_pubsub.publisher.core.repeating import Repeats

from .simulation import Variant


class _Numbering(Outbox):
    """The numbering of a publisher, by other rules."""

    def __init__(self, outbox: Outbox) -> None:
        vars(self).update(vars(outbox))


class _RepeatsAnything(_Numbering):
    """What a program puts next is taken for what the state has forgotten."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__(outbox)
        self._goes_on = True

    def _next(self, topic: str, repeats: Repeats, count: int) -> int:
        return super()._next(topic, self._repeats, count)


class _RepeatsNothing(_Numbering):
    """What a plan makes again is new."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__(outbox)
        self._goes_on = False


class _KeepsItsTransactions(_Numbering):
    """Transactions are numbered from the state alone."""

    def meet_transactions(self, last: int) -> Changes:
        return super().meet_transactions(last) if self.transactions is None else {}


class _FallsBack(_Numbering):
    """The next number is after the last batch that was settled, also an old one."""

    def _reached(self, topic: str, last: int, offset: int | None) -> Changes:
        known = self.topics[topic]
        self.topics[topic] = replace(known, last_sequence=0)
        return super()._reached(topic, last, offset)


def _numbering(kind: type[_Numbering]) -> Variant:
    class Faulty(Publisher):
        def __init__(self, client: str, **more: Any) -> None:
            super().__init__(client, **more)
            self.outbox = kind(self.outbox)
            engine = self._engine
            engine.outbox = engine.unnumbered._outbox = engine.session._outbox = self.outbox
            engine.session._memory = self.outbox

    return Variant(publisher=Faulty)


FAULTS_OF_NUMBERING: Mapping[str, Variant] = {
    "numbers from the state alone": _numbering(_RepeatsAnything),
    "transactions from the state alone": _numbering(_KeepsItsTransactions),
    "old batch moves the numbering": _numbering(_FallsBack),
    "plan forgets its numbers": _numbering(_RepeatsNothing),
}
