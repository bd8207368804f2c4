"""Planted faults of loops over `messages`; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.marks import Marks
from reliable_pubsub.subscriber.client import Subscriber
from reliable_pubsub.subscriber.core.subscription import Running, Subscription
from reliable_pubsub.subscriber.loop import Loop

from .faults_of_clients import with_parts
from .simulation import Variant


class GivesBeforeItMarks(Subscriber):
    """A message is marked when the program comes back for the next one."""

    def _steps(self, loop: Loop, topic: str, wait_s: float) -> Generator[Message, None, None]:
        while True:
            loop.is_in_call = True
            self._take(loop, topic, wait_s)
            if not loop.messages:
                return
            mark = loop.first
            try:
                for message in loop.messages:
                    if loop.is_run:
                        self._engine.record_taken(message)
                    yield message
                    mark += 1
                    loop.marks[loop.slot] = mark
            except GeneratorExit:
                loop.marks[loop.slot] = mark + 1
                loop.has_left = True
                raise


class _NeverBrokenOff(Loop):
    """A step that gave nothing counts as one that did."""

    @property
    def was_interrupted(self) -> bool:
        return False


class SettlesWhatIsOnItsWay(Subscriber):
    """What a step has marked is in hand, whether it reached the program or not."""

    def _steps(self, loop: Loop, topic: str, wait_s: float) -> Generator[Message, None, None]:
        loop.__class__ = _NeverBrokenOff
        return super()._steps(loop, topic, wait_s)


class OneMarkForAll(Subscription):
    """The mark of a run is that of the run before, whose row is still there."""

    def begin_run(self, number: int, marks: Marks) -> Running:
        assert self.slot is not None
        self.slot |= 1
        return super().begin_run(1, marks)


class CountsTheWholeRun(Subscription):
    """What a loop was to take counts as taken when it is left."""

    def end_run(self, messages: list[Message]) -> None:
        run = self._with_program.run
        if run is not None:
            run.marks[run.slot] = run.first + len(messages)
        super().end_run(messages)


FAULTS_OF_LOOPS: Mapping[str, Variant] = {
    "loop: gives before it marks": Variant(subscriber=GivesBeforeItMarks),
    "loop: a broken step counts": Variant(subscriber=SettlesWhatIsOnItsWay),
    "loop: one mark for all runs": Variant(subscriber=with_parts(subscription=OneMarkForAll)),
    "loop: the whole run counts": Variant(subscriber=with_parts(subscription=CountsTheWholeRun)),
}
