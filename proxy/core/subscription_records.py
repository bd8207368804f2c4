"""The records of subscriptions. Pure."""

from __future__ import annotations

from typing import ClassVar

from reliable_pubsub.common.core import journal
from reliable_pubsub.common.core.message_base import Terms

from .lines import Lines
from .rows import Writes
from .schema import MOVED_SUBSCRIPTION, SESSION, SKIPPED_RANGE, SUBSCRIPTION
from .state import Record, State
from .stored import Moved
from .subscriptions import Session, Subscription


def cursor_durable(state: State, record: Subscribed | CursorMoved) -> None:
    """Let retention use a cursor that is on disk."""
    subscription = state.topic_by_id[record.topic_id].subscriptions.get(record.subscriber)
    # An operator may have forgotten it meanwhile.
    if subscription is not None and subscription.generation == record.generation:
        subscription.durable_cursor = max(subscription.durable_cursor, record.cursor)
        state.touched_topics.add(record.topic_id)


def store_subscription(
    writes: Writes, one: AnyPosition, *, active: int, shown: int, expired: bool = False
) -> None:
    """Replace the row of a subscription.

    Args:
        active: 0 if it has ended, 2 if only patterns want it, else 1.
    """
    key, terms = (one.topic_id, one.subscriber), one.terms
    columns = (one.generation, one.cursor, active, terms.qos, shown, int(expired))
    writes.rows[SUBSCRIPTION][key] = (*key, *columns, terms.session, terms.lease_ms)


def describe_position(
    lines: Lines, one: AnyPosition, *, epoch: int = 0, active: bool = True
) -> None:
    """Write where a subscription is."""
    lines.line(
        journal.PositionLine,
        topic=lines.topics[one.topic_id],
        subscriber=one.subscriber,
        generation=one.generation,
        cursor=one.cursor,
        active=active,
        epoch=epoch,
        session=one.terms.session,
    )


class Subscribed(Record, frozen=True, gc=False):
    """A subscription begins, resumes, or is moved to another cursor."""

    topic_id: int
    subscriber: str
    generation: int
    cursor: int
    epoch: int  # of the subscriber's session, with its nonce and the number of this SUB
    nonce: bytes
    control: int
    shown: int = 0  # it was sent the messages below this
    terms: Terms = Terms()
    moved: Moved = ""
    skipped: tuple[int, int] | None = None  # below the cursor, and not acknowledged: first and end

    def apply(self, state: State) -> None:
        """Begin, resume or move the subscription."""
        log = state.topic_by_id[self.topic_id]
        held = log.subscriptions.get(self.subscriber)
        # Until this record is durable, retention keeps the messages above the old cursor.
        same = held is not None and held.active and held.generation == self.generation
        log.subscriptions[self.subscriber] = Subscription(
            self.generation,
            self.cursor,
            min(held.durable_cursor, self.cursor) if held and same else 0,
            True,
            state.lsn,
            self.shown,
            self.terms,
            before=held.before if held and same else self.shown,
            moved=self.moved,
            skipped=self.skipped,
        )
        state.index_subscription(log, self.subscriber)
        see_control(state, self.subscriber, self.control)

    def has_become_durable(self, state: State) -> None:
        """Let retention use the cursor."""
        cursor_durable(state, self)

    def store(self, writes: Writes) -> None:
        """Replace the subscription, what an operator did to it, and what it skipped."""
        key = (self.topic_id, self.subscriber)
        store_control(writes, self.subscriber, self.epoch, self.nonce, self.control)
        active = 1 + bool(self.terms.by_pattern)
        store_subscription(writes, self, active=active, shown=self.shown)
        writes.rows[MOVED_SUBSCRIPTION][key] = (*key, self.moved) if self.moved else None
        writes.rows[SKIPPED_RANGE][key] = (*key, *self.skipped) if self.skipped else None

    def describe(self, lines: Lines) -> None:
        """Write the position."""
        describe_position(lines, self, epoch=self.epoch)


class Unsubscribed(Record, frozen=True, gc=False):
    """A subscription ends; its generation is remembered."""

    topic_id: int
    subscriber: str
    generation: int
    cursor: int
    epoch: int
    nonce: bytes
    control: int
    terms: Terms = Terms()
    shown: int = 0  # it was sent the messages below this

    def apply(self, state: State) -> None:
        """End the subscription; remember its generation."""
        log = state.topic_by_id[self.topic_id]
        subscription = log.subscriptions[self.subscriber]
        subscription.active = subscription.expired = False
        if self.terms.session == "clean":
            subscription.moved = ""  # its row is gone, too
        subscription.shown = max(self.shown, self.cursor)
        subscription.lsn = state.lsn
        state.index_subscription(log, self.subscriber)
        state.touched_topics.add(self.topic_id)
        see_control(state, self.subscriber, self.control)

    def store(self, writes: Writes) -> None:
        """Replace the subscription by one that has ended."""
        store_control(writes, self.subscriber, self.epoch, self.nonce, self.control)
        store_subscription(writes, self, active=0, shown=max(self.shown, self.cursor))
        if self.terms.session == "clean":
            writes.rows[MOVED_SUBSCRIPTION][self.topic_id, self.subscriber] = None

    def describe(self, lines: Lines) -> None:
        """Write the last position."""
        describe_position(lines, self, epoch=self.epoch, active=False)


def unsubscribed(
    topic_id: int, subscriber: str, one: Subscription, session: Session, control: int | None = None
) -> Unsubscribed:
    """Return the record that ends a subscription.

    Args:
        control: number of the request that ends it; None: that of the session's last one stays.
    """
    return Unsubscribed(
        topic_id,
        subscriber,
        one.generation,
        one.cursor,
        session.epoch,
        session.nonce,
        session.control if control is None else control,
        one.terms,
        one.shown,
    )


class ControlSeen(Record, frozen=True, gc=False):
    """A control request that changed nothing else; its late copies have no effect (rule R12)."""

    subscriber: str
    epoch: int
    nonce: bytes
    control: int

    def apply(self, state: State) -> None:
        """Remember the number."""
        see_control(state, self.subscriber, self.control)

    def store(self, writes: Writes) -> None:
        """Replace the session."""
        store_control(writes, self.subscriber, self.epoch, self.nonce, self.control)

    def describe(self, lines: Lines) -> None:
        """Write that the request came."""
        lines.line(journal.ControlSeenLine, subscriber=self.subscriber, epoch=self.epoch)


def see_control(state: State, subscriber: str, control: int) -> None:
    """Remember the number of a subscriber's last control request (rule R12)."""
    session = state.sessions["subscriber", subscriber]
    session.control = control
    session.lsn = state.lsn


def store_control(writes: Writes, subscriber: str, epoch: int, nonce: bytes, control: int) -> None:
    """Keep the number of a subscriber's last control request."""
    row = ("subscriber", subscriber, epoch, nonce, control)
    writes.rows[SESSION]["subscriber", subscriber] = row


class CursorMoved(Record, frozen=True, gc=False):
    """A subscriber has acknowledged everything below `cursor`."""

    topic_id: int
    subscriber: str
    generation: int
    cursor: int
    urgent: bool  # type: ignore[misc]  # an ACK waits for it; False: it came with a GET
    shown: int = 0  # it was sent the messages below this
    terms: Terms = Terms()
    takes: bool = False  # it reads on from where an operator has moved it; always `urgent`

    def apply(self, state: State) -> None:
        """Acknowledge what is below the cursor."""
        log = state.topic_by_id[self.topic_id]
        subscription = log.subscriptions[self.subscriber]
        if subscription.generation == self.generation:
            subscription.cursor = max(subscription.cursor, self.cursor)
            subscription.shown = self.shown
            if self.takes:
                subscription.moved = ""
                subscription.lsn = state.lsn
            for moved in state.hooks.moved:
                moved(state, log, self.subscriber)

    def has_become_durable(self, state: State) -> None:
        """Let retention use the cursor."""
        cursor_durable(state, self)

    def store(self, writes: Writes) -> None:
        """Replace the subscription."""
        active = 1 + bool(self.terms.by_pattern)
        store_subscription(writes, self, active=active, shown=self.shown)
        if self.takes:
            writes.rows[MOVED_SUBSCRIPTION][self.topic_id, self.subscriber] = None

    def describe(self, lines: Lines) -> None:
        """Write the position."""
        describe_position(lines, self)


class Expired(Record, frozen=True, gc=False):
    """A subscription expired: it was silent for two leases, or too slow at a bound.

    A clean one has ended. A persistent one no longer keeps messages stored; its subscriber may
    return, and gets LOST for the messages that were removed.
    """

    urgent: ClassVar[bool] = False
    topic_id: int
    subscriber: str
    generation: int
    cursor: int
    terms: Terms
    silent_ms: int = 0  # not stored: for the journal
    shown: int = 0  # it was sent the messages below this

    @property
    def wakes(self) -> str:
        """Its subscriber."""
        return self.subscriber

    def apply(self, state: State) -> None:
        """End the lease; a clean subscription ends with it."""
        log = state.topic_by_id[self.topic_id]
        subscription = log.subscriptions[self.subscriber]
        if subscription.generation == self.generation:
            subscription.expired = True
            subscription.active = self.terms.session == "persistent"
            if not subscription.active:
                subscription.moved = ""
            subscription.lsn = state.lsn
            state.index_subscription(log, self.subscriber)
            state.touched_topics.add(self.topic_id)

    def store(self, writes: Writes) -> None:
        """Replace the subscription by one that has expired, and has ended if it was clean."""
        is_clean = self.terms.session == "clean"
        active = 0 if is_clean else 1 + bool(self.terms.by_pattern)
        shown = max(self.shown, self.cursor)
        store_subscription(writes, self, active=active, shown=shown, expired=True)
        if is_clean:
            writes.rows[MOVED_SUBSCRIPTION][self.topic_id, self.subscriber] = None

    def describe(self, lines: Lines) -> None:
        """Write the last position, and how long its subscriber was silent."""
        lines.line(
            journal.ExpiredLine,
            topic=lines.topics[self.topic_id],
            subscriber=self.subscriber,
            generation=self.generation,
            cursor=self.cursor,
            session=self.terms.session,
            lease_ms=self.terms.lease_ms,
            silent_ms=self.silent_ms,
        )


AnyPosition = Subscribed | Unsubscribed | CursorMoved | Expired
