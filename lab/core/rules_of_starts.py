"""Checks where subscriptions with a start begin: a part of rule V8. Pure.

One that continues, because its client sent a cursor with the start, never begins below what its
subscriber has acknowledged; a seek may, and what is redelivered is marked. Where an operator moved
a subscription that ended before its subscriber asked again, one that brings no cursor begins there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from .finding import Finding
from .run_index import RunIndex
from .subscription import SubscriberStream, SubscriptionSpan
from .verdict import key_of


def check_start(
    index: RunIndex,
    stream: SubscriberStream,
    before: SubscriptionSpan | None,
    subscription: SubscriptionSpan,
    finding: Finding,
) -> None:
    """A subscription that was asked to begin somewhere begins there.

    Not judged: an age, whose moment only the proxy knows; `now`, which the rule itself judges.

    Args:
        before: the one before it in the same stream.
    """
    if not subscription.by_operator:  # else it is judged with what the operator did
        _Asked(index, stream, before, subscription, finding).check()


@dataclass(slots=True)
class _Asked:
    """A subscription that was asked to begin somewhere."""

    index: RunIndex
    stream: SubscriberStream
    before: SubscriptionSpan | None
    subscription: SubscriptionSpan
    finding: Finding

    @property
    def start(self) -> int:
        """Where it began."""
        return self.subscription.start

    @property
    def topic(self) -> str:
        return self.stream.topic

    def broken(self, why: str, at: int | None = None) -> None:
        """It does not begin there; the message at an offset shows it."""
        self.finding.broken(
            f"{self.stream.subscriber} on {self.topic!r} asked for `{self.subscription.asked}` "
            f"and began at {self.start}{why}",
            self.index.message_at(self.topic, at),
        )

    def check(self) -> None:
        index, before, subscription = self.index, self.before, self.subscription
        at, _, value = subscription.asked.partition(" ")
        match at:
            case "offset" if self.start < int(value) and not self._resumes():
                self.broken("")
            case "offset" if self.start > int(value) and not self._is_own_place():
                self.broken("")
            case "last" if before is not None:
                is_forgotten = _is_forgotten(index, self.stream, before, subscription)
                if not (subscription.resumed or is_forgotten):
                    self._check_last(before)
            case "last" if self._had_subscription():
                pass  # from before this journal: its place is unknown
            case "earliest" | "last" if index.has_proxy:
                self._check_earliest()
            case "time":
                self._check_time(int(value))
            case "newest":
                self._check_newest(int(value))
        if before is not None and not _forgets(index, self.stream, before, subscription):
            self._check_not_again(before)
            self._check_not_moved(before)

    def _resumes(self) -> bool:
        """Return whether its start had no effect, because the subscription existed (rule R33)."""
        if self.subscription.sought:
            return False
        return self.subscription.in_doubt or (self.before is not None and self._is_own_place())

    def _is_own_place(self) -> bool:
        """Whether it begins where its subscriber was, and not at the earlier place asked for."""
        if self.subscription.sought:
            return False
        if self.before is None:
            return self.subscription.resumed  # it brought a place: its subscribe had no answer
        if self.subscription.resumed or self.start == self._left_by_operator(self.before):
            return True
        highest = _highest(self.index, self.stream, self.before)
        passed_over = _passed_over(self.index, self.stream, self.before)
        returns = any(self.start in firsts for firsts, _ in passed_over)
        return returns or self.before.confirmed <= self.start <= highest

    def _left_by_operator(self, before: SubscriptionSpan) -> int | None:
        """Where an operator left the subscription that ended since; None: its own place counts."""
        if self.subscription.sought or self.subscription.brought:
            return None
        moves = self.index.moves.get((self.topic, self.stream.subscriber), {})
        since = range(before.generation + 1, self.subscription.generation)
        return next((moves[one].end for one in reversed(since) if one in moves), None)

    def _had_subscription(self) -> bool:
        return any(
            (line.topic, line.subscriber) == (self.topic, self.stream.subscriber)
            and line.at_ns < self.subscription.called_ns
            for line in self.index.positions
        )

    def _check_not_again(self, before: SubscriptionSpan) -> None:
        """Check that only a seek moves below the acknowledged messages."""
        left = self._left_by_operator(before)
        lowest = before.confirmed if left is None else min(left, before.confirmed)
        passed_over = _passed_over(self.index, self.stream, before)
        returns = any(firsts.start <= self.start < end for firsts, end in passed_over)
        if not self.subscription.sought and self.start < lowest and not returns:
            had = f"it had acknowledged everything below {before.confirmed}"
            self.broken(f", which is no seek; {had}", self.start)

    def _check_not_moved(self, before: SubscriptionSpan) -> None:
        """Check that only a seek moves an existing subscription (rule R33)."""
        may_have_ended = (
            before.ended
            or before.leaving
            or self._is_clean(before, self.subscription)
            or any(self.index.ends_by_operator(self.topic, self.stream.subscriber))
        )
        if self.subscription.asked in ("", "last") or self.subscription.sought or may_have_ended:
            return
        if not self._is_own_place():
            self.broken("; the subscription existed, so it resumes", before.confirmed)

    def _is_clean(self, *spans: SubscriptionSpan) -> bool:
        """Return whether one of them is a clean session, which each subscribe restarts."""
        generations = {span.generation for span in spans}
        return any(
            (line.topic, line.subscriber) == (self.topic, self.stream.subscriber)
            and line.generation in generations
            and line.session == "clean"
            for line in self.index.positions
        )

    def _check_last(self, before: SubscriptionSpan) -> None:
        """After what was acknowledged last, of what was handed over or given up."""
        highest = _highest(self.index, self.stream, before)
        is_left = self.start == self._left_by_operator(before)
        if not (is_left or before.confirmed <= self.start <= highest):
            had = f"it had confirmed up to {before.confirmed}, and was given up to {highest}"
            self.broken(f"; {had}")

    def _check_earliest(self) -> None:
        assert self.subscription.opened is not None
        lowest = _begins(self.index, self.topic, self.subscription.called_ns)
        highest = _begins(self.index, self.topic, self.subscription.opened.at_ns)
        if self.start < lowest or (self.start > highest and not self._is_own_place()):
            self.broken(f"; the topic began at {lowest}", lowest)

    def _check_time(self, time_ns: int) -> None:
        log = self.index.logs.get(self.topic)
        if log is None:
            return
        before, first = log.entries.get(self.start - 1), log.entries.get(self.start)
        if before is not None and before.timestamp_ns >= time_ns and not self._is_own_place():
            taken = f"was taken later than that, at {before.timestamp_ns} ns"
            self.broken(f"; offset {self.start - 1} {taken}", self.start - 1)
        if first is not None and first.timestamp_ns < time_ns and not self._resumes():
            taken = f"was taken before that, at {first.timestamp_ns} ns"
            self.broken(f", which {taken}", self.start)

    def _check_newest(self, count: int) -> None:
        index, topic, called_ns = self.index, self.topic, self.subscription.called_ns
        over = [
            place + 1
            for a in index.attempts()
            if a.topic == topic and a.acknowledged_ns < called_ns
            for place in (index.offset_of(a),)
            if place is not None
        ]
        most = max(over, default=0)
        lowest = max(most - count, _begins(index, topic, called_ns))
        if self.start < lowest and not self._resumes():
            self.broken(f"; the topic had {most} messages by then")
        assert self.subscription.opened is not None
        by_ns = self.subscription.opened.at_ns
        end = _ends(index, topic, by_ns)
        highest = max(end - count, _begins(index, topic, by_ns))
        if index.has_proxy and self.start > highest and not self._is_own_place():
            self.broken(f"; the topic had at most {end} messages by then", highest)


def _highest(index: RunIndex, stream: SubscriberStream, before: SubscriptionSpan) -> int:
    """The highest place that a subscription may have reached.

    A dead letter moves it too, also if the answer was lost and the subscriber died.
    """
    letters = (
        letter.offset + 1
        for letter in index.dead_letters
        if (letter.topic, letter.subscriber) == (stream.topic, stream.subscriber)
        and letter.generation == before.generation
    )
    return max(before.handed_end, before.recorded_end, before.confirmed, *letters)


def _passed_over(
    index: RunIndex, stream: SubscriberStream, until: SubscriptionSpan
) -> Iterator[tuple[range, int]]:
    """Yield each range that a start may have passed over: where it may begin, and its end.

    What was handed over may be acknowledged, though the proxy's word for it is not in the journal.
    """
    confirmed = highest = stream.subscriptions[0].start
    for span in stream.subscriptions:
        if span.start > confirmed:
            yield range(confirmed, min(highest, span.start - 1) + 1), span.start
        if span is until:
            return
        confirmed = max(confirmed, span.confirmed)
        highest = max(highest, _highest(index, stream, span))


def _forgets(
    index: RunIndex,
    stream: SubscriberStream,
    before: SubscriptionSpan,
    subscription: SubscriptionSpan,
) -> bool:
    """Whether nothing of the one before is known: another log, a clean session that ended.

    Or the operator has forgotten its subscriber since.
    """
    if index.rollbacks_ns or before.opened is None or subscription.opened is None:
        return True
    # One in between counts too, even if its subscriber never learned that it had begun.
    is_clean = any(
        (stream.topic, stream.subscriber, generation) in index.clean_ends
        for generation in range(
            before.generation, max(subscription.generation, before.generation + 1)
        )
    )
    return (
        is_clean
        or before.opened.log != subscription.opened.log
        or _is_forgotten(index, stream, before, subscription)
    )


def _is_forgotten(
    index: RunIndex,
    stream: SubscriberStream,
    before: SubscriptionSpan,
    subscription: SubscriptionSpan,
) -> bool:
    """Whether an operator has forgotten the subscriber between two of its subscriptions."""
    if before.opened is None or subscription.opened is None:
        return False
    return any(
        one.action == "forget_client"
        and before.opened.at_ns < one.at_ns < subscription.opened.at_ns
        for one in index.ends_by_operator(stream.topic, stream.subscriber)
    )


def check_marks(index: RunIndex, finding: Finding) -> None:
    """What was handed over and acknowledged comes in a later subscription only marked."""
    for stream in index.streams.values():
        done: set[tuple[int, int]] = set()  # offset and time of what was, in earlier subscriptions
        for before, subscription in pairwise([None, *stream.subscriptions]):
            assert subscription is not None
            if before is not None and _forgets(index, stream, before, subscription):
                done.clear()
            elif before is not None:
                given = ((one.offset, one.timestamp_ns) for one in before.given())
                done.update(key for key in given if key[0] < before.confirmed)
            for message in subscription.given():
                again = (message.offset, message.timestamp_ns) in done
                finding.checked += again
                if again and message.delivery_count <= 1:
                    finding.broken(
                        f"{stream.subscriber} was given {message.publisher}_{message.sequence} at "
                        f"offset {message.offset} of {stream.topic!r} again, which it had "
                        "acknowledged, not marked as redelivered",
                        key_of(stream.topic, message),
                    )


def check_refused_starts(index: RunIndex, finding: Finding) -> None:
    """TRUNCATED and OUT_OF_RANGE answer only places that were removed or are not reached yet."""
    if not index.has_proxy:
        return
    for invoke, line in index.refused_starts:
        at, _, value = invoke.start.partition(" ")
        if at not in ("offset", "time"):
            if at != "age":
                finding.broken(f"{_refused(invoke.process, line.code, invoke.start)}, always there")
            continue
        finding.checked += 1
        gone = line.code == "TRUNCATED"
        by_ns = line.at_ns if gone else invoke.at_ns
        place = int(value)
        begins, ends = _begins(index, line.topic, by_ns), _ends(index, line.topic, by_ns)
        log = index.logs.get(line.topic)
        if at == "time":
            first = log.entries.get(begins) if log is not None else None
            last = log.entries.get(ends - 1) if log is not None else None
            is_right = (
                begins > 0 and (first is None or place < first.timestamp_ns)
                if gone
                else last is None or place > last.timestamp_ns
            )
        else:
            is_right = place < begins if gone else place > ends
        if not is_right:
            finding.broken(
                f"{_refused(line.process, line.code, invoke.start)}; {line.topic!r} held {begins} "
                f"to {ends - 1}"
            )


def _refused(who: str, code: str, start: str) -> str:
    return f"{who} was told {code} for `{start}`"


def _begins(index: RunIndex, topic: str, by_ns: int) -> int:
    """Where a topic began by then, as far as the proxy wrote it."""
    starts = (cut.start for cut in index.trimmed if cut.topic == topic and cut.at_ns < by_ns)
    return max(starts, default=0)


def _ends(index: RunIndex, topic: str, by_ns: int) -> int:
    """Where it ended."""
    ends = (
        line.messages[-1].offset + 1
        for line in index.stored
        if line.topic == topic and line.at_ns < by_ns and line.messages
    )
    return max(ends, default=0)
