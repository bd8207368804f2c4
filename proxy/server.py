"""The shell of the proxy: one loop thread that carries values in and out of the engine."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import zmq
from msgspec import UNSET, Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.keys import ServerKeys
from reliable_pubsub.common.core.messages import CommitterStatus, Durability, StatusReport
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.common.system import WakeUp
from reliable_pubsub.relay.authentication import Authentication
from reliable_pubsub.relay.core.rights import Denial
from reliable_pubsub.relay.guard import guard_of

from .check import BadRange, Checked, check_store
from .committer import Committer, Failed
from .core.engine import Engine
from .core.journal import ProxyJournal
from .core.outputs import Answer, Visible, Work
from .core.pushes import Down
from .core.qos0_interest import Want
from .core.state import BrokerSettings, Setup
from .core.storage import StorageFullError
from .front_door import FrontDoor
from .ingress import Ingress
from .log_check import LogDamage
from .log_reader import StoreReader
from .push import EndpointSettings, Push
from .socket_poll import SocketPoll, is_readable
from .store import LOG_BYTES_MAX, Store
from .stored_state import open_reader, read_state, reading

TICK_S: Final = 0.1
AUDIT_FILE: Final = "audit.jsonl"  # in the data directory, and older ones beside it
HANGS_S: Final = 1.0  # that a commit under way has to end after an error
REQUESTS_TURN_MAX: Final = 64  # of one endpoint that one turn of the loop takes


class ServerSettings(Struct, frozen=True, kw_only=True):
    """The endpoints, data directory, durability and limits of a proxy."""

    data_dir: Path
    publisher_endpoint: str
    subscriber_endpoint: str
    push: EndpointSettings
    ingress: EndpointSettings
    durability: Durability = "sync"
    snapshot_interval_s: float = 0.01
    accept_loss: bool = False
    broker: BrokerSettings = BrokerSettings()
    keys: ServerKeys | None = None  # None: plaintext


class Server:
    """A proxy: opens its store, binds, and runs until `stop`."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        report_loss: Callable[[BadRange | LogDamage], None] = lambda _: None,
        progress: Callable[[int], None] = lambda _: None,
        warn: Callable[[str], None] = lambda _: None,
        recorder: Recorder | None = None,
    ) -> None:
        """Lock, check and read the store; then bind, so that a damaged store never answers.

        Args:
            warn: called once with each problem that an operator should look at.
            recorder: writes the journal of this process; None: no journal.

        Raises:
            InUseError, DamagedError, ConfigurationError: as `Store`, `check_store`, `FrontDoor`.
        """
        self._settings = settings
        self._warn = warn
        self._log_is_held = False
        self._store = Store(
            settings.data_dir,
            settings.durability,
            accept_loss=settings.accept_loss,
            report=report_loss,
        )
        try:
            self.checked: Checked = check_store(
                self._store.connection,
                accept_loss=settings.accept_loss,
                report=report_loss,
                progress=progress,
            )
            self._state_connection = open_reader(self._store.path)
            self._reader = StoreReader(self._state_connection)
            self._boot = secrets.token_hex(8)
            self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            self._authentication = Authentication(
                self._context, settings.keys, settings.data_dir / AUDIT_FILE, warn
            )
            self._bind()
            self.engine = self._new_engine()
        except BaseException:
            self._store.close()
            raise
        self._wake_up = WakeUp()
        self._committer = Committer(
            self._store,
            wake=self._wake_up.wake,
            interval_s=settings.snapshot_interval_s if settings.durability == "snapshot" else 0.0,
        )
        self._recorder = recorder or Recorder()
        topics = self.engine.state.topics.values()
        self._journal = ProxyJournal(self._recorder, [(log.topic_id, log.topic) for log in topics])
        self._door_of = {door.socket: door for door in self.doors}
        self._poll = SocketPoll(
            [*self._door_of, self.push.socket, self.ingress.socket],
            self._wake_up.descriptor,
            unasked=self.push.socket,
        )
        self._errors: list[BaseException] = []  # of either thread
        self._stopped: set[FrontDoor] = set()  # not read, because too much waits for the disk
        self._tick_at_s = 0.0
        self._stopping = False

    def _bind(self) -> None:
        settings = self._settings
        key_of = self._authentication.key_of if self._authentication.knows_keys else None
        self.doors = [
            FrontDoor(self._context, "publisher", settings.publisher_endpoint, key_of),
            FrontDoor(self._context, "subscriber", settings.subscriber_endpoint, key_of),
        ]
        self.push = Push(self._context, settings.push, self._authentication, boot=self._boot)
        self.ingress = Ingress(self._context, settings.ingress, key_of)
        self._guard = guard_of(self.ingress.connections, *(one.connections for one in self.doors))

    def _new_engine(self) -> Engine:
        with reading():
            stored = read_state(self._state_connection, self.checked.segments)
        setup = Setup(
            boot=self._boot,
            reader=self._reader,
            durability=self._settings.durability,
            settings=self._settings.broker,
        )
        engine = Engine(
            stored,
            setup,
            pushes=self.push.pushes,
            ingress_endpoint=self.ingress.endpoint,
            describe=self._described,
        )
        engine.authority = self._authentication.authority
        return engine

    def stop(self) -> None:
        """Ask the loop to end; safe in a signal handler and from another thread."""
        self._stopping = True
        self._wake_up.wake()

    def run(self) -> None:
        """Serve until `stop`.

        Raises:
            StorageFailedError: the disk refused a write; nothing that depended on it was
                answered.
        """
        self._recorder.begin("proxy", boot=self._boot, durability=self._settings.durability)
        second = threading.Thread(
            target=self._serve, kwargs={"is_loop": False}, name="committer", daemon=True
        )
        second.start()
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
        while not self._stopping:
            woken, ready = self._poll.wait(self._idle_s())
            if self.push.pushes.is_used:
                self.push.new_turn()
            if woken:
                self._wake_up.heard()
                self._take_outcomes()
            for socket in ready:
                if socket is self.push.socket:
                    if self.push.listen():
                        self._poll.look_at.add(socket)
                elif socket is self.ingress.socket:
                    self.ingress.turn(self.engine)
                    self._poll.look_at.add(socket)
                    self._carry_out()
                else:
                    self._take_requests(self._door_of[socket])
            now_s, now_ns = time.monotonic(), time.time_ns()
            if not ready and self.engine.waiting.of:  # else at the tick at the latest
                self.engine.waiting.end(now_s)
            self._end_turn(now_s, now_ns)
            if now_s >= self._tick_at_s:
                self._tick(now_s, now_ns)
            if not self._committer.commit():
                return False
            self._take_outcomes()
            if self.engine.waiting.due:  # what has just become durable is what they wait for
                self._end_turn(now_s, now_ns)
        self._finish()
        return True

    def _idle_s(self) -> float:
        """How long the loop may wait for something to happen."""
        if self.engine.is_turn_due:
            return 0.0
        if not self.engine.waiting.of:
            return TICK_S
        return min(TICK_S, max(self.engine.waiting.ends_at_s - time.monotonic(), 0.0))

    def _take_requests(self, door: FrontDoor) -> None:
        """Take what has come, up to a bound; answers that wait for nothing leave at once."""
        for _ in range(REQUESTS_TURN_MAX):
            if not self.engine.backlog.takes_more(door.role):
                self._stopped.add(door)
                return
            try:
                taken = door.take()
            except zmq.Again:
                return
            if taken is not None:
                asker, frames = taken
                now_s, now_ns = time.monotonic(), time.time_ns()
                self.engine.receive(
                    frames, asker, role=door.role, now_s=now_s, now_ns=now_ns, key=asker.key
                )
                if self.engine.outputs:
                    self._carry_out()
            if not is_readable(door.socket):
                return
        self._poll.look_at.add(door.socket)

    def _end_turn(self, now_s: float, now_ns: int) -> None:
        self.engine.end_turn(now_s=now_s, now_ns=now_ns)
        if self.engine.outputs:
            self._carry_out()
        if self._stopped:
            takes_more = self.engine.backlog.takes_more
            again = {door for door in self._stopped if takes_more(door.role)}
            self._stopped -= again
            self._poll.look_at.update(door.socket for door in again)

    def _finish(self) -> None:
        """Make durable what was taken, and answer the GETs that wait: their clients ask again."""
        self.engine.waiting.end_all()
        while self.engine.is_turn_due:
            self._end_turn(time.monotonic(), time.time_ns())
        self.engine.flush()
        self._carry_out()
        self._committer.close()
        self._take_outcomes()

    def _carry_out(self) -> None:
        """Carry out the outputs of the engine, in their order."""
        outputs = self.engine.outputs
        while outputs:
            match output := outputs.popleft():
                case Answer(asker, frames):
                    asker.answer(frames)
                    self._poll.look_at.add(asker.door.socket)
                case Work(records, lsn):
                    if self._recorder.active:
                        self._journal.submitted(records, lsn)
                    self._committer.submit(output)
                case Visible(batches):
                    self._reader.add(batches)
                case Down():
                    self.push.send(output)
                    self._poll.look_at.add(self.push.socket)
                case Want():
                    self.ingress.tell(output)
                    self._poll.look_at.add(self.ingress.socket)
                case Denial():
                    self._authentication.refused(output)

    def _take_outcomes(self) -> None:
        """Report the results of commits to the engine."""
        while self._committer.outcomes:
            outcome = self._committer.outcomes.popleft()
            if isinstance(outcome, Failed):
                self._carry_out()  # what earlier commits made durable leaves, whatever follows
                self._commit_failed(outcome.error)
            else:
                if self._recorder.active:  # before the replies that depend on it
                    self._journal.durable(outcome.lsn)
                self.engine.committed(outcome.lsn)
        if self.engine.outputs:
            self._carry_out()

    def _commit_failed(self, error: Exception) -> None:
        """A full disk: go back to what is durable. Anything else ends the process."""
        if not isinstance(error, StorageFullError):
            raise error
        segments = (
            check_store(self._state_connection).segments  # what was lost cannot be found in memory
            if self._settings.durability == "snapshot"
            else self.engine.state.durable_segments()
        )
        self._reader.clear()
        with reading():
            stored = read_state(self._state_connection, segments)
        self._committer.restart()
        self._journal.forgotten()
        self.engine.failed(stored, error.why, now_s=time.monotonic())

    def _tick(self, now_s: float, now_ns: int) -> None:
        """Do what is due by time."""
        self._tick_at_s = now_s + TICK_S / 2
        self._look_at_log()
        if changed := self._authentication.look(now_s):
            self.engine.govern(self._authentication.authority)
            self.push.cut(changed)
        self.push.expire(now_s)
        self.engine.tick(now_s=now_s, now_ns=now_ns)
        self._carry_out()

    def _look_at_log(self) -> None:
        """Warn when another program starts to prevent the store's log from being emptied."""
        is_held = self._store.log_held_bytes > 0
        if is_held and not self._log_is_held:
            self._warn(
                f"warning: the log of the store has {self._store.log_held_bytes:,} bytes and "
                "cannot be emptied, because another program reads the store (a sqlite3 shell, a "
                f"backup): end it. At {LOG_BYTES_MAX:,} bytes puts are refused (STORAGE_FULL) "
                "until then"
            )
        self._log_is_held = is_held

    def _described(self, report: StatusReport) -> StatusReport:
        """Add what the engine does not know."""
        state = self.engine.state
        return replace(
            report,
            push=self.push.pushes.status(),
            ingress=self.ingress.status(self.engine),
            store_path=str(self._store.path),
            committer=CommitterStatus(
                queued_records=state.lsn - state.durable_lsn,
                commits=self._committer.commits,
                records=self._committer.records,
                last_commit_ms=self._committer.last_commit_s * 1000,
                storage_full=state.is_storage_full,
                log_held_bytes=self._store.log_held_bytes or UNSET,
            ),
        )

    def _close(self) -> None:
        """Close everything; clients retry requests that were not answered."""
        self._poll.close()
        if self._guard is not None:
            self._guard.close()
        for door in self.doors:
            door.close()
        self.push.close()
        self.ingress.close()
        self._authentication.close()
        self._context.term()
        self._reader.close()
        self._store.close()
        self._wake_up.close()
