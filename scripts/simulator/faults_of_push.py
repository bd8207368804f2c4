"""Planted faults of pushing; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from msgspec.structs import replace

from reliable_pubsub.common.core.answers import SubAck
from reliable_pubsub.common.core.patterns.pattern import Topics
from reliable_pubsub.proxy.core.engine import Engine
from reliable_pubsub.proxy.core.records import Appended
from reliable_pubsub.proxy.core.state import Record
from reliable_pubsub.proxy.push.pushes import Pushes
from reliable_pubsub.relay.core.push import AnyPush, PushFrames
from reliable_pubsub.subscriber.client import Subscriber
from reliable_pubsub.subscriber.core.place import Place, Standing
from reliable_pubsub.subscriber.patterns.core.pattern_subscription import PatternSubscription
from reliable_pubsub.subscriber.push.core.pull_timer import PullTimer
from reliable_pubsub.subscriber.push.core.push_queue import PushQueue
from reliable_pubsub.subscriber.push.core.pushing import Pushing
from reliable_pubsub.subscriber.push.push_feature import PushFeature

from .simulated_push import TIMING
from .simulation import Variant


class TakesJumps(PushQueue):
    """A batch that is not the direct follower is taken, and what is missing never asked for."""

    def pushed(self, push: PushFrames, now_s: float) -> None:
        self._end = max(self._end, push.pushed.batch.base)
        super().pushed(push, now_s)


class CountsForItself(PushQueue):
    """What comes is taken for the next message, whatever its offset: so a repeat is delivered."""

    def pushed(self, push: PushFrames, now_s: float) -> None:
        header = replace(push.pushed.batch, base=self._end)
        super().pushed(replace(push, pushed=replace(push.pushed, batch=header)), now_s)


class TakesAnyLife(PushQueue):
    """Pushes of another subscription, log or start of the proxy are as good as ours."""

    def pushed(self, push: PushFrames, now_s: float) -> None:
        log, boot = self._life or ("", "")
        super().pushed(replace(push, pushed=replace(push.pushed, log=log, boot=boot)), now_s)


class NeverPulls(PullTimer):
    """What a push did not bring is never asked for, once the link is up."""

    def due_in_s(self, now_s: float, tell_s: float, *, has_batches: bool) -> float:
        due_s = super().due_in_s(now_s, tell_s, has_batches=has_batches)
        return due_s if self.is_polled else inf


class SaysThatItPulled(PushQueue):
    """A pull counts as if it had found everything up to the newest push."""

    def __init__(self, timer: PullTimer) -> None:
        super().__init__(timer)
        self._newest = 0

    def pushed(self, push: PushFrames, now_s: float) -> None:
        header = push.pushed.batch
        self._newest = max(self._newest, header.base + header.count)
        super().pushed(push, now_s)

    def pulled(self, end: int | None, now_s: float) -> bool:
        return super().pulled(None if end is None else max(end, self._newest), now_s)

    def stand(self, standing: Standing) -> None:
        end = self._end
        super().stand(standing)
        self._end = max(self._end, end)


def _subscriber_with(
    queue: type[PushQueue] = PushQueue, timer: type[PullTimer] = PullTimer
) -> type[Subscriber]:
    class Faulty(Subscriber):
        def use_push(self, topic: Topics, push: bool) -> None:
            super().use_push(topic, push)
            if push and isinstance(topic, str):
                self.inbox.add(topic).pushes = queue(timer(TIMING))

    return Faulty


class BeginsAtAnyPush(Pushing):
    """A later topic begins with what is pushed of it, be it the first message or not."""

    def _arrived(
        self, push: AnyPush, patterns: Sequence[PatternSubscription], now_s: float
    ) -> None:
        each = self._inbox.add(push.topic)
        if isinstance(push, PushFrames) and patterns and not each.is_subscribed:
            asked, pushed = patterns[0].asked, push.pushed
            each.move(Place(pushed.log, pushed.batch.base, terms=asked.terms))
            begun = SubAck(
                client="",
                epoch=0,
                request=0,
                boot=pushed.boot,
                topic=push.topic,
                generation=1,
                log=pushed.log,
                cursor=pushed.batch.base,
                already=True,
                terms=asked.terms,
            )
            each.confirmed(begun, is_new=True)
        super()._arrived(push, patterns, now_s)


class TakesWhatIsPushedFirst(Subscriber):
    """Its patterns take a pushed message past a first one that is not here."""

    def __init__(self, client: str, **more: Any) -> None:
        super().__init__(client, **more)
        self._engine.feature(PushFeature).pushing.__class__ = BeginsAtAnyPush


class PushesUndurable(Engine):
    """A batch is pushed when it is in memory, and a crash may still take it back."""

    def _apply(self, records: Sequence[Record]) -> None:
        super()._apply(records)
        for record in records:
            if isinstance(record, Appended):
                log = self.state.topic_by_id[record.topic_id]
                self.state.kept(Pushes).take(log.topic, log.log, record)
                self.has_turn_work = True


FAULTS_OF_PUSH: Mapping[str, Variant] = {
    "push: takes jumps": Variant(subscriber=_subscriber_with(TakesJumps)),
    "push: a repeat is a message": Variant(subscriber=_subscriber_with(CountsForItself)),
    "push: another life's is taken": Variant(subscriber=_subscriber_with(TakesAnyLife)),
    "push: never pulls": Variant(subscriber=_subscriber_with(timer=NeverPulls)),
    "push: says that it pulled": Variant(subscriber=_subscriber_with(SaysThatItPulled)),
    "push: a later topic begins at any push": Variant(subscriber=TakesWhatIsPushedFirst),
    "push: before durable": Variant(engine=PushesUndurable),
}
