"""Planted faults of the proxy's shell and of its store; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from reliable_pubsub.common.core.answers import StorageFull
from reliable_pubsub.common.core.attention import Attention
from reliable_pubsub.common.core.message_base import Reply
from reliable_pubsub.common.core.requests import AnyRequest
from reliable_pubsub.proxy.core.broker import without_storage
from reliable_pubsub.proxy.core.engine import Engine
from reliable_pubsub.proxy.core.outputs import Answer
from reliable_pubsub.proxy.core.records import Decision
from reliable_pubsub.proxy.core.replies import echo
from reliable_pubsub.proxy.core.state import Record, State
from reliable_pubsub.proxy.core.stored import StoredState, StoredTopic
from reliable_pubsub.proxy.core.subscription_records import CursorMoved

from .faulty_parts import store_that_forgets
from .simulated_proxy import SimulatedProxy
from .simulated_store import SimulatedStore
from .simulation import Variant

# The engine: what leaves, and when.


class AckBeforeDurable(Engine):
    """Answers from memory: the fault that Jepsen found in NATS."""

    def answer(
        self,
        reply_to: Any,
        reply: Reply,
        body: bytes | None = None,
        visible_at: int = 0,
        now_s: float = 0.0,
    ) -> None:
        super().answer(reply_to, reply, body)


class ForgetsNothingOnFullDisk(Engine):
    """After a failed commit it continues with a memory that the disk does not have."""

    def failed(self, stored: StoredState, why: str, *, now_s: float) -> None:
        self.held.clear()


def refuse_all(state: State, request: AnyRequest, decision: Decision) -> Decision:
    """A full disk refuses also what would free space."""
    if state.is_storage_full and any(one.urgent for one in decision.records):
        return Decision(StorageFull(**echo(state, request), text="full"))
    return without_storage(state, request, decision)


class AcknowledgesFullDisk(Engine):
    """After a failed commit it sends the answers that waited, as if all were well."""

    def failed(self, stored: StoredState, why: str, *, now_s: float) -> None:
        _send_all_held(self)
        super().failed(stored, why, now_s=now_s)


class AcknowledgesWhatTheDiskHasNot(Engine):
    """An answer that has waited for too long leaves as it is."""

    def _put_off(self) -> None:
        _send_all_held(self)


def _send_all_held(engine: Engine) -> None:
    while engine.held:
        held = engine.held.popleft()
        engine.outputs.append(Answer(held.reply_to, held.frames))


# The shell.


class AnswersAfterItsDeath(SimulatedProxy):
    """What waited for a commit when the process died is sent by the next one."""

    def crash(self, where: str) -> None:
        self._dead = self.engine or getattr(self, "_dead", None)
        super().crash(where)

    def start(self) -> None:
        dead: Engine | None = getattr(self, "_dead", None)
        while self.engine is None and dead is not None and dead.held:
            held = dead.held.popleft()
            held.reply_to(held.frames)
        super().start()


class RetriesFailedCommit(SimulatedProxy):
    """After an I/O error it syncs once more, and believes that: the pages are gone (fsyncgate)."""

    def commit_broke(self, engine: Engine) -> None:
        engine.committed(engine.state.lsn)
        self._committer.restart()


# The store: what outlives the process.


class TornCommit(SimulatedStore):
    """A commit that is not one transaction: the messages are in, the numbering is not."""

    def commit(self, records: Sequence[Record]) -> None:
        if self.commits % 10 == 9:
            self.torn = self.state()
        super().commit(records)

    def state(self) -> StoredState:
        stored = super().state()
        torn: StoredState | None = getattr(self, "torn", None)
        if torn is None:
            return stored
        old = {topic.topic_id: topic.publishers for topic in torn.topics}
        topics = [replace(t, publishers=old.get(t.topic_id, ())) for t in stored.topics]
        return replace(stored, topics=topics)


class ForgetsCursors(SimulatedStore):
    """What a subscriber has acknowledged lives in memory only."""

    def _write(self, record: Record) -> None:
        if not isinstance(record, CursorMoved):
            super()._write(record)


def _with_topics(change: Callable[[StoredTopic], StoredTopic]) -> type[SimulatedStore]:
    return store_that_forgets(
        lambda stored: replace(stored, topics=[change(one) for one in stored.topics])
    )


def _with_subscriptions(**fields: Any) -> type[SimulatedStore]:
    return _with_topics(
        lambda topic: replace(
            topic, subscriptions=[replace(one, **fields) for one in topic.subscriptions]
        )
    )


class NeverPaused(Attention):
    """The time of a pause counts."""

    def at(self, now_s: float) -> float:
        return now_s


class MistakesItsPause(SimulatedProxy):
    """A proxy that stood still takes that for the silence of its clients."""

    attention_class = NeverPaused


FAULTS_OF_THE_PROXY: Final[Mapping[str, Variant]] = {
    # What leaves the proxy, and when.
    "ack before durable": Variant(engine=AckBeforeDurable),
    "full disk: memory kept": Variant(engine=ForgetsNothingOnFullDisk),
    "full disk: frees nothing": Variant(rules={without_storage: refuse_all}),
    "full disk: acknowledged": Variant(engine=AcknowledgesFullDisk),
    "hanging disk: acknowledged": Variant(engine=AcknowledgesWhatTheDiskHasNot),
    "answers outlive the process": Variant(proxy=AnswersAfterItsDeath),
    "failed commit is retried": Variant(proxy=RetriesFailedCommit),
    "pause taken for silence": Variant(proxy=MistakesItsPause),
    # What outlives it.
    "torn commit": Variant(store=TornCommit),
    "numbering not stored": Variant(
        store=_with_topics(lambda topic: replace(topic, publishers=()))
    ),
    "unsubscribe not stored": Variant(store=_with_subscriptions(active=True)),
    "epochs not stored": Variant(
        store=store_that_forgets(lambda stored: replace(stored, sessions=()))
    ),
    "cursors not stored": Variant(store=ForgetsCursors),
    "generations not stored": Variant(store=_with_subscriptions(generation=1)),
    "control numbers not stored": Variant(
        store=store_that_forgets(
            lambda stored: replace(
                stored, sessions=[replace(one, control=0) for one in stored.sessions]
            )
        )
    ),
}
