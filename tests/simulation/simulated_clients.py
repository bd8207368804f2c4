"""The programs of the simulated clients, over the real `Publisher` and `Subscriber`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from reliable_pubsub.common.batch import Batch, Message
from reliable_pubsub.common.errors import InDoubtError
from reliable_pubsub.common.plan_mark import PlanMark
from reliable_pubsub.common.retry import Clock, RetryPolicy, Transport
from reliable_pubsub.common.state_file import ClientState
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.publisher.outbox import Receipt
from reliable_pubsub.subscriber.client import Subscriber

from .history import FinalSubscription, HandedOver, History, Item, Line, SubscribeReturned
from .machine import Machine, SimulatedState
from .network import SimulatedClock, SimulatedTransport
from .world import Process

Step = tuple[str, str, int]  # "subscribe" | "get" | "unsubscribe" | "drain", topic, messages


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
    ) -> Subscriber:
        """Make one."""


class PublisherMachine(Machine):
    """Puts every item of a plan, each with its place in the plan in one step."""

    role = "publisher"
    make: MakePublisher

    def begin(self, plan: Sequence[Item], history: History) -> None:
        """Take a plan."""
        self._plan = plan
        self.history = history
        history.plans[self.name] = plan

    def program(self, process: Process) -> None:
        """Put what is left of the plan."""
        incarnation = self.incarnation
        publisher = self.make(
            self.name,
            retry=self._retry,
            transport=SimulatedTransport(process, self._network, self.name),
            clock=SimulatedClock(process),
            state=SimulatedState(process, self),
        )
        while True:
            try:
                receipt = publisher.resume()
                if receipt is None:
                    mark = publisher.outbox.plan
                    index = mark.message if mark else 0
                    if index == len(self._plan):
                        break
                    receipt = self._put(publisher, index, incarnation)
            except InDoubtError as error:
                self.wait_or_end(process, error)
                continue
            self.history.put_returned(self.name, receipt)
            process.point("put returned")
            if self._world.random.random() < 0.6:
                process.wait(self._world.random.uniform(0.0, 0.12))
        if self.owns(process):
            self.done = True

    def _put(self, publisher: Publisher, index: int, incarnation: int) -> Receipt:
        item = self._plan[index]
        self.history.put_called(self.name, item)
        # Two processes of one id that make different messages show a missing fence.
        maker = 0 if self._faults.same_bytes else incarnation
        payloads = [f"{self.name}/{item.first + n}/{maker}".encode() for n in range(item.count)]
        return publisher.put_batch(item.topic, Batch(payloads), PlanMark("", message=index + 1))


class SubscriberMachine(Machine):
    """Runs steps; its output file, its cursor and its place in the plan move as one."""

    role = "subscriber"
    make: MakeSubscriber

    def begin(self, steps: Sequence[Step], history: History, planned: Callable[[str], int]) -> None:
        """Take a plan.

        Args:
            planned: how many messages a topic will have in all.
        """
        self._steps = steps
        self.history = history
        self._planned = planned
        self._called: dict[str, int] = {}  # first call of each subscription, by topic

    def program(self, process: Process) -> None:
        """Do what is left of the steps."""
        subscriber = self.make_client(process)
        disk = self.disk
        mark = subscriber.inbox.plan or PlanMark("")
        del disk.output[mark.output_bytes :]
        while mark.step < len(self._steps):
            action, topic, wanted = self._steps[mark.step]
            if action == "drain":
                topic = self._undrained(subscriber)
            count, new = 1, list[Line]()
            try:
                if action == "subscribe":
                    cursor = self.subscribe(subscriber, process, topic)
                    new = [Line("subscribed", topic, cursor)]
                elif action == "unsubscribe":
                    subscriber.unsubscribe(topic)
                    new = [Line("unsubscribed", topic, 0)]
                else:
                    found = self.get(subscriber, process, topic)
                    new = [Line("message", topic, m.offset, m) for m in found]
                    count = len(found) or 1
                    if action == "drain":
                        drained = self._undrained(subscriber, default="") == ""
                        wanted = 0 if drained else mark.message + count + 1
            except InDoubtError as error:
                self.wait_or_end(process, error)
                continue
            disk.output.extend(new)
            process.point("output written")
            done = mark.message + count >= wanted
            mark = msgspec.structs.replace(
                mark,
                step=mark.step + 1 if done else mark.step,
                message=0 if done else mark.message + count,
                output_bytes=len(disk.output),
            )
            subscriber.record(topic, mark)
            if action == "unsubscribe" and self.owns(process):
                self._called.pop(topic, None)
        if self.owns(process):
            self.finish(subscriber)

    def make_client(self, process: Process) -> Subscriber:
        """The client of a new process."""
        return self.make(
            self.name,
            retry=self._retry,
            transport=SimulatedTransport(process, self._network, self.name),
            clock=SimulatedClock(process),
            state=SimulatedState(process, self),
        )

    def subscribe(self, subscriber: Subscriber, process: Process, topic: str) -> int:
        """Subscribe, and tell the history."""
        called = self._called.setdefault(topic, self.history.now())
        cursor = subscriber.subscribe(topic)
        if self.owns(process):
            event = SubscribeReturned(self.history.now(), called, self.name, topic, cursor)
            self.history.subscribed.append(event)
        return cursor

    def get(self, subscriber: Subscriber, process: Process, topic: str) -> list[Message]:
        """Get some messages, or pause; sometimes read the history too."""
        chance = self._world.random
        if chance.random() < 0.05 and not self._faults.trim:
            offset = chance.randint(0, self._planned(topic))
            read = subscriber.history(topic, offset, max_messages=20)
            self.history.was_read(process.name, read)
        found = subscriber.get(topic, max_messages=chance.choice((1, 1, 2, 5)))
        self.history.was_read(process.name, found)
        if not found:
            process.wait(chance.uniform(0.002, 0.03))
        return found

    def _undrained(self, subscriber: Subscriber, default: str | None = None) -> str:
        """A topic of which something is still to come; any if there is none, and no default."""
        places = list(subscriber.inbox.places)
        left = [topic for topic in places if not self.is_drained(subscriber, topic)]
        if not left and default is not None:
            return default
        return self._world.random.choice(left or places)

    def is_drained(self, subscriber: Subscriber, topic: str) -> bool:
        """Whether everything that will ever be there was handed over."""
        message = subscriber._in_hand.get(topic)
        cursor = message.offset + 1 if message else subscriber.inbox.places[topic].cursor
        return cursor >= self._planned(topic)

    def finish(self, subscriber: Subscriber) -> None:
        """All steps are done."""
        self.done = True
        self.history.outputs[self.name] = self.disk.output
        for topic in {topic: None for _, topic, _ in self._steps if topic}:
            place = subscriber.inbox.places.get(topic)
            self.history.final.append(
                FinalSubscription(self.name, topic, place is not None, place.cursor if place else 0)
            )


class LoopingSubscriberMachine(SubscriberMachine):
    """A program with a loop over `get`, as the manual shows it, and no output file."""

    def program(self, process: Process) -> None:
        """Subscribe to the topics of the steps, and get until everything was handed over."""
        incarnation = self.incarnation
        subscriber = self.make_client(process)
        left = list({topic: None for _, topic, _ in self._steps if topic})
        subscribed: set[str] = set()
        while left:
            topic = self._world.random.choice(left)
            try:
                if topic not in subscribed:
                    self.subscribe(subscriber, process, topic)
                    subscribed.add(topic)
                found = self.get(subscriber, process, topic)
                if found and self.owns(process):
                    group = HandedOver(incarnation, self.power_losses, tuple(found))
                    self.history.handed_over.setdefault((self.name, topic), []).append(group)
                drained = self.is_drained(subscriber, topic)
                if drained or self._world.random.random() < 0.1:
                    process.point("acknowledge")
                    subscriber.acknowledge(topic)
                if drained:
                    left.remove(topic)
            except InDoubtError as error:
                self.wait_or_end(process, error)
        if self.owns(process):
            self.finish(subscriber)
