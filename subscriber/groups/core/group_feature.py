"""Groups in the calls of a subscriber: join, leave, settle single messages. Pure."""

from __future__ import annotations

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.group_messages import How
from reliable_pubsub.common.core.message_base import GroupTerms
from reliable_pubsub.common.core.patterns.pattern import Topics
from reliable_pubsub.common.core.start import Position

from ...core.engine import SubscriberEngine
from ...core.feature import Opening, Origin, SubscriberFeature
from ...core.subscribe_call import SubscribeCall
from .groups import Groups
from .membership import JoinTerms

GROUP_LEASE_MS = 30_000  # default
_ARGUMENTS = {"topic", "group", "start", "lease_s", "max_deliveries", "ordered_by"}


class GroupFeature(SubscriberFeature):
    """The memberships of a subscriber."""

    name = "groups"

    def __init__(self, engine: SubscriberEngine, _opening: Opening) -> None:
        self._inbox = engine.session.inbox
        on_log_changed = engine.subscribing.on_log_changed
        self.groups = Groups(engine.session, on_log_changed=on_log_changed, now_s=engine.now_s)
        self._members = self.groups.members
        self._engine = engine

    def begin_again(self) -> None:
        self.groups.begin_again()

    def source(self, topic: Topics) -> Origin | None:
        member = self._members.get(topic)  # type: ignore[arg-type]  # a pattern is not in it
        return None if member is None else (self.groups, member)

    def subscribe(self, call: SubscribeCall) -> Conversation[int] | None:
        if call.group is None or call.topic is None or call.match is not None or call.where:
            return None
        topic = call.exact_topic()
        asked = _join_terms(call, call.group)
        if self._inbox.of(topic).is_subscribed:
            raise UsageError(f"topic {topic!r} has a plain subscription here; unsubscribe first")
        return self.groups.join(topic, asked)

    def check_plain(self, topic: str, what: str) -> None:
        if topic in self._members and what == "seek":
            raise UsageError(
                f"topic {topic!r}: a group cannot be moved, because its messages end in any order; "
                "end it (ends_group), and subscribe again with the `start` you want"
            )
        if topic in self._members:
            raise UsageError(f"topic {topic!r}: a member of a group; unsubscribe first")

    def unsubscribe(self, topic: Topics, *, ends_group: bool) -> Conversation[None] | None:
        if not isinstance(topic, str) or (topic := names.exact(topic)) not in self._members:
            return None
        return self.groups.leave(topic, ends_group=ends_group)

    def check_push(self, topic: Topics, push: bool) -> None:
        if isinstance(topic, str) and names.exact(topic) in self._members and push:
            raise UsageError(f"topic {topic!r}: the messages of a group are not pushed")

    def reject(self, message: Message, reason: str) -> Conversation[int] | None:
        member = self._members.get(message.topic)
        subscription = self._inbox.of(message.topic)
        is_held = subscription.letter is not None or subscription.has_in_hand(message)
        # A pattern may have the topic of a group, too.
        if member is None or (message.offset not in member.in_hand and is_held):
            return None
        return self.groups.reject(message, reason)

    def keep(self, message: Message | None) -> None:
        if message is None:
            self.groups.keep_all()
        else:
            self.groups.keep(message)

    def settle_one(self, message: Message, how: How, delay_ms: int = 0) -> Conversation[None]:
        """Settle a message in hand durably, or extend its lease; see `Groups.settle_one`."""
        if how == "nack":
            self._engine.keep(message)
        yield from self.groups.settle_one(message, how, delay_ms)

    def keep_alive(self) -> Conversation[None]:
        return self.groups.keep_alive()

    def is_member(self, topic: Topics, group: str | None = None) -> bool:
        if not isinstance(topic, str) or topic not in self._members:
            return False
        return group is None or self.groups.is_in(topic, group)

    def fail(self, message: Message, pause_s: float | None, reason: str) -> Conversation[None]:
        return self.groups.fail(message, pause_s, reason)

    @property
    def has_members(self) -> bool:
        return bool(self._members)

    def leave(self, *, fails: bool) -> Conversation[None]:
        return self.groups.leave_all(fails=fails)


def _join_terms(call: SubscribeCall, group: str) -> JoinTerms:
    """The terms of a membership.

    Raises:
        UsageError: an argument is not for groups. InvalidNameError.
    """
    names.client_id(group, kind="group")
    if (given := call.given_except(_ARGUMENTS)) is not None:
        raise UsageError(f"a group has no {given}: subscribe without it, or without a group")
    if isinstance(call.start, Position):
        raise UsageError("a group begins at an offset, a time or an end, and not at a Position")
    terms = GroupTerms(
        lease_ms=GROUP_LEASE_MS if call.lease_s is None else round(call.lease_s * 1000),
        max_deliveries=call.max_deliveries or 0,
        ordered_by=call.ordered_by or "",
    )
    return JoinTerms(group=group, terms=terms, start=call.start)
