"""The rules of pushing at the top of the push tree, without sockets.

Pushing is an optimisation (docs/decisions/0016). Batches that have become visible wait in a bounded
queue, some are sent in each turn, and what does not fit is dropped and counted: a subscriber that
misses a push fetches the messages with GET.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator
from typing import Final, Protocol

from msgspec import Struct

from reliable_pubsub.common.core.batch import ENTRY_BYTES
from reliable_pubsub.common.core.limits import MIB, STATUS_ROWS_MAX
from reliable_pubsub.common.core.message_base import BatchHeader, Reply
from reliable_pubsub.common.core.patterns.matching import Kinds, Pattern
from reliable_pubsub.common.core.status import PushStatus
from reliable_pubsub.common.core.tree_messages import InterestRequest, Node, NodeReport
from reliable_pubsub.relay.core.interest_link import LEASE_S, Links
from reliable_pubsub.relay.core.interest_table import InterestTable
from reliable_pubsub.relay.core.push import Pushed, PushedUnstored, encode_push

from ..core.batches import LogBatch

WAITING_BYTES_MAX: Final = 4 * MIB  # of queued batches
TURN_MAX: Final = 64  # batches that one turn of the loop sends


class Down(Struct, frozen=True, gc=False):
    """Frames to push to every peer that wants a topic."""

    topic: str
    frames: list[bytes]


class _Waiting(Struct, frozen=True):
    topic: str
    log: str
    batch: LogBatch

    @property
    def size_bytes(self) -> int:
        return len(self.batch.body) + ENTRY_BYTES


class DataSocket(Protocol):
    """What the push socket counts."""

    @property
    def plain_count(self) -> int:
        """Prefixes that plain ZeroMQ subscribers want."""

    @property
    def sent_singly(self) -> int:
        """Frames that went to one link alone."""


class _NoSocket(Struct, frozen=True):
    plain_count: int = 0
    sent_singly: int = 0


class Pushes:
    """The links below, what they want, and the batches that wait for them."""

    def __init__(
        self,
        *,
        boot: str = "",
        endpoint: str = "",
        table: InterestTable[bytes] | None = None,
        kinds: Kinds | None = None,
        socket: DataSocket = _NoSocket(),  # noqa: B008  (frozen)
        lease_s: float = LEASE_S,
    ) -> None:
        """Create the rules for one start of the proxy, without links.

        Args:
            boot: random name of this start of the proxy.
            endpoint: of the push socket; sent to links.
            table, kinds: shared with the socket, which filters by them.
            socket: has counts for STATUS.
            lease_s: seconds after which a link that says nothing is forgotten.
        """
        self.kinds = kinds or Kinds()
        self._boot = boot
        self._endpoint = endpoint
        self._socket = socket
        self._table: InterestTable[bytes] = table or InterestTable(
            strategy="dedup", kinds=self.kinds
        )
        self._node = f"proxy-{boot}"
        self.links = Links(
            self._table,
            node=self._node,
            kinds=self.kinds,
            push_endpoint=endpoint,
            boot=boot,
            lease_s=lease_s,
        )
        self.is_used = False  # a peer has sent its interest; until then turns do not push
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._was_asked = False  # in this turn; requests of links are bounded per turn
        self._sent = self._dropped = 0

    # Data, down.

    def take(self, topic: str, log: str, batch: LogBatch) -> None:
        """Queue a batch that has become visible, if it is wanted."""
        if not self._table.is_wanted(topic):
            return
        waiting = _Waiting(topic, log, batch)
        self._waiting.append(waiting)
        self._waiting_bytes += waiting.size_bytes
        while self._waiting_bytes > WAITING_BYTES_MAX:
            self._waiting_bytes -= self._waiting.popleft().size_bytes
            self._dropped += 1

    @property
    def is_turn_due(self) -> bool:
        """Whether `turn` has anything to do."""
        return self._was_asked or bool(self._waiting)

    def turn(self) -> Iterator[Down]:
        """The batches that leave in this turn of the loop."""
        self._was_asked = False
        self.links.new_turn()
        for _ in range(min(len(self._waiting), TURN_MAX)):
            one = self._waiting.popleft()
            self._waiting_bytes -= one.size_bytes
            self._sent += 1
            pushed = Pushed(boot=self._boot, log=one.log, batch=one.batch.header)
            yield Down(one.topic, encode_push(one.topic, pushed, one.batch.body))

    def unstored(self, topic: str, header: BatchHeader, body: bytes, number: int) -> Down:
        """Return the push of a QoS 0 batch, which is not queued.

        Args:
            number: of the next batch at QoS 0, of any topic.
        """
        self._sent += 1
        pushed = PushedUnstored(boot=self._boot, batch=header, next=number)
        return Down(topic, encode_push(topic, pushed, body))

    # Interest, up.

    def is_wanted(self, topic: str) -> bool:
        """Whether a topic is wanted below."""
        return self._table.is_wanted(topic)

    def has_changed(self) -> bool:
        """Whether what is wanted below has changed since the last call."""
        return bool(self._table.changes())

    def wanted(self) -> frozenset[Pattern]:
        """What is wanted below, as of the last `has_changed`."""
        return self._table.above

    def answer(
        self,
        request: InterestRequest | Node,
        now_s: float,
        *,
        key: str = "",
        may_get_all: bool = True,
    ) -> Reply:
        """Answer a request about the push tree; the arguments are those of `Links.take`."""
        self.is_used = self._was_asked = True
        if isinstance(request, InterestRequest):
            return self.links.take(request, now_s, key=key, may_get_all=may_get_all)
        return self._report(request)

    def revoke(self, keys: Container[str]) -> None:
        """Forget the links of keys whose rights have changed; they say again what they want."""
        self.links.revoke(keys)

    # For operators.

    def status(self) -> PushStatus:
        """The row of pushing in a STATUS."""
        return PushStatus(
            endpoint=self._endpoint,
            links=len(self.links),
            plain=self._socket.plain_count,
            sent=self._sent,
            dropped=self._dropped,
            queued=len(self._waiting),
        )

    def _report(self, request: Node) -> NodeReport:
        rows = self.links.report()
        return NodeReport(
            client=request.client,
            epoch=request.epoch,
            request=request.request,
            boot=self._boot,
            node=self._node,
            push_endpoint=self._endpoint,
            strategy="",
            above=(),
            below=rows[:STATUS_ROWS_MAX],
            below_left_out=max(len(rows) - STATUS_ROWS_MAX, 0),
            plain=self._socket.plain_count,
            patterns=0,
            is_full=False,
            unknown_kinds=self._table.unknown_kinds,
            received=self._sent,
            sent_singly=self._socket.sent_singly,
            malformed=0,
            from_cache=0,
            shared=0,
            passed=0,
            dropped=self._dropped,
        )
