"""Plain builders and fakes: a proxy without disk, a link that obeys, a clock that jumps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import astuple, replace

from reliable_pubsub.common.access.core.authorisation import Denial
from reliable_pubsub.common.core.actions import AdminRequest, AnyAction
from reliable_pubsub.common.core.answers import AnyReply, MessageBatches, SubAck
from reliable_pubsub.common.core.attention import Attention
from reliable_pubsub.common.core.batch import Batch, crc32, whole_batches
from reliable_pubsub.common.core.client_state import MARKS_MAX, ClientState
from reliable_pubsub.common.core.errors import StorageFailedError
from reliable_pubsub.common.core.message_base import Role, Start, StoredQoS, Terms
from reliable_pubsub.common.core.requests import (
    Ack,
    AnyRequest,
    Bye,
    Get,
    Hello,
    History,
    Put,
    Sub,
    Unsub,
)
from reliable_pubsub.common.core.retry import Clock, RetryPolicy, Transport
from reliable_pubsub.common.core.transaction_messages import Abort, Commit, Part, Stage
from reliable_pubsub.common.core.wire import decode_reply, decode_request, encode_batch
from reliable_pubsub.common.world import World
from reliable_pubsub.proxy.access.accounts import Accounts, StoredCharge
from reliable_pubsub.proxy.core.applying import apply, committed
from reliable_pubsub.proxy.core.batches import BatchReader, LogBatch
from reliable_pubsub.proxy.core.broker import without_storage
from reliable_pubsub.proxy.core.engine import Engine
from reliable_pubsub.proxy.core.feature import Tables
from reliable_pubsub.proxy.core.outputs import Answer as AnswerToSend
from reliable_pubsub.proxy.core.outputs import Visible, Work
from reliable_pubsub.proxy.core.records import Appended, Decision, Granted, TopicCreated, Trimmed
from reliable_pubsub.proxy.core.state import BrokerSettings, Hooks, Record, Setup, State
from reliable_pubsub.proxy.core.stored import (
    StoredPublisher,
    StoredSession,
    StoredState,
    StoredSubscription,
    StoredTopic,
)
from reliable_pubsub.proxy.features import TABLES
from reliable_pubsub.proxy.groups.state import Group, GroupIndex, StoredGroup, at_rest
from reliable_pubsub.proxy.operators.history import Administration, StoredAction, StoredPause
from reliable_pubsub.proxy.patterns.index import PatternIndex, StoredPattern
from reliable_pubsub.proxy.transactions.staging import Staging, StoredTransaction

EMPTY = StoredState("0123456789abcdef")
LOG = "0123456789abcdef.1"  # log id of the first topic of that store
NONCE = b"nonce-01"
SECOND_NS = 1_000_000_000
NOW_NS = 1_700_000_000 * SECOND_NS  # any wall clock will do


# Requests with sensible defaults; a test names only the fields that it is about.


def a_body(*payloads: bytes) -> bytes:
    """An encoded batch."""
    return encode_batch(Batch(payloads))


def put_body(sequence: int, count: int = 1) -> bytes:
    """The body that `a_put(sequence, count=count)` announces: payloads m1, m2, ..."""
    return a_body(*(b"m%d" % number for number in range(sequence, sequence + count)))


def a_put(
    sequence: int,
    *,
    count: int = 1,
    topic: str = "t",
    client: str = "p",
    epoch: int = 1,
    body: bytes | None = None,
    request: int = 1,
    qos: StoredQoS = 2,
) -> Put:
    """A put whose body is `put_body(sequence, count)`, or another one."""
    return Put(
        client=client,
        epoch=epoch,
        request=request,
        topic=topic,
        first_sequence=sequence,
        count=count,
        crc=crc32(put_body(sequence, count) if body is None else body),
        qos=qos,
    )


def a_stage(
    transaction: int,
    chunk: int = 0,
    *,
    topic: str = "t",
    body: bytes | None = None,
    count: int = 1,
    task: int = 0,
    attempt: bytes = NONCE,
    first_sequence: int | None = None,
    client: str = "p",
) -> Stage:
    """A batch of a transaction, with the body `put_body(1, count)` or another one."""
    return Stage(
        client=client,
        epoch=1,
        request=1,
        transaction=transaction,
        task=task,
        attempt=attempt,
        chunk=chunk,
        topic=topic,
        count=count,
        crc=crc32(put_body(1, count) if body is None else body),
        first_sequence=first_sequence,
    )


def a_commit(
    transaction: int,
    *parts: tuple[int, bytes, int],
    digest: bytes | None = None,
    client: str = "p",
    epoch: int = 1,
) -> Commit:
    """A commit of parts: task, attempt, how many batches. If none is said, of one batch."""
    named = tuple(Part(*part) for part in parts or [(0, NONCE, 1)])
    return Commit(
        client=client, epoch=epoch, request=1, transaction=transaction, parts=named, digest=digest
    )


def an_abort(transaction: int, *, client: str = "p", epoch: int = 1) -> Abort:
    """A writer drops a transaction."""
    return Abort(client=client, epoch=epoch, request=1, transaction=transaction)


def an_action(
    do: AnyAction, *, number: int = 0, nonce: bytes = NONCE, client: str = "admin-0123abcd"
) -> AdminRequest:
    """An operator looks at an action; with its number, does it."""
    return AdminRequest(client=client, epoch=0, request=1, do=do, number=number, nonce=nonce)


def a_hello(
    role: Role,
    client: str,
    *,
    epoch: int = 1,
    nonce: bytes = NONCE,
    topics: tuple[str, ...] = (),
) -> Hello:
    """A client asks for an epoch."""
    return Hello(client=client, epoch=epoch, request=1, role=role, nonce=nonce, topics=topics)


def a_sub(
    control: int = 1,
    *,
    topic: str = "t",
    client: str = "s",
    epoch: int = 1,
    log: str | None = None,
    cursor: int | None = None,
    witness_ns: int | None = None,
    start: Start | None = None,
    seeks: bool = False,
    terms: Terms = Terms(),  # noqa: B008  (frozen)
) -> Sub:
    """A subscriber subscribes; with a cursor and no log it seeks to that offset."""
    if cursor is not None and log is None:
        start, cursor, seeks = Start("offset", cursor), None, True
    return Sub(
        client=client,
        epoch=epoch,
        request=control,
        topic=topic,
        control=control,
        log=log,
        cursor=cursor,
        witness_ns=witness_ns,
        start=start,
        seeks=seeks or UNSET,
        terms=terms,
    )


def an_unsub(control: int, *, topic: str = "t", client: str = "s", epoch: int = 1) -> Unsub:
    """A subscriber ends its subscription."""
    return Unsub(client=client, epoch=epoch, request=control, topic=topic, control=control)


def a_bye(*, client: str = "s", epoch: int = 1) -> Bye:
    """A subscriber leaves."""
    return Bye(client=client, epoch=epoch, request=9)


def a_get(
    cursor: int,
    *,
    generation: int = 1,
    boot: str = "boot-1",
    messages_max: int = 1,
    bytes_max: int = 1 << 20,
    client: str = "s",
    epoch: int = 1,
    topic: str = "t",
    request: int = 1,
    wait_ms: int | UnsetType = UNSET,
    ring: int | UnsetType = UNSET,
) -> Get:
    """A subscriber looks at what follows its cursor."""
    return Get(
        client=client,
        epoch=epoch,
        request=request,
        topic=topic,
        generation=generation,
        boot=boot,
        cursor=cursor,
        messages_max=messages_max,
        bytes_max=bytes_max,
        wait_ms=wait_ms,
        ring=ring,
    )


def an_ack(cursor: int, *, generation: int = 1, boot: str = "boot-1", client: str = "s") -> Ack:
    """A subscriber acknowledges durably."""
    return Ack(
        client=client,
        epoch=1,
        request=1,
        topic="t",
        generation=generation,
        boot=boot,
        cursor=cursor,
    )


def a_history(
    start: int | Start,
    *,
    topic: str = "t",
    messages_max: int = 1,
    log: str | None = None,
    witness_ns: int | None = None,
) -> History:
    """A client reads the log, from an offset or another place."""
    return History(
        client="reader",
        epoch=0,
        request=1,
        topic=topic,
        start=Start("offset", start) if isinstance(start, int) else start,
        log=log,
        witness_ns=witness_ns,
        messages_max=messages_max,
    )


def an_append(
    base: int,
    *,
    count: int = 1,
    topic_id: int = 1,
    publisher: str = "p",
    sequence: int | None = None,
    timestamp_ns: int | None = None,
    body: bytes | None = None,
) -> Appended:
    """A batch as the log holds it; by default the publisher is alone in its topic."""
    body = put_body(base + 1, count) if body is None else body
    return Appended(
        topic_id,
        base,
        count,
        publisher,
        1,
        base + 1 if sequence is None else sequence,
        NOW_NS + base if timestamp_ns is None else timestamp_ns,
        crc32(body),
        body,
    )


# The proxy of the tests.


class MemoryLog:
    """A `BatchReader` over a list; it holds what was committed."""

    def __init__(self) -> None:
        self.batches: dict[int, list[LogBatch]] = {}

    def add(self, batches: Iterable[LogBatch]) -> None:
        """Show batches."""
        for batch in batches:
            self.batches.setdefault(batch.topic_id, []).append(batch)

    def trim(self, trimmed: Trimmed) -> None:
        """Remove what lies below the new start."""
        kept = self.batches.get(trimmed.topic_id, [])
        self.batches[trimmed.topic_id] = [batch for batch in kept if batch.base >= trimmed.start]

    def read(
        self, topic_id: int, offset: int, *, messages_max: int, bytes_max: int
    ) -> list[LogBatch]:
        """See `storage.BatchReader.read`."""
        pairs = ((batch, batch.body) for batch in self.batches.get(topic_id, []))
        found = whole_batches(pairs, offset, messages_max=messages_max, bytes_max=bytes_max)
        return [batch for batch, _ in found]

    def timestamp_ns(self, topic_id: int, offset: int) -> int | None:
        """See `storage.BatchReader.timestamp_ns`."""
        for batch in self.batches.get(topic_id, []):
            if batch.base <= offset < batch.end:
                return batch.timestamp_ns
        return None

    def first_since(self, topic_id: int, base: int, end: int, timestamp_ns: int) -> int | None:
        """See `storage.BatchReader.first_since`."""
        for batch in self.batches.get(topic_id, []):
            if base <= batch.base < end and batch.timestamp_ns >= timestamp_ns:
                return batch.base
        return None

    def find(self, topic_id: int, publisher: str, sequence: int) -> LogBatch | None:
        """See `storage.BatchReader.find`."""
        for batch in self.batches.get(topic_id, []):
            inside = batch.first_sequence <= sequence <= batch.last_sequence
            if batch.publisher == publisher and inside:
                return batch
        return None


def a_setup(
    reader: BatchReader | None = None,
    *,
    boot: str = "boot-1",
    settings: BrokerSettings = BrokerSettings(),  # noqa: B008  (frozen)
    hooks: Hooks = TABLES.hooks,
) -> Setup:
    """The settings of a start of a proxy, besides its stored state."""
    # Its clock jumps where nothing happens, and that is no pause of it.
    attention = Attention(tick_s=inf)
    return Setup(
        boot=boot,
        reader=reader or MemoryLog(),
        settings=settings,
        attention=attention,
        hooks=hooks,
    )


def decide(state: State, request: AnyRequest, body: bytes, *, now_ns: int) -> Decision:
    """What a proxy decides; nothing changes."""
    return without_storage(
        state, request, TABLES.verbs[type(request)](state, request, body, now_ns)
    )


class MemoryProxy:
    """The engine with a disk in memory.

    `decide` takes a request; `commit` is the disk; `ask` is both. `restarted` is what comes up
    after `kill -9`: it knows what was committed and nothing else.

    A GET that waits is answered as soon as there is something for it: `send` asks and `answer_to`
    looks for the answer. To a caller of `frames`, who can do nothing meanwhile, the wait is time
    that passes, on `clock` too; `meanwhile` is what others do in it.
    """

    clock: FakeClock | None = None

    def __init__(
        self,
        stored: StoredState = EMPTY,
        *,
        settings: BrokerSettings = BrokerSettings(),  # noqa: B008  (frozen)
        boot: str = "boot-1",
        log: MemoryLog | None = None,
        attention: Attention | None = None,
        tables: Tables = TABLES,
    ) -> None:
        self.settings, self.tables = settings, tables
        self.log = log or MemoryLog()
        setup = a_setup(self.log, boot=boot, settings=settings)
        self.engine = Engine(stored, replace(setup, attention=attention or setup.attention), tables)
        self.now_ns = NOW_NS
        self.now_s = 0.0  # monotonic clock, as of the last tick
        self.is_full = False  # its disk
        self.uncommitted: list[Record] = []
        self.durable = State(stored, a_setup(settings=settings, hooks=tables.hooks))
        self.boots = 1
        self.meanwhile: Callable[[], object] = lambda: None
        self._answers: dict[object, list[bytes]] = {}
        self.denials: list[Denial] = []

    @property
    def state(self) -> State:
        return self.engine.state

    def allow(self, **settings: int) -> None:
        """Be a proxy whose operator has chosen other limits."""
        self.settings = self.state.settings = replace(self.settings, **settings)

    def decide(
        self, request: AnyRequest, body: bytes = b"", *, reply_to: object = None
    ) -> Decision:
        """Decide and apply; nothing is durable yet."""
        now_s, now_ns = self.now_s, self.now_ns
        decision = self.engine.handle(request, body, reply_to, now_s=now_s, now_ns=now_ns)
        self._carry_out()
        return decision

    def send(self, request: AnyRequest, body: bytes = b"", *, reply_to: object = None) -> object:
        """Ask; nothing is durable yet. Give the return address."""
        reply_to = object() if reply_to is None else reply_to
        self.decide(request, body, reply_to=reply_to)
        return reply_to

    def answer_to(self, reply_to: object) -> AnyReply | None:
        """The answer that has come to a return address; None: it is still to come."""
        frames = self._answers.pop(reply_to, None)
        return None if frames is None else decode_reply(frames)[0]

    def commit(self) -> None:
        """Everything applied becomes durable."""
        apply(self.durable, self.uncommitted)
        committed(self.durable, self.durable.lsn)
        for record in self.uncommitted:
            if isinstance(record, Trimmed):
                self.log.trim(record)
        self.uncommitted = []
        self.engine.committed(self.state.lsn, is_full=self.is_full)
        self._carry_out()

    def _carry_out(self) -> None:
        self.engine.flush()
        self._carry_out_outputs()
        while self.engine.waiting.due:
            self.engine.end_turn(now_s=self.now_s, now_ns=self.now_ns)
            self._carry_out_outputs()

    def _carry_out_outputs(self) -> None:
        while self.engine.outputs:
            output = self.engine.outputs.popleft()
            match output:
                case Work(records):
                    self.uncommitted += records
                case Visible(batches):
                    self.log.add(batches)
                case AnswerToSend(reply_to, frames) if reply_to is not None:
                    assert reply_to not in self._answers, "two answers to one request"
                    self._answers[reply_to] = frames
                case Denial():
                    self.denials.append(output)

    def ask(self, request: AnyRequest, body: bytes = b"") -> AnyReply:
        """Decide, apply, durable, then visible."""
        decision = self.decide(request, body)
        self.commit()
        assert decision.visible_at <= self.state.durable_lsn
        return decision.reply

    def put(
        self, sequence: int, *, count: int = 1, topic: str = "t", client: str = "p"
    ) -> AnyReply:
        """Put the batch that begins with this sequence."""
        request = a_put(sequence, count=count, topic=topic, client=client)
        return self.ask(request, put_body(sequence, count))

    def tick(self, *, now_s: float = 1.0) -> None:
        """Let due work be done, and make it durable."""
        self.now_s = now_s
        self.engine.tick(now_s=now_s, now_ns=self.now_ns)
        self._carry_out()
        self.commit()

    def restarted(self) -> MemoryProxy:
        """Kill this proxy; start it again from what is durable."""
        boot = f"boot-{self.boots + 1}"
        stored = as_stored(self.durable)
        given: dict[str, Any] = {"settings": self.settings, "log": self.log, "tables": self.tables}
        next_one = MemoryProxy(stored, boot=boot, **given)
        next_one.boots = self.boots + 1
        next_one.clock, next_one.meanwhile = self.clock, self.meanwhile
        return next_one

    def frames(self, frames: Sequence[bytes]) -> list[bytes]:
        """Answer a request as it comes from the wire."""
        request, body = decode_request(frames)
        reply_to = self.send(request, body)
        self.commit()
        if reply_to not in self._answers:
            self.meanwhile()
        if reply_to not in self._answers:
            waited_s = self.engine.waiting.ends_at_s - self.now_s
            if self.clock is not None:
                self.clock.time_s += waited_s
            self.tick(now_s=self.now_s + waited_s)
        return self._answers.pop(reply_to)

    def take(self, records: Sequence[Record]) -> None:
        """Apply records that no request asked for; `commit` makes them durable."""
        self.engine._apply(records)
        self._carry_out()


def a_broker(
    stored: StoredState = EMPTY,
    *,
    publishers: Sequence[str] = ("p",),
    subscribers: Sequence[str] = ("s",),
    settings: BrokerSettings = BrokerSettings(),  # noqa: B008  (frozen)
    log: MemoryLog | None = None,
    attention: Attention | None = None,
) -> MemoryProxy:
    """A proxy that has said hello to its clients, epoch 1 each."""
    proxy = MemoryProxy(stored, settings=settings, log=log, attention=attention)
    for client in publishers:
        proxy.ask(a_hello("publisher", client))
    for client in subscribers:
        proxy.ask(a_hello("subscriber", client))
    return proxy


def greeted(role: Role, client: str) -> Granted:
    """The record of a client's first epoch."""
    return Granted(role, client, 1, NONCE)


def a_beginning() -> list[Record]:
    """The records after which topic 1, a publisher and a subscriber exist."""
    return [greeted("publisher", "p"), greeted("subscriber", "s"), TopicCreated(1, "t", LOG)]


def as_stored(state: State) -> StoredState:
    """The durable state as one value, in a fixed order, to build from or to compare."""
    return StoredState(
        state.store_id,
        [
            StoredTopic(
                log.topic_id,
                log.topic,
                log.log,
                log.start,
                log.end,
                log.timestamp_ns,
                [replace(one, since_ns=one.timestamp_ns) for one in log.segment_values()],
                [
                    StoredPublisher(name, mark.first_sequence, mark.count, mark.base, mark.crc, qos)
                    for qos, marks in ((1, log.unnumbered), (2, log.publishers))
                    for name, mark in sorted(marks.items())
                ],
                [
                    StoredSubscription(
                        name,
                        one.generation,
                        one.cursor,
                        one.active,
                        one.shown,
                        one.terms,
                        one.expired,
                        one.moved,
                        one.skipped,
                    )
                    for name, one in sorted(log.subscriptions.items())
                ],
                log.topic in state.deleted_topics,
            )
            for log in sorted(state.topics.values(), key=lambda log: log.topic_id)
        ],
        [
            StoredSession(role, client, session.epoch, session.nonce, session.control)
            for (role, client), session in sorted(state.sessions.items())
        ],
        state.epoch_floor,
        state.generation_floor,
        _rows_of_features(state),
    )


def _rows_of_features(state: State) -> dict[type[Any], list[Any]]:
    paused = state.part(Administration).paused
    return {
        StoredGroup: [
            StoredGroup(
                topic_id,
                name,
                one.terms,
                at_rest(one.runs),
                tuple(one.members.values()),
                one.lost,
            )
            for topic_id, groups in sorted(state.part(GroupIndex).of.items())
            for name, one in sorted(groups.items())
        ],
        StoredTransaction: [
            StoredTransaction(client, one.transaction, one.digest, one.receipts)
            for client, one in sorted(state.part(Staging).last.items())
        ],
        StoredAction: [
            StoredAction(*astuple(one)) for one in state.part(Administration).newest.values()
        ],
        StoredPause: [] if paused is None else [StoredPause(paused)],
        StoredPattern: [
            StoredPattern(subscriber, pattern, one.terms, one.reader)
            for subscriber, patterns in sorted(state.part(PatternIndex).of.items())
            for pattern, one in sorted(patterns.items())
        ],
        StoredCharge: state.part(Accounts).charges(),
    }


def groups_of(state: State, topic: str = "t") -> Mapping[str, Group]:
    """The groups of a topic."""
    return state.part(GroupIndex).in_topic(state.topics[topic])


def in_order(stored: StoredState) -> StoredState:
    """The same state in the order of `as_stored`, so that two can be compared."""
    return StoredState(
        stored.store_id,
        [
            replace(
                topic,
                segments=list(topic.segments),
                publishers=sorted(topic.publishers, key=lambda one: (one.qos, one.publisher)),
                subscriptions=sorted(topic.subscriptions, key=lambda one: one.subscriber),
            )
            for topic in sorted(stored.topics, key=lambda one: one.topic_id)
        ],
        sorted(stored.sessions, key=lambda one: (one.role, one.client)),
        stored.epoch_floor,
        stored.generation_floor,
        {
            kind: sorted(rows, key=lambda one: one.number)
            if kind is StoredAction
            else sorted(rows, key=astuple)
            for kind, rows in stored.rows.items()
        },
    )


def shown(reply: AnyReply) -> list[tuple[int, int]]:
    """Which batches a MESSAGE shows, as (base, count)."""
    assert isinstance(reply, MessageBatches), reply
    return [(header.base, header.count) for header in reply.batches]


def sub_ack(reply: AnyReply) -> SubAck:
    """The answer, which must be a SUB_ACK."""
    assert isinstance(reply, SubAck), reply
    return reply


# The clients' surroundings.

PATIENT = RetryPolicy(timeout_s=2.0, retries_max=10)


class FakeClock:
    """Time that passes only when a client waits."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.sleeps: list[float] = []

    def now_s(self) -> float:
        """See `retry.Clock`."""
        return self.time_s

    def sleep(self, seconds: float) -> None:
        """See `retry.Clock`."""
        self.sleeps.append(seconds)
        self.time_s += seconds


class Kept:
    """What a client has written: it survives the process."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def keep(self, changes: Mapping[str, bytes | None]) -> None:
        """Write; None takes a value away."""
        for name, value in changes.items():
            if value is None:
                self.values.pop(name, None)
            else:
                self.values[name] = value


class Disk(Kept):
    """A client's state, which can lose power and be full. Implements `ClientState`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False
        self.after_power_loss: dict[str, bytes] = {}  # what the durable writes have left
        self.marks = [0] * MARKS_MAX

    def load(self) -> dict[str, bytes]:
        """See `ClientState.load`."""
        return dict(self.values)

    def write(self, changes: Mapping[str, bytes | None], *, durable: bool) -> None:
        """See `ClientState.write`."""
        if self.is_full:
            raise StorageFailedError("no space")
        self.keep(changes)
        if durable:
            self.after_power_loss = dict(self.values)

    def close(self) -> None:
        """Nothing to do."""

    def lose_power(self) -> None:
        """Lazy writes since the last durable one are gone."""
        self.values = dict(self.after_power_loss)


Answer = Callable[[Sequence[bytes]], Sequence[bytes] | None]


class FakeTransport:
    """A REQ socket whose other end is a function; it keeps the rules of REQ.

    A function that gives None is silence: the answer, or the request, was lost.
    """

    endpoint = "fake://proxy"

    def __init__(self, answer: Answer, clock: FakeClock | None = None) -> None:
        self._answer = answer
        self._clock = clock or FakeClock()
        self._waiting: deque[Sequence[bytes] | None] = deque()
        self.sent: list[tuple[bytes, ...]] = []
        self.reopened = 0

    def send(self, frames: Sequence[bytes]) -> None:
        """See `retry.Transport`."""
        assert not self._waiting, "a REQ socket may not send twice"
        self.sent.append(tuple(frames))
        self._waiting.append(self._answer(frames))

    def receive(self, timeout_s: float) -> Sequence[bytes] | None:
        """See `retry.Transport`."""
        answer = self._waiting[0]
        if answer is None:
            self._clock.time_s += timeout_s
            return None
        self._waiting.clear()
        return answer

    def move_on(self) -> None:
        """See `retry.Transport`."""
        self.reopen()

    def reopen(self) -> None:
        """See `retry.Transport`."""
        self._waiting.clear()
        self.reopened += 1


class Link:
    """The way to a proxy of the tests. Loses, by a script, requests (`>`) and answers (`<`).

    `Link(proxy, "..<")` passes two exchanges and loses the third answer; after the script
    nothing is lost. What the proxy answers is kept in `answers`. Between proxy and answer, `~` lets
    `meanwhile` happen, and `!` is a Ctrl-C.
    """

    meanwhile: Callable[[], object]

    def __init__(self, proxy: MemoryProxy, script: str = "") -> None:
        self.proxy = proxy
        self._script: Iterator[str] = iter(script)
        self.answers: list[AnyReply] = []

    def script(self, script: str) -> None:
        """Begin another script."""
        self._script = iter(script)

    def __call__(self, frames: Sequence[bytes]) -> Sequence[bytes] | None:
        step = next(self._script, ".")
        if step == ">":
            return None
        answer = self.proxy.frames(frames)
        self.answers.append(decode_reply(answer)[0])
        if step == "~":
            self.meanwhile()
        if step == "!":
            raise KeyboardInterrupt
        return None if step == "<" else answer


def a_world(
    link: Answer | Transport,
    clock: Clock | None = None,
    state: ClientState | None = None,
    **more: Any,
) -> World:
    """The surroundings of one client: a way to a proxy, or a transport, and what is around it."""
    clock = clock or FakeClock()
    if callable(link):
        assert isinstance(clock, FakeClock)
        transport: Transport = FakeTransport(link, clock)
    else:
        transport = link
    return World(connect=lambda _: transport, clock=clock, state=state, **more)
