"""The subscriptions of one subscriber to one topic, one after another. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from reliable_pubsub.common.core.journal import Failed, Invoke, Ok, Seen

NEVER: Final = 2**63 - 1  # a time that does not come

# Number of the life, whether it remembers, and its line: an `ok` of get, subscribe, record or
# acknowledge, or a `failed` of a get, which tells a loss, or of a reject, whose letter was refused.
Happening = tuple[int, bool, Ok | Failed]


@dataclass(slots=True)
class SubscriptionSpan:
    """From a subscribe to its unsubscribe; to subscribe again in between is to resume it."""

    start: int
    generation: int = 0  # by the last subscribe; 0: not known
    opened: Ok | None = None  # None: the journal begins after it
    called_ns: int = NEVER  # when it was asked for, for the first time
    asked: str = ""  # where it was to begin, in the words of a step file; "" if not said
    sought: bool = False  # there even if a subscription existed, or that was acknowledged
    brought: int = 0  # the place that its subscriber remembered; 0: none
    qos: int = 2
    moved: bool = False  # the subscriber chose another place itself: rewind, adopt
    adopted: bool = False  # the place of a proxy that seemed to know of more than it has done
    by_operator: bool = False  # an operator has moved it
    in_doubt: bool = False  # an earlier subscribe without an answer may have begun it
    resumed: bool = False  # what began it is in doubt, or was done by a life that is left out
    happenings: list[Happening] = field(default_factory=list)
    handed_end: int = 0  # after the highest offset handed over or reported lost
    recorded_end: int = 0  # the highest cursor that was recorded together with an output
    confirmed: int = 0  # the highest cursor that the proxy has durably, by its own word
    has_gets: bool = False
    reported: list[tuple[int, int]] = field(default_factory=list)  # lost or given up: first, end
    leaving: bool = False  # an unsubscribe was begun; its outcome is unknown
    ended_ns: int = NEVER  # and came to its end
    _given: frozenset[tuple[int, int]] | None = None  # offset and time of all that was handed over

    def __post_init__(self) -> None:
        """Everything begins at the subscription point."""
        self.handed_end = self.recorded_end = self.confirmed = self.start

    @property
    def ended(self) -> bool:
        return self.ended_ns != NEVER

    @property
    def tells_what_it_recorded(self) -> bool:
        """Whether `recorded_end` is all of it: a life that was killed may not have said the last.

        After the last hand-over comes a record, or a later life, that says where it is.
        """
        confirmed_by = 0  # a life
        for life, _, line in reversed(self.happenings):
            if not isinstance(line, Ok):
                continue
            if line.op == "subscribe":
                confirmed_by = confirmed_by or life
            elif line.op == "record":
                return True
            elif line.op == "get":
                return confirmed_by not in (0, life)
        return False

    def given(self) -> Iterator[Seen]:
        """All that was handed over, in order."""
        for _, _, line in self.happenings:
            if isinstance(line, Ok):
                yield from line.messages

    def gave(self, message: Seen) -> bool:
        """Whether this very message was handed over and not given up; logs differ in times."""
        if self._given is None:
            self._given = frozenset(
                (one.offset, one.timestamp_ns)
                for one in self.given()
                if not any(first <= one.offset < end for first, end in self.reported)
            )
        return (message.offset, message.timestamp_ns) in self._given

    def past_losses(self, position: int) -> int:
        """The offset that can come next at the earliest, after every loss reported there."""
        for first, end in sorted(self.reported):
            if first <= position < end:
                position = end
        return position

    def jump_is_told(self, position: int, offset: int) -> bool:
        """Whether everything from `position` up to `offset` was reported as lost, exactly."""
        while position < offset:
            ends = [end for first, end in self.reported if first <= position < end <= offset]
            if not ends:
                return False
            position = max(ends)
        return position == offset


@dataclass(slots=True)
class _Request:
    """The subscribe that is under way."""

    called_ns: int = NEVER  # when it was asked for, for the first time
    at_ns: int = 0  # and for the last time
    place: int | None = None  # that the subscriber remembers, and brings
    life: int = 0  # of the process that asked last
    moved: bool = False  # it leaves it
    start: str = ""  # where it asks to begin; "" if it does not say
    seeks: bool = False  # even if the subscription exists
    pending: bool = False  # it was sent, and did not come to its end yet
    in_doubt: bool = False  # an earlier one of unknown outcome may have left the place
    begun_again: bool = False  # an unanswered earlier one may have begun another subscription


@dataclass(slots=True)
class SubscriberStream:
    """Everything between a subscriber and a topic, in the order of its journal."""

    subscriber: str
    topic: str
    subscriptions: list[SubscriptionSpan] = field(default_factory=list)
    late: list[Ok] = field(default_factory=list)  # handed over while there was no subscription
    ignored: int = 0  # what superseded lives showed
    _confirmed_ns: int = 0  # when the last subscribe that came to its end was sent
    _rollbacks_ns: Sequence[int] = ()
    _moves: Mapping[int, int] = field(default_factory=dict)
    _raw: list[tuple[int, bool, Invoke | Ok | Failed, bool]] = field(default_factory=list)

    def invoked(self, life: int, remembers: bool, line: Invoke, *, moved: bool) -> None:
        """A subscribe or an unsubscribe begins; `moved`: it asks for another place than before."""
        self._raw.append((life, remembers, line, moved))

    def add(self, life: int, remembers: bool, line: Ok | Failed) -> None:
        """Something came of it."""
        self._raw.append((life, remembers, line, False))

    @property
    def current(self) -> SubscriptionSpan | None:
        """The last one."""
        return self.subscriptions[-1] if self.subscriptions else None

    def arrange(
        self,
        superseded_ns: Mapping[int, int],
        rollbacks_ns: Sequence[int],
        moves: Mapping[int, int],
    ) -> None:
        """Everything was added; sort it into subscriptions.

        Args:
            superseded_ns: by number of life; what a life shows from then on is left out.
            rollbacks_ns: when the proxy was set back; then generations are given a second time.
            moves: where operators have moved it, by the generations that this made.
        """
        self._moves = moves
        self._rollbacks_ns = rollbacks_ns
        request = _Request()
        for life, remembers, line, moved in self._raw:
            if isinstance(line, Invoke):
                if life != request.life and not remembers:
                    request.moved = False  # it does not know what the life before it asked for
                request.life = life
                counts = line.at_ns < superseded_ns[life]
                self._requested(request, line, moved=moved, counts=counts)
            elif line.at_ns >= superseded_ns[life]:
                self.ignored += isinstance(line, Ok) and line.op == "get"
            elif isinstance(line, Ok) and line.op == "subscribe":
                self._subscribed(life, remembers, line, request)
                request.moved = request.pending = False
            elif isinstance(line, Ok) and line.op == "unsubscribe":
                if self.current is not None and not self.current.ended:
                    self.current.ended_ns = line.at_ns
                request.called_ns = NEVER
            else:
                self._happened(life, remembers, line)
        self._raw.clear()

    def _requested(self, request: _Request, line: Invoke, *, moved: bool, counts: bool) -> None:
        """A subscribe or an unsubscribe began; one of a superseded life may still arrive."""
        if line.op == "subscribe":
            if line.start and not request.pending:
                request.called_ns = NEVER  # it asks for a place of its own
            leaves = line.start not in ("", "last")
            before = request.pending and request.start not in ("", "last", line.start)
            request.in_doubt = request.in_doubt or before or (leaves and not counts)
            begins = request.place is None or request.start not in ("", "last")
            request.begun_again = request.begun_again or (request.pending and begins)
            request.pending = True
            request.called_ns = min(request.called_ns, line.at_ns)
            if counts:
                request.at_ns = line.at_ns
                request.place = line.cursor
                request.moved = request.moved or moved
                request.start, request.seeks = line.start, line.seeks
        elif counts and self.current is not None:
            self.current.leaving = True

    def _subscribed(self, life: int, remembers: bool, line: Ok, request: _Request) -> None:
        """A subscribe was answered: a new subscription, or one that resumes.

        A client that brings its place resumes, also where the proxy rebuilt the subscription.
        One that brings none resumes if the proxy still has the subscription (its generation shows).
        """
        current = self.current
        adopted = self._is_adopted(line, request)
        begun_again = (
            request.begun_again and current is not None and line.generation != current.generation
        )
        if (
            current is None
            or current.ended
            or request.moved
            or adopted
            or begun_again
            or self._is_set_by_operator(current, line, request)
            or (request.start not in ("", "last") and not self._resumes(current, line, request))
            or self._is_another(current, line, request)
        ):
            continues = current is not None and not current.ended
            self.subscriptions.append(
                SubscriptionSpan(
                    line.cursor or 0,
                    line.generation,
                    line,
                    request.called_ns,
                    request.start,
                    sought=request.seeks and request.place is None,
                    brought=request.place or 0,
                    qos=line.qos,
                    moved=continues and (request.moved or adopted),
                    adopted=continues and adopted,
                    by_operator=self._is_first_of_move(current, line)
                    or self._has_move_ahead(current, line),
                    in_doubt=request.in_doubt or begun_again,
                    resumed=request.in_doubt
                    or begun_again
                    or (current is None and request.place is not None),
                )
            )
        else:
            current.leaving = False
            current.generation = line.generation
            current.happenings.append((life, remembers, line))
            current.confirmed = max(current.confirmed, line.cursor or 0)
        self._confirmed_ns = request.at_ns
        request.in_doubt = request.begun_again = False

    def _resumes(self, current: SubscriptionSpan, line: Ok, request: _Request) -> bool:
        """Return whether a start had no effect, because the subscription existed (rule R33)."""
        return not request.seeks and line.generation == current.generation

    def _is_first_of_move(self, current: SubscriptionSpan | None, line: Ok) -> bool:
        """Whether an operator has moved the subscription since its last subscribe."""
        known = current.generation if current is not None else 0
        return line.generation != known and line.generation in self._moves

    def _has_move_ahead(self, current: SubscriptionSpan | None, line: Ok) -> bool:
        """Whether an operator's place still counts: the subscriber has not gone past it yet."""
        place = self._moves.get(line.generation)
        return current is not None and place is not None and current.handed_end <= place

    def _is_set_by_operator(self, current: SubscriptionSpan, line: Ok, request: _Request) -> bool:
        """Whether it continues where an operator put it, and not at its own place."""
        if line.cursor is None or line.cursor != self._moves.get(line.generation):
            return False
        # A process without a state does not ask for a loss that an earlier one was not yet sent.
        forgets = request.place is None and current.confirmed < line.cursor
        return forgets or self._is_first_of_move(current, line)

    def _is_another(self, current: SubscriptionSpan, line: Ok, request: _Request) -> bool:
        if current.opened is None:
            return False
        if line.log and line.log != current.opened.log:
            return True
        if request.place is not None:
            return False
        # A proxy that was set back gives generations a second time.
        return self._is_set_back(line) or line.generation != current.generation

    def _is_set_back(self, line: Ok) -> bool:
        """Whether the proxy was set back since the last subscribe, before this one."""
        return any(self._confirmed_ns < at_ns < line.at_ns for at_ns in self._rollbacks_ns)

    def _is_adopted(self, line: Ok, request: _Request) -> bool:
        """Whether the subscriber took a place of a set-back proxy that lies above its own."""
        place = request.place
        is_above = place is not None and line.cursor is not None and line.cursor > place
        return is_above and not request.moved and self._is_set_back(line)

    def _happened(self, life: int, remembers: bool, line: Ok | Failed) -> None:
        current = self.current
        if current is not None and current.ended:
            if isinstance(line, Ok) and line.messages:
                self.late.append(line)
            return
        if isinstance(line, Failed):
            current = current or self._begun_before(line.first)
            if line.op == "get":
                current.reported.append((line.first, line.end))
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
        elif line.op == "reject":
            current.confirmed = max(current.confirmed, line.cursor)
            current.handed_end = max(current.handed_end, line.cursor)
            current.reported.append((line.cursor - 1, line.cursor))
        elif line.op == "record":
            current.recorded_end = max(current.recorded_end, line.cursor)
        else:
            current.confirmed = max(current.confirmed, line.cursor)
        current.happenings.append((life, remembers, line))

    def _begun_before(self, start: int) -> SubscriptionSpan:
        self.subscriptions.append(SubscriptionSpan(start))
        return self.subscriptions[-1]
