"""SUB, UNSUB, GET, ACK: subscriptions, and cursors that only their subscriber moves."""

from __future__ import annotations

from msgspec.structs import replace

from reliable_pubsub.common.core.messages import (
    Ack,
    Bye,
    ByeAck,
    Dead,
    Delivery,
    Get,
    History,
    LogChanged,
    Lost,
    MessageBatches,
    NoMessagesYet,
    NotSub,
    PutAck,
    Ring,
    Stale,
    Start,
    Sub,
    SubAck,
    Truncated,
    Unsub,
    UnsubAck,
)

from .records import (
    ControlSeen,
    CursorMoved,
    Decision,
    Record,
    Subscribed,
    Unsubscribed,
)
from .starting import Starting
from .subscriptions import Session, Subscription
from .topic_log import TopicLog


class Subscribing(Starting):
    """The rules for subscribers."""

    def _sub(self, request: Sub, _body: bytes, now_ns: int) -> Decision:
        """Begin, resume or reposition a subscription (rules R12 to R14, R18)."""
        session = self._fence("subscriber", request)
        if isinstance(session, Decision):
            return session
        log = self.topics.get(request.topic)
        known = log.subscriptions.get(request.client) if log else None
        if request.control < session.control:
            return self._stale_control(request, session)
        active = known if known and known.active else None
        if request.control == session.control:
            if not (active and active.expired):
                return self._repeated_sub(request, log, known, session)
            request = replace(request, start=None, cursor=None)  # a copy moves nothing
        refused = self._log_changed(request, log, request.cursor) or self._no_clean_session(
            request, known
        )
        if refused is not None:
            return refused
        created: tuple[Record, ...] = ()
        if log is None:
            if len(self.topics) >= self._settings.topics_max:
                return self._limit(request, "topics_max")
            created = (self._new_topic(request.topic),)
            log = self._unborn(request.topic)
        elif active is None and log.live_count >= self._settings.subscriptions_per_topic_max:
            return self._limit(request, "subscriptions_per_topic_max")
        generation = known.generation if known else self.generation_floor
        if request.start is not None and (request.start.at != "last" or active is None):
            generation += 1
            place = self._chosen_place(request, log, known, request.start, now_ns)
            if isinstance(place, Decision):
                return place
            cursor = place
        elif active is None:
            generation += 1
            cursor = log.end if request.cursor is None else request.cursor
        else:
            cursor = max(active.cursor, request.cursor or 0)
        subscribed = Subscribed(
            log.topic_id,
            request.client,
            generation,
            cursor,
            session.epoch,
            session.nonce,
            request.control,
            max(known.shown, cursor) if known else cursor,
            request.terms,
        )
        then = Subscription(generation, cursor, cursor, True, 0, subscribed.shown, subscribed.terms)
        return self._decided(
            self._sub_ack(request, log, then, already=active is not None), *created, subscribed
        )

    def _repeated_sub(
        self, request: Sub, log: TopicLog | None, known: Subscription | None, session: Session
    ) -> Decision:
        """Answer a repeat of the last SUB; if its clean session has ended, do not begin another."""
        if log is None or known is None:
            # The number was for another topic, or its subscription has ended and was removed. For a
            # clean session the reply is the same as before the removal.
            if request.terms.session == "clean":
                return self._not_subscribed(request, None)
            return self._stale_control(request, session)
        if not known.active:
            return self._not_subscribed(request, known)
        return Decision(self._sub_ack(request, log, known, already=True), visible_at=known.lsn)

    def _no_clean_session(self, request: Sub, known: Subscription | None) -> Decision | None:
        """Refuse a clean session without a lease, or the resumption of one that has ended."""
        if request.terms.session != "clean":
            return None
        if not request.terms.lease_ms:
            text = (
                "a clean session needs a lease: without one the proxy cannot know when it has ended"
            )
            return Decision(self.malformed(text, request))
        goes_on = request.cursor is not None and request.start is None
        if goes_on and (known is None or not known.active):
            return self._not_subscribed(request, known)
        return None

    def _chosen_place(
        self,
        request: Sub,
        log: TopicLog,
        known: Subscription | None,
        start: Start,
        now_ns: int,
    ) -> int | Decision:
        """The cursor of a subscription with a `start`, but never below its own cursor."""
        place = self._first_place(request, log, known, start, now_ns)
        own = self._own_place(request, known)
        if not isinstance(place, Decision):
            return max(place, own)
        if isinstance(place.reply, Truncated) and own >= log.start:
            return own  # the removed messages were acknowledged
        return place

    def _own_place(self, request: Sub, known: Subscription | None) -> int:
        """The acknowledged cursor, if the request has a cursor besides its start; else 0.

        A clean session keeps no cursor: the next one begins at its `start`.
        """
        if request.cursor is None:
            return 0
        if known is None or not known.active:
            kinds = {request.terms.session, *([known.terms.session] if known else [])}
            if "clean" in kinds:
                return 0
        return max(request.cursor, known.cursor if known else 0)

    def _first_place(
        self,
        request: Sub,
        log: TopicLog,
        known: Subscription | None,
        start: Start,
        now_ns: int,
    ) -> int | Decision:
        """The offset of `start`; `last` is the cursor of the previous subscription."""
        if start.at == "last" and known is not None:
            return known.cursor  # if retention has removed it since, the first GET says LOST
        return self._place(request, log, start, log.end, now_ns)

    def _sub_ack(
        self, request: Sub, log: TopicLog, subscription: Subscription, *, already: bool
    ) -> SubAck:
        return SubAck(
            **self._echo(request),
            topic=request.topic,
            generation=subscription.generation,
            log=log.log,
            cursor=subscription.cursor,
            already=already,
            witness_ns=self._witness_ns(log, subscription.cursor),
            terms=subscription.terms,
            shown=subscription.shown,
            ring=self.rings.end(request.topic),
        )

    def _witness_ns(self, log: TopicLog, cursor: int) -> int | None:
        """The timestamp of the batch before a cursor, by which this log is recognised (R14)."""
        if cursor == log.end:
            return log.timestamp_ns if log.end else None
        if cursor <= log.start:
            return None
        return self._reader.timestamp_ns(log.topic_id, cursor - 1)

    def _log_changed(
        self, request: Sub | History, log: TopicLog | None, cursor: int | None
    ) -> Decision | None:
        """Check the position a client brings against the log (rule R14)."""
        if log is None:
            log = self._unborn(request.topic)
        if request.log is not None and request.log != log.log:
            return self._not_this_log(request, log, f"the log is now {log.log!r}")
        if cursor is None:
            return None
        if cursor > log.durable_end:
            return self._not_this_log(
                request, log, f"offset {cursor} is beyond its end {log.durable_end}"
            )
        if request.witness_ns is None or cursor <= log.start:
            return None
        held_ns = self._reader.timestamp_ns(log.topic_id, cursor - 1)
        if held_ns is not None and held_ns != request.witness_ns:
            return self._not_this_log(
                request, log, f"offset {cursor - 1} holds another message than before"
            )
        return None

    def _not_this_log(
        self, request: Sub | Get | Ack | Dead | History | Delivery, log: TopicLog, why: str
    ) -> Decision:
        return Decision(
            LogChanged(
                **self._echo(request),
                topic=request.topic,
                log=log.log,
                start=log.start,
                end=log.durable_end,
                text=f"topic {request.topic!r}: {why}; the proxy was replaced or set back to an "
                f"older copy. It holds {_range(log)}. Choose with "
                "--on-log-changed (on_log_changed): `rewind` reads from its start and may repeat, "
                "`adopt` goes on at its end and may miss",
            )
        )

    def _unsub(self, request: Unsub, _body: bytes, _now_ns: int) -> Decision:
        """End a subscription (rule R12)."""
        session = self._fence("subscriber", request)
        if isinstance(session, Decision):
            return session
        if request.control < session.control:
            return self._stale_control(request, session)
        log = self.topics.get(request.topic)
        known = log.subscriptions.get(request.client) if log else None
        if log is None or known is None or not known.active:
            gone = UnsubAck(**self._echo(request), topic=request.topic, already=True)
            if request.control == session.control:
                return Decision(gone, visible_at=session.lsn)
            seen = ControlSeen(request.client, session.epoch, session.nonce, request.control)
            return self._decided(gone, seen)
        if request.control == session.control:  # not a copy: the first one would have ended it
            return self._stale_control(request, session)
        return self._decided(
            UnsubAck(**self._echo(request), topic=request.topic, already=False),
            Unsubscribed(
                log.topic_id,
                request.client,
                known.generation,
                known.cursor,
                session.epoch,
                session.nonce,
                request.control,
                known.terms,
                known.shown,
            ),
        )

    def _bye(self, request: Bye, _body: bytes, _now_ns: int) -> Decision:
        """End the clean sessions of a subscriber; nothing of them is kept."""
        session = self._fence("subscriber", request)
        if isinstance(session, Decision):
            return session
        ended = [
            Unsubscribed(
                log.topic_id,
                request.client,
                one.generation,
                one.cursor,
                session.epoch,
                session.nonce,
                session.control,
                one.terms,
                one.shown,
            )
            for log in (self._by_id[one] for one in self._live.get(request.client, ()))
            if (one := log.subscriptions[request.client]).terms.session == "clean"
        ]
        reply = ByeAck(**self._echo(request), ended=len(ended))
        return self._decided(reply, *ended) if ended else Decision(reply, visible_at=session.lsn)

    def _stale_control(self, request: Sub | Unsub, session: Session) -> Decision:
        return Decision(
            Stale(
                **self._echo(request),
                text=f"control request {request.control} of {request.client!r} came after number "
                f"{session.control} was used; it has no effect",
            ),
            visible_at=session.lsn,
        )

    def _subscription(
        self, request: Get | Ack | Dead
    ) -> tuple[TopicLog, Subscription, int] | Decision:
        """The live subscription of a request, and the record its reply depends on."""
        found = self._confirmed(request)
        if not isinstance(found, Decision) and request.cursor > found[0].durable_end:
            return self._not_this_log(
                request,
                found[0],
                f"offset {request.cursor} is beyond its end {found[0].durable_end}",
            )
        return found

    def _confirmed(
        self, request: Get | Ack | Dead | Ring
    ) -> tuple[TopicLog, Subscription, int] | Decision:
        """The same, without a check of the request's cursor."""
        session = self._fence("subscriber", request)
        if isinstance(session, Decision):
            return session
        log = self.topics.get(request.topic)
        known = log.subscriptions.get(request.client) if log else None
        if log is None or known is None or not known.active:
            return self._not_subscribed(request, known)
        current = (request.generation, request.boot) == (known.generation, self.boot)
        if known.expired or not current:
            text = (
                f"subscription {request.generation} of {request.client!r} to {request.topic!r} is "
                f"to be confirmed; the current one is {known.generation}: subscribe again"
            )
            return Decision(Stale(**self._echo(request), text=text), visible_at=known.lsn)
        return log, known, max(session.lsn, known.lsn)

    def _not_subscribed(
        self, request: Get | Ack | Dead | Ring | Sub, known: Subscription | None
    ) -> Decision:
        text = f"{request.client!r} is not subscribed to {request.topic!r}; subscribe first"
        if known is not None:
            why = "expired, because it was silent for too long" if known.expired else "has ended"
            text += f" (subscription {known.generation} {why})"
        reply = NotSub(**self._echo(request), text=text)
        return Decision(reply, visible_at=known.lsn if known else 0)

    def _get(self, request: Get, _body: bytes, _now_ns: int) -> Decision:
        """Show what follows the cursor; only the cursor in the request moves it (rule R7)."""
        found = self._subscription(request)
        if isinstance(found, Decision):
            return found
        log, subscription, visible_at = found
        if request.cursor < log.start:
            lost = Lost(**self._echo(request), first=request.cursor, end=log.start)
            moved = self._moved(request, log, subscription, urgent=False)
            return Decision(lost, moved, max(visible_at, log.trim_lsn))
        if request.cursor < log.kept_from:
            bound = log.retention.waiting_messages_max
            lost = Lost(
                **self._echo(request), first=request.cursor, end=log.kept_from, waiting_max=bound
            )
            moved = self._moved(request, log, subscription, urgent=False)
            return Decision(lost, moved, visible_at)
        if request.cursor == log.durable_end:
            return Decision(
                NoMessagesYet(
                    **self._echo(request),
                    end=log.durable_end,
                    ring=self.rings.hint(request.topic),
                ),
                self._moved(request, log, subscription, urgent=False),
                visible_at,
            )
        reply, body = self._batches(request, log, request.cursor)
        shown = 0
        if isinstance(reply, MessageBatches):
            shown = reply.batches[-1].base + reply.batches[-1].count
            reply = replace(reply, ring=self.rings.hint(request.topic))
        moved = self._moved(request, log, subscription, urgent=False, shown=shown)
        return Decision(reply, moved, visible_at, body)

    def _ack(self, request: Ack, _body: bytes, _now_ns: int) -> Decision:
        """Move the cursor durably."""
        found = self._subscription(request)
        if isinstance(found, Decision):
            return found
        log, subscription, visible_at = found
        moved = self._moved(request, log, subscription, urgent=True)
        cursor = moved[0].cursor if moved else subscription.durable_cursor
        reply = PutAck(**self._echo(request), offset=cursor)
        return self._decided(reply, *moved) if moved else Decision(reply, visible_at=visible_at)

    def _moved(
        self,
        request: Get | Ack,
        log: TopicLog,
        subscription: Subscription,
        *,
        urgent: bool,
        shown: int = 0,
    ) -> tuple[CursorMoved, ...]:
        # The reply to an ACK needs a durable cursor, even if a lazy record has already moved it.
        held = subscription.durable_cursor if urgent else subscription.cursor
        cursor = max(request.cursor, subscription.cursor)
        if urgent and cursor == request.cursor:
            # After an ACK nothing is in flight; but messages below `before` may have been sent.
            shown = max(cursor, subscription.before)
        else:
            shown = max(shown, cursor, subscription.shown)
        if request.cursor <= held and shown == subscription.shown:
            return ()
        return (
            CursorMoved(
                log.topic_id,
                request.client,
                subscription.generation,
                cursor,
                urgent,
                shown,
                subscription.terms,
            ),
        )


def _range(log: TopicLog) -> str:
    """What a topic holds, in words."""
    if log.durable_end == log.start:
        return "nothing"
    return f"offsets {log.start} to {log.durable_end - 1}"
