"""Reliable pull through a node: requests go up, answers come down, one fetch serves many. Pure.

Every request is passed on as it is and answered by the proxy, with two exceptions, both only for a
reader whose subscription the proxy has confirmed within the last second: what is in the cache is
answered from it, and of several that ask for the same place one is passed on and its answer serves
all. A cursor that moved that way is told above within a tenth of a second, as an ACK, so the proxy
knows it as late as it would have it on disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.answers import (
    AnyReply,
    Denied,
    Lost,
    MessageBatches,
    NoMessagesYet,
    PutAck,
    Refusal,
)
from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.group_messages import Take
from reliable_pubsub.common.core.limits import SESSIONS_MAX
from reliable_pubsub.common.core.pattern_messages import Fetch
from reliable_pubsub.common.core.requests import Ack, AnyRequest, Get, History
from reliable_pubsub.common.core.wire import (
    decode_reply,
    decode_request,
    encode,
)

from .batch_cache import BatchCache, CachedBatches

UNDER_WAY_MAX: Final = 16  # the proxy keeps 32 answers for one connection
WAITING_BYTES_MAX: Final = 16 * 1024 * 1024
PEER_WAITING_MAX: Final = 2 * UNDER_WAY_MAX  # requests of one peer; a relay below has half of them
FLIGHT_BYTES: Final = 2 * 1024  # that a waiting request counts in addition to its frames
SHARED_MAX: Final = 4_096  # that wait for the answer of another
TIMEOUT_S: Final = 2.0  # then a request is dropped; its sender retries
CONFIRMED_S: Final = 1.0
TELL_S: Final = 0.1  # the proxy's own cursors are at most so much older on disk

Envelope = tuple[bytes, ...]  # the return path to the sender


class ToPeer(Struct, frozen=True):
    """An answer for a peer below."""

    envelope: Envelope
    frames: list[bytes]


class ToAbove(Struct, frozen=True):
    """A request for the node above; its answer repeats the ticket."""

    ticket: bytes
    frames: list[bytes]


Outgoing = ToPeer | ToAbove
_Reading = Get | History
_Asked = tuple[Envelope, _Reading]


class _Flight(Struct, eq=False):
    """A request that is passed on, and who waits for its answer."""

    frames: list[bytes]
    asker: Envelope | None  # None: it is ours
    request: AnyRequest | None  # None: it could not be read
    key: object = None
    joined: list[_Asked] = []  # asked before it was sent, so its answer is theirs too
    later: list[_Asked] = []
    is_sent: bool = False
    at_s: float = 0.0  # when it came, and then when it was sent

    @property
    def size_bytes(self) -> int:
        return FLIGHT_BYTES + sum(map(len, self.frames))


class _Reader(Struct, eq=False):
    """A subscription that the proxy has confirmed."""

    newest: Get | Ack
    cursor: int
    proxy_cursor: int  # what the proxy knows
    confirmed_at_s: float = 0.0
    sent_at_s: float = 0.0

    def is_of(self, request: Get | Ack) -> bool:
        ours = (self.newest.epoch, self.newest.generation, self.newest.boot, self.newest.key)
        return ours == (request.epoch, request.generation, request.boot, request.key)


def _what_is_asked(request: _Reading) -> bytes:
    """A request without its sender; the same request gets the same answer.

    A GET is shared only by subscriptions that the proxy has confirmed; for a HISTORY each key
    counts for itself.
    """
    asked = replace(request, client="any", epoch=0, request=0)
    if isinstance(asked, Get):
        asked = replace(asked, generation=1, key=UNSET)
    return encode(asked)[1]


class _Waiting:
    """Requests that wait, in turns: one of each peer, so that none waits for all of another's."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._by_peer: dict[bytes, deque[_Flight]] = {}  # in the order of their turns

    def add(self, flight: _Flight) -> bool:
        """Add a request; False: there is no room."""
        peer = flight.asker[0] if flight.asker else b""
        size_bytes = self.size_bytes + flight.size_bytes
        is_full = bool(peer) and len(self._by_peer.get(peer, ())) >= PEER_WAITING_MAX
        if is_full or size_bytes > WAITING_BYTES_MAX:
            return False
        self._by_peer.setdefault(peer, deque()).append(flight)
        self.size_bytes = size_bytes
        return True

    def next(self) -> _Flight | None:
        """The request whose turn it is."""
        for peer in self._by_peer:
            of_peer = self._by_peer.pop(peer)
            flight = of_peer.popleft()
            if of_peer:
                self._by_peer[peer] = of_peer
            self.size_bytes -= flight.size_bytes
            return flight
        return None

    def expired(self, now_s: float) -> Iterator[_Flight]:
        """Give up the requests that have waited for too long."""
        for peer, of_peer in list(self._by_peer.items()):
            while of_peer and now_s >= of_peer[0].at_s + TIMEOUT_S:
                flight = of_peer.popleft()
                self.size_bytes -= flight.size_bytes
                yield flight
            if not of_peer:
                del self._by_peer[peer]


class Forwarding:
    """What is under way through one node; returns actions, does nothing itself."""

    def __init__(self, cache: BatchCache, *, passes_unread: bool = True) -> None:
        """Nothing is under way.

        Args:
            passes_unread: whether what cannot be decoded is passed on, for a newer proxy may read
                it. Not where a key speaks for us above: it may name the key of another.
        """
        self.cache = cache
        self._passes_unread = passes_unread
        self.from_cache_count = 0
        self.shared_count = 0
        self.passed_count = 0
        self.dropped_count = 0
        self._actions: list[Outgoing] = []
        self._under_way: dict[bytes, _Flight] = {}
        self._waiting = _Waiting()
        self._by_key: dict[object, _Flight] = {}
        self._readers: dict[tuple[str, str], _Reader] = {}
        self._ticket = 0

    def actions(self) -> list[Outgoing]:
        """What is to be sent now."""
        actions, self._actions = self._actions, []
        return actions

    # From below.

    def request(
        self,
        envelope: Envelope,
        frames: Sequence[bytes],
        now_s: float,
        asker: Callable[[AnyRequest], str | Denied] = lambda _: "",
    ) -> None:
        """Take a request from below.

        Args:
            asker: the public key that it is of, by its connection; "": it has none. Or why it is
                not to be passed on.

        Raises:
            MalformedError: it cannot be decoded, and such ones are not passed on.
        """
        try:
            request, _ = decode_request(frames)
        except MalformedError:
            if not self._passes_unread:
                raise
            self._pass_on(_Flight(list(frames), envelope, None), now_s)
            return
        found = asker(request)
        if isinstance(found, Denied):
            self._actions.append(ToPeer(envelope, encode(found)))
            return
        key = found or UNSET
        if request.key != key:  # the key that a sender names is not trusted
            request = replace(request, key=key)
            frames = encode(request)
        if isinstance(request, Take | Fetch) and request.wait_ms:
            request = replace(request, wait_ms=UNSET)
            frames = encode(request)
        if isinstance(request, Get):
            # Nothing waits through a node: it would take the place of 16 requests under way.
            request = replace(request, wait_ms=UNSET, ring=UNSET)
        if isinstance(request, Get | History):
            self._read(envelope, request, now_s)
        else:
            self._pass_on(_Flight(list(frames), envelope, request), now_s)

    def _read(self, envelope: Envelope, request: _Reading, now_s: float) -> None:
        """Answer from the cache, join who asks the same, or pass on."""
        if isinstance(request, Get) and not self._is_confirmed(request, now_s):
            self._pass_on(_Flight(encode(request), envelope, request), now_s)
            return
        if isinstance(request, Get) and request.boot == self.cache.boot:
            found = self.cache.read(
                request.topic,
                request.cursor,
                messages_max=request.messages_max,
                bytes_max=request.bytes_max,
            )
            if found is not None:
                self.from_cache_count += 1
                self._answer_found(envelope, request, found)
                return
        key = _what_is_asked(request)
        flight = self._by_key.get(key)
        if flight is None:
            flight = _Flight(encode(request), envelope, request)
            flight.key = key
            self._by_key[key] = flight
            self._pass_on(flight, now_s)
        elif len(flight.joined) + len(flight.later) >= SHARED_MAX:
            self.dropped_count += 1
        else:
            self.shared_count += 1
            (flight.later if flight.is_sent else flight.joined).append((envelope, request))

    def _is_confirmed(self, request: Get, now_s: float) -> bool:
        known = self._readers.get((request.client, request.topic))
        if known is None or not known.is_of(request):
            return False
        return now_s < known.confirmed_at_s + CONFIRMED_S

    def _answer_found(self, envelope: Envelope, request: Get, found: CachedBatches) -> None:
        reply = MessageBatches(
            client=request.client,
            epoch=request.epoch,
            request=request.request,
            boot=self.cache.boot,
            batches=found.headers,
            end=found.end,
        )
        self._answer(envelope, request, reply, found.body)

    def _answer(
        self, envelope: Envelope, request: _Reading, reply: AnyReply, body: bytes | None
    ) -> None:
        """Answer in the place of the proxy; a cursor that moved is sent to it later."""
        if isinstance(request, Get):
            known = self._readers[request.client, request.topic]
            if request.cursor > known.cursor:
                known.cursor, known.newest = request.cursor, request
        self._actions.append(ToPeer(envelope, encode(reply, body)))

    # Up, and down again.

    def _pass_on(self, flight: _Flight, now_s: float) -> None:
        flight.at_s = now_s
        if not self._waiting.add(flight):
            self.dropped_count += 1
            self._by_key.pop(flight.key, None)
            return
        self._send_waiting(now_s)

    def _send_waiting(self, now_s: float) -> None:
        while len(self._under_way) < UNDER_WAY_MAX and (flight := self._waiting.next()):
            self._ticket += 1
            ticket = self._ticket.to_bytes(8, "big")
            flight.is_sent, flight.at_s = True, now_s
            self._under_way[ticket] = flight
            self.passed_count += 1
            self._actions.append(ToAbove(ticket, flight.frames))

    def answer(self, ticket: bytes, frames: Sequence[bytes], now_s: float) -> None:
        """An answer from above; a late one, whose request was forgotten, is dropped."""
        flight = self._under_way.pop(ticket, None)
        if flight is None:
            return
        self._by_key.pop(flight.key, None)
        if flight.asker is not None:
            self._actions.append(ToPeer(flight.asker, list(frames)))
        try:
            reply, body = decode_reply(frames)
        except MalformedError:  # of a newer version: the sender may know it
            reply, body = None, b""
        if reply is not None and flight.request is not None:
            self._learn(flight.request, reply, body, now_s)
        shared = isinstance(reply, MessageBatches | NoMessagesYet | Lost)
        for envelope, request in flight.joined:
            if shared and self._still_known(request):
                assert reply is not None
                echo = replace(
                    reply, client=request.client, epoch=request.epoch, request=request.request
                )
                whole = body if isinstance(reply, MessageBatches) else None
                self._answer(envelope, request, echo, whole)
            else:
                self._pass_on(_Flight(encode(request), envelope, request), now_s)
        for envelope, request in flight.later:
            self._read(envelope, request, now_s)
        self._send_waiting(now_s)

    def _still_known(self, request: _Reading) -> bool:
        known = self._readers.get((request.client, request.topic))
        return isinstance(request, History) or (known is not None and known.is_of(request))

    def _learn(self, request: AnyRequest, reply: AnyReply, body: bytes, now_s: float) -> None:
        """Remember what an answer of the proxy says about a subscription, and its batches."""
        if isinstance(reply, MessageBatches) and isinstance(request, Get | History):
            begin = 0
            for header in reply.batches:
                part = body[begin : begin + header.body_bytes]
                self.cache.add(request.topic, reply.boot, header, part)
                begin += header.body_bytes
        if not isinstance(request, Get | Ack):
            return
        key = (request.client, request.topic)
        known = self._readers.get(key)
        if isinstance(reply, MessageBatches | NoMessagesYet | Lost | PutAck):
            if known is None or not known.is_of(request):
                if len(self._readers) >= SESSIONS_MAX:
                    return
                known = self._readers[key] = _Reader(request, request.cursor, request.cursor)
            known.proxy_cursor = max(known.proxy_cursor, request.cursor)
            known.cursor = max(known.cursor, request.cursor)
            known.confirmed_at_s = now_s
        elif isinstance(reply, Refusal) and known is not None and known.is_of(request):
            del self._readers[key]

    # Time.

    def tick(self, now_s: float) -> None:
        """Forget requests without an answer and silent readers; send cursors that moved."""
        for ticket, flight in list(self._under_way.items()):
            if now_s >= flight.at_s + TIMEOUT_S:
                del self._under_way[ticket]
                self._by_key.pop(flight.key, None)
                self.dropped_count += 1
        for flight in self._waiting.expired(now_s):
            self._by_key.pop(flight.key, None)
            self.dropped_count += 1
        self._send_waiting(now_s)
        for key, known in list(self._readers.items()):
            if known.cursor > known.proxy_cursor and now_s >= known.sent_at_s + TELL_S:
                self._send_cursor(known, now_s)
            elif now_s > max(known.confirmed_at_s, known.sent_at_s) + 60 * CONFIRMED_S:
                del self._readers[key]

    def _send_cursor(self, known: _Reader, now_s: float) -> None:
        known.sent_at_s = now_s
        newest: Any = known.newest
        ack = Ack(
            client=newest.client,
            epoch=newest.epoch,
            request=newest.request,
            topic=newest.topic,
            generation=newest.generation,
            boot=newest.boot,
            cursor=known.cursor,
            key=newest.key,
        )
        self._pass_on(_Flight(encode(ack), None, ack), now_s)

    @property
    def unsent_cursors(self) -> int:
        """Subscriptions whose newest cursor the proxy does not know yet."""
        return sum(known.cursor > known.proxy_cursor for known in self._readers.values())
