"""The shell of the proxy: one loop thread that carries values in and out of the engine."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

import zmq

from reliable_pubsub.common import threads
from reliable_pubsub.common.core.attention import Attention
from reliable_pubsub.common.core.message_base import Promise
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.common.notify import ServiceManager
from reliable_pubsub.common.system import WakeUp

from .check import BadRange, Checked, check_store
from .committer import CommitFailed, Committer
from .core.engine import Engine
from .core.journal import ProxyJournal
from .core.outputs import Answer, Visible, Work
from .core.state import DISK_FULL, BrokerSettings, Parts, Setup
from .core.storage import StorageFullError
from .extension import Extension
from .features import TABLES
from .front_door import Endpoints
from .log_reader import StoreReader
from .server_settings import ServerSettings, opened_store
from .store import WAL_BYTES_MAX
from .stored_state import read_state, reading
from .wal_check import WalDamage

TICK_S: Final = 0.1
HANGS_S: Final = 1.0  # for a commit under way to end after an error


class Server:
    """A proxy: opens its store, binds, and runs until `stop`."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        report_loss: Callable[[BadRange | WalDamage], None] = lambda _: None,
        progress: Callable[[int], None] = lambda _: None,
        warn: Callable[[str], None] = lambda _: None,
        recorder: Recorder | None = None,
        manager: ServiceManager | None = None,
        stand_by: Callable[[str], None] = lambda _: None,
        scrapes: Any = None,
    ) -> None:
        """Lock, check and read the store; then bind, so that a damaged store never answers.

        Args:
            warn: called once with each problem that an operator should look at.
            recorder: writes the journal of this process; None: no journal.
            manager: is notified that the loop turns; None: that of the environment.
            stand_by: called with what this process waits for while another one serves its store.
            scrapes: of the metrics endpoint, if it is served already.

        Raises:
            InUseError, DamagedError, ConfigurationError: as `Store`, `check_store`, `FrontDoor`.
        """
        self._settings = settings
        self._warn = warn
        self._wal_is_held = False
        self._clock_steps = -1  # that were reported; -1: nor what was there at the start
        self._is_full = False  # was reported
        self._recorder = recorder or Recorder()
        self._manager = manager or ServiceManager()
        self._boot = secrets.token_hex(8)
        self._attention = Attention()
        self._wake_up = WakeUp()
        self._store = opened_store(settings, report_loss, stand_by)
        try:
            self.checked: Checked = check_store(
                self._store.connection,
                accept_loss=settings.accept_loss,
                report=report_loss,
                progress=progress,
            )
            self._state_connection = self._store.open_reader()
            self._reader = StoreReader(self._state_connection)
            is_snapshot = settings.durability == "snapshot"
            self._committer = Committer(
                self._store,
                wake=self._wake_up.wake,
                interval_s=settings.snapshot_interval_s if is_snapshot else 0.0,
            )
            self.endpoints = Endpoints(
                settings,
                boot=self._boot,
                wake_up=self._wake_up,
                committer=self._committer,
                store=self._store,
                scrapes=scrapes,
                warn=warn,
            )
            self._extensions = self.endpoints.extensions
            self.engine = self._new_engine()
            self.engine.committed(0, is_full=self._store.is_full)
            self._look_at_disk(self._store.is_full)
        except BaseException:
            self._store.close()
            self._wake_up.close()
            raise
        topics = self.engine.state.topics.values()
        self._journal = ProxyJournal(self._recorder, [(log.topic_id, log.topic) for log in topics])
        self._errors: list[BaseException] = []  # of either thread
        self._stopped: set[zmq.Socket[bytes]] = set()  # not read: too much waits for the disk
        self._tick_at_s = 0.0
        self._reloads: SimpleQueue[tuple[BrokerSettings, SimpleQueue[None]]] = SimpleQueue()
        self._stopping = False

    @property
    def promise(self) -> Promise:
        """What an acknowledgement means."""
        return self._store.promise

    @property
    def store_path(self) -> str:
        """Where the store is, without passwords."""
        return str(self._store.path)

    def _new_engine(self) -> Engine:
        with reading():
            stored = read_state(self._state_connection, self.checked.segments)
        authentication = self.endpoints.authentication
        setup = Setup(
            boot=self._boot,
            reader=self._reader,
            durability=self._store.promise,
            settings=self._settings.broker,
            attention=self._attention,
            kept=Parts(*[part for one in self._extensions for part in one.parts()]),
        )
        engine = Engine(stored, setup, TABLES)
        engine.govern(authentication.authority)
        self._carriers = {
            kind: (carry, one.socket)
            for one in self._extensions
            for kind, carry in one.outputs().items()
        }
        self._asked = [one for one in self._extensions if one.asked is not Extension.asked]
        for one in self._extensions:
            one.begin(engine)
        return engine

    def stop(self) -> None:
        """Ask the loop to end; safe in a signal handler and from another thread."""
        self._stopping = True
        self._wake_up.wake()

    def reconfigure(self, broker: BrokerSettings) -> None:
        """Decide by these settings; called by another thread, returns when the loop does."""
        taken: SimpleQueue[None] = SimpleQueue()
        self._reloads.put((broker, taken))
        self._wake_up.wake()
        taken.get()

    def run(self) -> None:
        """Serve until `stop`.

        Raises:
            StorageFailedError: the disk refused a write; nothing that depended on it was
                answered.
        """
        self._recorder.begin("proxy", boot=self._boot, durability=self._store.promise)
        second = threads.start(partial(self._serve, is_loop=False), name="committer")
        self._serve(is_loop=True)
        error = self._errors[0] if self._errors else None
        second.join(timeout=None if error is None else HANGS_S)
        self._recorder.end(error)
        self._close()
        if error is not None:
            raise error

    def _serve(self, *, is_loop: bool) -> None:
        """Run the loop, or commit for it: two threads, which change places when a commit hangs."""
        try:
            while True:
                if not is_loop:
                    if not self._committer.serve():
                        return
                elif self._run_loop():
                    return
                is_loop = not is_loop
        except BaseException as error:
            self._errors.append(error)
            self.stop()
            self._committer.stop()

    def _run_loop(self) -> bool:
        """Take turns; return True at the end, False when the other thread runs the loop now."""
        engine = self.engine
        while not self._stopping:
            is_woken, ready = self.endpoints.poll.wait(self._wait_s())
            if is_woken:
                self._take_from_threads()
            self._take(ready)
            now_s, now_ns = time.monotonic(), time.time_ns()
            if not ready and engine.waiting.of:  # else at the tick at the latest
                engine.waiting.end(now_s)
            if engine.is_turn_due:
                engine.end_turn(now_s=now_s, now_ns=now_ns)
                self._carry_out()
            for one in self._asked:
                if one.asked:
                    one.work(engine, now_s)
            if now_s >= self._tick_at_s:
                self._tick(now_s, now_ns)
            if self._committer.submitted and not self._committer.commit():
                return False
            if self._committer.outcomes:
                self._take_outcomes()
            if engine.waiting.due:  # what has just become durable is what they wait for
                engine.end_turn(now_s=now_s, now_ns=now_ns)
                self._carry_out()
        self._finish()
        return True

    def _wait_s(self) -> float:
        """Return how long the loop may wait for requests."""
        engine = self.engine
        if engine.is_turn_due or any([one.asked for one in self._asked]):  # noqa: C419  (each turn)
            return 0.0
        if engine.waiting.of:
            return min(TICK_S, max(engine.waiting.ends_at_s - time.monotonic(), 0.0))
        return TICK_S

    def _take(self, ready: Iterable[zmq.Socket[bytes]]) -> None:
        """Take what has come to these sockets, and note where there may be more."""
        engine, endpoints = self.engine, self.endpoints
        look_at = endpoints.poll.look_at
        for one in self._extensions:
            one.new_turn()
        for socket in ready:
            if (door := endpoints.door_of.get(socket)) is not None:
                is_more = door.turn(engine, self._carry_out)
                if not is_more:
                    self._stopped.add(socket)
            else:
                is_more = endpoints.extension_of[socket].take(engine)
                self._carry_out()
            if is_more:
                look_at.add(socket)

    def _take_from_threads(self) -> None:
        """Take what other threads have left."""
        self._wake_up.heard()
        self._take_outcomes()
        while not self._reloads.empty():
            broker, taken = self._reloads.get()
            self.engine.reconfigure(broker)
            taken.put(None)

    def _finish(self) -> None:
        """Make everything durable, and answer the GETs that wait: their clients ask again."""
        self.engine.waiting.end_all()
        while self.engine.is_turn_due:
            self.engine.end_turn(now_s=time.monotonic(), now_ns=time.time_ns())
            self._carry_out()
        self.engine.flush()
        self._carry_out()
        self._committer.close()
        self._take_outcomes()

    def _carry_out(self) -> None:
        """Carry out the outputs of the engine, in their order."""
        if self._store.confirm is not None:
            self._store.confirm()
        outputs, endpoints = self.engine.outputs, self.endpoints
        look_at = endpoints.poll.look_at
        while outputs:
            match output := outputs.popleft():
                case Answer(reply_to, frames):
                    reply_to.answer(frames)
                    look_at.add(reply_to.door.socket)
                case Work(records, lsn):
                    if self._recorder.active:
                        self._journal.submitted(records, lsn)
                    self._committer.submitted.append(output)
                case Visible(batches):
                    self._reader.add(batches)
                case _:
                    carry, socket = self._carriers[type(output)]
                    carry(output)
                    if socket is not None:
                        look_at.add(socket)

    def _take_outcomes(self) -> None:
        """Report the results of commits to the engine."""
        if self._store.confirm is not None:
            self._store.confirm()  # nor may the journal speak of them later than another proxy
        while self._committer.outcomes:
            outcome = self._committer.outcomes.popleft()
            if isinstance(outcome, CommitFailed):
                self._carry_out()  # what earlier commits made durable leaves, whatever follows
                self._commit_failed(outcome.error)
            else:
                if self._recorder.active:  # before the replies that depend on it
                    self._journal.durable(outcome.lsn)
                self.engine.committed(outcome.lsn, is_full=outcome.is_full)
                self._look_at_disk(outcome.is_full)
        if self.engine.outputs:
            self._carry_out()
        if self._stopped:  # there may be room again
            self.endpoints.poll.look_at |= self._stopped
            self._stopped.clear()

    def _commit_failed(self, error: Exception) -> None:
        """A full disk: go back to what is durable. Anything else ends the process."""
        if not isinstance(error, StorageFullError):
            raise error
        segments = (
            check_store(self._state_connection).segments  # what was lost cannot be found in memory
            if self._settings.durability == "snapshot"
            else self.engine.state.durable_segments()
        )
        self._look_at_disk(True, error.why, str(error))
        self._reader.clear()
        with reading():
            stored = read_state(self._state_connection, segments)
        self._committer.restart()
        self._journal.forgotten()
        self.engine.failed(stored, error.why, now_s=time.monotonic())

    def _tick(self, now_s: float, now_ns: int) -> None:
        """Do what is due by time."""
        self._tick_at_s = now_s + TICK_S / 2
        self._look_at_wal()
        authentication, judged_s = self.endpoints.authentication, self._attention.at(now_s)
        self.endpoints.entrance.look(now_s)
        if changed := authentication.look(now_s):
            self.engine.govern(authentication.authority)
            for one in self._extensions:
                one.cut(changed)
        authentication.end_excess(now_s)
        for one in self._extensions:
            one.tick(self.engine, now_s, judged_s)
        self.engine.tick(now_s=now_s, now_ns=now_ns)
        self._look_at_clock()
        self._carry_out()
        if self._stopped:  # answers that waited may have been replaced by BUSY
            self.endpoints.poll.look_at |= self._stopped
            self._stopped.clear()
        self._manager.alive(now_s)

    def _look_at_clock(self) -> None:
        """Warn when the wall clock was set, or stored messages have timestamps ahead of it."""
        local = self.engine.local
        if self._clock_steps < 0 and local.ahead_s >= 1:
            self._warn(
                f"warning: stored messages have timestamps up to {local.ahead_s:,.0f} s ahead of "
                "this system's clock, which is or was wrong. Their topics' timestamps "
                "stay ahead until the clock catches up (docs/concepts/guarantees.md)"
            )
        elif local.steps > max(self._clock_steps, 0):
            step = f"{abs(local.step_s):,.0f} s"
            happened = (
                f"set back by {step}"
                if local.step_s < 0
                else f"set forward by {step}, or the machine was suspended"
            )
            self._warn(
                f"warning: this system's clock was {happened}. Order, leases and history_s do not "
                "depend on the clock. Timestamps follow it, but never go back within a topic "
                "(docs/concepts/guarantees.md)"
            )
        self._clock_steps = local.steps

    def _look_at_wal(self) -> None:
        """Warn when another program starts to prevent the store's WAL from being emptied."""
        is_held = self._store.wal_held_bytes > 0
        if is_held and not self._wal_is_held:
            self._warn(
                f"warning: the write-ahead log of the store has {self._store.wal_held_bytes:,} "
                "bytes and cannot be emptied, because another program reads the store (a sqlite3 "
                f"shell, a backup): end it. At {WAL_BYTES_MAX:,} bytes puts are refused "
                "(STORAGE_FULL) until then"
            )
        self._wal_is_held = is_held

    def _look_at_disk(self, is_full: bool, why: str = "", error: str = "") -> None:
        """Report that the disk has become full, or has space again."""
        if is_full and not self._is_full:
            self._warn(
                f"warning: {why or DISK_FULL} ({error or self._store.path}): puts are refused "
                "(STORAGE_FULL) until there is space. What was acknowledged is stored. Gets, "
                "acknowledgements and retention continue, and so do `admin truncate` and "
                "`admin delete-topic`"
            )
        elif self._is_full and not is_full:
            self._warn("the store can be written again: puts continue")
        self._is_full = is_full

    def _close(self) -> None:
        """Close everything; clients retry requests that were not answered."""
        self.endpoints.close()
        self._reader.close()
        self._store.close()
        self._wake_up.close()
