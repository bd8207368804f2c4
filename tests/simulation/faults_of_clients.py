"""Planted faults of the clients; the table stands in `faults.py`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from reliable_pubsub.common.batch import Message
from reliable_pubsub.common.errors import InDoubtError, LostError
from reliable_pubsub.common.messages import (
    AnyReply,
    BatchHeader,
    Delivery,
    Hello,
    Listeners,
    Put,
    PutAck,
    QoS,
)
from reliable_pubsub.common.plan_mark import PlanMark
from reliable_pubsub.common.recorder import Call
from reliable_pubsub.common.state_file import ClientState, MemoryState
from reliable_pubsub.common.wire import decode_reply, encode_reply
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.publisher.outbox import Changes
from reliable_pubsub.subscriber.client import Subscriber
from reliable_pubsub.subscriber.fetching import Fetching
from reliable_pubsub.subscriber.inbox import direct_followers


class _Withholding:
    """A state whose writes are changed on their way. Implements `ClientState`."""

    def __init__(self, state: ClientState, *, without: str = "", lazy: bool = False) -> None:
        self.without = without
        self._state = state
        self._lazy = lazy

    def load(self) -> dict[str, bytes]:
        return self._state.load()

    def write(self, changes: Mapping[str, bytes | None], *, durable: bool) -> None:
        kept = {name: value for name, value in changes.items() if name != self.without}
        self._state.write(kept, durable=durable and not self._lazy)

    def close(self) -> None:
        self._state.close()


class _WithholdingMemory(_Withholding, MemoryState):
    """The same, where the state ends with the process."""


def _withholding(state: ClientState, *, without: str = "", lazy: bool = False) -> _Withholding:
    kind = _WithholdingMemory if isinstance(state, MemoryState) else _Withholding
    return kind(state, without=without, lazy=lazy)


class NumbersWithoutOutbox(Publisher):
    """Sends first: the number and the body are not kept."""

    def __init__(self, client: str, *, state: ClientState, **more: Any) -> None:
        super().__init__(client, state=_withholding(state, without="pending"), **more)


class ForgetsNumberingInPowerLoss(Publisher):
    """Writes nothing durably, not even that it has begun to number a topic."""

    def __init__(self, client: str, *, state: ClientState, **more: Any) -> None:
        super().__init__(client, state=_withholding(state, lazy=True), **more)


class PlanAfterPut(Publisher):
    """Writes the place in the plan in a step of its own, behind the put."""

    def __init__(self, client: str, *, state: ClientState, **more: Any) -> None:
        self._kept = _withholding(state)
        super().__init__(client, state=self._kept, **more)

    def put_batch(
        self, topic: str, batch: Any, plan: PlanMark | None = None, *, qos: QoS = 2
    ) -> Any:
        self._kept.without = "plan"
        try:
            receipt = super().put_batch(topic, batch, plan, qos=qos)
        finally:
            self._kept.without = ""
        assert plan is not None
        self.mark_plan(plan)
        return receipt


class ForgetsBatchInDoubt(Publisher):
    """Gives up what it does not know the outcome of; the plan goes on behind it."""

    def put_batch(
        self, topic: str, batch: Any, plan: PlanMark | None = None, *, qos: QoS = 2
    ) -> Any:
        try:
            return super().put_batch(topic, batch, plan, qos=qos)
        except InDoubtError:
            if self.outbox.pending is not None:
                self.outbox.pending = None
                self._state.write({"pending": None}, durable=False)
            raise


class AdoptsUnasked(Publisher):
    """Takes the proxy's numbering wherever it differs from its own."""

    def __init__(self, client: str, *, on_log_changed: Any, **more: Any) -> None:
        super().__init__(client, on_log_changed="adopt", **more)


class TakesAnyAnswer(Publisher):
    """Does not look which request an answer belongs to (rule R1)."""

    def __init__(self, client: str, **more: Any) -> None:
        super().__init__(client, **more)
        asker = self._asker
        ask, transport = asker.ask, asker.transport

        def ask_anybody(request: Any, body: bytes | None = None) -> tuple[AnyReply, bytes]:
            asker.transport = _Relabelling(transport, request)
            return ask(request, body)

        setattr(asker, "ask", ask_anybody)  # noqa: B010  (mypy: it is a method)


class _Relabelling:
    """A transport that makes every answer look like the right one."""

    def __init__(self, transport: Any, request: Hello | Put | Listeners | Delivery) -> None:
        self._transport = transport
        self._request = request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

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
        return encode_reply(replace(reply, request=asked.request, epoch=asked.epoch))


class AcknowledgesBeforeInbox(Subscriber):
    """Tells the proxy of a cursor that power loss can still take."""

    def __init__(self, client: str, *, state: ClientState, **more: Any) -> None:
        super().__init__(client, state=_withholding(state, lazy=True), **more)


class OutputAndCursorApart(Subscriber):
    """Writes the length of the output and the cursor in two steps."""

    def record(self, topic: str, plan: PlanMark) -> None:
        self._state.write(self.inbox.mark_plan(plan), durable=True)
        super().record(topic, plan)


class ForgetsWhatWasInHand(Subscriber):
    """Does not mark what it hands over a second time."""

    def _hand_over(self, topic: str, messages: list[Message], done: Changes) -> list[Message]:
        again = super()._hand_over(topic, messages, done)
        return [replace(message, delivery_count=1) for message in again]


class AcknowledgesOnReceipt(Subscriber):
    """The cursor moves when a message is handed over, before it is processed."""

    def get(self, topic: str, *, max_messages: int = 1, timeout_s: float = 0.0) -> list[Message]:
        found = super().get(topic, max_messages=max_messages, timeout_s=timeout_s)
        self._write(self._take_processed(topic))
        return found


class HandsOverBeforeItReturns(Subscriber):
    """What is on its way to the program is in hand, also if the call is broken off behind that."""

    def _begin_again(self) -> None:
        self._asker.transport.reopen()

    def _hand_over(self, topic: str, messages: list[Message], done: Changes) -> list[Message]:
        if messages:
            self._in_hand[topic] = messages[-1]
        return super()._hand_over(topic, messages, done)


class GoesOnAsIfNothingWas(Publisher):
    """A put that was broken off is believed to be what memory says, whatever the state says."""

    def _begin_again(self) -> None:
        self._asker.transport.reopen()


class _Fetching(Fetching):
    def __init__(self, subscriber: Subscriber) -> None:
        super().__init__(
            subscriber._link,
            subscriber.inbox,
            subscriber._pushing,
            on_lower_qos=subscriber._fetching._on_lower_qos,
        )
        self._subscriber = subscriber


def that(fetching: type[_Fetching]) -> type[Subscriber]:
    """A subscriber to which what comes next of a topic is brought by other rules."""

    class Faulty(Subscriber):
        def __init__(self, client: str, **more: Any) -> None:
            super().__init__(client, **more)
            self._fetching = fetching(self)

    return Faulty


class TakesOlderOffsets(_Fetching):
    """Whatever stands in a batch is handed over, also what was had before."""

    def _followers(self, topic: str, headers: Sequence[BatchHeader], body: bytes) -> deque[Message]:
        first = headers[0].base if headers else self._inbox.places[topic].cursor
        return deque(direct_followers(topic, first, headers, body))


class KeepsWhatItFetched(_Fetching):
    """What was fetched outlives the subscription."""

    def forget(self, topic: str) -> None:
        pass


class SwallowsLosses(_Fetching):
    """It goes on behind a loss without a word."""

    def _pull(self, topic: str, call: Call, messages_max: int) -> deque[Message] | None:
        try:
            return super()._pull(topic, call, messages_max)
        except LostError:
            return None


class PassesLossUntold(_Fetching):
    """A loss is acknowledged, and then reported: whatever goes wrong in between silences it."""

    def _pull(self, topic: str, call: Call, messages_max: int) -> deque[Message] | None:
        try:
            return super()._pull(topic, call, messages_max)
        except LostError:
            self._subscriber._write(self._subscriber._take_processed(topic))
            self._subscriber._acknowledge_to_proxy(topic)
            raise
