"""The requests of a member of a group, in a group that the running proxy knows. Pure."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from reliable_pubsub.common.core.answers import (
    AnyReply,
    Busy,
    LogChanged,
    NotSub,
    Stale,
    SubAck,
    UnsubAck,
)
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.errors import LogChangedError, NotSubscribedError, TryLaterError
from reliable_pubsub.common.core.group_messages import Settle, Settled, Take, Taken
from reliable_pubsub.common.core.recorder import Call
from reliable_pubsub.common.core.requests import Sub, Unsub
from reliable_pubsub.common.core.session import SESSIONS_BEGUN_MAX
from reliable_pubsub.common.core.start import start_in_words

from ...core.session import SubscriberSession
from ...core.subscribing import OnLogChanged
from .membership import Membership, PendingRequest


class GroupRequests:
    """Joins, leaves, and sends TAKE and SETTLE until each has its answer."""

    def __init__(
        self,
        session: SubscriberSession,
        *,
        now_s: Callable[[], float],
        on_log_changed: OnLogChanged,
        ended: Callable[[str], object],
    ) -> None:
        """Send nothing yet.

        Args:
            now_s: the monotonic clock.
            on_log_changed: what to do if the log is not the one of the messages that were held; a
                group continues at its own place, with `rewind` and with `adopt`.
            ended: told that the group of a topic is no more.
        """
        self._session = session
        self._now_s = now_s
        self._on_log_changed = on_log_changed
        self._ended = ended

    def join(self, member: Membership, *, is_new: bool) -> Conversation[int]:
        """Become a member, or be confirmed as one.

        Args:
            is_new: the program has asked for it, and goes on in the log as it is now.

        Raises:
            LogChangedError: messages that this member held are not in the log any more.
            NotSubscribedError: the group has ended.
        """
        session, topic = self._session, member.topic
        if is_new:
            member.accept_log()
        with session.recorder.call("join", topic) as call:
            reply = yield from self._ask_to_join(member, call, is_new=is_new)
            if isinstance(reply, LogChanged):
                if self._on_log_changed == "stop":
                    raise LogChangedError(reply.text)
                why = f"{reply.text}. The group continues ({self._on_log_changed})"
                session.tell(logging.WARNING, why, topic)
                member.accept_log()
                reply = yield from self._ask_to_join(member, call, is_new=True)
            if not isinstance(reply, SubAck):
                if isinstance(reply, NotSub):
                    self._ended(topic)
                session.refused(reply, topic)
            call.ok(
                epoch=session.inbox.epoch,
                group=member.asked.group,
                log=reply.log,
                generation=reply.generation,
                cursor=reply.cursor,
            )
        member.joined(reply, session.inbox.epoch)
        return reply.cursor

    def _ask_to_join(
        self, member: Membership, call: Call, *, is_new: bool
    ) -> Conversation[AnyReply]:
        session, asked = self._session, member.asked
        start = asked.start if is_new else None

        def ask() -> Conversation[AnyReply]:
            head = session.control_head()
            begun = start_in_words(start) if start else ""
            call.invoke(epoch=session.inbox.epoch, group=asked.group, start=begun)
            return session.asking(
                Sub(
                    **head,
                    topic=member.topic,
                    group=asked.group,
                    group_terms=asked.terms,
                    start=start,
                    # One that comes back begins nothing: the group may have ended.
                    cursor=None if is_new else member.cursor or 0,
                    log=member.log,
                    witness_ns=member.witness_ns,
                )
            )

        return session.asking_as_known(ask)

    def leave(self, member: Membership, call: Call, *, ends_group: bool) -> Conversation[None]:
        """Leave the group, or end it."""
        session, group = self._session, member.asked.group

        def ask() -> Conversation[AnyReply]:
            head = session.control_head()
            call.invoke(epoch=session.inbox.epoch, group=group)
            more: dict[str, Any] = {"ends_group": True} if ends_group else {}
            return session.asking(Unsub(**head, topic=member.topic, group=group, **more))

        reply = yield from session.asking_as_known(ask)
        if not isinstance(reply, UnsubAck):
            session.refused(reply, member.topic)

    def asking(
        self,
        member: Membership,
        make: Callable[[], Take | Settle],
        call: Call,
        *,
        wait_ms: int = 0,
        confirms: bool = False,
    ) -> Conversation[AnyReply]:
        """Send the unanswered request, or else a new one; take the messages that it grants.

        Args:
            wait_ms: how long the proxy may hold the answer to a TAKE.
            confirms: a new one confirms that what is fetched has come.

        Raises:
            NotSubscribedError: the group has ended. LogChangedError: the proxy was replaced.
        """
        session = self._session
        for _ in range(SESSIONS_BEGUN_MAX):
            if not session.connected or member.generation is None or self._is_of_past(member):
                yield from self._join_again(member)
            pending = member.pending
            if pending is None:
                pending = PendingRequest(make(), self._now_s(), confirms)
                member.is_sent(pending)
            request = pending.request
            wait_s = 0.0
            if isinstance(request, Take) and wait_ms:  # it may be an earlier call's, which waited
                request, wait_s = replace(request, wait_ms=wait_ms), wait_ms / 1000
            call.invoke(
                epoch=session.inbox.epoch,
                group=member.asked.group,
                outcomes=tuple(
                    (one.first, one.count, one.delivery, one.how) for one in request.outcomes
                ),
            )
            reply, body = yield from session.requester.asking(request, wait_s=wait_s)
            if isinstance(reply, NotSub | Stale | LogChanged) or session.is_forgotten(reply):
                member.lose()  # its outcomes were sent in vain; `joined` drops them
                continue
            if isinstance(reply, Taken | Settled) and reply.boot != member.boot:
                # The proxy was started again. If it still has what was held here (R14), the same
                # request is answered as before.
                yield from self.join(member, is_new=False)
                continue
            member.pending = None
            if isinstance(reply, Taken):
                member.taken(reply, body, pending, self._now_s())
            elif isinstance(reply, Settled) and pending.confirms:
                reply = member.confirmed(reply, pending)
            return reply
        if isinstance(reply, LogChanged):
            raise LogChangedError(reply.text)
        if isinstance(reply, NotSub):
            raise NotSubscribedError(reply.text)
        raise TryLaterError(
            code=Busy.code, text="the proxy forgets this member again", attempts=SESSIONS_BEGUN_MAX
        )

    def _is_of_past(self, member: Membership) -> bool:
        return member.epoch != self._session.inbox.epoch

    def _join_again(self, member: Membership) -> Conversation[None]:
        """Be confirmed by the proxy; what was on its way was sent in vain."""
        if member.generation is not None:
            member.lose()
        yield from self.join(member, is_new=False)
