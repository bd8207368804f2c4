"""SUB, UNSUB and BYE: how subscriptions begin, are resumed where the proxy forgot them, and end."""

from __future__ import annotations

import logging
from typing import Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.errors import LogChangedError, UsageError
from reliable_pubsub.common.messages import (
    AnyReply,
    Bye,
    ByeAck,
    Fenced,
    LogChanged,
    NotSub,
    SessionKind,
    Start,
    Sub,
    SubAck,
    Terms,
    Unsub,
    UnsubAck,
)
from reliable_pubsub.common.recorder import Call
from reliable_pubsub.common.start import LastReceived, Now, Position, at_offset, in_words

from .place import Place, repositioned
from .session import SubscriberSession
from .subscription import Subscription

OnLogChanged = Literal["stop", "rewind", "adopt"]

CLEAN_LEASE_MS = 60_000  # of a clean session that names none


class Asked(Struct, frozen=True, kw_only=True):
    """What a program asks of a subscription."""

    start: Start | None = None  # begin there instead
    replay: bool = False  # also where that lies below what was acknowledged
    log: str | None = None  # log id that `start` speaks of, if it is known
    terms: Terms = Terms()
    max_deliveries: int | None = None

    @property
    def resumes(self) -> bool:
        """Whether nothing that was acknowledged is to come again, wherever it begins."""
        return self.start is not None and not self.replay and self.start.at not in ("now", "last")


class _Sub(Struct, frozen=True, kw_only=True):
    """A SUB as it is sent."""

    asked: Asked
    place: Place | None  # ours, as evidence; None: it is not to be resumed
    before: Place | None = None  # ours, if it is to begin elsewhere
    anew: bool  # it begins in this process

    @property
    def cursor(self) -> int | None:
        """What it says of our cursor."""
        if self.place is not None:
            return self.place.cursor
        return 0 if self.asked.resumes else None


class Subscribing:
    """Begins, resumes and ends the subscriptions of one subscriber."""

    def __init__(self, session: SubscriberSession, *, on_log_changed: OnLogChanged) -> None:
        """Prepare.

        Args:
            on_log_changed: what to do where the proxy's log is not the one our place speaks of.
        """
        self._session = session
        self.on_log_changed: OnLogChanged = on_log_changed

    def resume(self, subscription: Subscription) -> None:
        """Confirm a subscription, with our own place as evidence (rules R13, R14)."""
        place = subscription.place
        self.subscribe(subscription, Asked(terms=place.terms, max_deliveries=place.max_deliveries))

    def subscribe(self, subscription: Subscription, asked: Asked) -> None:
        """Begin a subscription where the program asks for it; else resume it, if there is one."""
        with self._session.recorder.call("subscribe", subscription.topic) as call:
            sub = self._prepared(subscription, asked)
            reply = self._ask(subscription, sub, call)
            if isinstance(reply, LogChanged):
                if self.on_log_changed == "stop":
                    self._restore(subscription, sub.before)
                    raise LogChangedError(reply.text)
                sub = self._in_other_log(subscription, sub, reply.end)
                reply = self._ask(subscription, sub, call)
            if isinstance(reply, NotSub) and sub.place is not None:
                self.ended(subscription)  # a clean session that we continued
            if not isinstance(reply, SubAck):
                self._restore(subscription, sub.before)
                self._session.refused(reply, subscription.topic)
            self._take(subscription, sub, reply)
            call.ok(
                epoch=self._session.inbox.epoch,
                log=reply.log,
                generation=reply.generation,
                cursor=subscription.place.cursor,
                qos=reply.terms.qos,
            )
            subscription.confirmed(reply, anew=sub.anew)

    def unsubscribe(self, subscription: Subscription, call: Call) -> None:
        """End a subscription at the proxy (rule R12); our place is still to be removed."""

        def ask() -> AnyReply:
            call.invoke(epoch=self._session.inbox.epoch)
            head = self._session.control_head()
            return self._session.ask(Unsub(**head, topic=subscription.topic))

        reply = self._session.ask_as_known(ask)
        if not isinstance(reply, UnsubAck):
            self._session.refused(reply)

    def ended(self, subscription: Subscription) -> None:
        """A subscription has ended, and with it what was not delivered."""
        subscription.ended()
        self._session.save(subscription, durable=True)

    def bye(self) -> None:
        """Leave; the proxy ends our clean sessions now, not when their leases do.

        Where no proxy was reached they are not over, and their places stay.
        """
        subscriptions = self._session.inbox.subscriptions.values()
        clean = [one for one in subscriptions if one.is_subscribed and one.is_clean]
        if not clean or not self._session.connected:
            return
        reply = self._session.ask(Bye(**self._session.head()))
        if not isinstance(reply, ByeAck | Fenced):
            self._session.refused(reply)
        for subscription in clean:
            self.ended(subscription)

    def _prepared(self, subscription: Subscription, asked: Asked) -> _Sub:
        """What to send; where the proxy may move the subscription unheard, that is noted before."""
        place = subscription.place if subscription.is_subscribed else None
        before = None
        if place is not None and asked.start is not None:
            if asked.start.at == "last":
                asked = replace(asked, start=None)  # we know it better than the proxy
            elif asked.resumes and asked.log in (None, place.log):
                before = place
                subscription.move(replace(place, asks=True))
                self._session.save(subscription, durable=True)
            else:
                # Our place is not one to resume: a program that does not ask again gets NOT_SUB.
                asked, before, place = replace(asked, replay=True), place, None
                subscription.given_up()
                self._session.save(subscription, durable=True)
        anew = asked.start is not None or subscription.qos0 is None
        if asked.terms.qos == 0 and asked.start is None and anew:
            # What came meanwhile is not waited for; what came before may have been handed over.
            asked, place = replace(asked, start=Start("now")), None
        return _Sub(asked=asked, place=place, before=before, anew=anew)

    def _ask(self, subscription: Subscription, sub: _Sub, call: Call) -> AnyReply:
        asked, place = sub.asked, sub.place

        def ask() -> AnyReply:
            head = self._session.control_head()
            if place is not None:
                self._session.save_before_telling(subscription)
            call.invoke(
                epoch=self._session.inbox.epoch,
                cursor=sub.cursor,
                start=in_words(asked.start) if asked.start else "",
            )
            return self._session.ask(
                Sub(
                    **head,
                    topic=subscription.topic,
                    log=place.log if place else asked.log,
                    cursor=sub.cursor,
                    witness_ns=place.witness_ns if place else None,
                    start=asked.start,
                    terms=asked.terms,
                )
            )

        return self._session.ask_as_known(ask)

    def _in_other_log(self, subscription: Subscription, sub: _Sub, end: int) -> _Sub:
        """The same SUB once more, for a log that is not the one we knew, and ends at `end`."""
        start = _start_in_other_log(self.on_log_changed, end)
        begins = f"the log has changed; begins at {in_words(start)} ({self.on_log_changed})"
        self._session.tell(logging.WARNING, begins, subscription.topic)
        asked = replace(sub.asked, start=start, log=None, replay=True)
        return replace(sub, asked=asked, place=None)

    def _take(self, subscription: Subscription, sub: _Sub, reply: SubAck) -> None:
        """Stand where the proxy says, as far as our own place does not say better."""
        ours = subscription.place if subscription.is_subscribed else None
        if ours is None or sub.asked.start is not None:
            place = repositioned(reply, sub.before)
        else:
            if ours.has_become_dead(reply):
                self._record_dead_letter(reply)
            place = ours.confirmed(reply, adopt=self.on_log_changed == "adopt")
        if place.max_deliveries != sub.asked.max_deliveries:
            place = replace(place, max_deliveries=sub.asked.max_deliveries)
        subscription.move(place)
        if not subscription.is_saved:
            self._session.save(subscription, durable=True)

    def _record_dead_letter(self, reply: SubAck) -> None:
        """Record the dead letter that an earlier process sent, and could not write down.

        Nothing is asked of the proxy here, so no invoke: another process may have replaced us.
        """
        with self._session.recorder.call("reject", reply.topic) as call:
            call.ok(epoch=self._session.inbox.epoch, cursor=reply.cursor)

    def _restore(self, subscription: Subscription, before: Place | None) -> None:
        """The proxy has moved nothing: the subscription is where it was."""
        if before is not None:
            subscription.move(before)
            self._session.save(subscription, durable=True)


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
    """A lease as the wire has it; 0: none.

    A clean session that names none has one all the same.
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


def asked_of(
    topic: str,
    start: Start | Position | None,
    replay: bool,
    terms: Terms,
    max_deliveries: int | None,
) -> Asked:
    """What a call of `subscribe` asks for; a clean session begins with what comes from now on.

    Raises:
        UsageError: a replay without a start to replay from, or a position of another topic.
    """
    if replay and (start is None or start in (Now, LastReceived)):
        raise UsageError(
            "replay needs a start that may lie below what was acknowledged: Earliest, "
            "at_offset(n), newest(n), at_time(t), ago(age) or a Position"
        )
    log = None
    if isinstance(start, Position):
        if start.topic != topic:
            raise UsageError(f"the position is one of {start.topic!r}, not of {topic!r}")
        log, start = start.log, at_offset(start.offset)
    if terms.session == "clean" and start is None:
        start = Now
    return Asked(start=start, replay=replay, log=log, terms=terms, max_deliveries=max_deliveries)
