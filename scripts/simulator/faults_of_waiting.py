"""Planted faults of GETs that wait; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from reliable_pubsub.common.core.requests import AnyRequest, Get, History
from reliable_pubsub.proxy.core.engine import Engine
from reliable_pubsub.proxy.core.reading import batches_from, get
from reliable_pubsub.proxy.core.records import Appended, Decision
from reliable_pubsub.proxy.core.sessions import fence
from reliable_pubsub.proxy.core.state import Record, State
from reliable_pubsub.proxy.core.subscriptions import Session
from reliable_pubsub.proxy.core.topic_log import TopicLog
from reliable_pubsub.proxy.core.waiting_gets import WaitingGet, WaitingGets

from .faults_of_subscribing import read_from_memory
from .simulation import Variant


class AnswersBeforeDurable(Engine):
    """A GET that waits is shown what was put, and not what is stored."""

    def _apply(self, records: Sequence[Record]) -> None:
        super()._apply(records)
        for record in records:
            if isinstance(record, Appended):
                self.waiting.has_come(self.state.topic_by_id[record.topic_id].topic)


def show_waiters_the_undurable(state: State, request: Get, *more: Any) -> Decision:
    """A GET that waits is shown what is in memory."""
    log = state.topics.get(request.topic)
    if log is None or not request.wait_ms:
        return get(state, request, *more)
    durable, log.durable_end = log.durable_end, log.end
    try:
        return get(state, request, *more)
    finally:
        log.durable_end = durable


def read_for_waiters_from_memory(
    state: State, request: Get | History, topic: TopicLog, offset: int, **more: Any
) -> tuple[Any, bytes | None]:
    """The bodies are shown from memory, too."""
    read = read_from_memory if isinstance(request, Get) and request.wait_ms else batches_from
    return read(state, request, topic, offset, **more)


class ForgetsWaiters(WaitingGets):
    """What arrives answers no request, and neither does time."""

    def turn(self) -> list[WaitingGet]:
        super().turn()
        return []


class KeepsWaiters(WaitingGets):
    """A GET that was answered is kept, and answered again."""

    def turn(self) -> list[WaitingGet]:
        now = super().turn()
        for one in now:
            if one.request.client not in self.of:
                self._keep(replace(one, until_s=1.0))
        return now


class EndsNothing(WaitingGets):
    """Time ends no wait."""

    def end(self, now_s: float) -> None:
        pass


class LetsCopiesWait(WaitingGets):
    """A client that asks again over a new socket leaves the old request without an answer."""

    def heard(self, request: AnyRequest, reply_to: Any) -> None:
        if isinstance(request, Get):
            self.of.pop(request.client, None)
            for on in self._on.values():
                on.pop(request.client, None)


def admit_waiters(state: State, role: Any, request: AnyRequest) -> Session | Decision:
    """A client whose GET waits was admitted when it came, and is not checked again."""
    session = state.sessions.get((role, request.client))
    if session is not None and isinstance(request, Get) and request.wait_ms:
        return session
    return fence(state, role, request)


def _with(waiting: type[WaitingGets]) -> type[Engine]:
    """An engine whose GETs wait like this."""

    class WaitingEngine(Engine):
        def __init__(self, *args: Any, **facts: Any) -> None:
            super().__init__(*args, **facts)
            self.waiting = waiting(self.tables.waits, self.tables.of_subscribers)

    return WaitingEngine


FAULTS_OF_WAITING: Mapping[str, Variant] = {
    "waiting GET: shown the undurable": Variant(
        engine=AnswersBeforeDurable,
        rules={get: show_waiters_the_undurable, batches_from: read_for_waiters_from_memory},
    ),
    "waiting GET: never answered": Variant(engine=_with(ForgetsWaiters)),
    "waiting GET: answered twice": Variant(engine=_with(KeepsWaiters)),
    "waiting GET: time does not end it": Variant(engine=_with(EndsNothing)),
    "waiting GET: copies are forgotten": Variant(engine=_with(LetsCopiesWait)),
    "waiting GET: a fenced one is shown messages": Variant(rules={fence: admit_waiters}),
}
