"""A program that puts without a plan, always the same bytes: each call is a message of its own.

Contents are equal, so no journal tells a message that was lost from one that was repeated. Only the
caller knows: two calls that returned have two messages. A call that a kill has cut short is not
made again.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from msgspec import Struct

from reliable_pubsub.common.core.errors import InDoubtError, UsageError
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.proxy.core.records import Appended
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.publisher.core.receipt import Receipt

from .simulated_clients import PuttingMachine
from .world import Process

CALLS = 20


class Call(Struct, frozen=True):
    """One call of the program."""

    topics: tuple[str, ...]  # several: a transaction
    count: int  # messages on each


def calls(chance: random.Random, topics: Sequence[str]) -> list[Call]:
    """What a program puts; some of it in transactions."""
    return [
        Call(
            tuple(topics) if chance.random() < 0.3 else (chance.choice(topics),),
            chance.choice((1, 1, 1, 2)),
        )
        for _ in range(CALLS)
    ]


class CallingMachine(PuttingMachine):
    """Makes each call once, and again only if its error says that nothing of it is kept."""

    def begin(self, calls: Sequence[Call]) -> None:
        """Take the calls of a program."""
        self._calls = calls
        self._left = list(range(len(calls)))[::-1]  # the next one last
        self._returned: dict[tuple[str, int], int] = {}  # by topic and sequence: which call

    def program(self, process: Process, recorder: Recorder) -> bool:
        """Make the calls that are left, then check that nothing is in doubt."""
        publisher = self._publisher(process, recorder)
        while True:
            number = self._left.pop() if self._left else None
            try:
                if number is None:
                    publisher.resume()
                    break
                receipts = _put(publisher, self._calls[number])
            except InDoubtError as error:
                if number is not None and not error.kept:
                    self._left.append(number)  # nothing of it was numbered
                self.wait_or_end(process, error)
                continue
            for receipt in receipts:
                self._has_returned(number, receipt)
            process.point("call returned")
            if self._world.random.random() < 0.6:
                process.wait(self._world.random.uniform(0.0, 0.1))
        return True

    def _copies(self) -> Sequence[int]:
        return range(len(self._disk.copies))

    def _has_returned(self, number: int, receipt: Receipt) -> None:
        for sequence in range(receipt.first_sequence, receipt.first_sequence + receipt.count):
            other = self._returned.setdefault((receipt.topic, sequence), number)
            assert other == number, (
                f"calls {other} and {number} of {self.name} both returned for its message "
                f"{sequence} on {receipt.topic!r}: one of them is lost"
            )

    def judge(self, appended: Iterable[Appended]) -> Iterator[str]:
        """With more messages than calls, some would be duplicates."""
        stored = sum(batch.count for batch in appended if batch.publisher == self.name)
        made = (call for number, call in enumerate(self._calls) if number not in self._left)
        most = sum(len(call.topics) * call.count for call in made)
        if stored > most:
            made_for = f"{self.name} made calls for {most} messages"
            yield f"each call once: {made_for}, and {stored} were stored"


def _put(publisher: Publisher, call: Call) -> Sequence[Receipt]:
    if len(call.topics) == 1:
        return [publisher.put_many(call.topics[0], [b"same"] * call.count)]
    with publisher.transaction() as transaction:
        for topic in call.topics:
            for _ in range(call.count):
                transaction.put(topic, b"same")
        with suppress(UsageError):  # refused, or the proxy stores more than was called for (R38)
            publisher.put(call.topics[0], b"same")
    return transaction.receipts
