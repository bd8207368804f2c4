"""A subscriber's program that loops over `get`, in place of a step file."""

from __future__ import annotations

from collections.abc import Mapping

from reliable_pubsub.common.core.batch import NO_OFFSET, Message
from reliable_pubsub.common.core.errors import (
    DeadLetterRefusedError,
    InDoubtError,
    NotSubscribedError,
)
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.subscriber.client import Subscriber

from .simulated_subscribers import Step, SubscriberMachine
from .world import Interrupted, Process


class LoopingSubscriberMachine(SubscriberMachine):
    """A program with a loop over `get`, as the manual shows it, and no output file."""

    output = ""
    may_forget = True

    def program(self, process: Process, recorder: Recorder) -> bool:
        """Subscribe to the topics of the steps, and get until everything was handed over."""
        subscriber = self.make_client(process, recorder)
        steps = {step.topic: step for step in reversed(self._steps) if step.topic}
        left = list(steps)
        subscribed: set[str] = set()
        nexts: dict[str, int] = {}  # offset, by topic, in this process
        while left:
            topic = self._world.random.choice(left)
            try:
                if self._continues(subscriber, process, topic, steps, left, subscribed, nexts):
                    return False
            except Interrupted:
                nexts.pop(topic, None)  # it undoes its own delivery
        return True

    def _continues(
        self,
        subscriber: Subscriber,
        process: Process,
        topic: str,
        steps: Mapping[str, Step],
        left: list[str],
        subscribed: set[str],
        nexts: dict[str, int],
    ) -> bool:
        """Get something; say whether it has left."""
        try:
            if topic not in subscribed or topic in self._subscribes_again:
                self._subscribes_again.discard(topic)
                self._subscribe(subscriber, steps[topic])
                subscribed.add(topic)
                nexts.pop(topic, None)
            self._continues_at(nexts, topic, self._get(subscriber, process, topic))
            drained = self.is_drained(subscriber, topic)
            if drained or self._world.random.random() < 0.1:
                process.point("acknowledge")
                subscriber.acknowledge(topic)
            if drained and self.is_drained(subscriber, topic):
                left.remove(topic)
        except InDoubtError as error:
            self.wait_or_end(process, error)
        except NotSubscribedError:
            self._session_ended(subscriber, (topic,))
        except DeadLetterRefusedError as error:
            self._letter_refused(error)
            nexts.pop(topic, None)
        return bool(left) and self._leaves(subscriber)

    def _continues_at(self, nexts: dict[str, int], topic: str, found: list[Message]) -> None:
        """Check that a topic continues where it was, after interruptions on others (R31)."""
        offsets = [message.offset for message in found if message.offset != NO_OFFSET]
        faults = self._faults
        may_go_back = faults.operate or faults.rollback or faults.log_changed
        if offsets and offsets[0] < nexts.get(topic, 0) and not may_go_back:
            raise AssertionError(f"{self.name} gets {topic!r} from {offsets[0]} again")
        if offsets:
            nexts[topic] = offsets[-1] + 1
