"""The programs of the simulated clients, over the real `Publisher` and `Subscriber`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from reliable_pubsub.common.batch import Batch, Message, crc32
from reliable_pubsub.common.errors import InDoubtError, LostError
from reliable_pubsub.common.history import AnyLine, Invoke
from reliable_pubsub.common.plan_mark import PlanMark
from reliable_pubsub.common.recorder import Recorder, seen
from reliable_pubsub.common.retry import Clock, RetryPolicy, Transport
from reliable_pubsub.common.state_file import ClientState
from reliable_pubsub.lab.run import OutputLine
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.publisher.outbox import Receipt
from reliable_pubsub.subscriber.client import Subscriber

from .machine import Machine
from .network import SimulatedClock, SimulatedTransport
from .recording import Life
from .world import Process

Step = tuple[str, str, int]  # "subscribe" | "get" | "unsubscribe" | "drain", topic, messages


class Item(Struct, frozen=True):
    """One request of a publisher's plan."""

    topic: str
    first: int  # index of its first message among the publisher's messages of this topic
    count: int


class MakePublisher(Protocol):
    """`Publisher`, or one with a planted fault."""

    def __call__(
        self,
        client: str,
        *,
        retry: RetryPolicy,
        transport: Transport,
        clock: Clock,
        state: ClientState,
        on_log_changed: Any,
        history: Recorder,
    ) -> Publisher:
        """Make one."""


class MakeSubscriber(Protocol):
    """`Subscriber`, or one with a planted fault."""

    def __call__(
        self,
        client: str,
        *,
        retry: RetryPolicy,
        transport: Transport,
        clock: Clock,
        state: ClientState,
        on_log_changed: Any,
        history: Recorder,
    ) -> Subscriber:
        """Make one."""


class PublisherMachine(Machine):
    """Puts every item of a plan, each with its place in the plan in one step."""

    role = "publisher"
    choices = ("adopt",)
    make: MakePublisher

    def begin(self, plan: Sequence[Item]) -> None:
        """Take a plan."""
        self._plan = plan
        self._places = list(accumulate((item.count for item in plan), initial=0))
        self._heard = 0  # items whose put has returned, in some life

    @property
    def messages(self) -> int:
        """How many messages the plan has."""
        return self._places[-1]

    def recorder(self, process: Process) -> Recorder:
        """Writes the history of a life, and looks at it."""
        return Recorder(_Witness(self, process))

    def program(self, process: Process, recorder: Recorder) -> None:
        """Put what is left of the plan."""
        publisher = self.make(
            self.name,
            retry=self._retry,
            transport=SimulatedTransport(process, self._network, self.name),
            clock=SimulatedClock(process),
            state=self.state_of(process),
            on_log_changed=self.on_log_changed,
            history=recorder,
        )
        process.nonce = publisher._nonce
        if publisher.outbox.plan is None:
            publisher.mark_plan(self._mark(self._heard if self.no_state else 0))
        while True:
            try:
                mark = publisher.outbox.plan
                assert mark is not None
                index = self._places.index(mark.message) - (publisher.in_doubt is not None)
                if index == len(self._plan):
                    break
                item = self._plan[index]
                receipt = publisher.resume() or self._put(publisher, index, process)
            except InDoubtError as error:
                self.wait_or_end(process, error)
                continue
            if not self.no_state and receipt.first_sequence != item.first + 1:
                self._world.counts["log_changed"] += 1  # it has adopted other numbers
            if self.owns(process):
                self._heard = index + 1
            process.point("put returned")
            if self._world.random.random() < 0.6:
                process.wait(self._world.random.uniform(0.0, 0.12))
        if self.owns(process):
            self.done = True

    def _put(self, publisher: Publisher, index: int, process: Process) -> Receipt:
        item = self._plan[index]
        # Two processes of one id that make different messages show a missing fence.
        maker = 0 if self._faults.same_bytes and not self.no_state else process.life
        batch = Batch(self._payloads(item, maker))
        return publisher.put_batch(item.topic, batch, self._mark(index + 1))

    def _payloads(self, item: Item, maker: int) -> list[bytes]:
        return [f"{self.name}/{item.first + n}/{maker}".encode() for n in range(item.count)]

    def _mark(self, index: int) -> PlanMark:
        return PlanMark("", steps=1, message=self._places[index])

    def witness_put(self, line: Invoke, life: int) -> None:
        """What goes out under a place of the plan is what some life has made for that place."""
        place = int(line.plan.partition(":")[2])
        item = self._plan[self._places.index(place)]
        made = (tuple(map(crc32, self._payloads(item, maker))) for maker in range(life + 1))
        assert line.topic == item.topic, f"{item} is put on {line.topic!r}"
        assert line.crcs in made, f"{item} of {self.name} is put with another content"


class _Witness(Life):
    """The history of a publisher, held against what its program asked for."""

    def __init__(self, machine: PublisherMachine, process: Process) -> None:
        super().__init__(machine.recording, machine.name, process.life)
        self._machine = machine

    def write(self, line: AnyLine) -> None:
        """See that a put is what was asked for, and keep the line."""
        if isinstance(line, Invoke) and line.op == "put":
            self._machine.witness_put(line, self.pid)
        super().write(line)


class SubscriberMachine(Machine):
    """Runs steps; its output file, its cursor and its place in the plan move as one."""

    role = "subscriber"
    choices = ("rewind", "adopt")
    output = "output"
    may_forget = False
    make: MakeSubscriber

    def begin(self, steps: Sequence[Step], end: Callable[[str], int | None]) -> None:
        """Take a plan.

        Args:
            end: where a topic ends for good; None as long as somebody may put.
        """
        self._steps = steps
        self._end = end

    @property
    def lines(self) -> Sequence[OutputLine]:
        """What stands in its output file."""
        return self._disk.output

    def program(self, process: Process, recorder: Recorder) -> None:
        """Do what is left of the steps."""
        subscriber = self.make_client(process, recorder)
        disk = self.disk_of(process)
        mark = subscriber.inbox.plan or PlanMark("")
        del disk.output[mark.output_bytes :]
        while mark.step < len(self._steps):
            action, topic, wanted = self._steps[mark.step]
            try:
                if action == "drain":
                    topic = self._undrained(subscriber)
                    if not topic:
                        topic = self._acknowledge_all(subscriber)
                        wanted = 0 if not self._undrained(subscriber) else mark.message + 2
                        new = []
                    else:
                        new = self._get(subscriber, process, topic)
                        wanted = mark.message + len(new) + 2
                else:
                    new = self._do(subscriber, process, action, topic)
            except InDoubtError as error:
                self.wait_or_end(process, error)
                continue
            disk.output.extend(_output_line(message) for message in new)
            process.point("output written")
            count = len(new) or 1
            done = mark.message + count >= wanted
            mark = msgspec.structs.replace(
                mark,
                step=mark.step + 1 if done else mark.step,
                message=0 if done else mark.message + count,
                output_bytes=len(disk.output),
            )
            subscriber.record(topic, mark)
        if self.owns(process):
            self.done = True

    def _do(
        self, subscriber: Subscriber, process: Process, action: str, topic: str
    ) -> list[Message]:
        if action == "get":
            return self._get(subscriber, process, topic)
        if action == "subscribe":
            subscriber.subscribe(topic)
        else:
            subscriber.unsubscribe(topic)
        return []

    def make_client(self, process: Process, recorder: Recorder) -> Subscriber:
        """The client of a new process."""
        subscriber = self.make(
            self.name,
            retry=self._retry,
            transport=SimulatedTransport(process, self._network, self.name),
            clock=SimulatedClock(process),
            state=self.state_of(process),
            on_log_changed=self.on_log_changed,
            history=recorder,
        )
        process.nonce = subscriber._link._nonce
        return subscriber

    def _get(self, subscriber: Subscriber, process: Process, topic: str) -> list[Message]:
        """Get some messages, a loss, or a pause; sometimes read the history too."""
        chance = self._world.random
        if chance.random() < 0.05 and not self._faults.trim:
            read = subscriber.history(topic, chance.randint(0, 40), max_messages=20)
            self.recording.found(topic, map(seen, read))
        try:
            found = subscriber.get(topic, max_messages=chance.choice((1, 1, 2, 5)))
        except LostError as lost:
            self._lost(lost)
            return []
        if not found:
            process.wait(chance.uniform(0.002, 0.03))
        return found

    def _lost(self, lost: LostError) -> None:
        """Messages are gone; where nothing may be lost, that is a fault."""
        if not self._faults.lose_oldest:
            raise lost
        what = f"LOST {lost.topic} {lost.first} to {lost.end - 1}"
        self._world.happened("lose_oldest", self.name, what)

    def _undrained(self, subscriber: Subscriber) -> str:
        """A topic of which something is still to come; "" if there is none."""
        left = [
            topic for topic in subscriber.inbox.places if not self.is_drained(subscriber, topic)
        ]
        return self._world.random.choice(left) if left else ""

    def _acknowledge_all(self, subscriber: Subscriber) -> str:
        """Tell the proxy of everything: it answers if it does not know what we speak of."""
        for topic in subscriber.inbox.places:
            subscriber.acknowledge(topic)
        return topic

    def is_drained(self, subscriber: Subscriber, topic: str) -> bool:
        """Whether everything that will ever be there was handed over."""
        message = subscriber._in_hand.get(topic)
        cursor = message.offset + 1 if message else subscriber.inbox.places[topic].cursor
        return cursor == self._end(topic)


class LoopingSubscriberMachine(SubscriberMachine):
    """A program with a loop over `get`, as the manual shows it, and no output file."""

    output = ""
    may_forget = True

    def program(self, process: Process, recorder: Recorder) -> None:
        """Subscribe to the topics of the steps, and get until everything was handed over."""
        subscriber = self.make_client(process, recorder)
        left = list({topic: None for _, topic, _ in self._steps if topic})
        subscribed: set[str] = set()
        while left:
            topic = self._world.random.choice(left)
            try:
                if topic not in subscribed:
                    subscriber.subscribe(topic)
                    subscribed.add(topic)
                self._get(subscriber, process, topic)
                drained = self.is_drained(subscriber, topic)
                if drained or self._world.random.random() < 0.1:
                    process.point("acknowledge")
                    subscriber.acknowledge(topic)
                if drained and self.is_drained(subscriber, topic):
                    left.remove(topic)
            except InDoubtError as error:
                self.wait_or_end(process, error)
        if self.owns(process):
            self.done = True


def _output_line(message: Message) -> OutputLine:
    return OutputLine(message.topic, msgspec.structs.replace(seen(message), delivery_count=1))
