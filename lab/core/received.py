"""What a subscriber has of a topic: by its output, or by what was handed over. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from reliable_pubsub.common.core.journal import Failed, Seen

from .finding import Finding, as_range
from .run_index import RunIndex
from .subscription import NEVER, SubscriberStream, SubscriptionSpan
from .verdict import key_of


@dataclass(slots=True)
class ReceivedMessages:
    """What a subscriber has of a topic, by its output, or by what was handed over."""

    stream: SubscriberStream
    position: int | None = None  # what is to come next; None: it received nothing
    skipped: list[tuple[int, int]] = field(default_factory=list)  # without a report: first, end
    count: int = 0
    late: list[Seen] = field(default_factory=list)  # in the output, never given: V9


class OutputReader:
    """Follows the lines of an output through the subscriptions that they belong to."""

    def __init__(self, index: RunIndex, stream: SubscriberStream, finding: Finding) -> None:
        self._run = index
        self._stream = stream
        self._finding = finding
        self._received = ReceivedMessages(stream)
        self._subscriptions = stream.subscriptions
        self._index = -1  # before the first subscription
        self._position = -1
        self._times: Counter[int] = Counter()  # how often an offset is still to come

    def read(self, lines: Sequence[Seen]) -> ReceivedMessages:
        received = self._received
        received.count = len(lines)
        if not self._subscriptions and lines:  # its journal is not here
            self._subscriptions = [SubscriptionSpan(lines[0].offset)]
        # A subscription that was left, or that another one followed, has no lines from here on.
        has_gets = any(subscription.has_gets for subscription in self._subscriptions)
        last = len(self._subscriptions) - 1
        ends = [
            subscription.handed_end if has_gets and (subscription.ended or n < last) else NEVER
            for n, subscription in enumerate(self._subscriptions)
        ]
        self._times = Counter(line.offset for line in lines)  # that are still to come
        for line in lines:
            offset = line.offset
            self._times[offset] -= 1
            follows = offset == self._position and offset < ends[self._index]
            if not follows or self._is_of_a_later(line):
                self._turn(line, ends)
            self._position = offset + 1
        self._continue_with(len(self._subscriptions))
        received.position = self._position if self._subscriptions else None
        return received

    def _is_of_a_later(self, line: Seen) -> bool:
        """Whether it follows, and is not what followed before: that was cut off, unrecorded."""
        if self._index < 0:
            return False
        current, *others = self._subscriptions[self._index :]
        later = next((one for one in others if one.start <= line.offset and one.gave(line)), None)
        if later is None:
            return False
        begins = later.jump_is_told(later.start, line.offset)
        return not current.gave(line) or (begins and self._was_cut_off(line, current))

    def _was_cut_off(self, line: Seen, subscription: SubscriptionSpan) -> bool:
        """Whether what a subscription was given there was not recorded.

        Where no line says so, an offset that comes once more was not recorded.
        """
        if subscription.recorded_end > line.offset:
            return False
        return subscription.tells_what_it_recorded or not self._times[line.offset]

    def _turn(self, line: Seen, ends: Sequence[int]) -> None:
        """A line that does not simply follow: a reported loss, a new subscription, or a fault."""
        offset = line.offset
        if self._index >= 0 and offset < ends[self._index] and not self._is_of_a_later(line):
            current = self._subscriptions[self._index]
            if offset != self._position and current.jump_is_told(self._position, offset):
                return
        later = [
            index
            for index in range(self._index + 1, len(self._subscriptions))
            if offset < ends[index]
            and self._subscriptions[index].jump_is_told(self._subscriptions[index].start, offset)
        ]
        if later:  # the first of those that gave it, and whose part was not cut off
            gave = [index for index in later if self._subscriptions[index].gave(line)] or later
            kept = (n for n in gave if not self._was_cut_off(line, self._subscriptions[n]))
            self._continue_with(next(kept, gave[0]))
            return
        self._fault(line)

    def _continue_with(self, index: int) -> None:
        """The lines of all subscriptions before this one are over."""
        for number in range(max(self._index, 0), index):
            subscription = self._subscriptions[number]
            begun = number == self._index
            position = subscription.past_losses(self._position if begun else subscription.start)
            self._check_recorded(subscription, position)
            self._check_resumes(subscription)
            self._position = position
        self._index = index

    def _fault(self, line: Seen) -> None:
        offset, topic, who = line.offset, self._stream.topic, self._stream.subscriber
        key = key_of(topic, line)
        if self._index < 0:
            self._index = 0
            self._position = self._subscriptions[0].start
        expected = self._position
        text = (
            f"{who}'s output has {line.publisher}_{line.sequence} at offset {offset} of {topic!r}"
        )
        if offset == expected:
            self._received.late.append(line)
            return
        current = self._subscriptions[self._index]
        if current.qos < 2 and current.start <= offset < expected:
            return  # at least once: it continues from there again
        if offset > expected:
            self._received.skipped.append((expected, offset))
            self._finding.broken(
                f"{text}, where {expected} was to come: {as_range(expected, offset - 1)} skipped"
                + self._run.reported_to(topic, expected, offset),
                self._run.message_at(topic, expected) or key,
            )
        else:
            self._finding.broken(f"{text} again or out of order: {expected} was to come", key)

    def _check_recorded(self, subscription: SubscriptionSpan, position: int) -> None:
        if position < subscription.recorded_end:
            self._received.skipped.append((position, subscription.recorded_end))
            self._finding.broken(
                f"{self._stream.subscriber} recorded {self._stream.topic!r} up to "
                f"{subscription.recorded_end}, and its output ends before {position}",
                self._run.message_at(self._stream.topic, position),
            )

    def _check_resumes(self, subscription: SubscriptionSpan) -> None:
        """Where it resumes after a restart: not after what was handed over to it.

        A reported loss begins at its position; in a new life that may be what was recorded.
        """
        highest = position = recorded = subscription.start
        last_life = 0
        for life, _, line in subscription.happenings:
            if isinstance(line, Failed) and line.op == "reject":
                position = line.first
            elif isinstance(line, Failed):
                again = life != last_life and recorded <= line.first <= position
                if line.first != position and not again:
                    wrong_loss(self._finding, self._stream, line, position)
                position = line.end
            elif line.op == "get":
                position = line.messages[-1].offset + 1
            elif line.op == "record":
                position = recorded = line.cursor or 0
            elif line.op == "reject":
                given_up = line.cursor or 0
                position = given_up if life != last_life else max(position, given_up)
            elif line.op == "subscribe" and (line.cursor or 0) > highest:
                self._finding.broken(
                    f"{self._stream.subscriber} resumed {self._stream.topic!r} at {line.cursor}, "
                    f"and was given nothing from {highest} on"
                )
            highest = max(highest, position)
            if isinstance(line, Failed) or line.op in ("get", "reject"):
                last_life = life


class HandOverReader:
    """Follows what `get` gave. What was in hand when a life ended may come again, marked."""

    def __init__(
        self,
        index: RunIndex,
        stream: SubscriberStream,
        finding: Finding,
        power_losses_ns: Sequence[int],
    ) -> None:
        self._run = index
        self._stream = stream
        self._finding = finding
        self._losses_ns = power_losses_ns
        self._received = ReceivedMessages(stream)
        self._processes = {life.number: life.memory for life in index.lives.values()}

    def read(self) -> ReceivedMessages:
        for subscription in self._stream.subscriptions:
            self._read(subscription)
        return self._received

    def _read(self, subscription: SubscriptionSpan) -> None:
        self._position = self._floor = subscription.start  # what is to come; from where again
        self._qos = subscription.qos
        self._known = range(0)  # what it remembers to have handed over
        self._times_ns: dict[int, int] = {}  # where a log was set back: of what was given last
        self._between_lives = False
        self._given_end = -1  # after the last message handed over in this life
        kept = proxys = subscription.start  # durable at the subscriber; confirmed by the proxy
        last: tuple[int, int] | None = None
        set_back = 0  # how often the log had been, by the line before
        for life, remembers, line in subscription.happenings:
            now = (life, bisect_right(self._losses_ns, line.at_ns))
            rollbacks = bisect_right(self._run.rollbacks_ns, line.at_ns)
            if rollbacks > set_back:
                self._known = range(0)  # in another log nothing is in hand (protocol R14)
            set_back = rollbacks
            new_life = last is not None and life != last[0]
            in_hand = last is None or self._is_same_process(last[0], life)
            if last is not None and new_life:
                self._between_lives = True
                self._given_end = self._given_end if in_hand else -1
                if not remembers or now[1] != last[1]:
                    self._known = range(0)
                    self._floor = kept if remembers and self._qos == 2 else proxys
            last = now
            if isinstance(line, Failed) and line.op == "reject":
                self._letter_refused(line.first)
            elif isinstance(line, Failed):
                self._lost(line)
            elif line.op == "get":
                self._given(line.messages)
            elif line.op == "reject":
                self._given_up(line.cursor or 0)
                kept = max(kept, self._floor)
            elif line.op == "subscribe":
                self._resumed(line.cursor or 0, in_hand=in_hand)
            else:
                self._floor = kept = max(self._floor, line.cursor or 0)
            if not isinstance(line, Failed) and line.op in (
                "subscribe",
                "acknowledge",
                "reject",
            ):
                proxys = max(proxys, line.cursor or 0)
                kept = max(kept, proxys)
        self._received.position = subscription.past_losses(self._position)

    def _is_same_process(self, before: int, life: int) -> bool:
        """Return whether a process was reset in between: what it had in hand stays (rule R31)."""
        return before == life or self._processes.get(before) == self._processes.get(life)

    def _resumed(self, cursor: int, *, in_hand: bool) -> None:
        """The next message is the one at `cursor`: nothing skipped, nothing done comes again.

        Args:
            in_hand: by the same process, which may still have later messages in hand.
        """
        topic, who = self._stream.topic, self._stream.subscriber
        if cursor > self._position:
            self._received.skipped.append((self._position, cursor))
        if not self._floor <= cursor <= self._position:
            self._finding.broken(
                f"{who} resumed {topic!r} at {cursor}, where {self._position} was to come, or from "
                f"{self._floor} on again" + self._run.reported_to(topic, self._position, cursor)
            )
        if in_hand and self._floor <= cursor <= self._position:
            self._floor = cursor
            self._between_lives = True
            return
        self._position = cursor
        self._between_lives = False

    def _begin_at(self, first: int) -> None:
        """Restart expectations at `first`: what was in hand may be delivered again."""
        if self._between_lives and self._floor <= first <= self._position:
            self._position = first
        self._between_lives = False
        self._floor = first

    def _lost(self, line: Failed) -> None:
        """Judge a reported loss."""
        self._begin_at(line.first)
        if line.first != self._position:
            wrong_loss(self._finding, self._stream, line, self._position)
        self._position = max(self._position, line.end)

    def _letter_refused(self, offset: int) -> None:
        """What was in hand comes again, from the message on that is not given up after all."""
        self._floor = max(self._floor, offset)
        self._position = min(self._position, offset)
        self._between_lives = False

    def _given_up(self, end: int) -> None:
        """The message before `end` is a dead letter, handed over or not; it never comes again."""
        if self._between_lives and end > self._given_end:
            self._begin_at(end - 1)
        if end - 1 > self._position:
            self._received.skipped.append((self._position, end - 1))
            self._finding.broken(
                f"{self._stream.subscriber} gave offset {end - 1} of {self._stream.topic!r} up, "
                f"where {self._position} was to come"
            )
        self._position = max(self._position, end)
        self._floor = max(self._floor, end)

    def _given(self, messages: Sequence[Seen]) -> None:
        """Judge one group."""
        topic, who = self._stream.topic, self._stream.subscriber
        self._received.count += len(messages)
        first = messages[0].offset
        self._begin_at(first)
        for message in messages:
            offset = message.offset
            key = key_of(topic, message)
            if offset != self._position:
                reports = ""
                if offset > self._position:
                    self._received.skipped.append((self._position, offset))
                    reports = self._run.reported_to(topic, self._position, offset)
                    key = self._run.message_at(topic, self._position) or key
                self._finding.broken(
                    f"{who} was given {message.publisher}_{message.sequence} at offset {offset} "
                    f"of {topic!r}, where {self._position} was expected{reports}",
                    key,
                )
            elif self._is_again(message) and message.delivery_count <= 1:
                self._finding.broken(
                    f"{who} was given {message.publisher}_{message.sequence} at offset {offset} "
                    f"of {topic!r} again, not marked as redelivered",
                    key,
                )
            self._position = self._given_end = offset + 1
        known = self._known or range(first, first)
        self._known = range(min(known.start, first), max(known.stop, self._position))
        if self._run.rollbacks_ns:
            self._times_ns.update((one.offset, one.timestamp_ns) for one in messages)

    def _is_again(self, message: Seen) -> bool:
        """Whether it was given before; in a log that was set back another may have its offset."""
        before_ns = self._times_ns.get(message.offset, message.timestamp_ns)
        return message.offset in self._known and message.timestamp_ns == before_ns


def wrong_loss(finding: Finding, stream: SubscriberStream, line: Failed, expected: int) -> None:
    finding.broken(
        f"{stream.subscriber} was told that {stream.topic!r} lost {line.first} to {line.end - 1}, "
        f"where {expected} was to come"
    )
