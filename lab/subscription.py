"""The subscriptions of one subscriber to one topic, one after another. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from reliable_pubsub.common.history import Failed, Invoke, Ok

NEVER: Final = 2**63 - 1  # a time that does not come

# Number of the life, whether it remembers, and its line: an `ok` of get, subscribe, record or
# acknowledge, or a `failed` that tells a loss.
Happening = tuple[int, bool, Ok | Failed]


@dataclass(slots=True)
class Subscription:
    """From a subscribe to its unsubscribe; to subscribe again in between is to resume it."""

    start: int
    generation: int = 0
    opened: Ok | None = None  # None: the history begins behind it
    called_ns: int = NEVER  # when it was asked for, for the first time
    asked: str = ""  # where it was to begin, in the words of a step file; "" if not said
    qos: int = 2
    moved: bool = False  # the subscriber chose another place itself: rewind, adopt
    happenings: list[Happening] = field(default_factory=list)
    handed_end: int = 0  # behind the highest offset handed over or told as lost
    recorded_end: int = 0  # the highest cursor that was recorded together with an output
    confirmed: int = 0  # the highest cursor that the proxy has durably, by its own word
    has_gets: bool = False
    told: list[tuple[int, int]] = field(default_factory=list)  # lost: first, end
    leaving: bool = False  # an unsubscribe was begun
    ended_ns: int = NEVER  # and came to its end

    def __post_init__(self) -> None:
        """Everything begins at the subscription point."""
        self.handed_end = self.recorded_end = self.confirmed = self.start

    @property
    def ended(self) -> bool:
        """Whether it was left."""
        return self.ended_ns != NEVER

    def past_losses(self, position: int) -> int:
        """The offset that can come next at the earliest, if every loss told there is passed."""
        for first, end in sorted(self.told):
            if first <= position < end:
                position = end
        return position

    def jump_is_told(self, position: int, offset: int) -> bool:
        """Whether everything from `position` up to `offset` was reported as lost, exactly."""
        while position < offset:
            ends = [end for first, end in self.told if first <= position < end <= offset]
            if not ends:
                return False
            position = max(ends)
        return position == offset


@dataclass(slots=True)
class Stream:
    """Everything between a subscriber and a topic, in the order of its history."""

    subscriber: str
    topic: str
    subscriptions: list[Subscription] = field(default_factory=list)
    late: list[Ok] = field(default_factory=list)  # handed over while there was no subscription
    ignored: int = 0  # what superseded lives showed
    _raw: list[tuple[int, bool, Invoke | Ok | Failed, bool]] = field(default_factory=list)

    def invoked(self, line: Invoke, *, moved: bool) -> None:
        """A subscribe or an unsubscribe begins; `moved`: it asks for another place than before."""
        self._raw.append((0, True, line, moved))

    def add(self, life: int, remembers: bool, line: Ok | Failed) -> None:
        """Something came of it."""
        self._raw.append((life, remembers, line, False))

    @property
    def current(self) -> Subscription | None:
        """The last one."""
        return self.subscriptions[-1] if self.subscriptions else None

    def arrange(self, superseded_ns: Mapping[int, int]) -> None:
        """Everything was added; sort it into subscriptions.

        Args:
            superseded_ns: by number of life; what a life shows from then on is left out.
        """
        called_ns = NEVER
        moved = pending = False
        asked = ""
        for life, remembers, line, asks_anew in self._raw:
            if isinstance(line, Invoke):
                if line.op == "subscribe":
                    if line.start and not pending:
                        called_ns = NEVER  # it asks for a place of its own
                    called_ns = min(called_ns, line.at_ns)
                    pending = True
                    moved = moved or asks_anew
                    asked = line.start
                elif self.current is not None:
                    self.current.leaving = True
            elif line.at_ns >= superseded_ns[life]:
                self.ignored += line.op == "get"
            elif isinstance(line, Ok) and line.op == "subscribe":
                self._subscribed(life, remembers, line, called_ns, asked, moved=moved)
                moved = pending = False
            elif isinstance(line, Ok) and line.op == "unsubscribe":
                if self.current is not None and not self.current.ended:
                    self.current.ended_ns = line.at_ns
                called_ns = NEVER
            else:
                self._happened(life, remembers, line)
        self._raw.clear()

    def _subscribed(
        self, life: int, remembers: bool, line: Ok, called_ns: int, asked: str, *, moved: bool
    ) -> None:
        current = self.current
        cursor = line.cursor or 0
        anew = current is None or current.leaving or current.ended or moved
        if current is not None and current.opened is not None and line.log:
            anew = anew or line.log != current.opened.log
        if anew or asked not in ("", "last"):
            was_here = current is not None and not current.ended
            self.subscriptions.append(
                Subscription(
                    cursor,
                    line.generation,
                    line,
                    called_ns,
                    asked,
                    line.qos,
                    moved=moved and was_here,
                )
            )
            return
        assert current is not None
        current.happenings.append((life, remembers, line))
        current.confirmed = max(current.confirmed, cursor)

    def _happened(self, life: int, remembers: bool, line: Ok | Failed) -> None:
        current = self.current
        if current is not None and current.ended:
            if isinstance(line, Ok) and line.messages:
                self.late.append(line)
            return
        if isinstance(line, Failed):
            if current is None:
                current = self._begun_before(line.first)
            current.told.append((line.first, line.end))
            current.handed_end = max(current.handed_end, line.end)
        elif line.op == "get":
            if not line.messages:
                return
            if current is None:
                current = self._begun_before(line.messages[0].offset)
            current.has_gets = True
            current.handed_end = max(current.handed_end, line.messages[-1].offset + 1)
        elif current is None or line.cursor is None:
            return
        elif line.op == "record":
            current.recorded_end = max(current.recorded_end, line.cursor)
        else:
            current.confirmed = max(current.confirmed, line.cursor)
        current.happenings.append((life, remembers, line))

    def _begun_before(self, start: int) -> Subscription:
        self.subscriptions.append(Subscription(start))
        return self.subscriptions[-1]
