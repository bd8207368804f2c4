"""The server: one loop thread that owns the state, and the law in one place (`_serve`)."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import zmq
from msgspec import UNSET, Struct
from msgspec.structs import replace

from reliable_pubsub.common.errors import MalformedError
from reliable_pubsub.common.limits import BODY_BYTES_MAX, CACHE_BYTES_MAX, MIB
from reliable_pubsub.common.messages import (
    Abort,
    AnyReply,
    AnyRequest,
    Commit,
    CommitterStatus,
    Delivery,
    Durability,
    Hello,
    Listeners,
    ListenersReport,
    Put,
    Refusal,
    Ring,
    Role,
    Stage,
    Status,
    StatusReport,
)
from reliable_pubsub.common.recorder import Recorder
from reliable_pubsub.common.system import WakeUp
from reliable_pubsub.common.wire import decode_request, encode_reply
from reliable_pubsub.relay.sockets import Receiver
from reliable_pubsub.relay.wire import is_for_node

from .broker import Broker
from .check import BadRange, Checked, check_store
from .committer import Committer, Failed
from .front_door import FrontDoor
from .history import ProxyHistory
from .ingress import Ingress
from .log_check import LogDamage
from .log_reader import ENTRY_BYTES, StoreReader
from .push import Push, PushSettings
from .records import Appended, Decision, Record, StoredState
from .ring import Rings
from .socket_poll import SocketPoll
from .state import BrokerSettings
from .store import LOG_BYTES_MAX, StorageFullError, Store, open_reader, read_state, reading

DISK_PATIENCE_S = 1.0  # an answer that waits longer is put off: a REP socket serves others
TICK_S = 0.1  # lazy cursors are at most so much older on disk than in memory
SUBSCRIBER_SOCKETS = 4  # gets are answered at once, so few are enough
UNWRITTEN_BYTES_MAX = 16 * MIB  # durability `snapshot`: above this an ACK waits for the disk
assert UNWRITTEN_BYTES_MAX + BODY_BYTES_MAX < CACHE_BYTES_MAX  # so all of it can be read


class ServerSettings(Struct, frozen=True, kw_only=True):
    """Where a proxy lives and how it keeps its promise."""

    data_dir: Path
    publisher_endpoint: str
    subscriber_endpoint: str
    push: PushSettings
    ingress: PushSettings
    durability: Durability = "sync"
    snapshot_interval_s: float = 0.01
    rep_sockets: int = 32
    accept_loss: bool = False
    broker: BrokerSettings = BrokerSettings()


class _Held(Struct, frozen=True):
    """An answer that waits for the disk."""

    visible_at: int
    since_s: float
    socket: zmq.Socket[bytes]
    reply: AnyReply
    frames: list[bytes]  # encoded while the disk is busy


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
        """Lock, check and read the store; then bind, so that nobody is answered from a bad one.

        Args:
            warn: told, once, of what an operator has to look at while the proxy runs.
            recorder: writes the history of this life; None writes none.

        Raises:
            InUseError, DamagedError, ConfigurationError: as `Store`, `check_store`, `FrontDoor`.
        """
        self._settings = settings
        self._warn = warn
        self._log_is_held = False
        self._snapshot = settings.durability == "snapshot"
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
            connection = open_reader(self._store.path)
            self._reader = StoreReader(connection)
            self._state_connection = connection
            self._boot = secrets.token_hex(8)
            self._rings = Rings()
            with reading():
                stored = read_state(connection, self.checked.segments)
            self.broker = self._new_broker(stored, None)
            self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            self.doors = [
                FrontDoor(
                    self._context,
                    "publisher",
                    settings.publisher_endpoint,
                    settings.rep_sockets,
                ),
                FrontDoor(
                    self._context, "subscriber", settings.subscriber_endpoint, SUBSCRIBER_SOCKETS
                ),
            ]
            self.push = Push(self._context, settings.push, boot=self._boot)
            self.ingress = Ingress(self._context, settings.ingress, self.push)
            self.ingress.look_at_all(self.broker)
        except BaseException:
            self._store.close()
            raise
        self._wake_up = WakeUp()
        self._committer = Committer(
            self._store,
            wake=self._wake_up.wake,
            interval_s=settings.snapshot_interval_s if self._snapshot else 0.0,
        )
        self._recorder = recorder or Recorder()
        self._history = ProxyHistory(
            self._recorder, [(log.topic_id, log.topic) for log in self.broker.topics.values()]
        )
        self._held: deque[_Held] = deque()
        self._disk_hangs = False  # since a commit takes longer than answers wait
        self._requests_count = self._malformed_count = 0
        self._unwritten: deque[tuple[int, int]] = deque()  # record number, bytes
        self._unwritten_bytes = 0
        self._tick_at_s = 0.0
        self._lazy_at_s: float | None = None
        self._stopping = False

    def _new_broker(
        self, stored: StoredState, storage_full_until_s: float | None, why: str = ""
    ) -> Broker:
        return Broker(
            stored,
            boot=self._boot,
            reader=self._reader,
            durability=self._settings.durability,
            settings=self._settings.broker,
            storage_full_until_s=storage_full_until_s,
            storage_full_why=why,
            rings=self._rings,
        )

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
        self._committer.start()
        roles = {socket: door.role for door in self.doors for socket in door.sockets}
        self._receivers = {socket: Receiver(socket) for socket in roles}
        self._poll = SocketPoll(
            [*roles, self.push.socket, self.ingress.socket],
            self._wake_up.descriptor,
            unasked=self.push.socket,
        )
        try:
            while not self._stopping:
                woken, ready = self._poll.wait(TICK_S)
                if woken:
                    self._wake_up.heard()
                    self._settle()
                for socket in ready:
                    if socket is self.push.socket:
                        if self.push.listen():
                            self._poll.look_at(socket)
                    elif socket is self.ingress.socket:
                        self.ingress.turn(self.broker)
                        self._poll.look_at(socket)
                    else:
                        self._serve(socket, roles[socket])
                self._committer.hand_over()
                if self.push.turn():
                    self._poll.look_at(self.push.socket)
                self._tick()
            self._committer.close()
            self._settle()
        except BaseException as error:
            self._recorder.end(error)
            raise
        else:
            self._recorder.end()
        finally:
            self._close()

    # The law: decide, apply, durable, then visible.

    def _serve(self, socket: zmq.Socket[bytes], role: Role) -> None:
        """Take one request; answer it once, now or when what it rests on is durable."""
        try:
            taken = self._receivers[socket].take()
        except zmq.Again:
            taken = None
        if taken is None:  # an envelope without delimiter is no request; a long one goes on
            self._poll.look_at(socket)
            return
        _, frames = taken
        try:
            request, body = decode_request(frames)
        except MalformedError as error:
            if role == "subscriber" and is_for_node(frames):
                reply = self.push.answer(frames, time.monotonic())
                self._send(socket, encode_reply(reply))
                return
            self._malformed_count += 1
            self._send(socket, encode_reply(self.broker.malformed(str(error))))
            return
        self._requests_count += 1
        if not _belongs(request, role):
            self._malformed_count += 1
            text = f"{type(request).__name__.upper()} does not belong on the {role} endpoint"
            self._send(socket, encode_reply(self.broker.malformed(text, request)))
            return
        now_s = time.monotonic()
        self.broker.heard(request, now_s)
        decision = self.broker.decide(request, body, now_ns=time.time_ns())  # decide,
        if self._disk_hangs:
            decision = self.broker.without_waiting(request, decision)
        if decision.records:
            self.broker.apply(decision.records)  # apply,
            self._submit(decision.records)  # durable,
        if isinstance(request, Ring) and not isinstance(decision.reply, Refusal):
            self._rings.asked(request.topic, request.client, request.place)
        if decision.visible_at <= self.broker.durable_lsn:  # then visible
            self._answer(socket, decision)
        else:
            frames = encode_reply(decision.reply, decision.body)
            self._held.append(_Held(decision.visible_at, now_s, socket, decision.reply, frames))

    def _submit(self, records: Sequence[Record]) -> None:
        """Give records to the committer."""
        self._committer.submit(records, self.broker.lsn)
        self._history.submitted(records, self.broker.lsn)
        self.ingress.look_at(self.broker, records)
        if self._snapshot:
            size = sum(ENTRY_BYTES + len(getattr(r, "body", b"")) for r in records)
            self._unwritten.append((self.broker.lsn, size))
            self._unwritten_bytes += size
            if self._unwritten_bytes <= UNWRITTEN_BYTES_MAX:
                # The lossy mode, by choice: what is in memory counts as durable.
                self._show(self.broker.committed(self.broker.lsn))

    def _settle(self) -> None:
        """Take the committer's outcomes: make visible what is durable."""
        newest: list[Appended] = []
        while self._committer.outcomes:
            outcome = self._committer.outcomes.popleft()
            self._disk_hangs = False
            if isinstance(outcome, Failed):
                self._release()
                self._commit_failed(outcome.error)
                continue
            while self._unwritten and self._unwritten[0][0] <= outcome.lsn:
                self._unwritten_bytes -= self._unwritten.popleft()[1]
            self._history.durable(outcome.lsn)
            if outcome.lsn > self.broker.durable_lsn:
                newest += self.broker.committed(outcome.lsn)
        self._release()
        self._show(newest)

    def _show(self, batches: Sequence[Appended]) -> None:
        """From here on these are seen: by whoever asks, and by whom they are pushed to."""
        self._reader.add(batches)
        for batch in batches:
            log = self.broker.topic_of(batch)
            self.push.take(log.topic, log.log, batch)

    def _release(self) -> None:
        """Let the answers leave that rest on nothing pending any more."""
        while self._held and self._held[0].visible_at <= self.broker.durable_lsn:
            held = self._held.popleft()
            self._send(held.socket, held.frames)

    def _put_off(self) -> None:
        """The disk does not answer: let the answers that wait for it be asked for again.

        Their records stay applied and under way; the repeat is known by them (rules R4, R11, R12).
        """
        self._disk_hangs = True
        while self._held:
            held = self._held.popleft()
            self._send(held.socket, encode_reply(self.broker.not_yet(held.reply)))

    def _commit_failed(self, error: Exception) -> None:
        """A full disk: go back to what is durable, refuse what waited. Anything else ends us."""
        if not isinstance(error, StorageFullError):
            raise error
        until_s = time.monotonic() + self._settings.broker.storage_retry_s
        segments = (
            check_store(self._state_connection).segments  # in memory nothing tells what was lost
            if self._snapshot
            else self.broker.durable_segments()
        )
        self._reader.clear()
        with reading():
            stored = read_state(self._state_connection, segments)
        self.broker = self._new_broker(stored, until_s, error.why)
        self.ingress.look_at_all(self.broker)
        self._committer.restart()
        self._history.forgotten()
        self._unwritten.clear()
        self._unwritten_bytes = 0
        while self._held:
            held = self._held.popleft()
            self._send(held.socket, encode_reply(self.broker.not_stored(held.reply)))

    def _tick(self) -> None:
        """Do what is due by time."""
        now_s = time.monotonic()
        if now_s < self._tick_at_s:
            return
        self._tick_at_s = now_s + TICK_S / 2
        if self._held and now_s - self._held[0].since_s > DISK_PATIENCE_S:
            self._put_off()
        self._look_at_log()
        self.push.expire(now_s)
        self.ingress.connections.look(now_s)
        for door in self.doors:
            door.connections.look(now_s)
        self.ingress.tell()
        self._poll.look_at(self.ingress.socket)
        due = self.broker.tick(now_s=now_s, now_ns=time.time_ns())
        if due:
            self.broker.apply(due)
            self._submit(due)
        if not self._committer.waiting:
            self._lazy_at_s = None
        elif self._lazy_at_s is None:
            self._lazy_at_s = now_s + TICK_S
        elif now_s >= self._lazy_at_s:
            self._committer.flush()

    def _look_at_log(self) -> None:
        """Say when another program begins to keep the log of the store from being emptied."""
        is_held = self._store.log_held_bytes > 0
        if is_held and not self._log_is_held:
            self._warn(
                f"warning: the log of the store has {self._store.log_held_bytes:,} bytes and "
                "cannot be emptied, because another program reads the store (a sqlite3 shell, a "
                f"backup): end it. At {LOG_BYTES_MAX:,} bytes puts are refused (STORAGE_FULL) "
                "until then"
            )
        self._log_is_held = is_held

    def _answer(self, socket: zmq.Socket[bytes], decision: Decision) -> None:
        reply: AnyReply = decision.reply
        if isinstance(reply, StatusReport):
            reply = self._completed(reply)
        elif isinstance(reply, ListenersReport):
            reply = replace(
                reply,
                pushed=self.push.is_wanted(reply.topic),
                ingress_endpoint=self.ingress.endpoint,
            )
        self._send(socket, encode_reply(reply, decision.body))

    def _send(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        socket.send_multipart(frames)
        self._poll.look_at(socket)

    def _completed(self, report: StatusReport) -> StatusReport:
        """Add what the core does not know."""
        return replace(
            report,
            requests_count=self._requests_count,
            dropped_requests=self._malformed_count,
            push=self.push.status(),
            ingress=self.ingress.status(),
            store_path=str(self._store.path),
            committer=CommitterStatus(
                queued_records=self.broker.lsn - self.broker.durable_lsn,
                commits=self._committer.commits,
                records=self._committer.records,
                last_commit_ms=self._committer.last_commit_s * 1000,
                storage_full=self.broker.storage_full,
                log_held_bytes=self._store.log_held_bytes or UNSET,
            ),
        )

    def _close(self) -> None:
        """Close everything; an answer still under way is asked for again by its client."""
        self._poll.close()
        for door in self.doors:
            door.close()
        self.push.close()
        self.ingress.close()
        self._context.term()  # the doors' threads close their sockets and end
        for door in self.doors:
            door.join()
        self._reader.close()
        self._store.close()
        self._wake_up.close()


def _belongs(request: AnyRequest, role: Role) -> bool:
    """Whether a verb may come in at this endpoint."""
    match request:
        case Hello():
            return request.role == role
        case Status():
            return True
        case Put() | Stage() | Commit() | Abort() | Listeners() | Delivery():
            return role == "publisher"
        case _:
            return role == "subscriber"
