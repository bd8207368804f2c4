"""Planted faults of two proxies on one database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.proxy.core.outputs import Answer, Work
from reliable_pubsub.proxy.core.serving import ServingRow
from reliable_pubsub.proxy.core.state import Record
from reliable_pubsub.proxy.core.stored import StoredState
from reliable_pubsub.proxy.push.pushes import Pushes

from .network import Reply
from .simulated_database import SimulatedDatabase, SimulatedServing
from .simulated_proxy import SimulatedProxy
from .simulation import Variant


class CommitsWithoutTerm(SimulatedDatabase):
    """A commit is stored, whatever term it is of."""

    def commit(self, term: int, records: Sequence[Record]) -> bool:
        self.beat(term)
        self.store.commit(records)
        return True


class ReadsTooEarly(SimulatedServing):
    """It serves what it read when it began to stand by: commits of the other one followed."""

    def stand_by(self) -> None:
        self._read = self.database.store.state()
        super().stand_by()

    def read(self) -> StoredState:
        return self._read


class TakesOverAtOnce(SimulatedServing):
    """It does not wait until the answers of the other one have ended: two serve for a moment."""

    def is_over(self, row: ServingRow) -> bool:
        before, self._before = getattr(self, "_before", None), row
        return before == row  # it has missed one beat


class AnswersLate(SimulatedServing):
    """What it knows is answered without a look at how old that is."""

    def confirm(self) -> None:
        pass


class CountsFromTheConfirmation(SimulatedServing):
    """Its answers count from when it heard of its beat, not from when it sent it."""

    def renewed(self, sent_at_s: float) -> None:
        super().renewed(self.proxy.world.now_s)


class TakesUnknownForStored(SimulatedServing):
    """A commit whose connection broke is taken for stored."""

    def commit_broke(self, done: Callable[[str], None]) -> None:
        done("stored")


class AnswersWhileItStandsBy(SimulatedProxy):
    """A standby answers what needs no commit, from what it read when it began to stand by."""

    _memory: StoredState

    def start(self) -> None:
        super().start()
        if self.serving is not None and self.engine is None:
            self._memory = self.store.state()

    def receive(self, frames: Sequence[bytes], role: Role, reply: Reply) -> None:
        if self.engine is not None or self.serving is None:
            super().receive(frames, role, reply)
            return
        engine = self._new_engine(Pushes(boot=self._boot), self._memory)
        now_s, now_ns = self.world.now_s, self.world.wall_ns()
        engine.receive(frames, reply, role=role, now_s=now_s, now_ns=now_ns)
        if not any(isinstance(one, Work) for one in engine.outputs):
            for one in engine.outputs:
                if isinstance(one, Answer):
                    one.reply_to(one.frames)


FAULTS_OF_STANDBY: Final[Mapping[str, Variant]] = {
    "standby: commits without its term": Variant(database=CommitsWithoutTerm),
    "standby: reads before it has the term": Variant(serving=ReadsTooEarly),
    "standby: two serve for a moment": Variant(serving=TakesOverAtOnce),
    "standby: answers from memory": Variant(proxy=AnswersWhileItStandsBy),
    "standby: answers after its term": Variant(serving=AnswersLate),
    "standby: counts from the confirmation": Variant(serving=CountsFromTheConfirmation),
    "standby: unknown is taken for stored": Variant(serving=TakesUnknownForStored),
}
