"""What is above a node: a node of this product, or a plain ZeroMQ publisher."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

import zmq

from reliable_pubsub.common.access.sockets import (
    DATA_MESSAGES_MAX,
    Context,
    Socket,
    connect_to_any,
    connecting,
)
from reliable_pubsub.common.core.endpoint import endpoints_of, host_of, tcp_endpoint
from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.keys import SecureEndpoint, keys_of_endpoint
from reliable_pubsub.common.core.limits import LINK_BYTES
from reliable_pubsub.common.core.patterns.matching import Kinds, Pattern
from reliable_pubsub.common.core.status import Status, StatusReport
from reliable_pubsub.common.core.tree_messages import AboveStatus
from reliable_pubsub.common.core.wire import encode
from reliable_pubsub.common.transport import connect

from .core.interest_link import Wish
from .core.interest_table import CAP, Capped, changes_between
from .core.push import END, prefix_of
from .core.wire import decode_node_reply

INTEREST_WAITING_MAX = 2  # messages about interest that wait for a hung node
_EVENT: Final = struct.Struct("=Hi")  # of a monitor: what happened, and to which descriptor
_ASKED = 2**62  # numbers of questions for the proxy; those of interest are below


class Above(Protocol):
    """A source of data above this node."""

    endpoint: str
    data: Socket

    def why_down(self) -> str:
        """Return why nothing comes from it; "": it is there."""

    def want(self, patterns: frozenset[Pattern], below: frozenset[str]) -> None:
        """Want these topics."""

    def turn(self, now_s: float) -> float:
        """Do what is due; return the seconds until more is."""

    def status(self) -> AboveStatus:
        """What to tell an operator."""


class Reached:
    """Tracks whether a connecting socket has reached a ZeroMQ peer."""

    def __init__(self, context: Context, socket: Socket) -> None:
        address = f"inproc://reached-{secrets.token_hex(8)}"
        shown = zmq.EVENT_CONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        socket.monitor(address, shown)
        self._events = context.socket(zmq.PAIR)
        self._events.setsockopt(zmq.LINGER, 0)
        self._events.connect(address)
        self._connected: set[int] = set()  # descriptors
        self._has_greeted = False

    def is_there(self) -> bool:
        """Return whether it has, by all events so far."""
        with suppress(zmq.Again):
            while True:
                event, _ = self._events.recv_multipart(zmq.DONTWAIT)
                what, descriptor = _EVENT.unpack(event)
                if what == zmq.EVENT_CONNECTED:
                    self._connected.add(descriptor)
                elif what == zmq.EVENT_DISCONNECTED:
                    self._connected.discard(descriptor)
                else:
                    self._has_greeted = True
        self._has_greeted = self._has_greeted and bool(self._connected)
        return self._has_greeted


class NodeAbove:
    """A proxy or relay: interest on a DEALER of its own, data on an XSUB."""

    def __init__(
        self,
        context: Context,
        endpoint: str,
        node: str,
        *,
        cap: int = CAP,
        push_via: str = "",
        io_thread: int = 0,
        is_watched: bool = False,
    ) -> None:
        """Connect; where data comes from is said by the first answer.

        Args:
            push_via: or there, whatever the node above says.
            io_thread: of the first endpoint (`connect_to_any`), and of the data.
            is_watched: a lost connection is noticed immediately, for two descriptors more.
        """
        self._io_thread = io_thread
        self.endpoint = endpoint
        self._is_one_of_several = len(endpoints_of(endpoint)) > 1
        self._answers_at = endpoint  # of several the one that answers
        self._node = node
        self._push_via = push_via
        self.wish = Wish(client=node, link=secrets.token_bytes(LINK_BYTES))
        self._capped = Capped(cap)
        self.interest = connecting(
            context, zmq.DEALER, endpoint, sent_max=INTEREST_WAITING_MAX, received_max=0
        )
        self._reached = Reached(context, self.interest) if is_watched else None
        connect_to_any(self.interest, endpoint, io_thread)
        self.data = connecting(
            context, zmq.XSUB, endpoint, sent_max=0, received_max=DATA_MESSAGES_MAX
        )
        self._data_endpoint: str | None = None
        self._reports: list[tuple[str, int]] = []
        self._say_where()

    def _say_where(self) -> None:
        """Say on the data socket which link it is; ZeroMQ repeats it when it reconnects."""
        self.data.send(b"\1" + END + self.wish.link)

    def why_down(self) -> str:
        """See `Above`."""
        if self._reached is not None and not self._reached.is_there():
            return "there is no connection"
        return self.wish.why_down

    def want(self, patterns: frozenset[Pattern], below: frozenset[str]) -> None:
        """Want these topics; above the cap, everything."""
        self.wish.want(self._capped.take(patterns), below)

    def turn(self, now_s: float) -> float:
        """Take answers, say what is due."""
        while True:
            try:
                frames = self.interest.recv_multipart(zmq.DONTWAIT, copy=False)
            except zmq.Again:
                break
            if self._is_one_of_several:
                self._answers_at = _address_of(frames[-1])
            self._answered([frame.bytes for frame in frames], now_s)
        message = self.wish.message(now_s)
        if message is not None:
            with suppress(zmq.Again):  # a hung node has what it can hold; said again when due
                self.interest.send_multipart([b"", *encode(message)], zmq.DONTWAIT)
        return self.wish.due_in_s(now_s)

    def ask_for_proxy(self, number: int) -> None:
        """Ask which proxy it leads to; the answer has this number."""
        status = Status(
            client=self._node, epoch=0, request=_ASKED + number, topics_max=1, rows_max=0
        )
        with suppress(zmq.Again):
            self.interest.send_multipart([b"", *encode(status)], zmq.DONTWAIT)

    def proxies(self) -> list[tuple[str, int]]:
        """The starts of proxies that it has said to lead to, each with the number asked with."""
        reports, self._reports = self._reports, []
        return reports

    def _answered(self, frames: Sequence[bytes], now_s: float) -> None:
        try:
            reply = decode_node_reply(frames[1:])
        except MalformedError:
            return  # as if it were lost
        if isinstance(reply, StatusReport):
            self._reports.append((reply.boot, reply.request - _ASKED))
            return
        self.wish.answered(reply, now_s)
        self._connect_data()
        if self.wish.acknowledged != self.wish.applied:
            self._say_where()
            self.wish.ask_soon(now_s)

    def _connect_data(self) -> None:
        endpoint = self._push_via or self.wish.push_endpoint
        if endpoint is None:
            return
        endpoint = reachable(endpoint, self._answers_at)
        if keys := keys_of_endpoint(self.endpoint):
            endpoint = SecureEndpoint(endpoint, keys)
        if endpoint == self._data_endpoint:
            return
        if self._data_endpoint is not None:
            self.data.disconnect(self._data_endpoint)
        self._data_endpoint = endpoint
        connect(self.data, endpoint, self._io_thread)

    def status(self) -> AboveStatus:
        """What to tell an operator."""
        return AboveStatus(
            endpoint=self.endpoint,
            settled=self.wish.settled,
            refused=self.wish.refused,
            is_full=self.wish.is_full,
            said=self.wish.sent_count,
        )


class PlainAbove:
    """A plain ZeroMQ publisher (PUB or XPUB): subscriptions by prefix, as it knows them."""

    def __init__(
        self, context: Context, endpoint: str, kinds: Kinds, *, cap: int = CAP, io_thread: int = 0
    ) -> None:
        self.endpoint = endpoint
        # No bound, because ZeroMQ drops subscriptions at it; the cap is the bound.
        self.data = connecting(
            context, zmq.XSUB, endpoint, sent_max=0, received_max=DATA_MESSAGES_MAX
        )
        self._reached = Reached(context, self.data)
        connect(self.data, endpoint, io_thread)
        self._kinds = kinds
        self._capped = Capped(cap)
        self._wanted: frozenset[Pattern] = frozenset()
        self._said = 0

    def why_down(self) -> str:
        """See `Above`."""
        return "" if self._reached.is_there() else "there is no connection"

    def want(self, patterns: frozenset[Pattern], below: frozenset[str]) -> None:
        """Subscribe to what is new, then give back what is not wanted any more."""
        wanted = self._capped.take(patterns)
        for change in changes_between(self._wanted, wanted):
            # Two patterns may have one prefix: the socket counts them.
            self.data.send(
                (b"\1" if change.added else b"\0") + prefix_of(change.pattern, self._kinds)
            )
            self._said += 1
        self._wanted = wanted

    def turn(self, now_s: float) -> float:
        """Nothing is ever due."""
        return float("inf")

    def status(self) -> AboveStatus:
        """What to tell an operator."""
        return AboveStatus(
            endpoint=self.endpoint, settled=True, is_full=self._capped.is_full, said=self._said
        )


def _address_of(frame: zmq.Frame) -> str:
    """Where the sender of a frame is, as an endpoint; its port is not known."""
    with suppress(zmq.ZMQError):  # a peer over ipc has no address
        address = str(frame.get("Peer-Address"))
        return tcp_endpoint(address, "1")
    return ""


def reachable(endpoint: str, through: str) -> str:
    """An endpoint that a node named, as we reach it, with the keys of that node.

    A node that listens on every interface is where we asked.
    """
    if host_of(endpoint, bind=True) in ("0.0.0.0", "*", "::"):
        reached = host_of(through, bind=True) or "127.0.0.1"
        endpoint = tcp_endpoint(reached, endpoint.rsplit(":", 1)[1])
    keys = keys_of_endpoint(through)
    return endpoint if keys is None else SecureEndpoint(endpoint, keys)
