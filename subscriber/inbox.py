"""The inbox: a subscriber's place in each topic, and what was handed over without being done.

The cursor moves when a message has been processed, and the proxy hears of it only after it is
durable here (rule R9). What was handed over and not acknowledged when the process died comes
again, marked with its delivery count. Pure: changes are given back, to be written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from reliable_pubsub.common.batch import Batch, Message, crc32, decode_batch, messages_of
from reliable_pubsub.common.errors import LogChangedError, MalformedError
from reliable_pubsub.common.messages import BatchHeader, SubAck, Terms
from reliable_pubsub.common.plan_mark import PlanMark

Changes = dict[str, bytes | None]

_EPOCH = "epoch"
_TOPIC = "topic:"
_PLAN = "plan"


class Place(Struct, frozen=True):
    """Where a subscriber stands in one topic."""

    log: str  # log id: which log the offsets speak of
    cursor: int  # the next offset not processed
    witness_ns: int | None = None  # timestamp of the batch that holds offset cursor - 1
    # Handed over and not processed: from the cursor on, messages below each end, so many times.
    in_hand: tuple[tuple[int, int], ...] = ()
    terms: Terms = Terms()  # of the subscription
    max_deliveries: int | None = None  # behind so many a message becomes a dead letter; None: never
    giving_up: str = ""  # why the message at the cursor becomes one; "": it does not
    shown: int = 0  # messages below it were handed over before this place was chosen
    asks: bool = False  # to go on elsewhere: the proxy may stand there already

    def deliveries(self, offset: int) -> int:
        """How often a message at or above the cursor was handed over."""
        return next((count for end, count in self.in_hand if offset < end), 0)

    @property
    def handed_end(self) -> int:
        """Behind the highest offset that was ever handed over, as far as is known."""
        return max(self.cursor, self.shown, *(end for end, _ in self.in_hand))

    def in_hand_from(self, cursor: int) -> tuple[tuple[int, int], ...]:
        """What is left in hand when everything below `cursor` is done or gone."""
        return tuple(run for run in self.in_hand if run[0] > cursor)


_encode = msgspec.msgpack.Encoder().encode


class Inbox:
    """A subscriber's state."""

    def __init__(self, stored: Mapping[str, bytes]) -> None:
        """Begin with what was written before; empty for a new subscriber."""
        decode = msgspec.msgpack.decode
        self.epoch = decode(stored[_EPOCH], type=int) if _EPOCH in stored else 0
        self.plan = decode(stored[_PLAN], type=PlanMark) if _PLAN in stored else None
        self.places: dict[str, Place] = {
            name.removeprefix(_TOPIC): decode(value, type=Place)
            for name, value in stored.items()
            if name.startswith(_TOPIC)
        }

    def reload(self, stored: Mapping[str, bytes]) -> None:
        """Know what was written, and nothing else."""
        self.__dict__ = Inbox(stored).__dict__

    def granted(self, epoch: int) -> Changes:
        """The proxy has granted an epoch."""
        self.epoch = epoch
        return {_EPOCH: _encode(epoch)}

    def gave_up(self, reply: SubAck) -> bool:
        """Whether the proxy already has the dead letter that an earlier process may have sent."""
        ours = self.places.get(reply.topic)
        return ours is not None and bool(ours.giving_up) and reply.cursor == ours.cursor + 1

    def bounded(self, topic: str, max_deliveries: int | None) -> Changes:
        """The subscription has another bound of deliveries now."""
        place = self.places[topic]
        if place.max_deliveries == max_deliveries:
            return {}
        return self._set(topic, msgspec.structs.replace(place, max_deliveries=max_deliveries))

    def gives_up(self, topic: str, offset: int, reason: str) -> Changes:
        """Everything below `offset` is done, and that message is to become a dead letter.

        Written durably before the proxy hears of it, so that a later process knows why the proxy
        stands behind its own place.
        """
        place = self.places[topic]
        assert offset >= place.cursor, (offset, place)
        witness_ns = place.witness_ns if offset == place.cursor else None
        place = msgspec.structs.replace(
            place,
            cursor=offset,
            witness_ns=witness_ns,
            in_hand=place.in_hand_from(offset),
            giving_up=reason,
        )
        return self._set(topic, place)

    def keeps(self, topic: str) -> Changes:
        """The message at the cursor is not to become a dead letter after all."""
        return self._set(topic, msgspec.structs.replace(self.places[topic], giving_up=""))

    def subscribed(self, reply: SubAck, *, adopt: bool = False) -> Changes:
        """The proxy has confirmed a subscription.

        Args:
            adopt: where the proxy knows of more than this state, go on at its position.

        Raises:
            LogChangedError: the proxy knows of more acknowledged messages than this state: the
                state is older than what this subscriber did.
        """
        ours = self.places.get(reply.topic)
        lazy = (
            reply.terms.qos < 2
        )  # then our state may be older; what was acknowledged was processed
        if ours is not None and self.gave_up(reply):
            self.processed(reply.topic, reply.cursor, reply.witness_ns)
            return self._restated(reply)
        if ours is None or ((adopt or lazy or ours.asks) and reply.cursor > ours.cursor):
            return self.repositioned(reply, ours if ours and ours.asks else None)
        if reply.cursor > ours.cursor:
            raise LogChangedError(
                f"topic {reply.topic!r}: the proxy knows that offsets up to {reply.cursor - 1} "
                f"were acknowledged with this id, this state stands at {ours.cursor}: the state "
                "is an older copy. To go on at the proxy's position, use --on-log-changed adopt"
            )
        return self._restated(reply) if reply.terms != ours.terms or ours.asks else {}

    def _restated(self, reply: SubAck) -> Changes:
        place = self.places[reply.topic]
        place = msgspec.structs.replace(place, terms=reply.terms, asks=False)
        return self._set(reply.topic, place)

    def repositioned(self, reply: SubAck, before: Place | None = None) -> Changes:
        """The place was chosen anew; the proxy's position counts, whatever we had.

        What was handed over before comes marked, and is not counted: it is read again, or an
        earlier process of this id was sent it, and lost that with its memory.

        Args:
            before: our place until now; None: we had none, and the proxy knows what it has sent.
        """
        place = Place(reply.log, reply.cursor, reply.witness_ns, (), reply.terms)
        if before is None or before.log != reply.log:
            place = msgspec.structs.replace(place, shown=reply.shown)
        elif reply.cursor < before.cursor:
            place = msgspec.structs.replace(place, shown=before.handed_end)
        else:
            in_hand = before.in_hand_from(reply.cursor)
            place = msgspec.structs.replace(place, in_hand=in_hand, shown=before.shown)
        return self._set(reply.topic, place)

    def asking(self, topic: str) -> Changes:
        """The proxy is asked to go on elsewhere; written before, as it may do so unheard."""
        return self._set(topic, msgspec.structs.replace(self.places[topic], asks=True))

    def restated(self, topic: str) -> Changes:
        """The place as it is: written durably, it takes earlier lazy writes with it."""
        return self._set(topic, self.places[topic])

    def unsubscribed(self, topic: str) -> Changes:
        """The subscription has ended."""
        self.places.pop(topic, None)
        return {_TOPIC + topic: None}

    def kept(self, topic: str, place: Place) -> Changes:
        """A subscription that was to begin elsewhere goes on as it was."""
        return self._set(topic, place)

    def handed_over(self, topic: str, end: int) -> tuple[int, Changes]:
        """Messages from the cursor up to `end` go to the application now.

        Returns:
            How often the first of them was handed over, with this time, and the changes to write
            before it happens.
        """
        place = self.places[topic]
        runs = [(min(run_end, end), count + 1) for run_end, count in place.in_hand]
        runs += [(end, 1)]
        runs += [run for run in place.in_hand if run[0] > end]
        # Of several runs with one end only the first has messages.
        in_hand = tuple(
            run for index, run in enumerate(runs) if index == 0 or run[0] > runs[index - 1][0]
        )
        changes = self._set(topic, msgspec.structs.replace(place, in_hand=in_hand))
        return in_hand[0][1], changes

    def processed(self, topic: str, cursor: int, witness_ns: int | None) -> Changes:
        """Everything below `cursor` is done; the newest of it has the timestamp `witness_ns`."""
        place = self.places[topic]
        assert cursor >= place.cursor, (cursor, place)
        return self._set(topic, _moved(place, cursor, witness_ns))

    def compared(self, topic: str, end: int, *, forget: bool) -> Changes:
        """The log ends at `end`: what was handed over before a crash can only lie below (rule R14).

        Args:
            forget: go on; the place itself is of this log, only what was in hand is gone.

        Raises:
            LogChangedError: messages that this subscriber was shown are no longer there.
        """
        place = self.places[topic]
        shown_end = place.in_hand[-1][0] if place.in_hand else place.cursor
        if shown_end <= end:
            return {}
        if forget:
            return self._set(topic, msgspec.structs.replace(place, in_hand=()))
        raise LogChangedError(
            f"topic {topic!r}: offsets {place.cursor} to {shown_end - 1} were handed over and not "
            f"acknowledged, and the log of the proxy ends at {end}: it was set back to an older "
            "copy. To go on without them, use --on-log-changed adopt"
        )

    def lost(self, topic: str, end: int) -> Changes:
        """Everything below `end` that was not delivered is gone; what is behind it is not."""
        place = self.places[topic]
        return self._set(topic, _moved(place, end, None))

    def mark_plan(self, plan: PlanMark) -> Changes:
        """Move the place in the plan."""
        self.plan = plan
        return {_PLAN: _encode(plan)}

    def _set(self, topic: str, place: Place) -> Changes:
        self.places[topic] = place
        return {_TOPIC + topic: _encode(place)}


def _moved(place: Place, cursor: int, witness_ns: int | None) -> Place:
    left = place.in_hand_from(cursor)
    return msgspec.structs.replace(
        place, cursor=cursor, witness_ns=witness_ns, in_hand=left, giving_up=""
    )


class StoredBatch(Struct, frozen=True):
    """A batch that follows a cursor directly, from its message number `skip` on."""

    header: BatchHeader
    columns: Batch
    skip: int  # messages at its beginning that lie below the cursor

    @property
    def offset(self) -> int:
        """Of the first message that counts."""
        return self.header.base + self.skip

    @property
    def end(self) -> int:
        """The offset behind its last message."""
        return self.header.base + self.header.count

    @property
    def count(self) -> int:
        """How many messages count."""
        return self.header.count - self.skip


def direct_batches(
    topic: str, cursor: int, batches: Sequence[BatchHeader], body: bytes
) -> list[StoredBatch]:
    """Take the batches that follow a cursor directly; older ones are dropped (rule R8).

    Raises:
        MalformedError: there is a gap before or between the batches, or a body is not what its
            publisher encoded. Nothing was taken.
    """
    found: list[StoredBatch] = []
    expected = cursor
    place = 0
    view = memoryview(body)
    for header in batches:
        part = view[place : place + header.body_bytes]
        place += header.body_bytes
        if header.base + header.count <= expected:
            continue
        if header.base > expected:
            raise MalformedError(
                f"topic {topic!r}: expected offset {expected}, the proxy sent {header.base}"
            )
        if crc32(part) != header.crc:
            raise MalformedError(
                f"topic {topic!r}: the batch at offset {header.base} does not have its CRC-32"
            )
        columns = decode_batch(part, header.count)
        found.append(StoredBatch(header, columns, expected - header.base))
        expected = header.base + header.count
    return found


def direct_followers(
    topic: str, cursor: int, batches: Sequence[BatchHeader], body: bytes, *, qos: int = 2
) -> list[Message]:
    """The messages that follow a cursor directly; see `direct_batches`."""
    return messages_in(topic, direct_batches(topic, cursor, batches, body), qos=qos)


def messages_in(topic: str, batches: Sequence[StoredBatch], *, qos: int = 2) -> list[Message]:
    """The messages of batches, one by one.

    Args:
        qos: of the subscription; a message has the lower of it and its publisher's.
    """
    messages: list[Message] = []
    for batch in batches:
        messages += messages_of(
            batch.columns,
            topic=topic,
            base=batch.header.base,
            publisher=batch.header.publisher,
            first_sequence=batch.header.first_sequence,
            timestamp_ns=batch.header.timestamp_ns,
            qos=min(batch.header.qos, qos),
            skip=batch.skip,
        )
    return messages
