"""What all rules share: the log reader, the epoch fence, and how replies are built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.messages import (
    AnyRequest,
    Durability,
    Fenced,
    Get,
    History,
    Limit,
    Lost,
    Malformed,
    MessageBatches,
    Role,
)

from .records import Appended, Decision, Record, StoredState, TopicCreated
from .ring import Rings
from .state import BrokerSettings, State
from .subscriptions import Session
from .topic_log import TopicLog

SettingOfLimit = Literal[
    "topics_max", "clients_max", "subscriptions_per_topic_max", "publishers_per_topic_max"
]
_LIMITED: Final[Mapping[SettingOfLimit, tuple[str, str]]] = {
    "topics_max": ("topics", "Use fewer names, or "),
    "clients_max": (
        "client ids that have numbers or subscriptions",
        "Unsubscribe those that are gone, each under its id, or ",
    ),
    "subscriptions_per_topic_max": (
        "subscriptions of a topic that have not ended",
        "Unsubscribe those that are gone, each under its id (or use clean sessions, which end by "
        "themselves), or ",
    ),
    "publishers_per_topic_max": (
        "publishers of a topic, whose numbers it compares for ever",
        "Use the same ids again (or QoS 1, whose numbers are not compared), or ",
    ),
}


class LogReader(Protocol):
    """Reads durable batches, from memory or from the store."""

    def read(
        self, topic_id: int, offset: int, *, messages_max: int, bytes_max: int
    ) -> Sequence[Appended]:
        """Batches in order, from the one that holds `offset` (or the next one after it).

        At least one if there is one; then more while both bounds hold.
        """

    def timestamp_ns(self, topic_id: int, offset: int) -> int | None:
        """When the batch of an offset was stored; None if there is none. Reads no body."""

    def first_since(self, topic_id: int, base: int, end: int, timestamp_ns: int) -> int | None:
        """Base of the first batch in [base, end) that was stored at `timestamp_ns` or later.

        None if there is none. Reads no body.
        """

    def find(self, topic_id: int, publisher: str, sequence: int) -> Appended | None:
        """The batch that contains a publisher's sequence."""


class Rules(State):
    """The state with helpers for rules; `publishing.py` and `subscribing.py` add the rules."""

    def __init__(
        self,
        stored: StoredState,
        *,
        boot: str,
        reader: LogReader,
        durability: Durability = "sync",
        settings: BrokerSettings = BrokerSettings(),  # noqa: B008  (frozen)
        rings: Rings | None = None,
    ) -> None:
        """Create the rules over the stored state.

        Args:
            rings: QoS 0 messages, in memory only; not part of the state, because they are never
                durable.
            boot: a random name of this start; subscribers that know another one have their
                position checked before they are served.
        """
        super().__init__(stored, settings)
        self.boot = boot
        self.step_ns = 1 + (crc32(boot.encode()) & 0xFFFF)
        self.durability: Durability = durability
        self._reader = reader
        self.rings = rings or Rings()

    def malformed(self, text: str, request: AnyRequest | None = None) -> Malformed:
        """The reply to an undecodable request (without an echo), or to one at a wrong endpoint."""
        if request is not None:
            return Malformed(**self._echo(request), text=text)
        return Malformed(
            client="",
            epoch=0,
            request=0,
            boot=self.boot,
            durability=self.durability,
            text=text,
        )

    def _echo(self, request: AnyRequest) -> dict[str, Any]:
        """The fields that every reply repeats from its request (rule R1), and the boot name."""
        return {
            "client": request.client,
            "epoch": request.epoch,
            "request": request.request,
            "boot": self.boot,
            "durability": self.durability,
        }

    def _fence(self, role: Role, request: AnyRequest) -> Session | Decision:
        """The sender's session, or FENCED if the request is not of its current epoch."""
        session = self.sessions.get((role, request.client))
        if session is None or session.epoch != request.epoch:
            return self._fenced(request, session)
        return session

    def _fenced(self, request: AnyRequest, session: Session | None) -> Decision:
        current = session.epoch if session else 0
        if current:
            text = (
                f"epoch {request.epoch} of {request.client!r} is not the current one, {current}; "
                "a newer process uses this id"
            )
        else:
            text = f"this proxy does not know {request.client!r}; say HELLO first"
        return self._fenced_at(request, current, text, session.lsn if session else 0)

    def _fenced_at(self, request: AnyRequest, current: int, text: str, visible_at: int) -> Decision:
        reply = Fenced(**self._echo(request), current_epoch=current, text=text)
        return Decision(reply, visible_at=visible_at)

    def _decided(self, reply: Any, *records: Record) -> Decision:
        """A reply that leaves when its records are durable."""
        return Decision(reply, records, self.lsn + len(records))

    def _limit(self, request: AnyRequest, setting: SettingOfLimit) -> Decision:
        """Refuse because a limit is reached; ended entries do not count towards it."""
        limit: int = getattr(self._settings, setting)
        what, remedy = _LIMITED[setting]
        text = (
            f"this proxy holds {limit:,} {what}, as many as it may; nothing was changed. {remedy}"
            f"start the proxy with a higher {setting} (a setting of its file)"
        )
        return Decision(Limit(**self._echo(request), limit=limit, text=text))

    def _new_topic(self, topic: str, unborn: int = 0) -> TopicCreated:
        """The next topic, after `unborn` others of the same decision."""
        topic_id = self.last_topic_id + 1 + unborn
        return TopicCreated(topic_id, topic, f"{self.store_id}.{topic_id}")

    def _unborn(self, topic: str) -> TopicLog:
        """The topic as it would be when created."""
        created = self._new_topic(topic)
        return TopicLog(created.topic_id, topic, created.log, self.retention(topic))

    def _batches(
        self, request: Get | History, log: TopicLog, offset: int
    ) -> tuple[MessageBatches | Lost, bytes | None]:
        batches = self._reader.read(
            log.topic_id,
            offset,
            messages_max=request.messages_max,
            bytes_max=request.bytes_max,
        )
        # The store may hold batches whose commit was not reported yet: they are not visible.
        batches = [batch for batch in batches if batch.end <= log.durable_end]
        if not batches or batches[0].base > offset:  # a loss that an operator has accepted
            end = batches[0].base if batches else log.durable_end
            return Lost(**self._echo(request), first=offset, end=end), None
        reply = MessageBatches(
            **self._echo(request),
            batches=tuple([batch.header for batch in batches]),
            end=log.durable_end,
        )
        body = batches[0].body if len(batches) == 1 else b"".join([b.body for b in batches])
        return reply, body
