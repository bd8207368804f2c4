"""The contract of a store (`proxy/core/storage.py`), held against each one that there is."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from reliable_pubsub.common.core.actions import (
    AnyAction,
    DeleteTopic,
    EndSubscription,
    ForgetClient,
    Pause,
    Resume,
    SetCursor,
    Skip,
    Truncate,
)
from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.group_messages import How, Outcome, Take
from reliable_pubsub.common.core.limits import CACHE_BYTES_MAX
from reliable_pubsub.common.core.message_base import GroupTerms, Start, StoredQoS, Terms
from reliable_pubsub.common.core.requests import Dead, Unsub
from reliable_pubsub.proxy.access.accounts import Accounts, Charge, StoredCharge
from reliable_pubsub.proxy.access.records import Charged
from reliable_pubsub.proxy.check import check_store
from reliable_pubsub.proxy.core.applying import apply
from reliable_pubsub.proxy.core.batches import BatchReader
from reliable_pubsub.proxy.core.broker import due
from reliable_pubsub.proxy.core.records import Appended, Trimmed
from reliable_pubsub.proxy.core.state import BrokerSettings, Memory, Record
from reliable_pubsub.proxy.core.storage import Storage
from reliable_pubsub.proxy.core.stored import StoredState
from reliable_pubsub.proxy.core.topic_log import Retention
from reliable_pubsub.proxy.features import TABLES
from reliable_pubsub.proxy.groups.state import GroupIndex
from reliable_pubsub.proxy.log_reader import StoreReader
from reliable_pubsub.proxy.operators.history import Administration
from reliable_pubsub.proxy.store import Store
from reliable_pubsub.proxy.stored_state import open_reader, read_state
from scripts.simulator.simulated_store import SimulatedStore
from tests.fakes import (
    NONCE,
    NOW_NS,
    MemoryLog,
    MemoryProxy,
    a_beginning,
    a_broker,
    a_commit,
    a_get,
    a_hello,
    a_put,
    a_stage,
    a_sub,
    an_ack,
    an_action,
    an_append,
    an_unsub,
    as_stored,
    in_order,
    put_body,
)
from tests.postgres import needs_postgresql, shared_server

MANY = 1 << 20


class AStore(Storage, BatchReader, Protocol):
    """A store under test."""

    def state(self) -> StoredState:
        """What a broker starts from."""


MakeStore = Callable[[], AbstractContextManager[AStore]]


class OnDisk(StoreReader):
    """SQLite: the store, and its reader with or without the newest batches in memory."""

    def __init__(self, directory: Path, cache_bytes_max: int) -> None:
        self._store = Store(directory, "os")
        super().__init__(open_reader(self._store.path), cache_bytes_max=cache_bytes_max)

    @property
    def is_full(self) -> bool:
        return self._store.is_full

    def commit(self, records: Sequence[Record]) -> None:
        self._store.commit(records)
        self.add([one for one in records if isinstance(one, Appended)])

    def state(self) -> StoredState:
        connection = self._store.connection
        return read_state(connection, check_store(connection).segments)

    def close(self) -> None:
        super().close()
        self._store.close()


@contextmanager
def on_disk(cache_bytes_max: int) -> Iterator[AStore]:
    with tempfile.TemporaryDirectory() as directory:
        store = OnDisk(Path(directory), cache_bytes_max)
        try:
            yield store
        finally:
            store.close()


@contextmanager
def in_postgres(cache_bytes_max: int) -> Iterator[AStore]:
    from reliable_pubsub.proxy.postgres_store import PostgresStore

    class InPostgres(StoreReader):
        """PostgreSQL: the store, and its reader."""

        def __init__(self) -> None:
            self._store = PostgresStore(shared_server().new_schema(), "sync", pause=fail)
            super().__init__(self._store.open_reader(), cache_bytes_max=cache_bytes_max)

        @property
        def is_full(self) -> bool:
            return self._store.is_full

        def commit(self, records: Sequence[Record]) -> None:
            if records:
                self._store.commit(records)
            self.add([one for one in records if isinstance(one, Appended)])

        def state(self) -> StoredState:
            connection = self._store.connection
            return read_state(connection, check_store(connection).segments)

        def close(self) -> None:
            super().close()
            self._store.close()

    store = InPostgres()
    try:
        yield store
    finally:
        store.close()


def fail(seconds: float) -> None:
    raise AssertionError("there is no one to wait for")


@contextmanager
def simulated() -> Iterator[AStore]:
    yield SimulatedStore(lambda records: None)


each_store = pytest.mark.parametrize(
    "a_store",
    [
        pytest.param(lambda: on_disk(0), id="disk"),
        pytest.param(lambda: on_disk(CACHE_BYTES_MAX), id="disk and memory"),
        pytest.param(simulated, id="simulated"),
        pytest.param(lambda: in_postgres(0), id="PostgreSQL", marks=needs_postgresql),
    ],
)

# The state.

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("put", "put", "at QoS 1", "transact", "sub", "lease", "seek", "unsub"),
                *("get", "ack", "reject", "hello", "trim", "operate", "operate"),
                *("join", "take", "take", "leave", "charge"),
            ]
        ),
        st.sampled_from(["t", "u"]),
        st.integers(0, 3),
    ),
    max_size=40,
)


def take_step(proxy: MemoryProxy, number: int, verb: str, topic: str, value: int) -> None:
    """Do one thing to a proxy; whether it is refused does not matter here."""
    log = proxy.state.topics.get(topic)
    known = log.subscriptions.get("s") if log else None
    generation = known.generation if known else 1
    session = proxy.state.sessions.get(("subscriber", "s"))
    epoch = session.epoch if session else proxy.state.epoch_floor + 1
    end = log.durable_end if log else 0
    match verb:
        case "put":
            publisher = "pq"[value % 2]
            mark = log.publishers.get(publisher) if log else None
            sequence = mark.last_sequence + 1 if mark else 1
            qos: StoredQoS = 1 if number % 5 == 0 else 2
            request = a_put(sequence, count=value + 1, topic=topic, client=publisher, qos=qos)
            proxy.decide(request, put_body(sequence, value + 1))
        case "lease":
            terms = Terms(qos=1, session=("persistent", "clean")[value % 2], lease_ms=1000)
            proxy.decide(a_sub(number + 1, topic=topic, epoch=epoch, terms=terms))
        case "sub":
            proxy.decide(a_sub(number + 1, topic=topic, epoch=epoch))
        case "seek":
            proxy.decide(a_sub(number + 1, topic=topic, epoch=epoch, cursor=min(value, end)))
        case "unsub":
            proxy.decide(an_unsub(number + 1, topic=topic, epoch=epoch))
        case "get":
            cursor = min(end, value * 2)
            proxy.decide(a_get(cursor, generation=generation, topic=topic, epoch=epoch))
        case "ack":
            proxy.decide(an_ack(min(end, value * 2), generation=generation))
        case "reject":
            letter = put_body(1)
            head: dict[str, Any] = {"client": "s", "epoch": epoch, "request": number + 1}
            place: dict[str, Any] = {"topic": topic, "generation": generation, "cursor": value}
            boot = proxy.state.boot
            proxy.decide(Dead(**head, **place, boot=boot, crc=crc32(letter)), letter)
        case "hello":
            proxy.decide(a_hello("subscriber", "s", epoch=epoch + value))
        case _:
            take_other_step(proxy, number, verb, topic, value)


def take_other_step(proxy: MemoryProxy, number: int, verb: str, topic: str, value: int) -> None:
    """The same, for what needs no subscription."""
    log = proxy.state.topics.get(topic)
    match verb:
        case "at QoS 1":
            request = a_put(number + 1, count=value + 1, topic=topic, qos=1)
            proxy.decide(request, put_body(number + 1, value + 1))
        case "transact":
            proxy.decide(a_stage(number + 1, topic=topic), put_body(1))
            proxy.decide(a_stage(number + 1, 1, topic="u"), put_body(1))
            if value:
                proxy.decide(a_commit(number + 1, (0, NONCE, 2), digest=b"content1"))
        case "operate":
            operate(proxy, number, topic, value)
        case "join" | "take" | "leave":
            take_step_of_group(proxy, number, verb, topic, value)
        case "charge":
            kind: Charge = ("publisher", "publisher", "subscriber", "topic")[value]
            charged = Charged(kind, ("p", "q", "s", topic)[value], f"key {number % 2}")
            if (kind, charged.name) in proxy.state.sessions or (value == 3 and log):
                apply(proxy.state, [charged])
                proxy.uncommitted.append(charged)
        case "trim":
            apply(proxy.state, records := due(proxy.state, TABLES, now_s=float(number)))
            proxy.uncommitted += records


def operate(proxy: MemoryProxy, number: int, topic: str, value: int) -> None:
    """An operator does one thing."""
    actions: Sequence[AnyAction] = (
        Truncate(topic=topic, start=Start("offset", value * 2)),
        SetCursor(topic=topic, subscriber="s", start=Start("offset", value)),
        Skip(topic=topic, subscriber="s"),
        EndSubscription(topic=topic, subscriber="s"),
        DeleteTopic(topic=topic),
        EndSubscription(topic=topic, subscriber="group:g"),
        ForgetClient(role="subscriber", of="s"),
        ForgetClient(role="publisher", of="pq"[value % 2]),
        Pause(reason=f"reason {value}"),
        Resume(),
    )
    last = proxy.state.part(Administration).last_number
    proxy.decide(an_action(actions[number % len(actions)], number=last + 1))


def take_step_of_group(proxy: MemoryProxy, number: int, verb: str, topic: str, value: int) -> None:
    """The same, for a group."""
    session = proxy.state.sessions.get(("subscriber", "s"))
    head: dict[str, Any] = {
        "client": "s",
        "epoch": session.epoch if session else 1,
        "request": number + 1,
    }
    log = proxy.state.topics.get(topic)
    known = log.subscriptions.get("group:g") if log else None
    held_by = proxy.state.part(GroupIndex).in_topic(log).get("g")
    runs = held_by.runs if held_by else ()
    how: How = ("ack", "nack", "reject", "nack")[value]
    settled = tuple(
        Outcome(run.first, 1, run.delivery, how, delay_ms=50 if how == "nack" else 0)
        for run in runs
        if run.how == "held"
    )
    match verb:
        case "join":
            terms = GroupTerms(max_deliveries=value)
            request = a_sub(number + 1, topic=topic, epoch=head["epoch"])
            proxy.decide(replace(request, group="g", group_terms=terms))
        case "take":
            generation = known.generation if known else 1
            group: dict[str, Any] = {"topic": topic, "group": "g", "generation": generation}
            proxy.decide(Take(**head, **group, outcomes=settled, messages_max=value + 1))
        case "leave":
            proxy.decide(
                Unsub(**head, topic=topic, control=number + 1, group="g", ends_group=value == 1)
            )


@each_store
@given(steps=STEPS, commit_every=st.integers(1, 7), forgets=st.booleans())
@example(  # a subscription that ends before it takes the place that an operator gave it
    steps=[*[("put", "t", 0)] * 10, ("sub", "t", 0), ("operate", "t", 0), ("unsub", "t", 0)],
    commit_every=1,
    forgets=False,
)
@example(  # a dead letter of a subscriber
    steps=[("put", "t", 2), ("seek", "t", 0), ("reject", "t", 0)],
    commit_every=1,
    forgets=False,
)
@example(  # and one of a group
    steps=[("put", "t", 2), ("join", "t", 0), ("put", "t", 0), ("take", "t", 0), ("take", "t", 2)],
    commit_every=1,
    forgets=False,
)
def test_the_state_is_that_of_a_broker_that_applied_the_same_records(
    a_store: MakeStore,
    steps: list[tuple[str, str, int]],
    commit_every: int,
    forgets: bool,
) -> None:
    """H14, R15: whatever the order of things, disk and memory say the same."""
    retention = Retention(history_bytes=60)
    memory = Memory(idle_sessions_max=0, ended_max=0, unnumbered_max=0) if forgets else Memory()
    settings = BrokerSettings(retention=retention, memory=memory)
    proxy = a_broker(publishers=(), subscribers=(), settings=settings)
    with a_store() as store:
        for client in ("p", "q"):
            proxy.decide(a_hello("publisher", client))
        proxy.decide(a_hello("subscriber", "s"))
        for number, (verb, topic, value) in enumerate(steps):
            take_step(proxy, number, verb, topic, value)
            if number % commit_every == 0:
                store.commit(list(proxy.uncommitted))
                proxy.commit()
        store.commit(list(proxy.uncommitted))
        proxy.commit()

        stored = in_order(store.state())

    expected = as_stored(proxy.state)
    assert stored.topics == expected.topics
    assert stored.sessions == expected.sessions
    assert stored.epoch_floor == expected.epoch_floor
    assert stored.generation_floor == expected.generation_floor
    ended = proxy.state.part(Accounts).ended
    charges = [one for one in stored.of(StoredCharge) if (one.kind, one.name) not in ended]
    rows: dict[Any, Any] = {**stored.rows, StoredCharge: charges}
    assert rows == expected.rows
    restarted = MemoryProxy(replace(stored, rows=rows))
    assert restarted.state.part(Accounts).of == proxy.state.part(Accounts).of


@each_store
def test_a_subscription_is_moved_until_its_subscriber_has_taken_it(a_store: MakeStore) -> None:
    proxy = a_broker()
    moved: list[str] = []
    back = SetCursor(topic="t", subscriber="s", start=Start("earliest"))
    requests = (a_sub(1), an_action(back, number=1), a_get(0, generation=2))
    with a_store() as store:
        for request in requests:
            proxy.decide(request)
            store.commit(list(proxy.uncommitted))
            proxy.commit()
            if proxy.state.topics:
                moved += [one.moved for one in store.state().topics[0].subscriptions]

    assert moved == ["", "set", ""]


@each_store
def test_a_subscription_that_ends_before_that_stays_moved_until_another_begins(
    a_store: MakeStore,
) -> None:
    proxy = a_broker()
    moved: list[str] = []
    back = SetCursor(topic="t", subscriber="s", start=Start("earliest"))
    end = EndSubscription(topic="t", subscriber="s")
    clean = a_sub(2, start=Start("now"), terms=Terms(session="clean", lease_ms=60_000))
    requests = (
        a_sub(1),
        an_action(back, number=1),
        an_action(end, number=2, nonce=b"nonce-02"),
        clean,
        an_action(back, number=3, nonce=b"nonce-03"),
        an_action(end, number=4, nonce=b"nonce-04"),
    )
    with a_store() as store:
        for request in requests:
            proxy.decide(request)
            store.commit(list(proxy.uncommitted))
            proxy.commit()
            if proxy.state.topics:
                moved += [one.moved for one in store.state().topics[0].subscriptions]

    assert moved == ["", "set", "set", "", "set", ""]


# The batches.


@each_store
@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    trimmed=st.integers(0, 8),
    offset=st.integers(0, 30),
    messages_max=st.integers(1, 12),
    bytes_max=st.integers(0, 200),
)
def test_what_is_read_is_what_a_list_of_batches_gives(
    a_store: MakeStore,
    counts: list[int],
    trimmed: int,
    offset: int,
    messages_max: int,
    bytes_max: int,
) -> None:
    answers: list[object] = []
    batches: list[Appended] = []
    for count in counts:
        batches.append(an_append(batches[-1].end if batches else 0, count=count))
    start, end = 0, batches[-1].end
    expected = MemoryLog()
    expected.add(batches)
    with a_store() as store:
        store.commit([*a_beginning(), *batches])
        if 0 < trimmed < len(batches):
            start = batches[trimmed].base
            trim = Trimmed(1, start, end, batches[-1].timestamp_ns)
            store.commit([trim])
            expected.trim(trim)
        offset, since_ns = max(offset, start), NOW_NS + offset

        for reader in (store, expected):
            read = reader.read(1, offset, messages_max=messages_max, bytes_max=bytes_max)
            answers.append(
                (
                    list(read),
                    reader.timestamp_ns(1, offset),
                    reader.first_since(1, start, end, since_ns),
                    reader.find(1, "p", offset),
                )
            )

    assert answers[0] == answers[1]


@each_store
def test_topics_and_publishers_are_read_apart(
    a_store: MakeStore,
) -> None:
    with a_store() as store:
        store.commit([*a_beginning(), an_append(0)])

        assert list(store.read(9, 0, messages_max=1, bytes_max=MANY)) == []
        assert store.timestamp_ns(9, 0) is None
        assert store.first_since(9, 0, 1, 0) is None
        assert store.find(9, "p", 1) is None
        assert store.find(1, "q", 1) is None
