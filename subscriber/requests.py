"""The requests of a subscriber that name its cursor: GET, ACK and DEAD, in a subscription that
the proxy of this moment knows.

What a restart of the proxy asks for is done here, out of sight: a new session, and each
subscription confirmed with our own place as evidence (rules R11 to R14).
"""

from __future__ import annotations

from typing import Any, NoReturn

from reliable_pubsub.common import names
from reliable_pubsub.common.asking import SESSIONS_MAX
from reliable_pubsub.common.batch import crc32
from reliable_pubsub.common.errors import NotSubscribedError, StaleError, TryLaterError
from reliable_pubsub.common.messages import (
    Ack,
    AnyReply,
    Dead,
    DeadAck,
    Fenced,
    Get,
    LogChanged,
    NotSub,
    PutAck,
    Stale,
)
from reliable_pubsub.common.recorder import Call

from .session import SubscriberSession
from .subscribing import Subscribing
from .subscription import Subscription


class Requests:
    """Asks with our cursor; whatever is asked, the proxy knows of the subscription before."""

    def __init__(self, session: SubscriberSession, subscribing: Subscribing) -> None:
        """Prepare; the proxy is asked at the first call."""
        self._session = session
        self._subscribing = subscribing

    def acknowledge(self, subscription: Subscription) -> None:
        """Tell the proxy our cursor; returns when it has it durably.

        Raises:
            InDoubtError, NotSubscribedError, FencedError, LogChangedError.
        """
        with self._session.recorder.call("acknowledge", subscription.topic) as call:
            reply, _ = self.ask(Ack, subscription, call)
            if not isinstance(reply, PutAck):
                self._session.refused(reply)
            call.ok(epoch=self._session.inbox.epoch, cursor=subscription.place.cursor)

    def send_letter(
        self, subscription: Subscription, offset: int, letter: bytes, call: Call
    ) -> DeadAck:
        """Send a dead letter until the proxy has it, and the cursor after its message."""
        reply, _ = self.ask(
            Dead, subscription, call, body=letter, given_up=offset, crc=crc32(letter)
        )
        if not isinstance(reply, DeadAck):
            self._session.refused(reply)
        return reply

    def ask(
        self,
        kind: type[Get | Ack | Dead],
        subscription: Subscription,
        call: Call,
        *,
        body: bytes | None = None,
        given_up: int | None = None,
        **more: Any,
    ) -> tuple[AnyReply, bytes]:
        """Ask with our cursor, which is durable here before; confirm the subscription if needed.

        Args:
            body, given_up: of DEAD, and the offset of its message. It stays, also where the
                confirmation shows that it is done: the proxy then says so once more.

        Raises:
            NotSubscribedError: there is no subscription, or a clean session has ended.
            StaleError: of DEAD: the place was chosen again before its message was given up.
            TryLaterError: the proxy forgets the subscription again and again.
        """
        if not subscription.is_subscribed:
            self._refuse(subscription.topic)
        for _ in range(SESSIONS_MAX):
            # Forgotten, and the new HELLO in doubt: our old epoch may be fenced by our own new one.
            if subscription.confirmation is None or not self._session.connected:
                self._session.save(subscription)  # what is processed, if no proxy is reached
                self._subscribing.resume(subscription)
            confirmation = subscription.confirmation
            assert confirmation is not None
            cursor = subscription.place.cursor
            if given_up is not None:
                _check_letter(subscription, given_up)
                cursor = given_up
            self._session.save_before_telling(subscription)
            if kind is not Get:  # a GET changes nothing but what an earlier line has told
                call.invoke(epoch=self._session.inbox.epoch, cursor=cursor)
            reply, answer = self._session.asker.ask(
                kind(
                    **self._session.head(),
                    topic=subscription.topic,
                    generation=confirmation.generation,
                    boot=confirmation.boot,
                    cursor=cursor,
                    **more,
                ),
                body,
            )
            confirmation.told = cursor
            if isinstance(reply, NotSub) and subscription.is_clean:
                self._subscribing.ended(subscription)
                self._session.refused(reply)
            if not (
                isinstance(reply, Stale | NotSub | LogChanged) or self._session.is_forgotten(reply)
            ):
                return reply, answer
            subscription.forgotten()  # it has restarted, or forgotten us: our place is the evidence
        if isinstance(reply, Stale | Fenced):  # every time
            code = "STALE" if isinstance(reply, Stale) else "FENCED"
            raise TryLaterError(code=code, text=reply.text, attempts=SESSIONS_MAX)
        self._session.refused(reply)

    def _refuse(self, topic: str) -> NoReturn:
        names.topic(topic)
        names.exact(topic)
        client = self._session.client
        raise NotSubscribedError(f"{client!r} is not subscribed to {topic!r}; subscribe")


def _check_letter(subscription: Subscription, given_up: int) -> None:
    """Check that a message is still to be given up, or was: its place may have been chosen again.

    Raises:
        StaleError: it is not.
    """
    place = subscription.place
    if not (place.giving_up or place.cursor == given_up + 1):
        raise StaleError(
            f"topic {subscription.topic!r}: the place was chosen again before offset {given_up} "
            "was given up; it was not"
        )
