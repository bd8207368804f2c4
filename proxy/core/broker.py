"""The broker: every decision of the proxy, without socket, clock, file, thread or chance.

The law of the house, in four steps that `server.py` takes in this order:

    decide(request)   a question; nothing changes
    apply(records)    the only way to change the state
    committed(lsn)    the store has the records up to number lsn
    visible_at        a reply leaves when everything it reports is durable

Rules R4 to R18 of docs/protocol.md are decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub.common.core.limits import EPOCH_STEP_MAX
from reliable_pubsub.common.core.messages import (
    Abort,
    Ack,
    AnyReply,
    AnyRequest,
    Busy,
    Bye,
    Commit,
    Dead,
    Delivery,
    Durability,
    Fenced,
    Get,
    Hello,
    HelloAck,
    History,
    Listeners,
    MessageBatches,
    NoMessagesYet,
    Put,
    Ring,
    Stage,
    Status,
    StorageFull,
    Sub,
    TopicPosition,
    Unsub,
)

from .dead_letters import DeadLetters
from .delivering import Delivering
from .leasing import Leasing
from .records import Decision, Granted, Record, StoredState
from .report import status_report
from .ring import Rings
from .ring_reading import RingReading
from .rules import LogReader
from .staging import LastTransaction
from .state import BrokerSettings
from .transactions import Transactions

_HANGS = (
    "the disk of the proxy does not answer at the moment; gets of what is stored are served, ask "
    "again later"
)


class Broker(Transactions, DeadLetters, Delivering, RingReading, Leasing):
    """Every rule over one state."""

    def __init__(
        self,
        stored: StoredState,
        *,
        boot: str,
        reader: LogReader,
        durability: Durability = "sync",
        settings: BrokerSettings = BrokerSettings(),  # noqa: B008  (frozen)
        storage_full_until_s: float | None = None,
        storage_full_why: str = "the disk of the proxy is full",
        rings: Rings | None = None,
    ) -> None:
        """Create a broker from the stored state; see `Rules`.

        Args:
            storage_full_until_s: monotonic time up to which the disk counts as full: the last
                commit failed for lack of space, and `stored` is what the disk still holds.
            storage_full_why: the reason that clients get in the error.
        """
        super().__init__(
            stored,
            boot=boot,
            reader=reader,
            durability=durability,
            settings=settings,
            rings=rings,
        )
        self._storage_full_until_s = storage_full_until_s
        self._storage_full_why = storage_full_why
        self._trim_at_s = 0.0
        self._heard_s = {}
        self._decide: Mapping[type[Any], Callable[[Any, bytes, int], Decision]] = {
            Hello: self._hello,
            Put: self._put,
            Stage: self._stage,
            Commit: self._commit,
            Abort: self._abort,
            Delivery: self._delivery,
            Get: self._get,
            Ack: self._ack,
            Dead: self._dead,
            Sub: self._sub,
            Unsub: self._unsub,
            Bye: self._bye,
            History: self._history,
            Ring: self._ring,
            Listeners: self._listeners,
            Status: self._status,
        }

    @property
    def storage_full(self) -> bool:
        """Whether the disk counts as full."""
        return self._storage_full_until_s is not None

    def decide(self, request: AnyRequest, body: bytes, *, now_ns: int) -> Decision:
        """Decide the reply to a request; the state does not change.

        Args:
            now_ns: wall clock, for timestamps only.
        """
        decision = self._decide[type(request)](request, body, now_ns)
        if self._storage_full_until_s is not None and decision.records:
            return self._without_storage(request, decision)
        return decision

    def not_stored(self, reply: AnyReply) -> StorageFull:
        """The reply that replaces one whose records could not be written to a full disk."""
        text = f"{self._storage_full_why}; the request was not stored, ask again later"
        return StorageFull(**self._echo_of(reply), text=text)

    def not_yet(self, reply: AnyReply) -> Busy:
        """The reply that replaces one that has waited too long for the disk."""
        return Busy(**self._echo_of(reply), text=_HANGS)

    def without_waiting(self, request: AnyRequest, decision: Decision) -> Decision:
        """While the disk does not respond: serve what needs no disk, answer the rest with BUSY.

        A waiting request would block its REP socket and the requests queued on it; and a request
        that is not applied needs no memory until the disk is back.
        """
        if isinstance(request, Stage | Abort):  # in memory; their COMMIT is put off
            return decision
        if decision.visible_at > self.durable_lsn:
            return Decision(Busy(**self._echo(request), text=_HANGS))
        return Decision(decision.reply, (), decision.visible_at, decision.body)

    def _echo_of(self, reply: AnyReply) -> dict[str, Any]:
        """The fields that a replacement copies from the reply it replaces."""
        return {
            "client": reply.client,
            "epoch": reply.epoch,
            "request": reply.request,
            "boot": self.boot,
            "durability": self.durability,
        }

    def tick(self, *, now_s: float, now_ns: int) -> Sequence[Record]:
        """Return the records that are due by time: expired leases, and what retention removes.

        Args:
            now_s: monotonic clock. now_ns: wall clock, for history by age.
        """
        if self._storage_full_until_s is not None and now_s >= self._storage_full_until_s:
            self._storage_full_until_s = None  # the next commit tries again
        if now_s < self._trim_at_s or self._storage_full_until_s is not None:
            return ()
        self._trim_at_s = now_s + self._settings.trim_interval_s
        return [
            *self.ended_leases(now_s),
            *self.expired(now_ns),
            *self.idle_stages(now_ns),
            *self.forgotten(),
        ]

    def _without_storage(self, request: AnyRequest, decision: Decision) -> Decision:
        """On a full disk: serve what needs no disk, refuse the rest."""
        if isinstance(request, Stage | Abort):  # in memory; their COMMIT is refused
            return decision
        if not any(record.urgent for record in decision.records):
            return Decision(decision.reply, (), decision.visible_at, decision.body)
        text = f"{self._storage_full_why}; gets are served, puts are refused until then"
        return Decision(StorageFull(**self._echo(request), text=text))

    def _hello(self, request: Hello, _body: bytes, _now_ns: int) -> Decision:
        """Grant a higher epoch; answer the retry of the current one (rule R11).

        An unknown id may have been forgotten: its epochs were then at or below the floor.
        """
        session = self.sessions.get((request.role, request.client))
        current = session.epoch if session else self.epoch_floor
        if session and request.epoch == current and request.nonce == session.nonce:
            newest = max((self._position_lsn(request, t) for t in request.topics), default=0)
            last = self._last_transaction(request)
            rests_on = max(session.lsn, newest, last.lsn if last else 0)
            return Decision(self._hello_ack(request), visible_at=rests_on)
        if not current < request.epoch <= current + EPOCH_STEP_MAX:
            text = (
                f"epoch {request.epoch} of {request.client!r} cannot be granted, only one above "
                f"{current}, by at most {EPOCH_STEP_MAX:,}"
            )
            if session is not None:
                return self._fenced_at(request, current, text, session.lsn)
            others = True if current else UNSET
            told = Fenced(**self._echo(request), current_epoch=current, text=text, forgotten=others)
            return Decision(told, visible_at=self.epoch_floor_lsn)
        forgotten: tuple[Record, ...] = ()
        if session is None and len(self.sessions) >= self._settings.clients_max:
            if not self._idle:
                return self._limit(request, "clients_max")
            forgotten = (self.session_forgotten(*next(iter(self._idle))),)
        return self._decided(
            self._hello_ack(request),
            *forgotten,
            Granted(request.role, request.client, request.epoch, request.nonce),
        )

    def _hello_ack(self, request: Hello) -> HelloAck:
        last = self._last_transaction(request)
        return HelloAck(
            **self._echo(request),
            positions=tuple(self._position(request.client, topic) for topic in request.topics),
            transaction=last.transaction if last else UNSET,
        )

    def _last_transaction(self, request: Hello) -> LastTransaction | None:
        return self.last_transactions.get(request.client) if request.role == "publisher" else None

    def _position(self, publisher: str, topic: str) -> TopicPosition:
        log = self.topics.get(topic)
        mark = log.publishers.get(publisher) if log else None
        return TopicPosition(
            topic=topic,
            log=log.log if log else "",
            last_sequence=mark.last_sequence if mark else 0,
            offset=mark.base + mark.count - 1 if mark else None,
        )

    def _position_lsn(self, request: Hello, topic: str) -> int:
        """The record that must be durable before a position may be shown."""
        log = self.topics.get(topic)
        mark = log.publishers.get(request.client) if log else None
        return max(log.lsn if log else 0, mark.lsn if mark else 0)

    def _history(self, request: History, _body: bytes, now_ns: int) -> Decision:
        """Read stored batches; nothing is remembered."""
        log = self.topics.get(request.topic) or self._unborn(request.topic)
        start = request.start
        if start.at == "last":
            text = "HISTORY has no subscriber, so `last` says no place; ask from an offset"
            return Decision(self.malformed(text, request))
        if request.log is not None:
            cursor = start.value if start.at == "offset" else None
            changed = self._log_changed(request, log, cursor)
            if changed is not None:
                return changed
        first = self._place(request, log, start, log.durable_end, now_ns)
        if isinstance(first, Decision):
            return first
        if first >= log.durable_end:
            known = log.log if request.topic in self.topics else UNSET
            reply = NoMessagesYet(**self._echo(request), end=log.durable_end, log=known)
            return Decision(reply, visible_at=log.lsn)
        found, body = self._batches(request, log, first)
        if isinstance(found, MessageBatches):
            found = replace(found, first=first, log=log.log)
        return Decision(found, body=body)

    def _status(self, request: Status, _body: bytes, now_ns: int) -> Decision:
        """Show a page of the state."""
        return Decision(
            status_report(
                request,
                self._echo(request),
                topics=self.topics,
                sessions_count=len(self.sessions),
                reader=self._reader,
                leases=self,
                staging=self.staging_status(),
                rings=self.rings,
                now_ns=now_ns,
            )
        )
