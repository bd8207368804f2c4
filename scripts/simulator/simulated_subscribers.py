"""The programs of the simulated subscribers, over the real `Subscriber`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from reliable_pubsub.common.core.batch import NO_OFFSET, Message
from reliable_pubsub.common.core.errors import (
    DeadLetterRefusedError,
    InDoubtError,
    LostError,
    NotSubscribedError,
    OutOfRangeError,
    StaleError,
    TruncatedError,
    UsageError,
)
from reliable_pubsub.common.core.message_base import QoS, SessionKind, Start
from reliable_pubsub.common.core.plan_mark import PlanMark, mark_of
from reliable_pubsub.common.core.recorder import Recorder, seen
from reliable_pubsub.common.core.start import Earliest, Now, at_offset, at_time, newest
from reliable_pubsub.lab.core.run import OutputLine
from reliable_pubsub.subscriber.client import Subscriber
from reliable_pubsub.subscriber.push.push_feature import PushFeature

from .machine import Machine
from .simulated_push import TIMING
from .world import Interrupted, Killed, Process


class Step(Struct, frozen=True):
    """One step of a plan."""

    action: str  # "subscribe", "get", "seek", "unsubscribe", "drain"
    topic: str = ""
    messages: int = 1
    start: str = ""  # of a subscribe or a seek: what it names; "": nothing


class Subscribing(Struct, frozen=True):
    """What a subscriber asks for."""

    qos: QoS = 2
    session: SessionKind = "persistent"
    lease_s: float | None = None
    push: bool = False
    max_deliveries: int | None = None


class ClientMachine(Machine):
    """Runs programs over the real `Subscriber`, in a world that is simulated."""

    role = "subscriber"

    def make_client(self, process: Process, recorder: Recorder) -> Subscriber:
        """The client of a new process."""
        client: Subscriber = self.make(
            self.name,
            retry=self._retry,
            on_log_changed=self.on_log_changed,
            on_lower_qos=lambda topic, publisher, qos: None,
            push_timing=TIMING,
            _world=self.around(
                process,
                "subscriber",
                connect_data=lambda _: self.pushes.connect(process, self.name),
                state=self.state_of(process),
                recorder=recorder,
            ),
        )
        process.nonce = client._engine.session.nonce
        process.interrupts = self._faults.interrupt
        return client


class SubscriberMachine(ClientMachine):
    """Runs steps; its output file, its cursor and its place in the plan move as one."""

    choices = ("rewind", "adopt")
    output = "output"
    may_forget = False

    def begin(
        self,
        steps: Sequence[Step],
        terms: Mapping[str, Subscribing],
        end: Callable[[str], int | None],
    ) -> None:
        """Take a plan.

        Args:
            terms: by topic.
            end: where a topic ends for good; None as long as a client may put.
        """
        self._steps = steps
        self._terms = terms
        self._end = end
        self._may_lose: set[str] = set()  # topics of which what is lost may be so by right
        self._subscribes_again: set[str] = set()  # topics whose clean session has ended
        self._seen: dict[str, list[Message]] = {}  # by topic, in any life

    @property
    def lines(self) -> Sequence[OutputLine]:
        """What stands in its output file."""
        return self._disk.output

    def program(self, process: Process, recorder: Recorder) -> bool:
        """Do what is left of the steps."""
        subscriber = self.make_client(process, recorder)
        disk = self.disk_of(process)
        while True:
            subscriber.is_pushed("")  # any call: it reads its state again
            mark = mark_of(subscriber.note) or PlanMark("")
            del disk.output[mark.output_bytes :]
            try:
                return self._continue(subscriber, process, mark)
            except Interrupted:
                continue

    def _continue(self, subscriber: Subscriber, process: Process, mark: PlanMark) -> bool:
        disk = self.disk_of(process)
        while mark.step < len(self._steps):
            step = self._steps[mark.step]
            topic, wanted = step.topic, step.messages
            known = subscriber.inbox.places.keys()
            try:
                if step.action == "drain":
                    self._subscribe_again(subscriber, sorted(self._subscribes_again))
                    topic = self._undrained(subscriber)
                    if not topic:
                        topic = self._acknowledge_all(subscriber)
                        wanted = 0 if not self._undrained(subscriber) else mark.message + 2
                        new = []
                    else:
                        new = self._get(subscriber, process, topic)
                        wanted = mark.message + len(new) + 2
                else:
                    new = self._do(subscriber, process, step)
            except InDoubtError as error:
                self.wait_or_end(process, error)
                continue
            except NotSubscribedError:
                self._session_ended(subscriber, {*known, topic})
                continue
            except DeadLetterRefusedError as error:
                self._letter_refused(error)
                continue
            disk.output.extend(_output_line(message) for message in new if _is_stored(message))
            process.point("output written")
            count = len(new) or 1
            done = mark.message + count >= wanted
            mark = msgspec.structs.replace(
                mark,
                step=mark.step + 1 if done else mark.step,
                message=0 if done else mark.message + count,
                output_bytes=len(disk.output),
            )
            self._record(subscriber, topic, mark)
            if self._leaves(subscriber):
                return False
        return True

    def _record(self, subscriber: Subscriber, topic: str, mark: PlanMark) -> None:
        """Record the output; its messages stay in hand if this is interrupted (rule R31)."""
        while True:
            try:
                subscriber.record(topic, mark.note)
            except Interrupted:
                continue
            return

    def _do(self, subscriber: Subscriber, process: Process, step: Step) -> list[Message]:
        self._subscribe_again(subscriber, self._subscribes_again & {step.topic})
        if step.action == "get":
            return self._get(subscriber, process, step.topic)
        if step.action == "subscribe":
            self._subscribe(subscriber, step)
            self._say_nothing(process, step.topic)
        elif step.action == "seek":
            self._world.counts["seek"] += 1
            self._seek(subscriber, step)
        else:
            subscriber.unsubscribe(step.topic)
        return []

    def _subscribe_again(self, subscriber: Subscriber, topics: Iterable[str]) -> None:
        """Subscribe again where a clean session has ended."""
        for topic in topics:
            self._subscribe(subscriber, Step("subscribe", topic))
            self._subscribes_again.discard(topic)

    def _say_nothing(self, process: Process, topic: str) -> None:
        """Perhaps wait until a lease ends, before any request; late copies then come after it."""
        lease_s = self._terms[topic].lease_s
        if lease_s is not None and self._faults.silence and self._world.chance(0.2):
            self._world.happened("silence", process.name, f"says nothing on {topic!r}")
            process.wait(3 * lease_s)

    def _subscribe(self, subscriber: Subscriber, step: Step) -> None:
        """Subscribe; a place that is refused is replaced by one that always is there."""
        topic, counts = step.topic, self._world.counts
        terms = msgspec.structs.asdict(self._terms[topic])
        counts["push"] += terms["push"]
        if self.no_state:
            terms["max_deliveries"] = None
        counts["get_qos_1"] += terms["qos"] == 1
        counts["start"] += bool(step.start)
        place = self._place(topic, step.start)
        again = place is not None and step.start not in ("now", "last") and self._again(step)
        counts["again"] += again
        if step.start == "last":
            self._may_lose.add(topic)  # it may have ended long ago, and held nothing back since
        try:
            subscriber.subscribe(topic, start=place, **terms)
        except TruncatedError:
            if not (self._faults.trim or self._faults.operate):
                raise
            counts["truncated"] += 1
            subscriber.subscribe(topic, start=Earliest, **terms)
        except OutOfRangeError:
            if not self._faults.out_of_range:
                raise
            counts["out_of_range"] += 1
            subscriber.subscribe(topic, start=Now, **terms)
        if again:
            self._seek(subscriber, step)

    def _seek(self, subscriber: Subscriber, step: Step) -> None:
        """Move a subscription; if the place is refused, use one that always exists."""
        place = self._place(step.topic, step.start)
        assert place is not None
        try:
            subscriber.seek(step.topic, place)
        except TruncatedError:
            if not (self._faults.trim or self._faults.operate):
                raise
            subscriber.seek(step.topic, Earliest)
        except OutOfRangeError:
            if not self._faults.out_of_range:
                raise
            subscriber.seek(step.topic, Now)

    def _again(self, step: Step) -> bool:
        """Return whether this step also seeks; the same in each process that tries it."""
        key = f"{self._world.seed} {self.name} {step.topic} {step.start}"
        return random.Random(key).random() < self._faults.again

    def _place(self, topic: str, start: str) -> Start | None:
        """A place of this kind: of a message that this machine has seen, or out of reach."""
        chance, faults = self._world.random, self._faults
        if start in ("", "now", "last", "earliest"):
            return Start(start) if start else None  # type: ignore[arg-type]
        if start == "newest":
            return newest(chance.randint(0, 6))
        if faults.out_of_range and chance.random() < 0.3:
            in_a_day = self._world.wall_ns() + 86_400 * 10**9
            return at_offset(1000) if start == "offset" else at_time(in_a_day)
        known = self._seen.get(topic)
        if not known:
            return Earliest
        # What it has seen first is what retention removes first.
        message = known[0] if faults.truncated else chance.choice(known)
        return at_offset(message.offset) if start == "offset" else at_time(message.timestamp_ns)

    def _session_ended(self, subscriber: Subscriber, known: Iterable[str]) -> None:
        """A clean session has ended, which an answer said: begin another one, with what comes then.

        Args:
            known: what was subscribed before, or should be.
        """
        if all(one.session != "clean" for one in self._terms.values()):
            raise AssertionError(f"{self.name} gets an answer that a persistent session has ended")
        for topic in sorted(set(known).intersection(self._terms) - subscriber.inbox.places.keys()):
            if self._terms[topic].session == "clean":
                self._world.note(self.name, f"its session on {topic!r} has ended")
                self._subscribes_again.add(topic)  # also if this process dies on the way

    def _leaves(self, subscriber: Subscriber) -> bool:
        """Leave in good order, if chance wants it; another process comes back."""
        if not self._world.happens("bye", self._faults.bye):
            return False
        known = subscriber.inbox.places.keys()
        try:
            subscriber.close()
        except NotSubscribedError:  # the proxy said so at the last moment
            self._world.note(self.name, "leaves a session that has ended")
            self._session_ended(subscriber, known)
        except DeadLetterRefusedError as error:
            self._letter_refused(error)
        except Interrupted:
            subscriber.close()  # it can be closed again
        return True

    def make_client(self, process: Process, recorder: Recorder) -> Subscriber:
        """The client of a new process; what was pushed to it before is pushed again."""
        subscriber = super().make_client(process, recorder)
        for topic in subscriber.inbox.places:
            subscriber.use_push(topic, self._terms[topic].push)
        return subscriber

    def _get(self, subscriber: Subscriber, process: Process, topic: str) -> list[Message]:
        """Get some messages, a loss, or a pause; sometimes read the history too."""
        chance = self._world.random
        if self._world.happens("keep_alive", self._faults.keep_alive):
            subscriber.keep_alive()
        if chance.random() < 0.05 and not (self._faults.trim or self._faults.operate):
            read = subscriber.history(topic, chance.randint(0, 40), max_messages=20)
            self.recording.found(topic, map(seen, read))
        if self._world.happens("push_switched", self._faults.push_switched):
            subscriber.use_push(topic, topic not in subscriber._engine.feature(PushFeature).pushing)
        is_pushed = topic in subscriber._engine.feature(PushFeature).pushing
        # A get without a wait also asks the proxy.
        waits = is_pushed or self._world.chance(self._faults.get_waits)
        waits_s = chance.uniform(0.0, 0.1) if waits else 0.0
        wanted = chance.choice((1, 1, 2, 5))
        try:
            if not self.output and self._world.happens("loop", self._faults.loop):
                found = self._loop(subscriber, process, topic, wanted, waits_s)
            else:
                found = subscriber.get(topic, max_messages=wanted, timeout_s=waits_s)
        except LostError as lost:
            self._lost(lost)
            return []
        if not found:
            process.wait(chance.uniform(0.002, 0.03))
        stored = [message for message in found if _is_stored(message)]
        self._seen.setdefault(topic, []).extend(stored)
        if found and self._world.happens("poison", self._faults.poison):
            raise Killed
        if stored and self._world.happens("reject", self._faults.reject):
            try:
                self._reject(subscriber, process, stored[0])
            except StaleError:  # an operator has moved it; nothing of this is in hand any more
                if not self._faults.operate:
                    raise
                return []
            found.remove(stored[0])
        return found

    def _loop(
        self, subscriber: Subscriber, process: Process, topic: str, wanted: int, waits_s: float
    ) -> list[Message]:
        """Leave a loop with the last of some messages; those before it are processed."""
        left = 2 * wanted
        for message in subscriber.messages(topic, timeout_s=waits_s):
            process.point("message taken")
            left -= 1
            if left == 0:
                return [message]
        return []

    def _reject(self, subscriber: Subscriber, process: Process, message: Message) -> None:
        """Give a message up; what came with it is in hand, so the next call does this first."""
        was_interrupted = False
        while True:
            try:
                subscriber.reject(message, "the program cannot read it")
            except Interrupted:
                was_interrupted = True
            except UsageError:
                if not was_interrupted:
                    raise
                return  # it was rejected before
            except InDoubtError as error:
                try:
                    self.wait_or_end(process, error)
                except InDoubtError:
                    raise Killed from error  # a step that continues would leave the rest out
            else:
                return

    def _letter_refused(self, error: DeadLetterRefusedError) -> None:
        """What was in hand comes again; where there is room for letters, that is a fault."""
        if not self._faults.dead_limit:
            raise error
        self._world.happened("dead_limit", self.name, f"{error.code}: offset {error.offset}")

    def _lost(self, lost: LostError) -> None:
        """Messages are gone; where nothing may be lost, that is a fault."""
        expired = (lost.topic, self.name) in self.recording.expired
        ended = self.recording.has_been_ended(lost.topic, self.name)
        by_right = lost.topic in self._may_lose or lost.by_operator or ended
        if not (self._faults.lose_oldest or expired or by_right):
            raise lost
        what = f"LOST {lost.topic} {lost.first} to {lost.end - 1}"
        self._world.happened(
            "lose_oldest" if self._faults.lose_oldest else "told_expired", self.name, what
        )

    def _undrained(self, subscriber: Subscriber) -> str:
        """A topic of which something is still to come; "" if nothing is."""
        left = [
            topic for topic in subscriber.inbox.places if not self.is_drained(subscriber, topic)
        ]
        return self._world.random.choice(left) if left else ""

    def _acknowledge_all(self, subscriber: Subscriber) -> str:
        """Acknowledge everything: the proxy answers if it does not know the subscription."""
        topic = ""
        for topic in list(subscriber.inbox.places):
            subscriber.acknowledge(topic)
        return topic

    def is_drained(self, subscriber: Subscriber, topic: str) -> bool:
        """Whether everything that will ever be there was handed over."""
        subscription = subscriber.inbox.of(topic)
        message = subscription.in_hand
        cursor = message.offset + 1 if message else subscription.place.cursor
        return cursor == self._end(topic)


def _is_stored(message: Message) -> bool:
    return message.offset != NO_OFFSET


def _output_line(message: Message) -> OutputLine:
    return OutputLine(message.topic, msgspec.structs.replace(seen(message), delivery_count=1))
