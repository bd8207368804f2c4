"""The relay: one thread, one loop. Interest and requests go up, data and answers come down."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

import zmq
from msgspec import UNSET, Struct
from msgspec.structs import asdict

from reliable_pubsub.common.access.authentication import Authentication
from reliable_pubsub.common.access.core.authorisation import denied
from reliable_pubsub.common.access.core.inflow import ConnectionBounds
from reliable_pubsub.common.access.entrance import Entrance
from reliable_pubsub.common.access.guard import guard_of
from reliable_pubsub.common.access.sockets import (
    ANSWERS_MAX,
    Context,
    Socket,
    connect_to_any,
    connecting,
    end_context,
    listening,
)
from reliable_pubsub.common.core.answers import Denied, Malformed
from reliable_pubsub.common.core.attention import Attention
from reliable_pubsub.common.core.endpoint import endpoints_of
from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.keys import ServerKeys, keys_of_endpoint
from reliable_pubsub.common.core.limits import STATUS_ROWS_MAX
from reliable_pubsub.common.core.message_base import Reply
from reliable_pubsub.common.core.patterns.matching import Kinds, Strategy
from reliable_pubsub.common.core.requests import AnyRequest
from reliable_pubsub.common.core.tree_messages import InterestRequest, Node, NodeReport
from reliable_pubsub.common.core.wire import encode
from reliable_pubsub.common.notify import ServiceManager
from reliable_pubsub.common.scrapes import Scrapes
from reliable_pubsub.common.system import WakeUp
from reliable_pubsub.common.transport import IO_THREADS_MAX

from .above import Above, NodeAbove, PlainAbove
from .core.batch_cache import BatchCache
from .core.forwarding import Forwarding, ToAbove, ToPeer
from .core.interest_link import LEASE_S, Links
from .core.interest_table import CAP, InterestTable
from .core.one_proxy import OneProxy
from .core.push import PushFrames, decode_any_push, shared_topic_frame
from .core.wire import decode_node_request, is_for_node
from .fan_out import TURN_MAX, FanOut
from .metrics import RelayFigures

TICK_S = 0.05
TURN_S = 0.02  # of one turn, for requests
DOWN_S = 5.0  # that a way up is down before the log has it: a restart above takes less


class RelaySettings(Struct, frozen=True, kw_only=True):
    """Where a relay stands in the tree, and how it forwards interest."""

    node: str
    upstreams: tuple[str, ...]  # request endpoints of nodes above; requests go to the first
    publishers: tuple[str, ...] = ()  # data endpoints of plain ZeroMQ publishers
    endpoint: str
    push_endpoint: str
    strategy: Strategy = "subsume"
    cap: int = CAP
    lease_s: float = LEASE_S
    push_via: str = ""  # push endpoint of the first node above, if not the announced one
    keys: ServerKeys | None = None  # of its endpoints; None: plaintext
    connections: ConnectionBounds = ConnectionBounds()


class Relay:
    """A relay: binds, and runs until `stop`."""

    def __init__(
        self,
        settings: RelaySettings,
        warn: Callable[[str], None] = lambda _: None,
        *,
        manager: ServiceManager | None = None,
    ) -> None:
        """Bind, and connect to what is above.

        Args:
            warn: called with what an operator should look at.
            manager: is notified that the loop turns; None: that of the environment.

        Raises:
            ConfigurationError: an endpoint cannot be bound.
        """
        self.settings = settings
        self._kinds = Kinds()
        self._boot = secrets.token_hex(8)
        threads = len([*chain(*map(endpoints_of, settings.upstreams)), *settings.publishers])
        self._context: Context = zmq.Context(min(1 + threads, IO_THREADS_MAX))
        self._authentication = Authentication(self._context, settings.keys, warn=warn)
        self._entrance = Entrance(settings.connections, settings.keys, warn)
        self._table: InterestTable[bytes] = InterestTable(
            strategy=settings.strategy, cap=settings.cap, kinds=self._kinds
        )
        try:
            self._bind()
        except BaseException:
            self._authentication.close()
            self._context.destroy(linger=0)
            raise
        self._links = Links(
            self._table,
            node=settings.node,
            kinds=self._kinds,
            push_endpoint=self.fan_out.endpoint,
            boot=self._boot,
            lease_s=settings.lease_s,
        )
        has_keys = settings.keys is not None or any(map(keys_of_endpoint, settings.upstreams))
        self._forwarding = Forwarding(BatchCache(), passes_unread=not has_keys)
        self._pulled = connecting(
            self._context,
            zmq.DEALER,
            settings.upstreams[0] if settings.upstreams else "",
            sent_max=ANSWERS_MAX,
            received_max=0,
        )
        if settings.upstreams:
            connect_to_any(self._pulled, settings.upstreams[0], 1)
        self._above = self._connected()
        self._guard = guard_of(self._connections, warn=warn)
        self._wake_up = WakeUp()
        self._manager = manager or ServiceManager()
        self.scrapes: Scrapes[RelayFigures] = Scrapes(self._wake_up.wake)
        self._one_proxy = OneProxy(settings.upstreams)
        self._stopping = False
        self._received = self._malformed = 0
        self._tick_at_s = self._join_at_s = 0.0
        self._attention = Attention()
        self._warn = warn
        self._down: dict[str, str] = {}  # ways up that do not work, and why
        self._is_down_reported, self._down_at_s = False, time.monotonic() + DOWN_S

    def _bind(self) -> None:
        listener = listening(
            self._context,
            zmq.ROUTER,
            self.settings.endpoint,
            "request",
            authentication=self._authentication,
            entrance=self._entrance,
            sent_max=ANSWERS_MAX,
        )
        self._requests, self._connections = listener.socket, listener.connections
        self.endpoint = listener.endpoint
        self.fan_out = FanOut(
            self._context,
            self.settings.push_endpoint,
            self._table,
            self._kinds,
            self._authentication,
            self._entrance,
        )

    def _connected(self) -> list[Above]:
        """What is above: nodes, then plain publishers."""
        settings = self.settings
        above: list[Above] = []
        thread = 1
        for endpoint in settings.upstreams:
            push_via = "" if above else settings.push_via
            above.append(
                NodeAbove(
                    self._context,
                    endpoint,
                    settings.node,
                    cap=settings.cap,
                    push_via=push_via,
                    io_thread=thread,
                    is_watched=True,
                )
            )
            thread += len(endpoints_of(endpoint))
        for number, endpoint in enumerate(settings.publishers, thread):
            above.append(
                PlainAbove(self._context, endpoint, self._kinds, cap=settings.cap, io_thread=number)
            )
        return above

    def stop(self) -> None:
        """Ask the loop to end; safe in a signal handler and from another thread."""
        self._stopping = True
        self._wake_up.wake()

    def run(self) -> None:
        """Serve until `stop`.

        Raises:
            TwoProxiesError: the nodes above lead to different proxies.
        """
        poller = zmq.Poller()
        poller.register(self._wake_up.descriptor, zmq.POLLIN)
        sockets = [self._requests, self.fan_out.socket, self._pulled]
        sockets += [above.data for above in self._above]
        sockets += [above.interest for above in self._above if isinstance(above, NodeAbove)]
        for socket in sockets:
            poller.register(socket, zmq.POLLIN)
        try:
            wait_s = 0.0
            while not self._stopping:
                ready = {socket for socket, _ in poller.poll(max(int(wait_s * 1000), 0))}
                if self._wake_up.descriptor in ready:
                    self._wake_up.heard()
                wait_s = self._turn(ready)
            self._send_last_cursors(poller)
        finally:
            self.fan_out.stop_guard()
            self._authentication.close()
            if self._guard is not None:
                self._guard.close()
            self._connections.close()
            self.fan_out.connections.close()
            end_context(partial(self._context.destroy, linger=200))
            self._wake_up.close()

    def _turn(self, ready: set[object]) -> float:
        """Serve what is ready, do what is due; return the seconds to wait."""
        now_s = time.monotonic()
        self.fan_out.new_turn()
        self._links.new_turn()
        if self.fan_out.socket in ready:
            self.fan_out.listen(self._links)
        for above in self._above:
            if above.data in ready:
                self._take_data(above.data)
        if self._requests in ready:
            self._take_requests(now_s)
        if self._pulled in ready:
            self._take_answers(now_s)
        if now_s >= self._tick_at_s:
            self._tick_at_s = now_s + TICK_S
            self.fan_out.forget(self._links.expire(self._attention.at(now_s)))
            self.fan_out.forget_ended()
            self._entrance.look(now_s)
            if changed := self._authentication.look(now_s):
                self._links.revoke(changed)
                self.fan_out.cut(changed)
            self._authentication.end_excess(now_s)
            self._forwarding.tick(now_s)
            self._look_up(now_s)
            self._manager.alive(now_s)
        if self.scrapes.asked:
            self.scrapes.give(self._figures())
        self._carry_out()
        if now_s >= self._join_at_s:
            begun_s = time.monotonic()
            self._table.changes()
            # However many change however often, joining takes a tenth of the time at most.
            self._join_at_s = now_s + 9 * (time.monotonic() - begun_s)
        for above in self._above:
            above.want(self._table.above, self._links.below)
        wait_s = min(TICK_S, *(above.turn(now_s) for above in self._above))
        self._ask_for_proxies(now_s)
        return wait_s

    def _look_up(self, now_s: float) -> None:
        """Report to health checks whether the upstream links work, and log if not."""
        self._down = {one.endpoint: why for one in self._above if (why := one.why_down())}
        texts = [f"the way up to {at} is down: {why}" for at, why in self._down.items()]
        self.scrapes.beat("; ".join(texts))
        if not texts:
            if self._is_down_reported:
                self._warn("the ways up work again")
            self._is_down_reported, self._down_at_s = False, now_s + DOWN_S
        elif now_s >= self._down_at_s and not self._is_down_reported:
            self._is_down_reported = True
            self._warn(
                f"warning: {'; '.join(texts)}. Nothing new comes from there to subscribers below; "
                "the relay keeps trying. Check --upstream, the node above, and the keys"
            )

    def _ask_for_proxies(self, now_s: float) -> None:
        is_due = self._one_proxy.is_due(now_s)
        for above in self._above:
            if not isinstance(above, NodeAbove):
                continue
            for boot, number in above.proxies():
                self._one_proxy.answered(above.endpoint, boot, number)
            if is_due:
                above.ask_for_proxy(self._one_proxy.round)

    # Data, down.

    def _take_data(self, data: Socket) -> None:
        for _ in range(TURN_MAX):
            try:
                frames = data.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            self._received += 1
            frames[0] = shared_topic_frame(frames[0])
            try:
                push = decode_any_push(frames)
            except MalformedError:
                self._malformed += 1  # of a plain publisher, perhaps: it goes by its first frame
                self.fan_out.send(None, frames)
                continue
            self.fan_out.send(push.topic, frames)
            if isinstance(push, PushFrames) and push.body is not None:
                pushed = push.pushed
                self._forwarding.cache.add(push.topic, pushed.boot, pushed.batch, push.body)

    # Requests, up.

    def _take_requests(self, now_s: float) -> None:
        for _ in range(TURN_MAX):
            if time.monotonic() > now_s + TURN_S:
                return  # data and answers have their turn; the rest waits at its senders
            try:
                received = self._connections.take()
            except zmq.Again:
                return
            if received is None:
                return
            parts, key = received.frames, received.key
            if b"" not in parts or key is None or received.excess is not None:
                continue  # no envelope to answer; its key was revoked; it has too many connections
            begin = parts.index(b"") + 1
            envelope, frames = tuple(parts[:begin]), parts[begin:]
            if is_for_node(frames):
                self._reply(envelope, self._answer_node(frames, now_s, key))
            elif len(frames) > 2:
                self._reply(envelope, self._unread("a body does not belong on this endpoint"))
            else:
                try:
                    self._forwarding.request(envelope, frames, now_s, partial(self._asker_of, key))
                except MalformedError as error:
                    self._reply(envelope, self._unread(str(error)))

    def _asker_of(self, key: str, request: AnyRequest) -> str | Denied:
        """The public key that a request is of; or why a relay below is not to pass it on."""
        authority = self._authentication.authority
        denial = authority.denial_of_relayed(key, request)
        if denial is None:
            return authority.asker(key, request)
        self._authentication.refused(denial)
        return denied(denial, request, boot=self._boot)

    def _answer_node(self, frames: Sequence[bytes], now_s: float, key: str) -> Reply:
        try:
            request = decode_node_request(frames)
        except MalformedError as error:
            return self._unread(str(error))
        authority = self._authentication.authority
        denial = authority.denial(key, request)
        if denial is not None:
            self._authentication.refused(denial)
            return denied(denial, request, boot=self._boot)
        if isinstance(request, InterestRequest):
            may_get_all = authority.gets_everything(key)
            heard_s = self._attention.at(now_s)
            return self._links.take(request, heard_s, key=key, may_get_all=may_get_all)
        return self._report(request)

    def _unread(self, text: str) -> Malformed:
        return Malformed(client="", epoch=0, request=0, boot=self._boot, text=text)

    def _reply(self, envelope: Sequence[bytes], reply: Reply) -> None:
        self._requests.send_multipart([*envelope, *encode(reply)])

    def _take_answers(self, now_s: float) -> None:
        for _ in range(TURN_MAX):
            try:
                parts = self._pulled.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            if len(parts) > 2 and parts[1] == b"":
                self._forwarding.answer(parts[0], parts[2:], now_s)

    def _carry_out(self) -> None:
        for action in self._forwarding.actions():
            match action:
                case ToPeer():
                    self._requests.send_multipart([*action.envelope, *action.frames])
                case ToAbove():
                    with suppress(zmq.Again):  # no node above: dropped when its time is over
                        self._pulled.send_multipart(
                            [action.ticket, b"", *action.frames], zmq.DONTWAIT
                        )

    def _send_last_cursors(self, poller: zmq.Poller) -> None:
        """Before the end, send the cursors that the proxy does not know; wait a moment at most."""
        until_s = time.monotonic() + 0.5
        while self._forwarding.unsent_cursors and (now_s := time.monotonic()) < until_s:
            self._forwarding.tick(now_s)
            self._carry_out()
            poller.poll(20)
            self._take_answers(time.monotonic())

    def _figures(self) -> RelayFigures:
        forwarding = self._forwarding
        return RelayFigures(
            received=self._received,
            sent_singly=self.fan_out.sent_singly,
            malformed=self._malformed,
            passed=forwarding.passed_count,
            shared=forwarding.shared_count,
            from_cache=forwarding.from_cache_count,
            dropped=forwarding.dropped_count,
            links=len(self._links),
            plain=self.fan_out.plain_count,
            patterns=len(self._table.above),
            connections=self._entrance.status(),
            ways_up={one.endpoint: one.endpoint not in self._down for one in self._above},
        )

    def _report(self, request: Node) -> NodeReport:
        rows = self._links.report()
        counts = asdict(self._figures())
        del counts["links"], counts["ways_up"]
        return NodeReport(
            client=request.client,
            epoch=request.epoch,
            request=request.request,
            boot=self._boot,
            node=self.settings.node,
            push_endpoint=self.fan_out.endpoint,
            strategy=self.settings.strategy,
            above=tuple(above.status() for above in self._above),
            below=rows[:STATUS_ROWS_MAX],
            below_left_out=max(len(rows) - STATUS_ROWS_MAX, 0),
            is_full=any(map(self._kinds.everything, self._table.above)),
            unknown_kinds=self._table.unknown_kinds,
            why_dead=self.scrapes.why_dead() or UNSET,
            **counts,
        )
