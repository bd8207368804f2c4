"""What happened in a run, as values, in one order: the index of an event is its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from reliable_pubsub.common.batch import Message
from reliable_pubsub.proxy.records import Appended, Record, Subscribed, TopicCreated, Trimmed
from reliable_pubsub.publisher.outbox import Receipt

Entry = tuple[str, int, bytes, int]  # publisher, sequence, payload, timestamp_ns
Log = dict[str, list[Entry]]  # by topic; the place in the list is the offset


class Item(Struct, frozen=True):
    """One request of a publisher's plan."""

    topic: str
    first: int  # index of its first message among the publisher's messages of this topic
    count: int


class Acknowledged(Struct, frozen=True):
    """A put returned."""

    index: int
    called: int  # index of this call
    first_called: int  # index of the first call for this item, by any life that can resume it
    publisher: str
    life: int  # 0 for a publisher whose state outlives it: all its lives are one
    item: Item
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

    kind: str  # "subscribed", "message", "lost" or "unsubscribed"
    topic: str
    offset: int  # of the message; for "subscribed" the cursor; for "lost" the first that is gone
    message: Message | None = None
    end: int = 0  # "lost": behind the last that is gone


class HandedOver(Struct, frozen=True):
    """What one `get` gave to a subscriber without an output file: messages, or a loss."""

    life: int
    power_losses: int  # of its machine, before this
    acknowledged: int  # the cursor of the last `acknowledge` of this subscriber that returned
    messages: tuple[Message, ...]
    lost: tuple[int, int] | None = None  # first, end

    @property
    def first(self) -> int:
        """The offset at which it begins."""
        return self.lost[0] if self.lost else self.messages[0].offset

    @property
    def offsets(self) -> list[int]:
        """Of its messages."""
        return [message.offset for message in self.messages]


class FinalSubscription(Struct, frozen=True):
    """A subscription as the client believes it to be at the end."""

    subscriber: str
    topic: str
    active: bool
    cursor: int  # of the client; 0 if not active


class Drained(Struct, frozen=True):
    """A subscriber has found that it got everything of a topic."""

    index: int
    life: int  # of its process
    end: int  # where the durable log of the topic ended at that moment


class Rollback(Struct, frozen=True):
    """The store was set back to an earlier durable copy."""

    index: int
    before: Sequence[Record]  # all that was durable
    kept: int  # so many of them
    ends: Mapping[str, int]  # where the copy's topics end

    @property
    def took_messages(self) -> bool:
        """Whether anybody can have been told of a message or a topic that is gone."""
        return any(isinstance(record, Appended | TopicCreated) for record in self._gone)

    def took_subscription(self, client: str) -> bool:
        """Whether a client can have been told of a subscription that is gone.

        A late copy of its SUB may begin it anew, elsewhere: then the proxy seems to know of more
        than the client has done.
        """
        return any(isinstance(r, Subscribed) and r.subscriber == client for r in self._gone)

    @property
    def _gone(self) -> Sequence[Record]:
        return self.before[self.kept :]


@dataclass
class History:
    """Everything that the checker judges."""

    plans: dict[str, Sequence[Item]] = field(default_factory=dict)  # by publisher
    no_state: set[str] = field(default_factory=set)  # clients that forget all when they die
    # Clients that rewind or adopt where others stop.
    choices: dict[str, str] = field(default_factory=dict)
    invoked: dict[tuple[str, int, str, int], int] = field(default_factory=dict)
    acknowledged: list[Acknowledged] = field(default_factory=list)
    subscribed: list[SubscribeReturned] = field(default_factory=list)
    outputs: dict[str, list[Line]] = field(default_factory=dict)
    handed_over: dict[tuple[str, str], list[HandedOver]] = field(default_factory=dict)
    drained: dict[tuple[str, str], Drained] = field(default_factory=dict)  # the last time
    read: dict[tuple[str, int], list[tuple[str, Message]]] = field(default_factory=dict)
    told_lost: list[tuple[int, str, str, int, int]] = field(default_factory=list)
    trims: dict[tuple[str, int], int] = field(default_factory=dict)  # topic, start: first index
    committed: list[Record] = field(default_factory=list)  # as the store has it now
    rollback: Rollback | None = None
    stopped: dict[str, str] = field(default_factory=dict)  # clients that ended with LogChangedError
    proxy_active: dict[tuple[str, str], bool] = field(default_factory=dict)
    final: list[FinalSubscription] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)  # found while the world went on
    unfinished: list[str] = field(default_factory=list)  # what liveness asks for, and did not come
    trimmed: bool = False  # retention may have removed messages
    loses: bool = False  # also such as were not read
    _ends: dict[str, int] = field(default_factory=dict)
    _topics: dict[int, str] = field(default_factory=dict)
    _index: int = 0

    def now(self) -> int:
        """The index of the next event."""
        self._index += 1
        return self._index

    def end(self, topic: str) -> int:
        """Where the durable log of a topic ends."""
        return self._ends.get(topic, 0)

    def put_called(self, publisher: str, life: int, item: Item) -> int:
        """A put begins, or goes on; gives the index of this call."""
        index = self.now()
        self.invoked.setdefault((publisher, life, item.topic, item.first), index)
        return index

    def put_returned(
        self, publisher: str, life: int, item: Item, receipt: Receipt, called: int
    ) -> None:
        """A put is acknowledged."""
        first_called = self.invoked[(publisher, life, item.topic, item.first)]
        self.acknowledged.append(
            Acknowledged(self.now(), called, first_called, publisher, life, item, receipt)
        )

    def records_committed(self, records: Sequence[Record]) -> None:
        """The disk of the proxy has these."""
        self.committed.extend(records)
        self._count(records)

    def rolled_back(self, kept: int) -> None:
        """The disk of the proxy has only the first `kept` records."""
        before = tuple(self.committed)
        del self.committed[kept:]
        self._ends.clear()
        self._topics.clear()
        self._count(self.committed)
        self.rollback = Rollback(self.now(), before, kept, dict(self._ends))

    def _count(self, records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record, TopicCreated):
                self._topics[record.topic_id] = record.topic
            elif isinstance(record, Appended):
                self._ends[self._topics[record.topic_id]] = record.end
            elif isinstance(record, Trimmed):
                self.trims.setdefault((self._topics[record.topic_id], record.start), self.now())

    def was_read(self, reader: str, messages: Sequence[Message]) -> None:
        """A reader has seen messages: from now on their offsets hold these, for everybody.

        A store that was set back may give an offset once more; the checker looks who saw both.
        """
        for message in messages:
            known = self.read.setdefault((message.topic, message.offset), [])
            if any(entry_of(message) == entry_of(other) for _, other in known):
                continue
            known.append((reader, message))
            if len(known) > (2 if self.rollback else 1):
                self.violations.append(
                    f"one message for each offset: {message.topic!r} {message.offset} was read as "
                    f"{[(who, *entry_of(read)) for who, read in known]}"
                )

    def was_drained(self, subscriber: str, life: int, topic: str) -> None:
        """A subscriber has everything of a topic, and the proxy knows that it has."""
        self.drained[(subscriber, topic)] = Drained(self.now(), life, self.end(topic))

    def was_lost(self, subscriber: str, topic: str, first: int, end: int) -> None:
        """A subscriber was told that messages are gone."""
        self.told_lost.append((self.now(), subscriber, topic, first, end))


def entry_of(message: Message) -> Entry:
    """The entry of the log that a message shows."""
    return (message.publisher, message.sequence, message.payload, message.timestamp_ns)
