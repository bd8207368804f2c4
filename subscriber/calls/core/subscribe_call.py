"""The arguments of `subscribe`: which go together, and the conversation that they begin. Pure."""

from __future__ import annotations

from msgspec import Struct

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.dead_letter import check_may_die
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.message_base import (
    GroupTerms,
    OrderedBy,
    QoS,
    SessionKind,
    Start,
    Terms,
)
from reliable_pubsub.common.core.patterns.pattern import Pattern, Topics
from reliable_pubsub.common.core.start import Now, Position, at_offset

from ...core.subscribing import Asked, lease_ms_of
from ...groups.core.membership import JoinTerms
from ...patterns.core.pattern_subscribing import check_pattern
from ...patterns.core.pattern_subscription import AskedPattern, condition_of
from .engine import SubscriberEngine

GROUP_LEASE_MS = 30_000  # default
_FOR_PATTERNS = {"match", "where", "start", "qos", "session", "lease_s", "push", "max_deliveries"}
_FOR_GROUPS = {"topic", "group", "start", "lease_s", "max_deliveries", "ordered_by"}


class SubscribeCall(Struct, frozen=True):
    """The arguments of `Subscriber.subscribe`, as they were given."""

    topic: str | None = None
    match: Pattern | None = None
    where: str = ""
    start: Start | Position | None = None
    qos: QoS = 2
    session: SessionKind = "persistent"
    lease_s: float | None = None
    push: bool = False
    max_deliveries: int | None = None
    group: str | None = None
    ordered_by: OrderedBy | None = None

    def begin(self, engine: SubscriberEngine, *, remembers: bool) -> Conversation[int]:
        """Check what goes together; return the conversation that subscribes.

        Args:
            remembers: the state is on disk.

        Raises:
            UsageError: arguments that do not go together; the text names one.
            InvalidPatternError: the pattern or `where` cannot be read.
        """
        if self.max_deliveries is not None and self.group is None and not remembers:
            raise UsageError(
                "max_deliveries needs a state_dir: a process without one does not know how often "
                "a message was delivered before"
            )
        is_kept = self.group is None and self.session != "clean"
        if is_kept and names.is_unique_id(engine.session.client):
            raise UsageError(
                "a unique subscriber joins a group or begins a clean session: no other process "
                "would continue a persistent subscription, and its messages would be kept forever"
            )
        if self.match is not None or self.where or self.topic is None:
            return engine.match(*self._of_pattern(), push=self.push)
        topic = names.exact(self.topic)
        if self.max_deliveries is not None:
            check_may_die(topic)
        if self.group is not None:
            return engine.join(topic, self._of_group(self.group))
        if self.ordered_by is not None:
            raise UsageError("ordered_by is for groups: a plain subscription is always in order")
        return engine.subscribe(topic, self._of_topic(topic), push=self.push)

    def _not_for(self, possible: set[str]) -> str | None:
        """An argument that was given and is not one of these."""
        for name, default in zip(self.__struct_fields__, self.__struct_defaults__, strict=True):
            if name not in possible and getattr(self, name) != default:
                return name
        return None

    def _of_topic(self, topic: str) -> Asked:
        """A clean session begins with new messages, unless a start is given."""
        log, start = _log_and_start(topic, self.start)
        if self.session == "clean" and start is None:
            start = Now
        lease_ms = lease_ms_of(self.session, self.lease_s)
        return Asked(
            start=start,
            log=log,
            terms=Terms(qos=self.qos, session=self.session, lease_ms=lease_ms),
            max_deliveries=self.max_deliveries,
        )

    def _of_group(self, group: str) -> JoinTerms:
        names.client_id(group, kind="group")
        if (given := self._not_for(_FOR_GROUPS)) is not None:
            raise UsageError(f"a group has no {given}: subscribe without it, or without a group")
        if isinstance(self.start, Position):
            raise UsageError("a group begins at an offset, a time or an end, and not at a Position")
        terms = GroupTerms(
            lease_ms=GROUP_LEASE_MS if self.lease_s is None else round(self.lease_s * 1000),
            max_deliveries=self.max_deliveries or 0,
            ordered_by=self.ordered_by or "",
        )
        return JoinTerms(group=group, terms=terms, start=self.start)

    def _of_pattern(self) -> tuple[AskedPattern, Start | None]:
        if self.match is None:
            raise UsageError(
                "`where` goes with `match`: subscribe(match=glob(...), where=...)"
                if self.where
                else "subscribe needs the name of a topic, or match=glob(...)"
            )
        if (given := self._not_for(_FOR_PATTERNS)) is not None:
            raise UsageError(f"a subscription by pattern has no `{given}`; that is for one topic")
        start = _start_of_pattern(self.start)
        check_pattern(self.match)
        condition_of(self.where)
        asked = AskedPattern(
            pattern=self.match,
            where=self.where,
            terms=Terms(
                qos=self.qos,
                session=self.session,
                lease_ms=lease_ms_of(self.session, self.lease_s),
                by_pattern=True,
            ),
            max_deliveries=self.max_deliveries,
        )
        return asked, Now if self.session == "clean" and start is None else start


class SeekCall(Struct, frozen=True):
    """The arguments of `Subscriber.seek`, as given."""

    topic: Topics
    start: Start | Position

    def begin(self, engine: SubscriberEngine) -> Conversation[int]:
        """Check the start; return the conversation that moves the subscription.

        Raises:
            UsageError: the start is not one of this topic, or of no pattern.
        """
        if isinstance(self.topic, Pattern):
            start = _start_of_pattern(self.start)
            assert start is not None
            return engine.seek_all(self.topic, start)
        topic = names.exact(self.topic)
        log, start = _log_and_start(topic, self.start)
        assert start is not None
        return engine.seek(topic, start, log)


def _log_and_start(topic: str, start: Start | Position | None) -> tuple[str | None, Start | None]:
    """Return the log id of a position, and its offset as a start."""
    if not isinstance(start, Position):
        return None, start
    if start.topic != topic:
        raise UsageError(f"the position is one of {start.topic!r}, not of {topic!r}")
    return start.log, at_offset(start.offset)


def _start_of_pattern(start: Start | Position | None) -> Start | None:
    if isinstance(start, Position) or (start is not None and start.at == "offset"):
        raise UsageError("a pattern cannot start at an offset, because its topics differ")
    return start
