"""The engine, the core of the proxy: decide, apply, durable, visible.

A proxy keeps its promise by the order of these four steps:

    decide     what to answer, and which records that takes; nothing changes
    apply      the records change the state in memory; nothing else does
    durable    the store has the records: `committed`
    visible    the answer is sent, and batches are pushed

A reply is sent when the newest record that it depends on is durable (`Decision.visible_at`), so a
crash cannot take back anything that a client has seen.

Values go in, values come out. The shell around it (`server.py`; for seeds
`scripts/simulator/simulated_proxy.py`; in tests `fakes.MemoryProxy`) has socket, disk and clock:

    receive(frames, reply_to)    a request           Answer      frames for a client
    committed(lsn)               the store has it    Work        records for the store
    failed(stored)               the disk was full   Visible     batches that may be read now
    tick(now)                    time has passed
    end_turn()                   no more requests

`outputs` has them in order, with those of features; the simulator tries a crash between any two. A
GET that waits (`waiting_gets.py`) is decided again at the end of a turn in which messages became
visible. Features add verbs and rows for other moments (`feature.py`); the engine names none.

Source: group commit and its order, Gray and Reuter, Transaction Processing (1992), 10.3; the form
(no input, no output), websockets' `Protocol` and h11.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from reliable_pubsub.common.access.core.attendance import Excess
from reliable_pubsub.common.access.core.authorisation import Authority
from reliable_pubsub.common.core.answers import MessageBatches, Refusal
from reliable_pubsub.common.core.batch import ENTRY_BYTES
from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.limits import (
    BODY_BYTES_MAX,
    CACHE_BYTES_MAX,
    HELD_REQUESTS_MAX,
    MIB,
)
from reliable_pubsub.common.core.message_base import Reply, Role
from reliable_pubsub.common.core.requests import AnyRequest, Hello
from reliable_pubsub.common.core.wire import decode_request, encode

from . import applying, broker
from .counts import Counts
from .feature import Arrival, Sender, Tables
from .local_time import LocalTime
from .outputs import Answer, HeldAnswer, Visible, Work
from .records import Decision
from .replies import malformed, misplaced, not_served, too_many
from .sessions import heard
from .state import BrokerSettings, EngineTiming, Record, Setup, State
from .stored import StoredState
from .waiting_gets import OVERTAKEN, WaitingGet, WaitingGets

UNWRITTEN_BYTES_MAX: Final = 16 * MIB  # above it puts, and `snapshot` ACKs, wait for the disk
assert UNWRITTEN_BYTES_MAX + BODY_BYTES_MAX < CACHE_BYTES_MAX  # so all of it can be read


class Engine:
    """The decisions of one proxy process, from the state that its store holds."""

    def __init__(
        self,
        stored: StoredState,
        setup: Setup,
        tables: Tables,
        *,
        timing: EngineTiming = EngineTiming(),  # noqa: B008  (frozen)
    ) -> None:
        """Create an engine from the stored state; `tables` has the rows of its features."""
        self._setup = replace(setup, hooks=tables.hooks)
        self.tables = tables
        self._timing = timing
        self.state = self._new_state(stored)
        self.local = LocalTime()
        self.waiting = WaitingGets(tables.waits, tables.of_subscribers)
        self.sender = Sender()
        self.has_turn_work = False  # for the rows of `turn`
        self.outputs: deque[object] = deque()  # to be carried out in this order
        # What waits for the disk; `takes_more` keeps it bounded (rule R27).
        self.held: deque[HeldAnswer] = deque()
        self._applied: list[Record] = []  # and not handed to the store
        self._is_urgent = False  # an answer waits for one of them
        self._flush_at_s = math.inf  # when they are handed over even if none waits
        self._unwritten: deque[tuple[int, int]] = deque()  # record number, bytes up to it
        self.unwritten_bytes = 0
        self.disk_hangs = False  # a commit takes longer than `disk_patience_s`
        self._looks_for_room_s = 0.0  # when the store is next asked for room, on a full disk
        self.requests_count = 0
        self.malformed_count = 0
        self.counts = Counts()

    def _new_state(self, stored: StoredState) -> State:
        return State(stored, self._setup)

    # Input.

    def govern(self, authority: Authority) -> None:
        """Decide by these rights from now on. GETs that wait are answered, and ask again."""
        gone = self.state.authority.changed(authority)
        self._setup = replace(self._setup, authority=authority)
        self.state.authority = authority
        self.state.interest_version += 1  # a key may be shown more
        self.waiting.end_all()
        for governed in self.tables.governed:
            governed(self, gone)

    def reconfigure(self, settings: BrokerSettings) -> None:
        """Decide by these settings from now on, also after a failed commit."""
        self._setup = replace(self._setup, settings=settings)
        self.state.reconfigure(settings)

    def takes_more(self, role: Role) -> bool:
        """Whether to read more from an endpoint; else its requests stay in ZeroMQ until a commit.

        Subscribers have twice the room, so that puts do not keep gets out.
        """
        shares = 1 if role == "publisher" else 2
        return (
            len(self.held) < shares * HELD_REQUESTS_MAX
            and self.unwritten_bytes <= shares * UNWRITTEN_BYTES_MAX
        )

    def receive(
        self,
        frames: Sequence[bytes],
        reply_to: Any,
        *,
        role: Role,
        now_s: float,
        now_ns: int,
        key: str = "",
        excess: Excess | None = None,
    ) -> None:
        """Take a request; its reply follows once, when the records it depends on are durable.

        Args:
            reply_to: identifies the client; returned with the reply.
            role: of the endpoint that received it.
            now_s: monotonic clock. now_ns: wall clock, for timestamps only.
            key: public key of the connection; "": it has none.
            excess: the key has too many connections; the answer is LIMIT.
        """
        arrival = Arrival(
            reply_to=reply_to, role=role, key=key, excess=excess, now_s=now_s, now_ns=now_ns
        )
        try:
            request, body = decode_request(frames)
        except MalformedError as error:
            if not any(foreign(self, frames, arrival) for foreign in self.tables.foreign):
                self.malformed_count += 1
                self.answer(reply_to, malformed(self.state, str(error)))
            return
        self.requests_count += 1
        if excess is not None:
            self.answer(reply_to, too_many(self.state, request, excess))
            return
        if type(request) not in self.tables.verbs:
            self.malformed_count += 1
            self.answer(reply_to, not_served(self.state, request))
            return
        endpoint = self.tables.endpoints.get(type(request), "subscriber")
        is_here = (request.role if isinstance(request, Hello) else endpoint) in (role, None)
        if is_here:
            self.counts.requests[type(request)] += 1
            self.counts.received_bytes += len(body)
        arrival.is_here = is_here
        for admit in self.tables.admit:
            admitted = admit(self, request, arrival)
            if admitted is None:
                return
            request = admitted
        if is_here:
            self.handle(request, body, reply_to, now_s=now_s, now_ns=now_ns)
            return
        self.malformed_count += 1
        self.answer(reply_to, misplaced(self.state, request, role))

    def handle(
        self, request: AnyRequest, body: bytes, reply_to: Any, *, now_s: float, now_ns: int
    ) -> Decision:
        """Decide a request, apply its records, and answer when they are durable.

        Returns:
            The decision; a GET that waits is decided again.
        """
        self.local.pass_to(self.state, now_s, now_ns)
        renews = self.tables.of_subscribers.get(type(request), False)
        heard(self.state, request, self._setup.attention.at(now_s), renews=renews)
        if self.waiting.of:
            self.waiting.heard(request, reply_to)
        decision = self._decide(request, body, now_ns)
        waits = decision.is_empty and self.waiting.keep(
            self.state, request, reply_to, now_s, self.sender.client
        )
        if not waits:
            self.answer(reply_to, decision.reply, decision.body, decision.visible_at, now_s)
        return decision

    def _decide(self, request: AnyRequest, body: bytes, now_ns: int) -> Decision:
        """Decide, and apply the records of the decision."""
        state = self.state
        kind = type(request)
        decision = self.tables.verbs[kind](state, request, body, now_ns)
        for complete in self.tables.completes.get(kind, ()):
            decision = complete(self, request, decision)
        if state.is_storage_full:
            decision = broker.without_storage(state, request, decision)
        if self.disk_hangs:
            decision = broker.without_waiting(state, request, decision)
        if decision.records:
            for judge in self.tables.judge:
                decision = judge(self, request, decision)
            self._apply(decision.records)
        return decision

    def answer(
        self,
        reply_to: Any,
        reply: Reply,
        body: bytes | None = None,
        visible_at: int = 0,
        now_s: float = 0.0,
    ) -> None:
        """Answer when record number `visible_at` is durable: the newest that the reply reports."""
        frames = encode(reply, body)
        if isinstance(reply, MessageBatches):
            first, last = reply.batches[0], reply.batches[-1]
            self.counts.sent_messages += last.base + last.count - first.base
            self.counts.sent_bytes += len(frames[-1])
        elif isinstance(reply, Refusal):
            self.counts.refusals[type(reply)] += 1
        if visible_at <= self.state.durable_lsn:
            self.outputs.append(Answer(reply_to, frames))
        else:
            self.held.append(HeldAnswer(visible_at, now_s, reply_to, reply, frames))

    def _apply(self, records: Sequence[Record]) -> None:
        applying.apply(self.state, records)
        size_bytes = 0
        for record in records:
            size_bytes += ENTRY_BYTES + len(getattr(record, "body", b""))
            self._is_urgent = self._is_urgent or record.urgent
            if self.waiting.of and record.wakes:
                self.waiting.has_changed(record.wakes)
        self._applied.extend(records)
        self._unwritten.append((self.state.lsn, size_bytes))
        self.unwritten_bytes += size_bytes
        if self._setup.durability == "snapshot" and self.unwritten_bytes <= UNWRITTEN_BYTES_MAX:
            self._show(self.state.lsn)  # memory counts as durable, while all can be read from it

    # Reports of the store.

    def committed(self, lsn: int, *, is_full: bool = False) -> None:
        """Release the replies up to `lsn`, which are stored. If `is_full`, it takes no message."""
        self.disk_hangs, self.state.is_storage_full = False, is_full
        while self._unwritten and self._unwritten[0][0] <= lsn:
            self.unwritten_bytes -= self._unwritten.popleft()[1]
        self._show(lsn)

    def _show(self, lsn: int) -> None:
        """Release the answers that depend on records up to `lsn`; their batches may be read."""
        state = self.state
        batches = applying.committed(state, lsn) if lsn > state.durable_lsn else ()
        for visible in self.tables.visible:
            visible(self, batches)
        while self.held and self.held[0].visible_at <= state.durable_lsn:
            held = self.held.popleft()
            self.outputs.append(Answer(held.reply_to, held.frames))
        if batches:
            self.outputs.append(Visible(batches))
            if self.waiting.of:
                for batch in batches:
                    self.waiting.has_come(state.topic_by_id[batch.topic_id].topic)

    def failed(self, stored: StoredState, why: str, *, now_s: float) -> None:
        """The disk is full: discard all records since the last `committed`.

        The state goes back to what the store holds, and waiting requests are refused.

        Args:
            stored: what the store holds.
            why: the text for clients.
        """
        self.disk_hangs = False
        version = self.state.interest_version  # peers know it, so it must not go back
        self.state = self._new_state(stored)
        self.state.interest_version += version
        self.local.begin(self.state)
        self.state.is_storage_full, self.state.storage_full_why = True, why
        self.state.storage_full_until_s = now_s + self._setup.settings.storage_retry_s
        self._applied, self._is_urgent = [], False
        self._unwritten.clear()
        self.unwritten_bytes = 0
        self._answer_all_held(broker.not_stored)
        self.waiting.end_all()

    def _put_off(self) -> None:
        """The disk does not respond: answer the waiting requests with BUSY.

        Their records stay applied and queued, so a retry is recognised (rules R4, R11, R12).
        """
        self.disk_hangs = True
        self._answer_all_held(broker.not_yet)

    def _answer_all_held(self, instead: Callable[[State, Reply], Reply]) -> None:
        while self.held:
            held = self.held.popleft()
            self.answer(held.reply_to, instead(self.state, held.reply))

    # Time.

    def tick(self, *, now_s: float, now_ns: int) -> None:
        """Do what is due by time.

        Args:
            now_s: monotonic clock. now_ns: wall clock.
        """
        if self.waiting.of:
            self.waiting.end(now_s)
        if self.held and now_s - self.held[0].since_s > self._timing.disk_patience_s:
            self._put_off()
        self.state.leases.now_s = self._setup.attention.at(now_s)
        self.local.look(self.state, now_s, now_ns)
        if due := self._due(now_s):
            self._apply(due)
        for freed in self.tables.freed:
            for topic in freed(self.state):
                self.waiting.has_come(topic)
        if not self._applied:
            self._flush_at_s = math.inf
        elif self._flush_at_s == math.inf:
            self._flush_at_s = now_s + self._timing.lazy_s
        if now_s >= self._flush_at_s:
            self.flush()
        if self.state.is_storage_full and now_s >= self._looks_for_room_s:
            self._looks_for_room_s = now_s + self._setup.settings.storage_retry_s
            self.flush()
            self.outputs.append(Work((), self.state.lsn))
        for row in self.tables.tick:
            row(self)

    def _due(self, now_s: float) -> Sequence[Record]:
        return broker.due(self.state, self.tables, now_s=now_s)

    @property
    def is_turn_due(self) -> bool:
        """Whether `end_turn` has anything to do."""
        return self._is_urgent or self.has_turn_work or bool(self.waiting.due)

    def end_turn(self, *, now_s: float, now_ns: int) -> None:
        """End a turn of the loop: return work that a reply waits for, decide some gets again."""
        if self._is_urgent:
            self.flush()
        if self.has_turn_work:
            more = [turn(self) for turn in self.tables.turn]
            self.has_turn_work = any(more)
        if self.waiting.due:
            self.state.leases.now_s = self._setup.attention.at(now_s)
            for get in self.waiting.turn():
                self._end_wait(get, now_s, now_ns)

    def _end_wait(self, get: WaitingGet, now_s: float, now_ns: int) -> None:
        """Decide a request that has waited; one for which others were faster waits on."""
        request = get.request
        nothing = self.waiting.nothing_for(request)
        if nothing is not None and get.until_s == OVERTAKEN:
            self.answer(get.reply_to, nothing(self.state, request), None, self.state.lsn, now_s)
            return
        self.sender = Sender(get.client, "subscriber", now_s)
        decision = self._decide(request, b"", now_ns)
        waits_on = nothing is not None and decision.is_empty
        if not (waits_on and self.waiting.keep_again(get, now_s)):
            self.answer(get.reply_to, decision.reply, decision.body, decision.visible_at, now_s)

    def flush(self) -> None:
        """Return all work, including the cursors that came with a GET."""
        if self._applied:
            self.outputs.append(Work(self._applied, self.state.lsn))
            self._applied, self._is_urgent = [], False
