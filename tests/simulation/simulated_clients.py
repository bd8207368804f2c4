"""The programs of the simulated clients, over the real `Publisher` and `Subscriber`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from reliable_pubsub.common.batch import Batch, Message
from reliable_pubsub.common.errors import InDoubtError, LostError
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
        on_log_changed: Any,
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
    ) -> Subscriber:
        """Make one."""


class PublisherMachine(Machine):
    """Puts every item of a plan, each with its place in the plan in one step."""

    role = "publisher"
    choices = ("adopt",)
    make: MakePublisher

    def begin(self, plan: Sequence[Item], history: History) -> None:
        """Take a plan."""
        self._plan = plan
        self._heard = 0  # without state: items whose put has returned
        self.begin_history(history)
        history.plans[self.name] = plan

    def program(self, process: Process) -> None:
        """Put what is left of the plan."""
        publisher = self.make(
            self.name,
            retry=self._retry,
            transport=SimulatedTransport(process, self._network, self.name),
            clock=SimulatedClock(process),
            state=SimulatedState(process, self),
            on_log_changed=self.on_log_changed,
        )
        process.nonce = publisher._nonce
        life = process.life if self.no_state else 0
        heard = self._heard
        while True:
            try:
                if self.no_state:
                    index = heard
                else:
                    mark = publisher.outbox.plan
                    index = mark.message if mark else 0
                    index -= publisher.in_doubt is not None
                if index == len(self._plan):
                    break
                item = self._plan[index]
                called = self.history.put_called(self.name, life, item)
                receipt = publisher.resume() or self._put(publisher, index, process)
            except InDoubtError as error:
                self.wait_or_end(process, error)
                continue
            self.history.put_returned(self.name, life, item, receipt, called)
            if not self.no_state and receipt.first_sequence != item.first + 1:
                self._world.counts["log_changed"] += 1  # it has adopted other numbers
            heard += 1
            if self.owns(process):
                self._heard = heard
            process.point("put returned")
            if self._world.random.random() < 0.6:
                process.wait(self._world.random.uniform(0.0, 0.12))
        if self.owns(process):
            self.done = True

    def _put(self, publisher: Publisher, index: int, process: Process) -> Receipt:
        item = self._plan[index]
        # Two processes of one id that make different messages show a missing fence.
        maker = 0 if self._faults.same_bytes and not self.no_state else process.life
        payloads = [f"{self.name}/{item.first + n}/{maker}".encode() for n in range(item.count)]
        return publisher.put_batch(item.topic, Batch(payloads), PlanMark("", message=index + 1))


class SubscriberMachine(Machine):
    """Runs steps; its output file, its cursor and its place in the plan move as one."""

    role = "subscriber"
    choices = ("rewind", "adopt")
    may_forget = False
    make: MakeSubscriber

    def begin(
        self, steps: Sequence[Step], history: History, end: Callable[[str], int | None]
    ) -> None:
        """Take a plan.

        Args:
            end: where a topic ends for good; None as long as somebody may put.
        """
        self._steps = steps
        self.begin_history(history)
        self._end = end
        self._called: dict[str, int] = {}  # first call of each subscription, by topic

    def program(self, process: Process) -> None:
        """Do what is left of the steps."""
        subscriber = self.make_client(process)
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
                        new = self._get_lines(subscriber, process, topic)
                        wanted = mark.message + len(new) + 2
                else:
                    new = self._do(subscriber, process, action, topic)
            except InDoubtError as error:
                self.wait_or_end(process, error)
                continue
            disk.output.extend(new)
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
            if action == "unsubscribe" and self.owns(process):
                self._called.pop(topic, None)
        if self.owns(process):
            for topic in subscriber.inbox.places:
                self.history.was_drained(self.name, process.life, topic)
            self.finish(subscriber)

    def _do(self, subscriber: Subscriber, process: Process, action: str, topic: str) -> list[Line]:
        if action == "subscribe":
            return [Line("subscribed", topic, self.subscribe(subscriber, process, topic))]
        if action == "unsubscribe":
            subscriber.unsubscribe(topic)
            return [Line("unsubscribed", topic, 0)]
        return self._get_lines(subscriber, process, topic)

    def _get_lines(self, subscriber: Subscriber, process: Process, topic: str) -> list[Line]:
        try:
            found = self.get(subscriber, process, topic)
        except LostError as lost:
            self.lost(lost)
            return [Line("lost", topic, lost.first, end=lost.end)]
        return [Line("message", topic, message.offset, message) for message in found]

    def make_client(self, process: Process) -> Subscriber:
        """The client of a new process."""
        subscriber = self.make(
            self.name,
            retry=self._retry,
            transport=SimulatedTransport(process, self._network, self.name),
            clock=SimulatedClock(process),
            state=SimulatedState(process, self),
            on_log_changed=self.on_log_changed,
        )
        process.nonce = subscriber._link._nonce
        return subscriber

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
            offset = chance.randint(0, 40)
            read = subscriber.history(topic, offset, max_messages=20)
            self.history.was_read(process.name, read)
        found = subscriber.get(topic, max_messages=chance.choice((1, 1, 2, 5)))
        self.history.was_read(process.name, found)
        if not found:
            process.wait(chance.uniform(0.002, 0.03))
        return found

    def lost(self, lost: LostError) -> None:
        """Messages are gone; where nothing may be lost, that is a fault."""
        if not self._faults.lose_oldest:
            raise lost
        what = f"LOST {lost.topic} {lost.first} to {lost.end - 1}"
        self._world.happened("lose_oldest", self.name, what)
        self.history.was_lost(self.name, lost.topic, lost.first, lost.end)

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

    def finish(self, subscriber: Subscriber) -> None:
        """All steps are done."""
        self.done = True
        self.history.outputs[self.name] = self._disk.output
        for topic in {topic: None for _, topic, _ in self._steps if topic}:
            place = subscriber.inbox.places.get(topic)
            self.history.final.append(
                FinalSubscription(self.name, topic, place is not None, place.cursor if place else 0)
            )

    def stop(self) -> None:
        """The output is what it is."""
        super().stop()
        self.history.outputs[self.name] = self._disk.output


class LoopingSubscriberMachine(SubscriberMachine):
    """A program with a loop over `get`, as the manual shows it, and no output file."""

    may_forget = True

    def begin(
        self, steps: Sequence[Step], history: History, end: Callable[[str], int | None]
    ) -> None:
        """Take the topics of a plan."""
        super().begin(steps, history, end)
        self._acknowledged: dict[str, int] = {}

    def program(self, process: Process) -> None:
        """Subscribe to the topics of the steps, and get until everything was handed over."""
        subscriber = self.make_client(process)
        left = list({topic: None for _, topic, _ in self._steps if topic})
        subscribed: set[str] = set()
        while left:
            topic = self._world.random.choice(left)
            try:
                if topic not in subscribed:
                    self.subscribe(subscriber, process, topic)
                    subscribed.add(topic)
                self._get_group(subscriber, process, topic)
                drained = self.is_drained(subscriber, topic)
                if drained or self._world.random.random() < 0.1:
                    process.point("acknowledge")
                    subscriber.acknowledge(topic)
                    if self.owns(process):
                        self._acknowledged[topic] = subscriber.inbox.places[topic].cursor
                if drained and self.is_drained(subscriber, topic):
                    left.remove(topic)
                    if self.owns(process):
                        self.history.was_drained(self.name, process.life, topic)
            except InDoubtError as error:
                self.wait_or_end(process, error)
        if self.owns(process):
            self.finish(subscriber)

    def _get_group(self, subscriber: Subscriber, process: Process, topic: str) -> None:
        found: list[Message] = []
        gone = None
        try:
            found = self.get(subscriber, process, topic)
        except LostError as lost:
            self.lost(lost)
            gone = (lost.first, lost.end)
        if (found or gone) and self.owns(process):
            acknowledged = self._acknowledged.get(topic, 0)
            self.history.handed_over.setdefault((self.name, topic), []).append(
                HandedOver(process.life, self.power_losses, acknowledged, tuple(found), gone)
            )
