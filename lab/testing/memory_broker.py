"""`MemoryBroker`: the engine of the proxy, with its store in memory and its faults on demand."""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from typing import Final, NoReturn, Self, get_args

from reliable_pubsub.common.core.attention import Attention
from reliable_pubsub.common.core.errors import MalformedError, UsageError
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.core.requests import AnyRequest, Hello
from reliable_pubsub.common.core.wire import decode_request
from reliable_pubsub.common.core.wording import did_you_mean
from reliable_pubsub.common.world import World, every_client_in
from reliable_pubsub.proxy.check import check_store
from reliable_pubsub.proxy.core.engine import Engine
from reliable_pubsub.proxy.core.outputs import Answer, Visible, Work
from reliable_pubsub.proxy.core.rows import row_crc, statements
from reliable_pubsub.proxy.core.schema import SCHEMA_VERSION
from reliable_pubsub.proxy.core.state import Setup
from reliable_pubsub.proxy.features import SCHEMA, TABLES
from reliable_pubsub.proxy.log_reader import StoreReader
from reliable_pubsub.proxy.stored_state import read_state

_VERBS: Final = tuple(str(one.__struct_config__.tag) for one in get_args(AnyRequest))


class MemoryBroker:
    """A broker in this process, without a socket, a file or a port. Its store is in memory.

    While one thread uses it, no wait takes time: the clock jumps to the end of the wait. If several
    threads use it, or asyncio does, waits take as long as they say.
    """

    def __init__(self) -> None:
        """Start with an empty store."""
        self._changed = threading.Condition()  # guards everything below
        self._store = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        name = secrets.token_hex(8)
        self._store.executescript(
            f"{SCHEMA} INSERT INTO meta VALUES ('store_id', '{name}', {row_crc('store_id', name)});"
            f"PRAGMA user_version = {SCHEMA_VERSION};"
        )
        self._topics: dict[int, tuple[str, str]] = {}
        self._ahead_s = 0.0  # of the real clocks
        self._threads = {threading.current_thread()}  # that use it
        self._losses: list[tuple[str | None, str]] = []
        self._starts = 0
        self._start()

    def _start(self) -> None:
        self._starts += 1
        segments = check_store(self._store).segments if self._starts > 1 else {}
        self._reader = StoreReader(self._store)
        attention = Attention(tick_s=inf)  # a jump of the clock is no pause of the broker
        setup = Setup(boot=secrets.token_hex(8), reader=self._reader, attention=attention)
        self._engine = Engine(read_state(self._store, segments), setup, TABLES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Forget everything."""
        self._store.close()

    @contextmanager
    def serving(self) -> Iterator[Self]:
        """Serve every client that this process opens in the block, whatever its endpoint."""
        world = World(
            connect=lambda _: _Connection(self), connect_data=_refuse_sockets, clock=_Clock(self)
        )
        with every_client_in(world):
            yield self

    # Faults.

    def lose_next_answer(self, verb: str | None = None) -> None:
        """Carry out the next request, and lose its answer; the client asks again.

        Args:
            verb: of the request, such as PUT or GET (docs/internals/protocol.md). None: any.
        """
        self._lose(verb, "answer")

    def lose_next_request(self, verb: str | None = None) -> None:
        """Lose the next request on its way; the client asks again. See `lose_next_answer`."""
        self._lose(verb, "request")

    def _lose(self, verb: str | None, what: str) -> None:
        if verb is not None and verb not in _VERBS:
            raise UsageError(f"there is no verb {verb!r}{did_you_mean(verb, _VERBS)}")
        with self._changed:
            self._losses.append((verb, what))

    def restart(self) -> None:
        """Restart as after `kill -9`: everything that was acknowledged is still there."""
        with self._changed:
            self._start()
            self._changed.notify_all()

    def advance(self, seconds: float) -> None:
        """Move the clock of the broker and its clients forward, so that leases and waits end."""
        with self._changed:
            self._jump(seconds)

    # The shell of the engine.

    def now_s(self) -> float:
        """Return the monotonic clock that the broker and its clients have."""
        return time.monotonic() + self._ahead_s

    def _now_ns(self) -> int:
        return time.time_ns() + int(self._ahead_s * 1e9)

    def _jump(self, seconds: float) -> None:
        self._ahead_s += seconds
        self._tick()

    def _tick(self) -> None:
        self._engine.tick(now_s=self.now_s(), now_ns=self._now_ns())
        self._carry_out()

    def _take(self, frames: Sequence[bytes], exchange: _Exchange) -> None:
        """Take a request, unless it is lost."""
        try:
            request, _ = decode_request(frames)
        except MalformedError:
            verb, role = None, None
        else:
            verb = str(type(request).__struct_config__.tag)
            endpoint = TABLES.endpoints.get(type(request), "subscriber")
            role = request.role if isinstance(request, Hello) else endpoint
        with self._changed:
            self._threads.add(threading.current_thread())
            exchange.start = self._starts
            loss = next((one for one in self._losses if one[0] in (None, verb)), None)
            if loss is not None:
                self._losses.remove(loss)
                exchange.is_lost = True
            if loss is None or loss[1] == "answer":
                self._decide(frames, exchange, role or "subscriber")

    def _decide(self, frames: Sequence[bytes], exchange: _Exchange, role: Role) -> None:
        now_s, now_ns = self.now_s(), self._now_ns()
        self._engine.receive(frames, exchange, role=role, now_s=now_s, now_ns=now_ns)
        self._tick()

    def _carry_out(self) -> None:
        engine = self._engine
        engine.flush()
        while engine.outputs or engine.waiting.due:
            if not engine.outputs:
                engine.end_turn(now_s=self.now_s(), now_ns=self._now_ns())
                engine.flush()
                continue
            match engine.outputs.popleft():
                case Work(records, lsn):
                    self._store.execute("BEGIN")
                    for statement, values in statements(records, self._topics):
                        self._store.execute(statement, values)
                    self._store.execute("COMMIT")
                    engine.committed(lsn)
                case Visible(batches):
                    self._reader.add(batches)
                case Answer(exchange, frames):
                    exchange.answered(frames)
        self._changed.notify_all()

    # Waiting, for the clients.

    def _wait(self, seconds: float) -> None:
        """Let time pass, or another thread do something."""
        self._threads = {thread for thread in self._threads if thread.is_alive()}
        if len(self._threads) > 1:
            self._changed.wait(seconds)
            self._tick()
        else:
            self._jump(seconds)

    def _until_due_s(self) -> float:
        """Return the seconds until a request that waits for messages is answered."""
        return max(self._engine.waiting.ends_at_s - self.now_s(), 0.0)

    def _answer_to(self, exchange: _Exchange, timeout_s: float) -> list[bytes] | None:
        until_s = self.now_s() + timeout_s
        with self._changed:
            while exchange.frames is None and (left_s := until_s - self.now_s()) > 0:
                if exchange.is_lost or exchange.start != self._starts:
                    self._jump(left_s)  # nothing will come
                else:
                    self._wait(min(left_s, self._until_due_s()))
        return exchange.frames


def _refuse_sockets(_endpoint: str) -> NoReturn:
    raise UsageError(
        "a MemoryBroker has no sockets, so neither QoS 0 nor push works: test them with a "
        "ProcessBroker"
    )


class _Clock:
    """The clock of the clients. Implements `retry.Clock`."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self.now_s = broker.now_s

    def sleep(self, seconds: float) -> None:
        with self._broker._changed:
            self._broker._wait(seconds)


class _Exchange:
    """A request, and its answer."""

    start = 0  # of the broker that has the request
    is_lost = False
    frames: list[bytes] | None = None

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def answered(self, frames: list[bytes]) -> None:
        if not self.is_lost:
            self.frames = frames
            self._connection.wake()


class _Connection:
    """The way of one client to the broker. Implements `aio.AwaitedTransport`."""

    endpoint = "memory"

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._exchange = _Exchange(self)
        self._pipe: tuple[int, int] | None = None  # for asyncio

    def send(self, frames: Sequence[bytes]) -> None:
        self._exchange = _Exchange(self)
        self._broker._take(frames, self._exchange)

    def receive(self, timeout_s: float) -> Sequence[bytes] | None:
        return self._broker._answer_to(self._exchange, timeout_s)

    def move_on(self) -> None:
        self.reopen()

    def reopen(self) -> None:
        self._exchange = _Exchange(self)

    def close(self) -> None:
        if self._pipe is not None:
            for end in self._pipe:
                os.close(end)
            self._pipe = None

    # For asyncio.

    def take(self) -> Sequence[bytes] | None:
        broker = self._broker
        with broker._changed:
            if self._exchange.frames is None and broker._until_due_s() < inf:
                loop = asyncio.get_running_loop()
                loop.call_later(broker._until_due_s(), self._tick)
            if self._pipe is not None:
                with suppress(BlockingIOError):
                    os.read(self._pipe[0], 4096)
            return self._exchange.frames

    def _tick(self) -> None:
        with self._broker._changed:
            self._broker._tick()

    @property
    def descriptors(self) -> list[int]:
        if self._pipe is None:
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)
        return [self._pipe[0]]

    def wake(self) -> None:
        if self._pipe is not None:
            with suppress(BlockingIOError):
                os.write(self._pipe[1], b"!")
