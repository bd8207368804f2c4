"""The link between a client and the proxy: TCP that is counted, and can be cut, slowed, halved.

One relay for each client, on a port of its own that stays the same when the proxy comes back on
another one. It knows nothing of ZeroMQ: a cut may fall into the middle of a frame, as in a real
network. What is held back is delivered even after the client has closed its side; that is how a
late copy of an old request reaches the proxy.

    client ── tcp ──► TcpLink ── tcp ──► proxy
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct

from reliable_pubsub.common.core.message_base import Reply

from ..core.transcript import Transcript
from ..core.zmtp_frames import FrameCounter

Address = tuple[str, int]
Way = Literal["requests", "answers"]  # to the proxy, and from it

CHUNK_BYTES: Final = 65_536
HELD_CHUNKS_MAX: Final = 256  # of one connection and way; then the sender waits, as TCP does
LINGER_S: Final = 1.0  # a connection to the proxy outlives that of its client by so much

T = TypeVar("T")


class Passed(Struct, frozen=True):
    """What has passed a link, both ways together."""

    frames: int
    bytes: int

    def since(self, before: Passed) -> Passed:
        return Passed(self.frames - before.frames, self.bytes - before.bytes)


class TcpLinks:
    """The thread in which all links of a run live."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._links: list[TcpLink] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    def open(self, target: Callable[[], Address | None]) -> TcpLink:
        """A link to wherever the proxy is; None: nowhere, connections are refused."""
        link = TcpLink(target, self.call)
        self.add(link)
        return link

    def add(self, link: TcpLink) -> None:
        """Let a link listen in this thread."""
        self.wait_for(link.listen())
        self._links.append(link)

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the thread, and wait for its end."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def call(self, work: Callable[[], object]) -> None:
        """Do something in the thread, soon."""
        self._loop.call_soon_threadsafe(work)

    def close(self) -> None:
        """Close every link, end the thread."""
        for link in self._links:
            self.wait_for(link.stop())
        self.wait_for(_end_other_tasks())  # of connections that are just being made or closed
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_other_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class TcpLink:
    """One link. The methods that change it may be called from any thread."""

    def __init__(
        self,
        target: Callable[[], Address | None],
        call: Callable[[Callable[[], object]], None],
    ) -> None:
        """Use `TcpLinks.open`."""
        self.state = "ok"  # for people
        self.address: Address = ("127.0.0.1", 0)
        self.is_cut = False
        self.lost: Way | None = None  # half-open: what is sent this way vanishes
        self.awaited: list[bytes] = []  # it begins when pieces have held all of these, in turn
        self.bytes_per_s: int | None = None
        self.passing = asyncio.Event()
        self.passing.set()
        self.up_reads = 0  # about one for each small request of a socket that waits for replies
        self.transcripts: dict[Way, list[Transcript]] | None = None  # {}: keep what passes
        self._counters: dict[Way, list[FrameCounter]] = {"requests": [], "answers": []}
        self._target = target
        self._call = call
        self._connections: set[_Connection] = set()

    @property
    def holds(self) -> bool:
        """Whether something is still on its way."""
        return any(connection.held for connection in list(self._connections))

    # What has passed; counted before it arrives.

    @property
    def up_bytes(self) -> int:
        """Bytes to the proxy."""
        return sum(one.bytes for one in self._counters["requests"])

    @property
    def down_bytes(self) -> int:
        """Bytes from the proxy."""
        return sum(one.bytes for one in self._counters["answers"])

    @property
    def passed(self) -> Passed:
        """Both ways."""
        frames = sum(one.frames for way in self._counters.values() for one in way)
        return Passed(frames, self.up_bytes + self.down_bytes)

    def first_passed_ns(self, way: Way, content: bytes) -> int | None:
        """When all of a content had passed one way for the first time; None: it has not."""
        kept = (self.transcripts or {}).get(way, ())
        times = [at_ns for one in kept if (at_ns := one.first_ns(content)) is not None]
        return min(times, default=None)

    def transcript(self, way: Way) -> Transcript | None:
        """Where one way of a new connection is kept; None: it is not."""
        if self.transcripts is None:
            return None
        self.transcripts.setdefault(way, []).append(transcript := Transcript())
        return transcript

    def counter(self, way: Way) -> FrameCounter:
        """A counter for one way of a new connection."""
        self._counters[way].append(counter := FrameCounter())
        return counter

    # What can be done to it.

    def heal(self) -> None:
        """Everything passes again; what is held back is still late."""
        self._call(self._heal)

    def _heal(self) -> None:
        self.state, self.is_cut, self.lost, self.bytes_per_s = "ok", False, None, None
        for connection in self._connections:
            connection.delay_s = 0.0
            connection.bytes_left = None

    def cut(self, *, after_bytes: int = 0) -> None:
        """Close the connections, and refuse new ones until it is healed.

        Args:
            after_bytes: this many bytes of requests still pass on each, so a frame may be torn.
        """
        self._call(lambda: self._cut(after_bytes))

    def _cut(self, after_bytes: int) -> None:
        self.state, self.is_cut = "cut", True
        if not after_bytes:
            self._drop()
        for connection in self._connections:
            connection.bytes_left = after_bytes

    def drop(self) -> None:
        """Close the connections; new ones pass."""
        self._call(self._drop)

    def _drop(self) -> None:
        for connection in list(self._connections):
            connection.abort()

    def hang(self) -> None:
        """Pass nothing on, and read nothing: TCP fills up."""
        self._call(self.passing.clear)

    def half_open(self, lost: Way = "answers", *, awaited: Sequence[bytes] = ()) -> None:
        """Accept and keep connections, but pass nothing on in one direction.

        Args:
            awaited: begin when pieces have held all of these, one after another, for example the
                name of an answer; the piece with the last of them is the first to vanish.
        """

        def change() -> None:
            self.state, self.lost = f"half-open: {lost} lost", lost
            self.awaited = list(awaited)

        self._call(change)

    def lose_answers(self, after: int = 0, kind: type[Reply] | None = None) -> None:
        """Let a number of answers of a kind pass; lose the next one, and all that follow it."""
        self.half_open("answers", awaited=[beginning_of(kind)] * (after + 1))

    @property
    def is_losing(self) -> bool:
        """Whether what is sent one way vanishes now."""
        return self.lost is not None and not self.awaited

    def loses(self, way: Way, data: bytes) -> bool:
        """Whether a piece vanishes. In the thread of the links."""
        if self.lost != way:
            return False
        if self.awaited and self.awaited[0] in data:
            del self.awaited[0]
        return not self.awaited

    async def admit(self, way: Way, data: bytes) -> None:
        """Wait until a piece may pass on its connection. In the thread of the links."""

    def delay(self, by_s: float) -> None:
        """What is sent from now on over a connection that is open now arrives `by_s` later.

        New connections are quick, as if the network had found another way: so a request that
        was given up and asked again arrives twice, and the first copy last.
        """

        def change() -> None:
            self.state = f"requests {by_s:g} s late"
            for connection in self._connections:
                connection.delay_s = by_s

        self._call(change)

    def slow(self, bytes_per_s: int) -> None:
        """Pass at most this many bytes a second, in each direction."""

        def change() -> None:
            self.state, self.bytes_per_s = f"{bytes_per_s:,} bytes/s", bytes_per_s

        self._call(change)

    # How it is done; all of it in the thread of the links.

    async def listen(self) -> None:
        """Take connections from now on, at `address`."""
        self._server = await asyncio.start_server(self._serve, *self.address)
        self.address = self._server.sockets[0].getsockname()

    async def stop(self) -> None:
        self._server.close()
        for connection in list(self._connections):
            connection.abort()
        for connection in list(self._connections):
            await connection.ended.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = None if self.is_cut else self._target()
        if target is None:
            writer.transport.abort()
            return
        try:
            proxy_reader, proxy_writer = await asyncio.open_connection(*target)
        except OSError:
            writer.transport.abort()
            return
        if self.is_cut:  # in between
            writer.transport.abort()
            proxy_writer.transport.abort()
            return
        connection = _Connection(self, writer, proxy_writer)
        self._connections.add(connection)
        try:
            await connection.run(reader, proxy_reader)
        finally:
            self._connections.discard(connection)
            connection.ended.set()


def beginning_of(kind: type[Reply] | None = None) -> bytes:
    """Return how the header of an answer begins: with its name."""
    words = ["answer"] if kind is None else ["answer", kind.__struct_config__.tag]
    return b"".join(map(msgspec.msgpack.encode, words))


class LinkTo(TcpLink):
    """A link to one endpoint, with a thread of its own."""

    def __init__(self, endpoint: str) -> None:
        """Listen; `endpoint` is a TCP endpoint of this machine."""
        address = "127.0.0.1", int(endpoint.rsplit(":", 1)[1])
        self._links: TcpLinks | None = TcpLinks()
        super().__init__(lambda: address, self._links.call)
        self._links.add(self)
        self.endpoint = f"tcp://127.0.0.1:{self.address[1]}"

    def close(self) -> None:
        if self._links is not None:
            self._links.close()
            self._links = None


@contextmanager
def losing_link(
    endpoint: str, *, answers: int, kind: type[Reply] | None = None
) -> Iterator[LinkTo]:
    """A link to one endpoint of the proxy: a number of answers pass, and the next one is lost.

    What comes after that is lost, too, until the link is healed.

    Args:
        kind: of the answers that are counted; None: of each.
    """
    with closing(LinkTo(endpoint)) as link:
        link.lose_answers(answers, kind)
        yield link


class _Connection:
    """A connection of a client, and the one to the proxy that carries its bytes."""

    def __init__(
        self, link: TcpLink, client: asyncio.StreamWriter, proxy: asyncio.StreamWriter
    ) -> None:
        self._link = link
        self._client = client
        self._proxy = proxy
        self.delay_s = 0.0  # of requests
        self.bytes_left: int | None = None  # of requests; then it is cut
        self.held = 0  # pieces that are on their way
        self.ended = asyncio.Event()

    def abort(self) -> None:
        """Reset both sides; what is held is lost."""
        self._client.transport.abort()
        self._proxy.transport.abort()
        self._work.cancel()

    async def run(self, client: asyncio.StreamReader, proxy: asyncio.StreamReader) -> None:
        """Relay until both sides have closed, or it is cut."""
        self._work = asyncio.ensure_future(
            asyncio.gather(
                self._relay(client, self._proxy, "requests"),
                self._relay(proxy, self._client, "answers"),
            )
        )
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._work
        finally:
            self._client.transport.abort()
            self._proxy.transport.abort()

    async def _relay(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: Way
    ) -> None:
        """Read as bytes come, deliver them when they are due."""
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(HELD_CHUNKS_MAX)
        deliver = asyncio.ensure_future(self._deliver(held, sink, way))
        counter = self._link.counter(way)
        transcript = self._link.transcript("requests") if way == "requests" else None
        try:
            while True:
                await self._link.passing.wait()
                try:
                    data = await source.read(CHUNK_BYTES)
                except OSError:
                    data = b""
                counter.feed(data)
                if transcript is not None:
                    transcript.add(data, time.monotonic_ns())
                self._link.up_reads += way == "requests"
                delay_s = self.delay_s if way == "requests" else 0.0
                self.held += 1
                await held.put((asyncio.get_running_loop().time() + delay_s, data))
                if not data:
                    break
            await deliver
        finally:
            deliver.cancel()

    async def _deliver(
        self, held: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter, way: Way
    ) -> None:
        loop = asyncio.get_running_loop()
        transcript = self._link.transcript("answers") if way == "answers" else None
        while True:
            due_s, data = await held.get()
            await asyncio.sleep(max(due_s - loop.time(), 0))
            await self._link.passing.wait()
            await self._link.admit(way, data)
            self.held -= 1
            if not data:
                break
            if self._link.loses(way, data) or sink.is_closing():
                continue
            if way == "requests" and self.bytes_left is not None:
                data = data[: self.bytes_left]
                self.bytes_left -= len(data)
            if transcript is not None:
                transcript.add(data, time.monotonic_ns())  # before the client can have it
            with suppress(OSError):  # the receiver has gone; what still comes for it is dropped
                sink.write(data)
                await sink.drain()
            if way == "requests" and self.bytes_left == 0:
                self.abort()
            if self._link.bytes_per_s is not None:
                await asyncio.sleep(len(data) / self._link.bytes_per_s)
        if way == "requests":
            await asyncio.sleep(LINGER_S)  # the proxy reads what came late before it sees the end
        sink.close()
