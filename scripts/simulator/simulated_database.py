"""A database that two proxies share, and how each of them serves it or stands by.

The decisions are those of `proxy/core/serving.py`. What is SQL in the product (`proxy/term.py`,
`proxy/postgres_store.py`) is here: a transaction happens at one moment, or not at all. A connection
that breaks tells nothing of the transaction that was under way; it may even happen later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from reliable_pubsub.proxy.core.serving import ServingRow, ServingTiming, SilenceWatch, Term
from reliable_pubsub.proxy.core.state import Record
from reliable_pubsub.proxy.core.storage import NotServingError
from reliable_pubsub.proxy.core.stored import StoredState

from .simulated_committer import SimulatedCommitter
from .simulated_store import SimulatedStore
from .world import World

if TYPE_CHECKING:
    from .simulated_proxy import SimulatedProxy

# The real times, shorter: a seed has little more than a second of trouble.
TIMING: Final = ServingTiming(beat_s=0.02, answers_s=0.08, silence_s=0.12, look_s=0.01)
LATENCY_S: Final = 0.002
LATE_S: Final = 0.3  # after which a transaction of a broken connection may still happen
READING_S: Final = 0.01  # the longest that a new term takes to read the rows


class Broken(Struct, frozen=True):
    """The connection broke before an outcome came."""


class SimulatedDatabase:
    """The rows of a store, the row that says who serves it, and the connections to both."""

    def __init__(self, world: World, store: SimulatedStore) -> None:
        self.store = store
        self.row = ServingRow(0, 0, "")
        self._world = world
        self._cut_until_s: dict[str, float] = {}

    def cut(self, proxy: str, seconds: float) -> None:
        """Break the connections of a proxy, and refuse new ones for a while."""
        self._world.happened("database_cut", proxy, f"has no database for {seconds:.3f} s")
        self._cut_until_s[proxy] = self._world.now_s + seconds

    def _is_cut(self, proxy: str) -> bool:
        return not self._world.quiet and self._cut_until_s.get(proxy, 0.0) > self._world.now_s

    # Transactions.

    def take(self, seen: ServingRow, proxy: str) -> int | None:
        """Begin the next term, if the row is still the one that was seen."""
        if (self.row.term, self.row.beat) != (seen.term, seen.beat):
            return None
        if self.row.holder not in ("", proxy):
            self._world.happened("standby", proxy, f"takes over, term {seen.term + 1}")
        self.row = ServingRow(seen.term + 1, 0, proxy)
        return self.row.term

    def beat(self, term: int) -> bool:
        """Keep a term; False: it is over."""
        if not self.is_current(term):
            return False
        self.row = ServingRow(term, self.row.beat + 1, self.row.holder)
        return True

    def commit(self, term: int, records: Sequence[Record]) -> bool:
        """Store records of a term; False: it is over, and nothing was stored."""
        if not self.beat(term):
            return False
        self.store.commit(records)
        return True

    def is_current(self, term: int) -> bool:
        """Whether a term is not over; planted faults lie here."""
        return term == self.row.term

    def carry(
        self,
        proxy: str,
        transaction: Callable[[], object],
        heard: Callable[[object], None],
        work_s: float = 0.0,
    ) -> None:
        """Run a transaction, and return its outcome; or raise `Broken`."""
        world, chance = self._world, self._world.random

        def late() -> None:
            transaction()

        def arrive() -> None:
            if self._is_cut(proxy):
                if chance.random() < 0.5:
                    world.at(chance.uniform(0.0, LATE_S), late)
                world.at(chance.uniform(0.0, TIMING.look_s), lambda: heard(Broken()))
                return
            outcome = transaction()

            def come_back() -> None:
                heard(Broken() if self._is_cut(proxy) else outcome)

            world.at(chance.uniform(0.0002, LATENCY_S), come_back)

        world.at(chance.uniform(0.0002, LATENCY_S) + work_s, arrive)


class SimulatedServing:
    """How one proxy stands by, and keeps its term: `lease.py` with time as an argument."""

    def __init__(self, proxy: SimulatedProxy, database: SimulatedDatabase) -> None:
        self.proxy = proxy
        self.database = database
        self.term: Term | None = None
        self._silence = SilenceWatch(TIMING)
        self._over = ""

    def stand_by(self) -> None:
        """A life of the proxy begins."""
        self.term = None
        self._over = ""
        self._silence = SilenceWatch(TIMING)
        self._look()

    def _carry(
        self,
        transaction: Callable[[], object],
        heard: Callable[[object], None],
        work_s: float = 0.0,
    ) -> None:
        """`heard` is called in this life of the proxy, and not while it stands still."""
        alive = self.proxy.of_this_life()
        name = self.proxy.name
        self.database.carry(
            name, transaction, lambda outcome: alive(lambda: heard(outcome)), work_s
        )

    def _look(self) -> None:
        self._carry(lambda: self.database.row, self._seen)

    def _seen(self, row: object) -> None:
        since_s = self.proxy.world.now_s
        if isinstance(row, ServingRow) and self.is_over(row):
            self._carry(
                lambda: self.database.take(row, self.proxy.name),
                lambda taken: self._taken(taken, since_s),
            )
        else:
            self.proxy.later(TIMING.look_s, self._look)

    def is_over(self, row: ServingRow) -> bool:
        """Whether to take over."""
        return self._silence.is_over(row, self.proxy.world.now_s)

    def _taken(self, number: object, since_s: float) -> None:
        if not isinstance(number, int):
            self.proxy.later(TIMING.look_s, self._look)
            return
        self.term = Term(number, since_s=since_s, timing=TIMING)
        self._beat()
        self.proxy.later(self.proxy.world.random.uniform(0.0, READING_S), self.proxy.serve)

    def read(self) -> StoredState:
        """What is durable, as the new term finds it."""
        return self.database.store.state()

    def _beat(self) -> None:
        term, sent_at_s = self.term, self.proxy.world.now_s
        assert term is not None

        def heard(outcome: object) -> None:
            if outcome is not True:
                self._over = f"the beat was not stored: {outcome}"
                return
            self.renewed(sent_at_s)
            self.proxy.later(TIMING.beat_s, self._beat)

        if term.may_beat(sent_at_s):
            self._carry(lambda: self.database.beat(term.number), heard)

    def renewed(self, sent_at_s: float) -> None:
        """A transaction that was sent at this time is confirmed."""
        assert self.term is not None
        self.term.renewed(sent_at_s)

    def confirm(self) -> None:
        """Make sure that no other proxy serves.

        Raises:
            NotServingError: one may.
        """
        assert self.term is not None
        self.term.confirm(self.proxy.world.now_s, self._over)

    @property
    def is_current(self) -> bool:
        """Whether it has the newest term."""
        return self.term is not None and self.term.number == self.database.row.term

    def judge(self) -> None:
        """An answer leaves; no later term may have begun."""
        number = self.term.number if self.term else 0
        assert self.is_current, (
            f"a proxy answers in term {number}, and term {self.database.row.term} has begun"
        )

    def commit(
        self, records: Sequence[Record], done: Callable[[str], None], *, breaks: bool
    ) -> None:
        """Store records, and return the outcome: "stored" or "full".

        Args:
            breaks: the connection breaks meanwhile.

        Raises:
            NotServingError: by `done`'s caller, where the term is over or the outcome unknown.
        """
        assert self.term is not None
        number, sent_at_s = self.term.number, self.proxy.world.now_s

        def transaction() -> object:
            if self.proxy.storage_is_full():
                return "full"
            return self.database.commit(number, records)

        def heard(outcome: object) -> None:
            if breaks or isinstance(outcome, Broken):
                self.commit_broke(done)
            elif outcome == "full":
                done("full")
            elif outcome is True:
                self.renewed(sent_at_s)
                done("stored")
            else:
                raise NotServingError(f"term {number} is over: another proxy serves")

        self._carry(transaction, heard, self.proxy.commit_s())

    def commit_broke(self, done: Callable[[str], None]) -> None:
        """It is unknown whether a commit has happened."""
        raise NotServingError("the outcome of a commit is unknown")


class DatabaseCommitter(SimulatedCommitter):
    """The committer of a proxy that serves a shared database."""

    def _write(self, records: Sequence[Record], lsn: int) -> None:
        def done(outcome: str) -> None:
            self._busy = False
            if outcome == "full":
                self._failed = True
                self.outcomes.append("full")
            else:
                self.outcomes.append(lsn)
            self._heard()

        serving = self._proxy.serving
        assert serving is not None
        serving.commit(records, done, breaks=self._proxy.disk_fails())
