"""Planted faults of loops over `messages`; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.patterns.pattern import Topics
from reliable_pubsub.subscriber.client import Subscriber
from reliable_pubsub.subscriber.core.inbox import HasSlot, Inbox
from reliable_pubsub.subscriber.core.restoring import Running
from reliable_pubsub.subscriber.core.subscription import TopicSubscription
from reliable_pubsub.subscriber.loop import MessageLoop

from .faults_of_clients import with_parts
from .simulation import Variant


class _MarkedLater(MessageLoop):
    """A message is marked when the program comes back for the next one."""

    def _taking(self, take: Callable[[], None]) -> Generator[Message, None, None]:
        while True:
            self.is_in_call = True
            take()
            if not self.messages:
                return
            mark = self.first
            try:
                for message in self.messages:
                    if self.is_run and self.on_taken is not None:
                        self.on_taken(message)
                    yield message
                    mark += 1
                    self.marks[self.slot] = mark
            except GeneratorExit:
                self.marks[self.slot] = mark + 1
                self.has_left = True
                raise


class _NeverBrokenOff(MessageLoop):
    """A step that gave nothing counts as one that did: what it has marked is in hand."""

    @property
    def was_interrupted(self) -> bool:
        return False


def _with_loop(kind: type[MessageLoop]) -> type[Subscriber]:
    class Faulty(Subscriber):
        def _steps(
            self, loop: MessageLoop, topic: Topics, wait_s: float
        ) -> Generator[Message, None, None]:
            loop.__class__ = kind
            return super()._steps(loop, topic, wait_s)

    return Faulty


class OneMarkForAll(Inbox):
    """The mark of a run is that of the run before, whose row is still there."""

    def next_run(self, one: HasSlot) -> Running:
        assert one.slot is not None
        one.slot |= 1
        self._run = 0
        return super().next_run(one)


class CountsTheWholeRun(TopicSubscription):
    """What a loop was to take counts as taken when it is left."""

    def end_run(self) -> None:
        run = self.run
        if run is not None:
            run.marks[run.slot] = run.first + len(run.messages)
        super().end_run()


FAULTS_OF_LOOPS: Mapping[str, Variant] = {
    "loop: gives before it marks": Variant(subscriber=_with_loop(_MarkedLater)),
    "loop: a broken step counts": Variant(subscriber=_with_loop(_NeverBrokenOff)),
    "loop: one mark for all runs": Variant(subscriber=with_parts(inbox=OneMarkForAll)),
    "loop: the whole run counts": Variant(subscriber=with_parts(subscription=CountsTheWholeRun)),
}
