"""SUB, UNSUB and BYE: begins, resumes and ends subscriptions. Pure."""

from __future__ import annotations

import logging
from typing import Literal, assert_never

from msgspec import UNSET, Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.answers import (
    AnyReply,
    ByeAck,
    Fenced,
    LogChanged,
    NotSub,
    SubAck,
    UnsubAck,
)
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.errors import LogChangedError
from reliable_pubsub.common.core.message_base import SessionKind, Start, Terms
from reliable_pubsub.common.core.recorder import Call
from reliable_pubsub.common.core.requests import Bye, Sub, Unsub
from reliable_pubsub.common.core.start import start_in_words

from .place import Place, repositioned
from .session import SubscriberSession
from .subscription import TopicSubscription

OnLogChanged = Literal["stop", "rewind", "adopt"]

CLEAN_LEASE_MS = 60_000  # default of a clean session


class Asked(Struct, frozen=True, kw_only=True):
    """The arguments of `Subscriber.subscribe`."""

    start: Start | None = None  # where a new one begins
    seeks: bool = False  # move an existing one there, even below the acknowledged cursor
    log: str | None = None  # log id of `start`, if known
    terms: Terms = Terms()
    max_deliveries: int | None = None

    @property
    def resumes(self) -> bool:
        """Return whether acknowledged messages must not be redelivered."""
        return self.start is not None and not self.seeks and self.start.at not in ("now", "last")


class _Sub(Struct, frozen=True, kw_only=True):
    """A SUB as it is sent."""

    asked: Asked
    place: Place | None  # ours, as evidence; None: do not resume it
    before: Place | None = None  # ours, if it begins elsewhere
    is_new: bool  # it begins in this process

    @property
    def cursor(self) -> int | None:
        """The cursor to send."""
        if self.place is not None:
            return self.place.cursor
        return 0 if self.asked.resumes else None


class Subscribing:
    """Begins, resumes and ends the subscriptions of one subscriber."""

    def __init__(self, session: SubscriberSession, *, on_log_changed: OnLogChanged) -> None:
        """Create it.

        Args:
            on_log_changed: what to do if the proxy's log is not the one of the stored place.
        """
        self._session = session
        self.on_log_changed: OnLogChanged = on_log_changed

    def resume(self, subscription: TopicSubscription) -> Conversation[None]:
        """Confirm a subscription with the stored place (rules R13, R14)."""
        place = subscription.place
        return self.subscribe(
            subscription, Asked(terms=place.terms, max_deliveries=place.max_deliveries)
        )

    def subscribe(self, subscription: TopicSubscription, asked: Asked) -> Conversation[None]:
        """Begin a subscription at the requested start, or resume an existing one."""
        with self._session.recorder.call("subscribe", subscription.topic) as call:
            sub = yield from self._prepared(subscription, asked)
            reply = yield from self._ask(subscription, sub, call)
            if isinstance(reply, NotSub) and sub.asked.terms.session == "persistent":
                # An operator ended it between this SUB and its copy, whose number is used up.
                reply = yield from self._ask(subscription, sub, call)
            if isinstance(reply, LogChanged):
                if self.on_log_changed == "stop":
                    yield from self._restore(subscription, sub.before)
                    raise LogChangedError(reply.text)
                sub = self._in_other_log(subscription, sub, reply.end)
                reply = yield from self._ask(subscription, sub, call)
            if isinstance(reply, NotSub) and sub.place is not None:
                yield from self.ended(subscription)  # a clean session that we continued
            if not isinstance(reply, SubAck):
                yield from self._restore(subscription, sub.before)
                self._session.refused(reply, subscription.topic)
            yield from self._take(subscription, sub, reply)
            call.ok(
                epoch=self._session.inbox.epoch,
                log=reply.log,
                generation=reply.generation,
                cursor=subscription.place.cursor,
                qos=reply.terms.qos,
            )
            subscription.confirmed(reply, is_new=sub.is_new)

    def unsubscribe(self, subscription: TopicSubscription, call: Call) -> Conversation[None]:
        """End a subscription at the proxy (rule R12); the caller removes the place."""

        def ask() -> Conversation[AnyReply]:
            call.invoke(epoch=self._session.inbox.epoch)
            head = self._session.control_head()
            return self._session.asking(Unsub(**head, topic=subscription.topic))

        reply = yield from self._session.asking_as_known(ask)
        if not isinstance(reply, UnsubAck):
            self._session.refused(reply)

    def ended(self, subscription: TopicSubscription) -> Conversation[None]:
        """A subscription has ended; remove its place and fetched messages."""
        subscription.ended()
        yield from self._session.inbox.save(subscription, durable=True)

    def bye(self, *, also: bool) -> Conversation[bool]:
        """Send BYE, so that the proxy ends clean sessions now and not when their leases end.

        If no proxy is reached they have not ended, and their places stay.

        Args:
            also: there is a clean pattern.

        Returns:
            Whether they have ended.
        """
        subscriptions = self._session.inbox.subscriptions.values()
        clean = [one for one in subscriptions if one.is_subscribed and one.is_clean]
        if not (clean or also) or not self._session.connected:
            return False
        reply = yield from self._session.asking(Bye(**self._session.head()))
        if not isinstance(reply, ByeAck | Fenced):
            self._session.refused(reply)
        for subscription in clean:
            yield from self.ended(subscription)
        return True

    def _prepared(self, subscription: TopicSubscription, asked: Asked) -> Conversation[_Sub]:
        """The SUB to send; if it may move the subscription, that is written to the state first."""
        place = subscription.place if subscription.is_subscribed else None
        before = None
        if asked.start is not None and _resumes_at_place(subscription, asked):
            asked = replace(asked, start=None)  # our own cursor is more recent than the proxy's
        if place is not None and asked.start is not None:
            before = place
            if asked.seeks or (asked.resumes and asked.log in (None, place.log)):
                subscription.move(replace(place, asks=True))
                place = None if asked.seeks else place
            else:
                # The place must not be resumed: unless it subscribes again, a program gets NOT_SUB.
                asked, place = replace(asked, seeks=True), None
                subscription.place_lost()
            yield from self._session.inbox.save(subscription, durable=True)
        is_known = subscription.qos0.is_confirmed
        skips = asked.start is not None and (asked.start.at == "now" or not asked.seeks)
        is_new = skips or not is_known
        if asked.terms.qos == 0 and asked.start is None and is_new:
            # Skip newer messages of the ring; older ones may have been delivered.
            asked, place = replace(asked, start=Start("now")), None
        return _Sub(asked=asked, place=place, before=before, is_new=is_new)

    def _ask(
        self, subscription: TopicSubscription, sub: _Sub, call: Call
    ) -> Conversation[AnyReply]:
        asked, place = sub.asked, sub.place

        def ask() -> Conversation[AnyReply]:
            head = self._session.control_head()
            if place is not None:
                yield from self._session.inbox.save(subscription, tells=True)
            call.invoke(
                epoch=self._session.inbox.epoch,
                cursor=sub.cursor,
                start=start_in_words(asked.start) if asked.start else "",
                seeks=asked.seeks,
            )
            return (
                yield from self._session.asking(
                    Sub(
                        **head,
                        topic=subscription.topic,
                        log=place.log if place else asked.log,
                        cursor=sub.cursor,
                        witness_ns=place.witness_ns if place else None,
                        start=asked.start,
                        seeks=asked.seeks or UNSET,
                        terms=asked.terms,
                    )
                )
            )

        return self._session.asking_as_known(ask)

    def _in_other_log(self, subscription: TopicSubscription, sub: _Sub, end: int) -> _Sub:
        """The same SUB for a different log, which ends at `end`."""
        start = _start_in_other_log(self.on_log_changed, end)
        begins = f"the log has changed; begins at {start_in_words(start)} ({self.on_log_changed})"
        self._session.tell(logging.WARNING, begins, subscription.topic)
        asked = replace(sub.asked, start=start, log=None, seeks=True)
        return replace(sub, asked=asked, place=None)

    def _take(
        self, subscription: TopicSubscription, sub: _Sub, reply: SubAck
    ) -> Conversation[None]:
        """Take the proxy's position, unless the stored place is more recent."""
        ours = subscription.place if subscription.is_subscribed else None
        if ours is not None and reply.moved is not UNSET:
            place = ours.moved_by_operator(reply)
            self._tell_moved(subscription, ours, reply)
        elif ours is None or sub.asked.start is not None:
            place = repositioned(reply, sub.before)
        else:
            if ours.has_become_dead(reply):
                self._record_dead_letter(reply)
            place = ours.confirmed(reply, adopt=self.on_log_changed == "adopt")
        if place.max_deliveries != sub.asked.max_deliveries:
            place = replace(place, max_deliveries=sub.asked.max_deliveries)
        subscription.move(place)
        if place is not subscription.saved:
            yield from self._session.inbox.save(subscription, durable=True)

    def _tell_moved(self, subscription: TopicSubscription, ours: Place, reply: SubAck) -> None:
        if reply.cursor < ours.cursor:
            subscription.drop()  # what is in hand comes again, too
        moves = f"an operator has moved it from offset {ours.cursor} to {reply.cursor}"
        self._session.tell(logging.WARNING, moves, subscription.topic)

    def _record_dead_letter(self, reply: SubAck) -> None:
        """Record the dead letter that an earlier process sent and could not record.

        No request is sent here, so no invoke: another process may have replaced this one.
        """
        with self._session.recorder.call("reject", reply.topic) as call:
            call.ok(epoch=self._session.inbox.epoch, cursor=reply.cursor)

    def _restore(self, subscription: TopicSubscription, before: Place | None) -> Conversation[None]:
        """The proxy refused the move: restore the place."""
        if before is not None:
            subscription.move(before)
            yield from self._session.inbox.save(subscription, durable=True)


def _resumes_at_place(subscription: TopicSubscription, asked: Asked) -> bool:
    """Return whether a start has no effect, because the subscription exists (rule R33)."""
    if not subscription.is_subscribed or asked.start is None:
        return False
    if asked.start.at == "last":
        return True
    if asked.seeks or asked.terms.session == "clean":
        return False
    each_process_begins_it = asked.terms.qos == 0 or subscription.is_clean
    return not each_process_begins_it or subscription.qos0.is_confirmed


def _start_in_other_log(on_log_changed: OnLogChanged, end: int) -> Start:
    match on_log_changed:
        case "rewind":
            return Start("earliest")
        case "adopt":
            return Start("offset", end)
        case "stop":
            raise AssertionError("a subscriber that stops begins nowhere")
        case never:
            assert_never(never)


def lease_ms_of(session: SessionKind, lease_s: float | None) -> int:
    """A lease in milliseconds, as in SUB; 0: none.

    A clean session always has one.
    """
    if lease_s is not None:
        return round(lease_s * 1000)
    match session:
        case "clean":
            return CLEAN_LEASE_MS
        case "persistent":
            return 0
        case never:
            assert_never(never)
