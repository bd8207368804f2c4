"""The arguments of `subscribe` and `seek`: what they mean for a single topic. Pure."""

from __future__ import annotations

from msgspec import Struct

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.dead_letter import check_may_die
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.message_base import OrderedBy, QoS, SessionKind, Start, Terms
from reliable_pubsub.common.core.patterns.pattern import Pattern, Topics
from reliable_pubsub.common.core.start import Now, Position, at_offset

from .subscribing import Asked, lease_ms_of


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

    def check(self, client: str, *, remembers: bool) -> None:
        """Refuse what no kind of subscription of this client allows.

        Args:
            remembers: the state is on disk.

        Raises:
            UsageError: arguments that do not go together; the text names one.
        """
        if self.max_deliveries is not None and self.group is None and not remembers:
            raise UsageError(
                "max_deliveries needs a state_dir: a process without one does not know how often "
                "a message was delivered before"
            )
        is_kept = self.group is None and self.session != "clean"
        if is_kept and names.is_unique_id(client):
            raise UsageError(
                "a unique subscriber joins a group or begins a clean session: no other process "
                "would continue a persistent subscription, and its messages would be kept forever"
            )

    def exact_topic(self) -> str:
        """The topic of a plain subscription or a group.

        Raises:
            UsageError: there is none. InvalidNameError.
        """
        if self.topic is None:
            raise UsageError("subscribe needs the name of a topic, or match=glob(...)")
        topic = names.exact(self.topic)
        if self.max_deliveries is not None:
            check_may_die(topic)
        return topic

    def given_except(self, possible: set[str]) -> str | None:
        """An argument that was given and is not one of these."""
        for name, default in zip(self.__struct_fields__, self.__struct_defaults__, strict=True):
            if name not in possible and getattr(self, name) != default:
                return name
        return None

    def of_topic(self, topic: str) -> Asked:
        """The terms of a plain subscription; a clean session begins with new messages by default.

        Raises:
            UsageError: an argument is not for a plain subscription.
        """
        if self.group is not None or self.match is not None or self.where:
            raise UsageError("this subscriber runs without groups and patterns: give only a topic")
        if self.ordered_by is not None:
            raise UsageError("ordered_by is for groups: a plain subscription is always in order")
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


class SeekCall(Struct, frozen=True):
    """The arguments of `Subscriber.seek`, as given."""

    topic: Topics
    start: Start | Position

    def of_topic(self) -> tuple[str, str | None, Start]:
        """The topic, the log id of the start if it is known, and the start.

        Raises:
            UsageError: the start is of another topic. InvalidNameError.
        """
        topic = names.exact(plain(self.topic))
        log, start = _log_and_start(topic, self.start)
        assert start is not None
        return topic, log, start


def _log_and_start(topic: str, start: Start | Position | None) -> tuple[str | None, Start | None]:
    """Return the log id of a position, and its offset as a start."""
    if not isinstance(start, Position):
        return None, start
    if start.topic != topic:
        raise UsageError(f"the position is one of {start.topic!r}, not of {topic!r}")
    return start.log, at_offset(start.offset)


def plain(topic: Topics) -> str:
    """Accept a topic.

    Raises:
        UsageError: it is a pattern, and this subscriber runs without them.
    """
    if isinstance(topic, Pattern):
        raise UsageError(f"this subscriber runs without patterns: give a topic, not {topic}")
    return topic
