"""What a feature adds to a subscriber: one value, which the list in `features.py` names. Pure.

The engine asks the features in the order of that list, and knows no other way to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from msgspec import Struct

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.message_base import Terms
from reliable_pubsub.common.core.patterns.pattern import Topics
from reliable_pubsub.common.core.settings import Settings

from .delivering import Source
from .push_timing import PushTiming
from .subscribe_call import SeekCall, SubscribeCall

Origin = tuple[Source[Any], Any]  # a source of messages, and its state of one topic or pattern


class Opening(Struct, frozen=True, kw_only=True):
    """How a subscriber was opened."""

    client: str
    endpoint: str
    settings: Settings
    push_timing: PushTiming | None = None
    connect_data: Callable[[str], Any] | None = None  # a link for data; None: over ZeroMQ


class SubscriberFeature:
    """What one feature does in the calls of a subscriber; here each method does nothing.

    Where a method may return None, that means: this feature has no part in the call.
    """

    name: ClassVar[str]

    def load(self, stored: Mapping[str, bytes]) -> None:
        """Reset to the stored state; the subscriptions are already reset."""

    def begin_again(self) -> None:
        """Continue after an interrupted call, once every feature is reset."""

    def close(self) -> None:
        """End its links."""

    def source(self, topic: Topics) -> Origin | None:
        """Return where the messages of a topic come from."""
        return None

    # Subscriptions.

    def subscribe(self, call: SubscribeCall) -> Conversation[int] | None:
        """Begin or resume a subscription; return its cursor, or a number of topics."""
        return None

    def check_plain(self, topic: str, what: str) -> None:
        """Refuse a plain subscription to a topic.

        Args:
            what: "subscribe" or "seek".

        Raises:
            UsageError: the topic is read in another way.
        """

    def joined(self, topic: str, terms: Terms) -> Terms:
        """Return the terms of a subscription, with what this feature needs of it."""
        return terms

    def seek(self, call: SeekCall) -> Conversation[int] | None:
        """Move a subscription."""
        return None

    def unsubscribe(self, topic: Topics, *, ends_group: bool) -> Conversation[None] | None:
        """End a subscription."""
        return None

    def check_push(self, topic: Topics, push: bool) -> None:
        """Refuse to switch push on or off."""

    def set_push(self, topic: Topics, push: bool) -> None:
        """Switch push on or off."""

    def is_pushed(self, topic: Topics) -> bool:
        """Return whether push is on."""
        return False

    # Messages.

    def record(self, topic: Topics, note: bytes) -> Conversation[None] | None:
        """Write a note for a topic that has no source."""
        return None

    def reject(self, message: Message, reason: str) -> Conversation[int] | None:
        """Make a dead letter of a message in hand."""
        return None

    def keep(self, message: Message | None) -> None:
        """Until `reject` or `nack` is done, do not count a message as processed; None: all."""

    def keep_alive(self) -> Conversation[None]:
        """Renew its leases."""
        yield from ()

    def is_member(self, topic: Topics, group: str | None = None) -> bool:
        """Return whether other clients may get what is given back of a topic."""
        return False

    def fail(self, message: Message, pause_s: float | None, reason: str) -> Conversation[None]:
        """Give back a message whose handler has failed, or make a dead letter of it.

        Args:
            pause_s: before it is redelivered to any member; None: it has used up its retries.
        """
        yield from ()

    # The end.

    @property
    def has_members(self) -> bool:
        """Return whether the proxy would otherwise wait for the end of a lease."""
        return False

    def leave(self, *, fails: bool) -> Conversation[None]:
        """Settle what is in hand, or give it back if `fails`."""
        yield from ()

    def has_clean(self) -> bool:
        """Return whether a session of its own ends with BYE."""
        return False

    def said_bye(self) -> Conversation[None]:
        """Forget the sessions that BYE has ended."""
        yield from ()
