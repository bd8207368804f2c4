"""Planted faults of a publisher whose state is set back; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from reliable_pubsub.common.core.transaction_messages import TopicReceipt
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.publisher.core import outbox as outbox_module
from reliable_pubsub.publisher.core.outbox import Changes, Encoded, Numbered, Outbox
from reliable_pubsub.publisher.core.receipt import Receipt
from reliable_pubsub.publisher.qos0.qos0_feature import QoS0Feature

from .simulation import Variant


class _Numbering(Outbox):
    """The numbering of a publisher, by other rules."""

    def __init__(self, outbox: Outbox) -> None:
        vars(self).update(vars(outbox))


class _RepeatsAnything(_Numbering):
    """What a program puts next is taken for what the state has forgotten."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__(outbox)
        self._continues = True

    def next_sequence(self, topic: str, count: int = 1, *, repeats: bool = False) -> int:
        return super().next_sequence(topic, count, repeats=True)

    def number(
        self, batches: Sequence[Encoded | Numbered], note: bytes | None = None, *, number: int = 0
    ) -> Changes:
        with patch.object(outbox_module, "_NO_REPEATS", self._repeats):
            return super().number(batches, note, number=number)


class _RepeatsNothing(_Numbering):
    """What a plan makes again is new."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__(outbox)
        self._continues = False


class _KeepsItsTransactions(_Numbering):
    """Transactions are numbered from the state alone."""

    def meet_transactions(self, last: int) -> Changes:
        return super().meet_transactions(last) if self.transactions is None else {}


class _FallsBack(_Numbering):
    """The next number is after the last batch that was settled, also an old one."""

    def settled(self, receipts: Sequence[Receipt | TopicReceipt]) -> Changes:
        for one in receipts:
            self.topics[one.topic] = replace(self.topics[one.topic], last_sequence=0)
        return super().settled(receipts)


def _numbering(kind: type[_Numbering]) -> Variant:
    class Faulty(Publisher):
        def __init__(self, client: str, **more: Any) -> None:
            super().__init__(client, **more)
            self.outbox = kind(self.outbox)
            engine = self._engine
            engine.outbox = engine.session._outbox = self.outbox
            engine.feature(QoS0Feature).lower_qos._outbox = self.outbox
            engine.session._memory = self.outbox

    return Variant(publisher=Faulty)


FAULTS_OF_NUMBERING: Mapping[str, Variant] = {
    "numbers from the state alone": _numbering(_RepeatsAnything),
    "transactions from the state alone": _numbering(_KeepsItsTransactions),
    "old batch moves the numbering": _numbering(_FallsBack),
    "plan forgets its numbers": _numbering(_RepeatsNothing),
}
