"""Planted faults of the clients; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from msgspec.structs import replace

from reliable_pubsub.common.core.answers import AnyReply, PutAck
from reliable_pubsub.common.core.batch import Message, messages_in
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.errors import InDoubtError, LostError
from reliable_pubsub.common.core.message_base import BatchHeader, QoS
from reliable_pubsub.common.core.patterns.pattern import Topics
from reliable_pubsub.common.core.requests import Ack, Dead, Get, Put
from reliable_pubsub.common.core.wire import decode_reply, decode_request, direct_batches, encode
from reliable_pubsub.common.world import World
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.client import Subscriber
from reliable_pubsub.subscriber.core.fetching import Fetching
from reliable_pubsub.subscriber.core.inbox import Inbox
from reliable_pubsub.subscriber.core.requests import Requests
from reliable_pubsub.subscriber.core.restoring import ProgramState
from reliable_pubsub.subscriber.core.states import SubscriptionEvent
from reliable_pubsub.subscriber.core.subscription import TopicSubscription
from reliable_pubsub.subscriber.core.topic_source import TopicSource
from reliable_pubsub.subscriber.patterns.core.pattern_feature import PatternFeature

from .simulation import Variant


def _hold_back(world: World, names: Container[str] = (), *, lazy: bool = False) -> World:
    """The same world; what is written there under these names is not, or nothing durably."""
    state = world.state
    assert state is not None
    write = state.write

    def write_less(changes: Mapping[str, bytes | None], *, durable: bool) -> None:
        kept = {name: value for name, value in changes.items() if name not in names}
        write(kept, durable=durable and not lazy)

    setattr(state, "write", write_less)  # noqa: B010
    return world


class NumbersWithoutOutbox(Publisher):
    """Sends first: the number and the body are not kept."""

    def __init__(self, client: str, *, _world: World, **more: Any) -> None:
        super().__init__(client, _world=_hold_back(_world, ("pending",)), **more)


class ForgetsNumberingInPowerLoss(Publisher):
    """Writes nothing durably, not even that it has begun to number a topic."""

    def __init__(self, client: str, *, _world: World, **more: Any) -> None:
        super().__init__(client, _world=_hold_back(_world, lazy=True), **more)


class PlanAfterPut(Publisher):
    """Writes the place in the plan in a step of its own, after the put."""

    def __init__(self, client: str, *, _world: World, **more: Any) -> None:
        self._held_back: set[str] = set()
        super().__init__(client, _world=_hold_back(_world, self._held_back), **more)

    def put_batch(
        self,
        topic: str,
        batch: Any,
        note: bytes | None = None,
        *,
        qos: QoS = 2,
        timeout_s: float | None = None,
    ) -> Any:
        self._held_back.add("plan")
        try:
            receipt = super().put_batch(topic, batch, note, qos=qos, timeout_s=timeout_s)
        finally:
            self._held_back.clear()
        assert note is not None
        self._opened.state.write(self.outbox.write_note(note), durable=False)
        return receipt


class ForgetsBatchInDoubt(Publisher):
    """Gives up a put of unknown outcome; the plan continues after it."""

    def put_batch(
        self,
        topic: str,
        batch: Any,
        note: bytes | None = None,
        *,
        qos: QoS = 2,
        timeout_s: float | None = None,
    ) -> Any:
        try:
            return super().put_batch(topic, batch, note, qos=qos, timeout_s=timeout_s)
        except InDoubtError:
            if self.outbox.pending is not None and not self.outbox.pending.number:
                self.outbox.pending = None
                self._opened.state.write({"pending": None}, durable=False)
            raise


class AdoptsUnasked(Publisher):
    """Adopts the proxy's numbering wherever it differs from its own."""

    def __init__(self, client: str, *, on_log_changed: Any, **more: Any) -> None:
        super().__init__(client, on_log_changed="adopt", **more)


class TakesAnyAnswer(Publisher):
    """Does not look which request an answer belongs to (rule R1)."""

    def __init__(self, client: str, *, _world: World, **more: Any) -> None:
        assert _world.connect is not None
        transport = _Relabelling(_world.connect(""))
        super().__init__(client, _world=replace(_world, connect=lambda _: transport), **more)


class _Relabelling:
    """A transport that makes every answer look like the right one."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def send(self, frames: Sequence[bytes]) -> None:
        self._request, _ = decode_request(frames)
        self._transport.send(frames)

    def receive(self, timeout_s: float) -> Sequence[bytes] | None:
        frames = self._transport.receive(timeout_s)
        if frames is None:
            return None
        reply, _ = decode_reply(frames)
        if type(reply).__name__ not in ("PutAck", "HelloAck"):
            return list(frames)
        asked = self._request
        if isinstance(reply, PutAck) != isinstance(asked, Put):
            return list(frames)
        return encode(replace(reply, request=asked.request, epoch=asked.epoch))


class AcknowledgesBeforeInbox(Subscriber):
    """Sends the proxy a cursor that power loss can still take."""

    def __init__(self, client: str, *, _world: World, **more: Any) -> None:
        super().__init__(client, _world=_hold_back(_world, lazy=True), **more)


class OutputAndCursorApart(Subscriber):
    """Writes the length of the output and the cursor in two steps."""

    def record(self, topic: Topics, note: bytes) -> None:
        self._opened.state.write(self.inbox.write_note(note), durable=True)
        super().record(topic, note)


def with_parts(
    *,
    inbox: type[Inbox] = Inbox,
    subscription: type[TopicSubscription] = TopicSubscription,
    **parts: type,
) -> type[Subscriber]:
    """A subscriber of which some parts have other rules; `parts` is by name in the engine."""

    class Faulty(Subscriber):
        def __init__(self, client: str, **more: Any) -> None:
            super().__init__(client, **more)
            engine = self._engine
            for name, kind in parts.items():
                owner = engine.feature(PatternFeature) if name == "patterns" else engine
                getattr(owner, name).__class__ = kind
            self.inbox.__class__ = inbox
            self.inbox.new_subscription = subscription
            for known in self.inbox.subscriptions.values():
                known.__class__ = subscription
                known.qos0 = subscription.new_qos0_queue()

    return Faulty


class ForgetsWhatWasInHand(TopicSource):
    """Does not mark what it hands over a second time."""

    def hand_over(self, subscription: TopicSubscription, count: int) -> Conversation[list[Message]]:
        if subscription.place.terms.qos:
            subscription.place = replace(subscription.place, in_hand=(), shown=0)
        return super().hand_over(subscription, count)


class AcknowledgesOnReceipt(TopicSource):
    """The cursor moves when a message is handed over, before it is processed."""

    def hand_over(self, subscription: TopicSubscription, count: int) -> Conversation[list[Message]]:
        found = yield from super().hand_over(subscription, count)
        yield from self.settle(subscription)
        yield from self.write(subscription)
        return found


class AsksBeforeItWrites(Inbox):
    """What was processed is written with what follows it, and the proxy is asked for that first."""

    def save(
        self, *some: TopicSubscription, tells: bool = False, **more: Any
    ) -> Conversation[None]:
        if not tells:
            yield from super().save(*some, **more)


class MarksGets(Requests):
    """Records for its inbox whether a GET is about to acknowledge the cursor."""

    def asking(
        self,
        kind: type[Get | Ack | Dead],
        subscription: TopicSubscription,
        *more: Any,
        **named: Any,
    ) -> Conversation[tuple[AnyReply, bytes]]:
        assert isinstance(self._session.inbox, WritesOnceForAGet)
        self._session.inbox.is_get = kind is Get
        return super().asking(kind, subscription, *more, **named)


class WritesOnceForAGet(Inbox):
    """The cursor of a GET is made durable after its answer, in one step with the new messages."""

    is_get = False

    def save(
        self, *some: TopicSubscription, tells: bool = False, durable: bool = False, **more: Any
    ) -> Conversation[None]:
        confirmations = [(each.confirmation, each.durable_cursor) for each in some]
        if tells and self.is_get and None not in dict(confirmations):
            return
        durable |= any(
            known is not None and known.proxy_cursor > own for known, own in confirmations
        )
        yield from super().save(*some, tells=tells, durable=durable, **more)


class InHandBeforeItIsGiven(TopicSource):
    """What is on its way to the program is in hand already."""

    def hand_over(self, subscription: TopicSubscription, count: int) -> Conversation[list[Message]]:
        messages = list(islice(subscription.fetched, count))
        if messages:
            subscription.transition(SubscriptionEvent.HAND_OVER, in_hand=messages[-1])
        return super().hand_over(subscription, count)


class InHandOnce(TopicSubscription):
    """It is in hand already when it is handed over."""

    def transition(self, event: SubscriptionEvent, **known: Any) -> None:
        if event is not SubscriptionEvent.HAND_OVER or self.in_hand is None:
            super().transition(event, **known)


class HandsOverBeforeItReturns(
    with_parts(topics=InHandBeforeItIsGiven, subscription=InHandOnce)  # type: ignore[misc]
):
    """What is on its way to the program is in hand, also if the call is broken off after that."""

    def _begin_again(self) -> None:
        self._opened.asker.transport.reopen()


class RollsBackEveryTopic(TopicSubscription):
    """An interrupted call on any topic takes back what was delivered of this one."""

    def _restore(self, before: ProgramState) -> None:
        pass


class PutsWithinABlock(Publisher):
    """Stores what is put beside an open transaction, whatever happens to that."""

    def __init__(self, client: str, **more: Any) -> None:
        super().__init__(client, **more)
        self._engine.check_no_block = lambda: None  # type: ignore[method-assign]


class ContinuesAsIfNothingHappened(Publisher):
    """The outcome of a put that was broken off is taken from memory, whatever the state says."""

    def _begin_again(self) -> None:
        self._opened.asker.transport.reopen()


class TakesOlderOffsets(Fetching):
    """Whatever is in a batch is handed over, also what was had before."""

    def received(
        self,
        subscription: TopicSubscription,
        batches: Sequence[BatchHeader],
        body: bytes,
        *,
        end: int | None = None,
    ) -> Conversation[None]:
        yield from ()
        first = batches[0].base if batches else subscription.place.cursor
        followers = direct_batches(subscription.topic, first, batches, body)
        subscription.fetched.extend(messages_in(subscription.topic, followers))


class KeepsWhatItFetched(TopicSubscription):
    """What was fetched outlives the subscription."""

    def drop_fetched(self) -> None:
        pass


class SwallowsLosses(Fetching):
    """It continues after a loss without a word."""

    def pull(
        self, subscription: TopicSubscription, messages_max: int, left_s: float = 0.0
    ) -> Conversation[None]:
        with suppress(LostError):
            yield from super().pull(subscription, messages_max, left_s)


class PassesLossUntold(Fetching):
    """A loss is acknowledged, and then reported: whatever goes wrong in between silences it."""

    def pull(
        self, subscription: TopicSubscription, messages_max: int, left_s: float = 0.0
    ) -> Conversation[None]:
        try:
            yield from super().pull(subscription, messages_max, left_s)
        except LostError:
            subscription.settle()
            yield from self._requests.acknowledge(subscription)
            raise


FAULTS_OF_CLIENTS: Final[Mapping[str, Variant]] = {
    "numbers without outbox": Variant(publisher=NumbersWithoutOutbox),
    "numbering lost with power": Variant(publisher=ForgetsNumberingInPowerLoss),
    "plan apart from outbox": Variant(publisher=PlanAfterPut),
    "batch in doubt given up": Variant(publisher=ForgetsBatchInDoubt),
    "adopts unasked": Variant(publisher=AdoptsUnasked),
    "puts within an open transaction": Variant(publisher=PutsWithinABlock),
    "broken put continues": Variant(publisher=ContinuesAsIfNothingHappened),
    "takes any answer": Variant(publisher=TakesAnyAnswer),
    "acks before inbox is durable": Variant(subscriber=AcknowledgesBeforeInbox),
    "asks before it writes": Variant(subscriber=with_parts(inbox=AsksBeforeItWrites)),
    "a get writes once": Variant(
        subscriber=with_parts(inbox=WritesOnceForAGet, requests=MarksGets)
    ),
    "output apart from cursor": Variant(subscriber=OutputAndCursorApart),
    "redelivery not marked": Variant(subscriber=with_parts(topics=ForgetsWhatWasInHand)),
    "cursor moves on hand-over": Variant(subscriber=with_parts(topics=AcknowledgesOnReceipt)),
    "in hand before it is given": Variant(subscriber=HandsOverBeforeItReturns),
    "interrupted call rolls back all": Variant(
        subscriber=with_parts(subscription=RollsBackEveryTopic)
    ),
    "older offsets taken": Variant(subscriber=with_parts(fetching=TakesOlderOffsets)),
    "fetched outlives unsubscribe": Variant(subscriber=with_parts(subscription=KeepsWhatItFetched)),
    "loss swallowed": Variant(subscriber=with_parts(fetching=SwallowsLosses)),
    "loss passed before it is reported": Variant(subscriber=with_parts(fetching=PassesLossUntold)),
}
