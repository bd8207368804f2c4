"""What happened in a run, as values, in one order: the index of an event is its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from reliable_pubsub.common.batch import Message
from reliable_pubsub.proxy.records import Record
from reliable_pubsub.publisher.outbox import Receipt


class Item(Struct, frozen=True):
    """One request of a publisher's plan."""

    topic: str
    first: int  # index of its first message among the publisher's messages of this topic
    count: int


class Invoked(Struct, frozen=True):
    """A put of a plan item was called for the first time."""

    index: int
    publisher: str
    item: Item


class Acknowledged(Struct, frozen=True):
    """A put returned."""

    index: int
    publisher: str
    receipt: Receipt


class SubscribeReturned(Struct, frozen=True):
    """A subscribe returned with a cursor."""

    index: int
    first_called: int  # index of the first call that belongs to this subscription
    subscriber: str
    topic: str
    cursor: int


class Line(Struct, frozen=True):
    """One line of a subscriber's output file."""

    kind: str  # "subscribed", "message" or "unsubscribed"
    topic: str
    offset: int  # of the message; for "subscribed" the cursor
    message: Message | None = None


class HandedOver(Struct, frozen=True):
    """A group of messages that one `get` gave to a subscriber without an output file."""

    incarnation: int
    power_losses: int  # of its machine, before this
    messages: tuple[Message, ...]


class FinalSubscription(Struct, frozen=True):
    """A subscription as the client believes it to be at the end."""

    subscriber: str
    topic: str
    active: bool
    cursor: int  # of the client; 0 if not active


@dataclass
class History:
    """Everything that the checker judges."""

    plans: dict[str, Sequence[Item]] = field(default_factory=dict)  # by publisher
    invoked: dict[tuple[str, str, int], Invoked] = field(default_factory=dict)
    acknowledged: list[Acknowledged] = field(default_factory=list)
    subscribed: list[SubscribeReturned] = field(default_factory=list)
    outputs: dict[str, list[Line]] = field(default_factory=dict)
    handed_over: dict[tuple[str, str], list[HandedOver]] = field(default_factory=dict)
    read: dict[tuple[str, int], tuple[str, Message]] = field(default_factory=dict)
    committed: list[Record] = field(default_factory=list)
    proxy_active: dict[tuple[str, str], bool] = field(default_factory=dict)
    final: list[FinalSubscription] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)  # found while the world went on
    unfinished: list[str] = field(default_factory=list)  # what liveness asks for, and did not come
    trimmed: bool = False  # retention may have removed messages
    _index: int = 0

    def now(self) -> int:
        """The index of the next event."""
        self._index += 1
        return self._index

    def put_called(self, publisher: str, item: Item) -> None:
        """A put begins; what counts is the first time."""
        key = (publisher, item.topic, item.first)
        if key not in self.invoked:
            self.invoked[key] = Invoked(self.now(), publisher, item)

    def put_returned(self, publisher: str, receipt: Receipt) -> None:
        """A put is acknowledged."""
        self.acknowledged.append(Acknowledged(self.now(), publisher, receipt))

    def records_committed(self, records: Sequence[Record]) -> None:
        """The disk of the proxy has these."""
        self.committed.extend(records)

    def was_read(self, reader: str, messages: Sequence[Message]) -> None:
        """A reader has seen messages: from now on their offsets hold these, for everybody."""
        for message in messages:
            key = (message.topic, message.offset)
            first_reader, known = self.read.setdefault(key, (reader, message))
            if _identity(known) != _identity(message):
                self.violations.append(
                    f"one message for each offset: {first_reader} read {_identity(known)} at "
                    f"{key}, {reader} reads {_identity(message)}"
                )


def _identity(message: Message) -> tuple[str, int, bytes, int]:
    return (message.publisher, message.sequence, message.payload, message.timestamp_ns)
