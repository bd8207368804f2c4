"""A simulated sink, as Spark runs one: tasks that stage, a driver that commits by a number.

A batch runs again whenever its end was not noted: with other tries, cut into other tasks. What it
has made stands in no journal, so it is judged here, from every batch that became durable.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.errors import InDoubtError
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.common.core.transaction_messages import Part
from reliable_pubsub.common.core.wire import decode_batch
from reliable_pubsub.proxy.core.records import Appended
from reliable_pubsub.publisher.core.outbox import Encoded, encoded_batch
from reliable_pubsub.publisher.writer import TransactionWriter

from .machine import Machine
from .world import Process

_NOTED = "noted"  # number of the last batch that is known to be committed, as in Spark's commit log

Row = tuple[str, bytes]  # topic, payload


class SinkBatch(Struct, frozen=True):
    """Rows of one batch, the same at every run."""

    rows: tuple[Row, ...]
    given_up: bool = False  # it is staged and aborted, and the query continues after it


def sink_plan(chance: random.Random, name: str, topics: Sequence[str]) -> list[SinkBatch]:
    """A few batches of a few rows."""
    batches = []
    for number in range(1, chance.randint(3, 6)):
        rows = tuple(
            (chance.choice(topics), f"{name}/{number}/{row}".encode())
            for row in range(chance.randint(0, 5))
        )
        batches.append(SinkBatch(rows, chance.random() < 0.25))
    return batches


class SinkMachine(Machine):
    """Runs its batches in their order, until each is over."""

    role = "publisher"
    choices = ("adopt",)
    may_forget = False  # Spark always has its checkpoint

    def begin(self, batches: Sequence[SinkBatch]) -> None:
        """Take a plan."""
        self._batches = batches

    def recorder(self, process: Process) -> Recorder:
        """A sink writes no journal."""
        return Recorder()

    def program(self, process: Process, recorder: Recorder) -> bool:
        """Run what is left."""
        state = self.state_of(process)
        writer = TransactionWriter(
            self.name,
            retry=self._retry,
            _world=self.around(process, "publisher"),
        )
        process.nonce = writer._session.nonce
        while (noted := int(state.load().get(_NOTED, b"0"))) < len(self._batches):
            batch = self._batches[noted]
            try:
                parts = self._stage(process, writer, noted + 1, batch)
                if batch.given_up:
                    writer.abort(noted + 1)
                else:
                    writer.commit(noted + 1, parts)
            except InDoubtError as error:  # also: what was staged is gone
                self.wait_or_end(process, error)
                continue
            self._world.counts["sink"] += 1
            process.point("batch is over")
            state.write({_NOTED: b"%d" % (noted + 1)}, durable=True)
        return True

    def _stage(
        self, process: Process, writer: TransactionWriter, number: int, batch: SinkBatch
    ) -> list[Part]:
        """Let every task stage its rows; some are tried twice, and the first try stops halfway."""
        chance = self._world.random
        tasks: list[list[Row]] = [[] for _ in range(chance.randint(1, 3))]
        for row in batch.rows:
            chance.choice(tasks).append(row)
        parts: list[Part] = []
        for task, rows in enumerate(tasks):
            encoded = list(_encoded(rows))
            tries = [chance.randint(0, len(encoded))] if chance.random() < 0.3 else []
            for chunks in (*tries, len(encoded)):
                attempt = chance.randbytes(8)
                for chunk in range(chunks):
                    if not writer.stage(number, task, attempt, chunk, encoded[chunk]):
                        return parts  # it is committed; COMMIT will say so
                process.point("a try has ended")
            if encoded:
                parts.append(Part(task, attempt, len(encoded)))
        return parts

    def judge(self, appended: Iterable[Appended]) -> Iterator[str]:
        """What is wrong with what it has stored, one sentence each."""
        noted = int(self._disk.values.get(_NOTED, b"0"))
        stored = Counter(
            payload
            for batch in appended
            if batch.publisher == self.name
            for payload in decode_batch(batch.body, batch.count).payloads
        )
        for number, batch in enumerate(self._batches, start=1):
            times = {stored.pop(payload, 0) for _, payload in batch.rows}
            fate = "given up" if batch.given_up else "over" if number <= noted else "open"
            allowed = {"given up": [{0}], "over": [{1}], "open": [{0}, {1}]}[fate]
            if times and times not in allowed:
                yield (
                    f"sink {self.name}: of batch {number}, which is {fate}, rows stand "
                    f"{' and '.join(map(str, sorted(times)))} times"
                )
        for payload in stored:
            yield f"sink {self.name}: {payload!r} was never put"


def _encoded(rows: Sequence[Row]) -> Iterator[Encoded]:
    """A batch for each topic."""
    for topic in dict.fromkeys(topic for topic, _ in rows):
        payloads = [payload for one, payload in rows if one == topic]
        yield encoded_batch(topic, Batch(payloads))
