"""The programs of the simulated publishers, over the real `Publisher`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from msgspec import Struct

from reliable_pubsub.common.core.batch import Batch, crc32
from reliable_pubsub.common.core.errors import InDoubtError
from reliable_pubsub.common.core.journal import AnyLine, Invoke
from reliable_pubsub.common.core.message_base import QoS
from reliable_pubsub.common.core.plan_mark import PlanMark, mark_of
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.proxy.core.records import Appended
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.publisher.core.receipt import Receipt

from .machine import Machine
from .recording import Life
from .simulated_proxy import TOPICS
from .world import Interrupted, Process


class Item(Struct, frozen=True):
    """One request of a publisher's plan."""

    topic: str
    first: int  # index of its first message among the publisher's messages of this topic
    count: int
    qos: QoS = 2
    also: tuple[Item, ...] = ()  # on other topics, with which it is one transaction

    @property
    def parts(self) -> tuple[Item, ...]:
        """The item itself, and what goes with it."""
        return (self, *self.also)

    @property
    def messages(self) -> int:
        """In all its parts."""
        return sum(part.count for part in self.parts)


class PuttingMachine(Machine):
    """A machine that puts, through a real publisher."""

    role = "publisher"
    choices = ("adopt",)

    def _publisher(self, process: Process, recorder: Recorder) -> Publisher:
        """The publisher of a process."""
        publisher: Publisher = self.make(
            self.name,
            retry=self._retry,
            on_log_changed=self.on_log_changed,
            _world=self.around(
                process,
                "publisher",
                connect_data=lambda _: self.offers.connect(process),
                state=self.state_of(process),
                recorder=recorder,
            ),
        )
        process.nonce = publisher._engine.session.nonce
        return publisher


class PublisherMachine(PuttingMachine):
    """Puts every item of a plan, each with its place in the plan in one step."""

    def begin(self, plan: Sequence[Item]) -> None:
        """Take a plan."""
        self._plan = plan
        self._places = list(accumulate((item.messages for item in plan), initial=0))
        parts = [part for item in plan for part in item.parts]
        begins = accumulate((part.count for part in parts), initial=0)
        self._parts = dict(zip(begins, parts, strict=False))  # by the place of the first message
        self._heard = 0  # items whose put has returned, in any life
        self._offered: set[tuple[int, ...]] = set()  # CRC-32 of what was put at QoS 0

    @property
    def messages(self) -> int:
        """How many messages the plan has."""
        return self._places[-1]

    def recorder(self, process: Process) -> Recorder:
        """Writes the journal of a life, and checks it."""
        return Recorder(_Witness(self, process))

    def program(self, process: Process, recorder: Recorder) -> bool:
        """Put what is left of the plan."""
        publisher = self._publisher(process, recorder)
        process.interrupts = self._faults.interrupt
        while True:
            try:
                if publisher.outbox.note is None:
                    begin = self._mark(self._heard if self.no_state else 0)
                    publisher.begin_run(begin.note, TOPICS)
                mark = mark_of(publisher.outbox.note)
                assert mark is not None
                in_doubt = publisher.outbox.pending is not None
                index = self._places.index(mark.message) - in_doubt
                if index == len(self._plan):
                    break
                if self._world.happens("put_qos_0", self._faults.put_qos_0):
                    self._offer(publisher)
                item = self._plan[index]
                receipt = publisher.resume() or self._put(publisher, index, process)
            except Interrupted:
                _ = publisher.in_doubt  # any call: it reads its state again
                continue
            except InDoubtError as error:
                self.wait_or_end(process, error)
                continue
            adopts = self._faults.rollback and not self.no_state
            if adopts and receipt.first_sequence != item.first + 1:
                self._world.counts["log_changed"] += 1  # it has adopted other numbers
            if self.owns(process):
                self._heard = index + 1
            process.point("put returned")
            if self._world.random.random() < 0.6:
                process.wait(self._world.random.uniform(0.0, 0.12))
        return True

    def _put(self, publisher: Publisher, index: int, process: Process) -> Receipt:
        item = self._plan[index]
        # Two processes of one id that make different messages show a missing fence.
        maker = 0 if self._faults.same_bytes and not self.no_state else process.life
        if item.also:
            return self._transact(publisher, item, self._mark(index + 1), maker)
        batch = Batch(self._payloads(item, maker))
        self._world.counts["put_qos_1"] += item.qos == 1
        return publisher.put_batch(item.topic, batch, self._mark(index + 1).note, qos=item.qos)

    def _offer(self, publisher: Publisher) -> None:
        """Put something that is no part of the plan, at QoS 0."""
        count, number = self._world.random.choice((1, 1, 3)), len(self._offered)
        payloads = [f"{self.name}/offer {number}/{n}".encode() for n in range(count)]
        self._offered.add(tuple(map(crc32, payloads)))
        publisher.put_batch(self._world.random.choice(TOPICS), Batch(payloads), qos=0)

    def _transact(self, publisher: Publisher, item: Item, mark: PlanMark, maker: int) -> Receipt:
        self._world.counts["transaction"] += 1
        with publisher.transaction(mark.note) as transaction:
            for part in item.parts:
                for payload in self._payloads(part, maker):
                    transaction.put(part.topic, payload)
        return transaction.receipts[0]

    def _copies(self) -> Sequence[int]:
        """In which its plan has begun; without one a step file begins with its first message."""
        return [n for n, values in enumerate(self._disk.copies) if "plan" in values]

    def _payloads(self, item: Item, maker: int) -> list[bytes]:
        if self._faults.equal_bytes and item.qos == 2:
            self._world.counts["equal_bytes"] += 1
            return [self.name.encode()] * item.count
        return [f"{self.name}/{item.first + n}/{maker}".encode() for n in range(item.count)]

    def judge(self, appended: Iterable[Appended]) -> Iterator[str]:
        """Where contents are equal, only their number tells that one is missing."""
        finished = self.done and self.stopped_by is None and not self.no_state
        if finished and self._faults.equal_bytes:
            batches = [one for one in appended if (one.publisher, one.qos) == (self.name, 2)]
            stored = sum(batch.count for batch in batches)
            planned = sum(part.count for part in self._parts.values() if part.qos == 2)
            if stored != planned:
                yield f"{self.name} has a plan of {planned} messages, and {stored} were stored"

    def _crcs(self, item: Item, maker: int) -> tuple[int, ...]:
        return tuple(map(crc32, self._payloads(item, maker)))

    def _mark(self, index: int) -> PlanMark:
        return PlanMark("", steps=1, message=self._places[index])

    def witness_put(self, line: Invoke, life: int) -> None:
        """What goes out under a place of the plan is what some life has made for that place."""
        if line.qos == 0:
            assert line.crcs in self._offered, (
                f"{self.name} puts at QoS 0 what it was not asked for"
            )
            return
        if line.qos == 1:  # it has no place: what is put is one of the items
            items = [one for one in self._plan if (one.topic, one.qos) == (line.topic, 1)]
            made = (self._crcs(one, maker) for one in items for maker in range(life + 1))
            assert line.crcs in made, (
                f"{self.name} puts what it was not asked for on {line.topic!r}"
            )
            return
        place = int(line.plan.partition(":")[2])
        item = self._parts[place]
        made = (self._crcs(item, maker) for maker in range(life, -1, -1))
        assert line.topic == item.topic, f"{item} is put on {line.topic!r}"
        assert line.crcs in made, f"{item} of {self.name} is put with another content"


class _Witness(Life):
    """The journal of a publisher, compared with what its program asked for."""

    def __init__(self, machine: PublisherMachine, process: Process) -> None:
        super().__init__(machine.recording, machine.name, process.life)
        self._machine = machine
        self._keep = self.write
        self.write = self._look_at

    def _look_at(self, line: AnyLine) -> None:
        """Check that a put is what was asked for, and keep the line."""
        if isinstance(line, Invoke) and line.op == "put":
            self._machine.witness_put(line, self.pid)
        self._keep(line)
