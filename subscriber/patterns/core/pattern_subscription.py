"""The state that a subscriber has for one pattern, besides its subscriptions. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import Struct

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.message_base import Terms
from reliable_pubsub.common.core.pattern_messages import RingPlace
from reliable_pubsub.common.core.patterns.pattern import Pattern
from reliable_pubsub.common.core.patterns.predicate import predicate
from reliable_pubsub.common.core.schemas import msgpack_decoder
from reliable_pubsub.common.core.undo import Undo

from ...core.pace import Pace
from ...core.restoring import Running
from ...core.subscription import AHEAD_MIN, Changes, TopicSubscription

if TYPE_CHECKING:
    from ...push.core.pattern_pushes import PatternPushes

PATTERN: Final = "pattern:"  # prefix of the names of rows
FETCHED_MAX: Final = 5_000  # messages of one FETCH, of all topics together
_encode = msgspec.msgpack.Encoder().encode
Condition = Callable[[Message], bool]


class AskedPattern(Struct, frozen=True, kw_only=True):
    """The arguments of `Subscriber.subscribe` with a pattern, as they are stored."""

    pattern: Pattern
    where: str = ""  # condition on the headers; "": any message
    terms: Terms = Terms()
    max_deliveries: int | None = None


_asked_pattern = msgpack_decoder(AskedPattern).decode


class RunPart(NamedTuple):
    """What one topic has in a run."""

    subscription: TopicSubscription
    run: Running


class PatternSubscription:
    """A pattern, and the subscriptions whose messages are next."""

    def __init__(self, asked: AskedPattern) -> None:
        self.pushes: PatternPushes | None = None  # None: push is off
        self.ring: RingPlace | None = None  # the next place at QoS 0; None: not known yet
        self.is_ring_missing = False  # something from there on was not pushed
        self.parts: list[RunPart] = []  # of the last run of a loop
        self.current: TopicSubscription | None = None  # whose messages were delivered last
        self.moved: dict[str, TopicSubscription] = {}  # whose cursors the proxy may not know
        self.reload(asked, Undo())

    def reload(self, asked: AskedPattern, undo: Undo) -> None:
        """Reset to the stored state; the subscriptions are already reset.

        Args:
            undo: has the subscription that was current, if the interrupted call has changed it.
        """
        self.ask(asked)
        self.slot: int | None = None  # of that run; two take turns
        self.pace = Pace(AHEAD_MIN, FETCHED_MAX)
        self.ready: deque[TopicSubscription] = deque()  # those with messages, perhaps
        self.boot = ""  # of the proxy that answered last
        known = [undo.before.get(self), self.current, *(each for each, _ in self.parts)]
        self.current = next((one for one in known if one is not None and not one.is_idle), None)
        self.parts = []
        self.drop_ended()

    def ask(self, asked: AskedPattern) -> None:
        """Continue with these arguments."""
        self.asked = asked
        self.fulfils: Condition | None = None  # of what a loop takes; None: all is for the program
        self.matches = condition_of(asked.where)

    @property
    def pattern(self) -> Pattern:
        return self.asked.pattern

    @property
    def is_clean(self) -> bool:
        """Whether its session is clean, so that it ends with its process or its lease."""
        return self.asked.terms.session == "clean"

    @property
    def has_moved(self) -> bool:
        """Whether the proxy does not know the cursor of some topic."""
        return any(each.is_to_be_told(ahead=False) for each in self.moved.values())

    def row(self, *, ends: bool = False) -> Changes:
        """What is stored of it."""
        name = f"{PATTERN}{self.pattern.kind}:{self.pattern.text}"
        return {name: None if ends else _encode(self.asked)}

    def unwritten(self, known: Mapping[str, TopicSubscription]) -> dict[str, TopicSubscription]:
        """What is not written as it is; before the first run also what other processes took.

        Args:
            known: all subscriptions.
        """
        some = self.moved
        if self.slot is None:
            some = {
                topic: each for topic, each in known.items() if each.run_slot is not None
            } | some
        return {topic: each for topic, each in some.items() if each.place is not each.saved}

    def pushed_unstored(self, boot: str, number: int) -> None:
        """Note a QoS 0 push; the next FETCH reads after it, unless one is missing."""
        ring = self.ring
        if ring is not None and ring.boot == boot and not self.is_ring_missing:
            self.ring = RingPlace(boot, max(number, ring.number))

    def fetched_unstored(self, boot: str, number: int) -> None:
        """Note that a FETCH returned the QoS 0 messages below a place."""
        self.ring, self.is_ring_missing = RingPlace(boot, number), False

    def keep_taken(self, *, was_received: bool) -> None:
        """See `TopicSubscription.keep_taken`."""
        for each in [one for one, _ in self.parts] or filter(None, [self.current]):
            each.keep_taken(was_received=was_received)

    def keep_none(self) -> None:
        """See `TopicSubscription.keep_none`."""
        if self.current is not None:
            self.current.keep_none()

    def end_loop(self, last: Message | None, *, is_kept: bool) -> None:
        """See `TopicSubscription.end_loop`."""
        if self.current is not None:
            self.current.end_loop(last, is_kept=is_kept)

    def end_run(self) -> None:
        """Settle the messages that a loop took, except the last, which is in hand."""
        for each, _ in self.parts:
            each.end_run()
            if each.in_hand is not None:
                self.current = each
        self.parts = []

    def drop_ended(self) -> None:
        """Forget the subscriptions that have ended."""
        if self.current is not None and not self.current.is_subscribed:
            self.current = None
        self.moved = {topic: each for topic, each in self.moved.items() if each.is_subscribed}
        self.ready = deque(each for each in self.ready if each.is_subscribed)

    @property
    def has_next(self) -> bool:
        """Whether a message can be delivered."""
        return self.next() is not None

    def next(self) -> TopicSubscription | None:
        """The subscription whose messages are next."""
        while self.ready:
            if self.ready[0].has_next:
                return self.ready[0]
            self.ready.popleft()
        return None


def load_patterns(
    stored: Mapping[str, bytes], known: Mapping[Pattern, PatternSubscription], undo: Undo
) -> dict[Pattern, PatternSubscription]:
    """Return the patterns of the state; what is known of them is reset to it."""
    patterns: dict[Pattern, PatternSubscription] = {}
    for name, value in stored.items():
        if name.startswith(PATTERN):
            asked = _asked_pattern(value)
            patterns[asked.pattern] = known.get(asked.pattern) or PatternSubscription(asked)
            patterns[asked.pattern].reload(asked, undo)
    return patterns


def condition_of(where: str) -> Condition | None:
    """The test of a condition on headers.

    Raises:
        InvalidPatternError: it cannot be read.
    """
    if not where:
        return None
    condition = predicate(where)
    return lambda message: condition.matches(message.headers)
