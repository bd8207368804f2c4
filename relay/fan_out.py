"""The data socket of a node: an XPUB that filters by what interest says, not by what peers send.

A link of ours subscribes to one thing, `00 link`, and ZeroMQ repeats that by itself at every
reconnection: one message on an empty pipe, which no high-water mark can lose. It tells us on which
pipe the link is; what is sent there follows from its acknowledged set (XPUB_MANUAL). A plain ZeroMQ
subscriber is served as it asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import zmq

from reliable_pubsub.common.limits import CONSUMERS_MAX, INTEREST_PATTERNS_MAX, LINK_BYTES

from .interest_link import Links
from .interest_table import InterestTable
from .pattern import Kinds
from .push import END, FIRST_BYTES, pattern_of_plain, prefixes_of, single_topic_frame
from .sockets import DATA_MESSAGES_MAX, Context, listening

TURN_MAX = 256  # messages of one socket in one turn of the loop, so that no socket starves
PLAIN = b"plain"  # all plain subscribers together are one consumer; no link has this length


class FanOut:
    """Sends data to everybody below who wants it, each once."""

    def __init__(
        self, context: Context, endpoint: str, table: InterestTable[bytes], kinds: Kinds
    ) -> None:
        """Bind.

        Raises:
            ConfigurationError: the endpoint cannot be bound.
        """
        self.socket, _ = listening(context, zmq.XPUB, endpoint, "push", sent_max=DATA_MESSAGES_MAX)
        self.socket.setsockopt(zmq.XPUB_MANUAL, 1)
        self.endpoint = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.sent_singly = 0
        self._table = table
        self._kinds = kinds
        self._is_mixed_up = False  # nobody knows which pipe spoke last
        self._plain: Counter[bytes] = Counter()  # prefixes, by how many subscribers
        self._prefixes: dict[bytes, frozenset[bytes]] = {}  # by link: what its pipe is sent
        # What is applied, which a new set becomes only when its link says where it is: until then
        # its old patterns are served, so that nothing is missing in between.
        self._served: InterestTable[bytes] = InterestTable(cap=INTEREST_PATTERNS_MAX, kinds=kinds)

    @property
    def plain_count(self) -> int:
        """Prefixes that plain subscribers want."""
        return len(self._plain)

    def listen(self, links: Links) -> None:
        """Take what peers say on the data socket: where a link is, or what a plain one wants."""
        plain_before = len(self._plain), self._plain.total()
        for _ in range(TURN_MAX):
            try:
                said = self.socket.recv(zmq.DONTWAIT)
            except zmq.Again:
                self._is_mixed_up = False
                break
            if said[:1] not in (b"\0", b"\1"):
                # libzmq 4.3.5 counts what is no subscription as one too: until all is read, the
                # connection it takes an option for is that of a later message.
                self._is_mixed_up = True
                continue
            is_added, what = said[:1] == b"\1", said[1:]
            if what[:1] == END:
                if is_added and len(what) == 1 + LINK_BYTES:
                    self._place(what[1:], links)
            else:
                self._plain_said(what, is_added)
        if (len(self._plain), self._plain.total()) != plain_before:
            self._table.replace(
                PLAIN, [self._kinds.check(pattern_of_plain(one)) for one in self._plain]
            )

    def _place(self, link: bytes, links: Links) -> None:
        """The pipe that spoke last is that of this link: send it what the link wants."""
        if self._is_mixed_up:
            links.misplaced(link)
            return
        patterns = links.applied(link)
        self._served.replace(link, patterns)
        wanted = prefixes_of(patterns, self._kinds)
        self.socket.setsockopt(zmq.SUBSCRIBE, END + link)
        for prefix in wanted:  # all of them: it may be a new pipe
            self.socket.setsockopt(zmq.SUBSCRIBE, prefix)
        for prefix in self._prefixes.get(link, frozenset()) - wanted:
            self.socket.setsockopt(zmq.UNSUBSCRIBE, prefix)
        self._prefixes[link] = wanted

    def _plain_said(self, prefix: bytes, is_added: bool) -> None:
        if is_added and prefix not in self._plain and len(self._plain) >= CONSUMERS_MAX:
            prefix = b""  # more than we count: everything
        # A subscriber that asks twice and takes back once is counted once too much: it is then
        # sent for longer, never too little.
        self._plain[prefix] += 1 if is_added else -1
        if self._plain[prefix] <= 0:
            del self._plain[prefix]
        for one in FIRST_BYTES if prefix == b"" else (prefix,):
            self.socket.setsockopt(zmq.SUBSCRIBE if is_added else zmq.UNSUBSCRIBE, one)

    def forget(self, links: Sequence[bytes]) -> None:
        """The leases of these links are over."""
        for link in links:
            self._prefixes.pop(link, None)
            self._served.forget(link)

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
