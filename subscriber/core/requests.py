"""The requests of a subscriber that name its cursor: GET, ACK and DEAD, in a subscription that
the running proxy knows. Pure.

After a restart of the proxy this file restores what is needed: a new session, and each
subscription confirmed with the stored place (rules R11 to R14).
"""

from __future__ import annotations

from typing import Any, NoReturn

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.answers import (
    AnyReply,
    Fenced,
    LogChanged,
    Lost,
    MessageBatches,
    NoMessagesYet,
    NotSub,
    PutAck,
    Stale,
)
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.errors import NotSubscribedError, StaleError, TryLaterError
from reliable_pubsub.common.core.recorder import Call
from reliable_pubsub.common.core.requests import Ack, Dead, Get
from reliable_pubsub.common.core.session import SESSIONS_BEGUN_MAX

from .session import SubscriberSession
from .subscribing import Subscribing
from .subscription import TopicSubscription


class Requests:
    """Sends requests with the cursor, after the proxy has confirmed the subscription."""

    def __init__(self, session: SubscriberSession, subscribing: Subscribing) -> None:
        """Create it; the first call sends the first request."""
        self._session = session
        self._subscribing = subscribing

    def acknowledge(self, subscription: TopicSubscription) -> Conversation[None]:
        """Send the cursor to the proxy; returns when it is durable there.

        Raises:
            InDoubtError, NotSubscribedError, FencedError, LogChangedError.
        """
        with self._session.recorder.call("acknowledge", subscription.topic) as call:
            reply, _ = yield from self.asking(Ack, subscription, call)
            if not isinstance(reply, PutAck):
                self._session.refused(reply)
            call.ok(epoch=self._session.inbox.epoch, cursor=subscription.place.cursor)

    def peek(self, subscription: TopicSubscription) -> Conversation[None]:
        """Send the cursor by a GET, and drop what it shows.

        Raises:
            InDoubtError, NotSubscribedError, FencedError, LogChangedError.
        """
        with self._session.recorder.call("get", subscription.topic):
            reply, _ = yield from self.asking(Get, subscription)
            if not isinstance(reply, MessageBatches | NoMessagesYet | Lost):
                self._session.refused(reply)

    def asking(
        self,
        kind: type[Get | Ack | Dead],
        subscription: TopicSubscription,
        call: Call | None = None,
        *,
        body: bytes | None = None,
        rejected: int | None = None,
        wait_s: float = 0.0,
        **more: Any,
    ) -> Conversation[tuple[AnyReply, bytes]]:
        """Send a request with the cursor, which is durable here first; confirm if needed.

        Args:
            call: of ACK and DEAD; a GET changes nothing that is not recorded already.
            wait_s: how long the proxy may hold the answer.
            body, rejected: of DEAD, and the offset of its message. That stays the same, even if
                the confirmation shows that the letter is stored: the proxy then repeats its reply.

        Raises:
            NotSubscribedError: there is no subscription, or a clean session has ended.
            StaleError: of DEAD: the position was changed before its message was rejected.
            TryLaterError: the proxy forgot the subscription repeatedly.
        """
        session, inbox = self._session, self._session.inbox
        for _ in range(SESSIONS_BEGUN_MAX):
            # Forgotten, and the new HELLO in doubt: our old epoch may be fenced by our own new one.
            if subscription.confirmation is None or not session.connected:
                if not subscription.is_subscribed:
                    self.refuse(subscription.topic)
                yield from inbox.save(subscription)  # what is processed, if no proxy is reached
                yield from self._subscribing.resume(subscription)
            confirmation = subscription.confirmation
            assert confirmation is not None
            cursor = subscription.place.cursor
            if rejected is not None:
                _check_letter(subscription, rejected)
                cursor = rejected
            yield from inbox.save(subscription, tells=True)
            if call is not None:
                call.invoke(epoch=inbox.epoch, cursor=cursor)
            reply, answer = yield from session.requester.asking(
                kind(
                    client=session.client,  # not `**head()`, which takes twice as long
                    epoch=inbox.epoch,
                    request=next(session.requester.numbers),
                    topic=subscription.topic,
                    generation=confirmation.generation,
                    boot=confirmation.boot,
                    cursor=cursor,
                    **more,
                ),
                body,
                wait_s=wait_s,
            )
            confirmation.proxy_cursor = cursor
            if not isinstance(reply, Stale | NotSub | LogChanged | Fenced):
                return reply, answer
            if isinstance(reply, Fenced) and not session.is_forgotten(reply):
                return reply, answer
            if isinstance(reply, NotSub) and subscription.is_clean:
                yield from self._subscribing.ended(subscription)
                session.refused(reply)
            subscription.forgotten()  # it has restarted, or forgotten us: confirm again
        if isinstance(reply, Stale | Fenced):  # every time
            code = "STALE" if isinstance(reply, Stale) else "FENCED"
            raise TryLaterError(code=code, text=reply.text, attempts=SESSIONS_BEGUN_MAX)
        session.refused(reply)

    def refuse(self, topic: str) -> NoReturn:
        """Refuse a call of a topic that is not subscribed to."""
        names.topic(topic)
        names.exact(topic)
        client = self._session.client
        raise NotSubscribedError(f"{client!r} is not subscribed to {topic!r}; subscribe first")


def _check_letter(subscription: TopicSubscription, rejected: int) -> None:
    """Check that a message is rejected, now or before: the position may have been changed.

    Raises:
        StaleError: it is not.
    """
    place = subscription.place
    if not (place.rejection or place.cursor == rejected + 1):
        raise StaleError(
            f"topic {subscription.topic!r}: the position was changed before offset {rejected} "
            "was rejected; it was not"
        )
