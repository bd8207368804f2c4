"""The data socket of a node: an XPUB that filters by interest, not by what peers subscribe to.

Our links subscribe to one thing, `00 link`, and ZeroMQ repeats that at every
reconnection: one message on an empty pipe, which no high-water mark can lose. It tells us on which
pipe the link is; what is sent there follows from its acknowledged set (XPUB_MANUAL). A plain ZeroMQ
subscriber is served as it asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence

import zmq

from reliable_pubsub.common.access.authentication import Authentication
from reliable_pubsub.common.access.connections import Connection, Received
from reliable_pubsub.common.access.entrance import Entrance
from reliable_pubsub.common.access.guard import guard_of_push
from reliable_pubsub.common.access.sockets import DATA_MESSAGES_MAX, Context, listening
from reliable_pubsub.common.core.limits import (
    INTEREST_PATTERNS_MAX,
    LINK_BYTES,
    PREFIX_BYTES,
    PREFIX_BYTES_MAX,
    PREFIX_BYTES_MAX_TOGETHER,
    PUSH_FRAME_BYTES_MAX,
    PUSH_RECEIVE_BUFFER_BYTES,
    PUSH_WAITING_CONNECTIONS_MAX,
)
from reliable_pubsub.common.core.patterns.matching import EVERYTHING, Kinds, Pattern

from .core.interest_link import Links
from .core.interest_table import InterestTable
from .core.push import END, FIRST_BYTES, pattern_of_plain, prefixes_of, single_topic_frame

TURN_MAX = 256  # messages of one socket in one turn of the loop, so that no socket starves
PLAIN = b"plain"  # all plain subscribers together are one consumer; no link has this length


class _Said:
    """What one connection has subscribed to, as libzmq keeps it."""

    __slots__ = ("key", "link", "prefixes", "size_bytes")

    def __init__(self) -> None:
        self.key = ""
        self.link = b""
        self.prefixes: set[bytes] = set()
        self.size_bytes = 0


def _size(prefix: bytes) -> int:
    return len(prefix) + PREFIX_BYTES


class FanOut:
    """Sends data to all peers below that want it, once to each."""

    def __init__(
        self,
        context: Context,
        endpoint: str,
        table: InterestTable[bytes],
        kinds: Kinds,
        authentication: Authentication | None = None,
        entrance: Entrance | None = None,
    ) -> None:
        """Bind.

        Args:
            authentication: of the connections; None: everything is sent to everyone.
            entrance: of the process; None: as many connections come as ask for one.

        Raises:
            ConfigurationError: the endpoint cannot be bound.
        """
        listener = listening(
            context,
            zmq.XPUB,
            endpoint,
            "push",
            authentication=authentication,
            entrance=entrance,
            sent_max=DATA_MESSAGES_MAX,
            frame_bytes_max=PUSH_FRAME_BYTES_MAX,
            receive_buffer_bytes=PUSH_RECEIVE_BUFFER_BYTES,
            waiting_max=PUSH_WAITING_CONNECTIONS_MAX,
        )
        self.socket, self.connections = listener.socket, listener.connections
        self.endpoint = listener.endpoint
        self.connections.ended()  # from now on they are kept
        self._guard = guard_of_push(listener.connections)
        self.socket.setsockopt(zmq.XPUB_MANUAL, 1)
        self.sent_singly = 0
        self._table = table
        self._kinds = kinds
        self._authentication = authentication or Authentication(context, None)
        self._is_mixed_up = False  # the last pipe to speak is unknown
        self._said: dict[Connection, _Said] = {}
        self._size_bytes = 0  # of all that was said
        self._plain: Counter[bytes] = Counter()  # prefixes, by how many subscribers
        self._is_plain_changed = False
        self._prefixes: dict[bytes, frozenset[bytes]] = {}  # by link: what its pipe is sent
        # What is applied, which a new set becomes only when its link says where it is: until then
        # its old patterns are served, so that nothing is missing in between.
        self._served: InterestTable[bytes] = InterestTable(cap=INTEREST_PATTERNS_MAX, kinds=kinds)

    @property
    def plain_count(self) -> int:
        """Prefixes that plain subscribers want."""
        return len(self._plain)

    def listen(self, links: Links) -> bool:
        """Take what peers say on the data socket: where a link is, or what a plain one wants.

        Returns:
            Whether there may be more.
        """
        for _ in range(TURN_MAX):
            try:
                received = self.connections.take()
            except zmq.Again:
                self._is_mixed_up = is_more = False
                break
            if received is not None:
                self._take(received, links)
        else:
            is_more = True
        self.forget_ended()
        return is_more

    def _take(self, received: Received, links: Links) -> None:
        frames, speaker, key = received.frames, received.connection, received.key
        said = frames[0]
        if len(frames) > 1 or said[:1] not in (b"\0", b"\1"):
            # libzmq 4.3.5 counts what is no subscription as one too: until all is read, the
            # connection it takes an option for is that of a later message.
            self._is_mixed_up = True
            if speaker is not None:
                self.connections.cut(speaker)
            return
        if speaker is None:
            return  # libzmq says what an ended connection had subscribed to; we know
        if key is None or received.excess is not None:
            self.connections.cut(speaker)  # it was revoked, or its key has too many
            return
        is_added, what = said[:1] == b"\1", said[1:]
        known = self._said.setdefault(speaker, _Said())
        known.key = key
        if what[:1] != END:
            if self._is_mixed_up:  # another connection would be sent it; a new one says it again
                self.connections.cut(speaker)
            elif not self._is_denied(key, what):
                self._plain_said(known, what, is_added)
        elif is_added and len(what) == 1 + LINK_BYTES and known.link in (b"", what):
            known.link = what
            self._place(what[1:], links, key)
        elif is_added:
            self.connections.cut(speaker)  # a connection is that of one link
        if known.size_bytes > PREFIX_BYTES_MAX:
            self.connections.cut(speaker)
        elif self._size_bytes > PREFIX_BYTES_MAX_TOGETHER:
            self.connections.cut(max(self._said, key=lambda one: self._said[one].size_bytes))

    def _is_denied(self, key: str, prefix: bytes) -> bool:
        denial = self._authentication.authority.denial_of_push(key, pattern_of_plain(prefix))
        if denial is not None:
            self._authentication.refused(denial)
        return denial is not None

    def cut(self, keys: Container[str]) -> None:
        """End the connections of these keys, whose rights have changed; they come again."""
        for connection, known in self._said.items():
            if known.key in keys:
                self.connections.cut(connection)

    def _place(self, link: bytes, links: Links, key: str) -> None:
        """The pipe that spoke last is that of this link: send it what the link wants."""
        if self._is_mixed_up:
            links.misplaced(link)
            return
        patterns = links.applied(link, key)
        self._served.replace(link, patterns)
        wanted = prefixes_of(patterns, self._kinds)
        self.socket.setsockopt(zmq.SUBSCRIBE, END + link)
        for prefix in wanted:  # all of them: it may be a new pipe
            self.socket.setsockopt(zmq.SUBSCRIBE, prefix)
        for prefix in self._prefixes.get(link, frozenset()) - wanted:
            self.socket.setsockopt(zmq.UNSUBSCRIBE, prefix)
        self._prefixes[link] = wanted

    def _plain_said(self, known: _Said, prefix: bytes, is_added: bool) -> None:
        if is_added and prefix not in known.prefixes:
            known.prefixes.add(prefix)
            self._count_plain(known, prefix, 1)
        elif not is_added and prefix in known.prefixes:
            known.prefixes.discard(prefix)
            self._count_plain(known, prefix, -1)
        for one in FIRST_BYTES if prefix == b"" else (prefix,):
            self.socket.setsockopt(zmq.SUBSCRIBE if is_added else zmq.UNSUBSCRIBE, one)

    def _count_plain(self, known: _Said, prefix: bytes, change: int) -> None:
        known.size_bytes += change * _size(prefix)
        self._size_bytes += change * _size(prefix)
        self._plain[prefix] += change
        if self._plain[prefix] <= 0:
            del self._plain[prefix]
        self._is_plain_changed = True

    def forget_ended(self) -> None:
        """Count what ended connections wanted no more; then tell the table."""
        for ended in self.connections.ended():
            known = self._said.pop(ended, None) or _Said()
            for prefix in known.prefixes:
                self._count_plain(known, prefix, -1)
        if self._is_plain_changed:
            self._is_plain_changed = False
            self._table.replace(PLAIN, self._plain_patterns())

    def _plain_patterns(self) -> list[Pattern]:
        if len(self._plain) > INTEREST_PATTERNS_MAX:
            return [EVERYTHING]
        return [self._kinds.check(pattern_of_plain(one)) for one in self._plain]

    def forget(self, links: Sequence[bytes]) -> None:
        """The leases of these links are over."""
        for link in links:
            self._prefixes.pop(link, None)
            self._served.forget(link)

    def stop_guard(self) -> None:
        """End the thread that watches; before the socket is closed."""
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    def close(self) -> None:
        """Unbind."""
        self.stop_guard()
        self.connections.close()
        self.socket.close()

    def new_turn(self) -> None:
        """A turn of the loop begins."""
        self._table.new_turn()
        self._served.new_turn()

    def send(self, topic: str | None, frames: Sequence[bytes]) -> None:
        """Send a message down: once for all that a prefix serves, once for each other link.

        Args:
            topic: None: the frames are of an unknown form, and go by their first frame alone.
        """
        self.socket.send_multipart(frames)
        if topic is None:
            return
        for link in self._served.singly(topic):
            self.socket.send_multipart([single_topic_frame(link, frames[0]), *frames[1:]])
            self.sent_singly += 1
