"""The top of the push tree: sends down what has become visible, to those below who want it.

Pushing is an optimisation (docs/decisions/0016): it waits in a bounded queue behind the law, some
batches go out in each turn of the loop, and what does not fit is dropped and counted. Whoever
misses a push pulls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from reliable_pubsub.common.endpoint import any_port_beside
from reliable_pubsub.common.errors import ConfigurationError, MalformedError
from reliable_pubsub.common.limits import MIB, STATUS_ROWS_MAX
from reliable_pubsub.common.messages import BatchHeader, Malformed, PushStatus, Reply
from reliable_pubsub.relay.fan_out import FanOut
from reliable_pubsub.relay.interest_link import Links
from reliable_pubsub.relay.interest_table import InterestTable
from reliable_pubsub.relay.messages import Interest, Node, NodeReport
from reliable_pubsub.relay.pattern import Kinds, Pattern
from reliable_pubsub.relay.push import Pushed, PushedUnstored, encode_push
from reliable_pubsub.relay.sockets import Context
from reliable_pubsub.relay.wire import decode_node_request

from .records import Appended

WAITING_BYTES_MAX: Final = 4 * MIB  # of batches that were not sent yet
ENTRY_BYTES: Final = 400  # what a batch takes beside its body
TURN_MAX: Final = 64  # batches that one turn of the loop sends


class PushSettings(Struct, frozen=True, kw_only=True):
    """Where pushed data leaves, or data at QoS 0 comes in."""

    endpoint: str
    # Nobody chose the endpoint: if it is taken, any free port will do, because peers are told.
    is_default: bool = False


class _Waiting(Struct, frozen=True):
    topic: str
    log: str
    batch: Appended

    @property
    def size_bytes(self) -> int:
        return len(self.batch.body) + ENTRY_BYTES


class Push:
    """Belongs to the loop thread."""

    def __init__(self, context: Context, settings: PushSettings, *, boot: str) -> None:
        """Bind.

        Raises:
            ConfigurationError: the endpoint cannot be bound.
        """
        self._kinds = Kinds()
        self._boot = boot
        self._table: InterestTable[bytes] = InterestTable(strategy="dedup", kinds=self._kinds)
        self._fan_out = self._bind(context, settings)
        self.socket = self._fan_out.socket
        self.endpoint = self._fan_out.endpoint
        self._node = f"proxy-{boot}"
        self._links = Links(
            self._table, node=self._node, kinds=self._kinds, push_endpoint=self.endpoint, boot=boot
        )
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._sent = self._dropped = 0

    def _bind(self, context: Context, settings: PushSettings) -> FanOut:
        if settings.is_default:
            with suppress(ConfigurationError):
                return FanOut(context, settings.endpoint, self._table, self._kinds)
            return FanOut(context, any_port_beside(settings.endpoint), self._table, self._kinds)
        return FanOut(context, settings.endpoint, self._table, self._kinds)

    # Data, down.

    def take(self, topic: str, log: str, batch: Appended) -> None:
        """A batch has become visible: it goes out soon, if anybody below wants it."""
        if not self._table.is_wanted(topic):
            return
        waiting = _Waiting(topic, log, batch)
        self._waiting.append(waiting)
        self._waiting_bytes += waiting.size_bytes
        while self._waiting_bytes > WAITING_BYTES_MAX:
            self._waiting_bytes -= self._waiting.popleft().size_bytes
            self._dropped += 1

    def turn(self) -> bool:
        """Send some of what waits; say whether the socket was used."""
        self._fan_out.new_turn()
        self._links.new_turn()
        count = min(len(self._waiting), TURN_MAX)
        for _ in range(count):
            waiting = self._waiting.popleft()
            self._waiting_bytes -= waiting.size_bytes
            self._send(waiting)
        return count > 0

    def _send(self, waiting: _Waiting) -> None:
        batch = waiting.batch
        pushed = Pushed(boot=self._boot, log=waiting.log, batch=batch.header)
        self._fan_out.send(waiting.topic, encode_push(waiting.topic, pushed, batch.body))
        self._sent += 1

    def send_unstored(self, topic: str, header: BatchHeader, body: bytes) -> None:
        """Send what was put at QoS 0, now and once."""
        pushed = PushedUnstored(boot=self._boot, batch=header)
        self._fan_out.send(topic, encode_push(topic, pushed, body))
        self._sent += 1

    # Interest, up.

    def is_wanted(self, topic: str) -> bool:
        """Whether anybody below wants a topic."""
        return self._table.is_wanted(topic)

    def has_changed(self) -> bool:
        """Whether what is wanted below has changed since the last time."""
        return bool(self._table.changes())

    def wanted(self) -> frozenset[Pattern]:
        """What is wanted below, as of the last `has_changed`."""
        return self._table.above

    def listen(self) -> bool:
        """Take what peers say on the data socket; return whether there may be more."""
        return self._fan_out.listen(self._links)

    def expire(self, now_s: float) -> None:
        """Forget the links whose lease is over."""
        self._fan_out.forget(self._links.expire(now_s))
        self._fan_out.look(now_s)

    def close(self) -> None:
        """Unbind."""
        self._fan_out.close()

    def answer(self, frames: Sequence[bytes], now_s: float) -> Reply:
        """Answer a request that `relay.wire.is_for_node` has found to be one for us."""
        try:
            request = decode_node_request(frames)
        except MalformedError as error:
            return Malformed(client="", epoch=0, request=0, boot=self._boot, text=str(error))
        if isinstance(request, Interest):
            return self._links.take(request, now_s)
        return self._report(request)

    def status(self) -> PushStatus:
        """What to tell an operator."""
        return PushStatus(
            endpoint=self.endpoint,
            links=len(self._links),
            plain=self._fan_out.plain_count,
            sent=self._sent,
            dropped=self._dropped,
            queued=len(self._waiting),
        )

    def _report(self, request: Node) -> NodeReport:
        rows = self._links.report()
        return NodeReport(
            client=request.client,
            epoch=request.epoch,
            request=request.request,
            boot=self._boot,
            node=self._node,
            push_endpoint=self.endpoint,
            strategy="",
            above=(),
            below=rows[:STATUS_ROWS_MAX],
            below_left_out=max(len(rows) - STATUS_ROWS_MAX, 0),
            plain=self._fan_out.plain_count,
            patterns=0,
            is_full=False,
            unknown_kinds=self._table.unknown_kinds,
            received=self._sent,
            sent_singly=self._fan_out.sent_singly,
            malformed=0,
            from_cache=0,
            shared=0,
            passed=0,
            dropped=self._dropped,
        )
