"""What holds when the proxy's store was set back to an earlier durable copy, once.

The log then has two lines: the *old* one, with everything that was ever durable until then, and the
*new* one, which shares its beginning. Until the rollback everything holds. Afterwards what was
acknowledged may be gone, and with it the order in real time, subscription points, epochs and
generations; the other rules of the lab still hold, over the new line. And nothing about it may be
silent: a client that knows of what is gone stops with LOG_CHANGED, or never asks about that topic
again; no client continues over the seam, except one that was asked to rewind or to adopt.

Not promised, because nothing remembers it: what a client had heard of a topic that it has
unsubscribed from, the offset of a receipt whose message comes back by a late copy, and that a
message which was handed over but not processed when its process died is the same one when it comes
again, marked, from a store that was set back in between and has grown again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from reliable_pubsub.common.core.journal import CreatedLine, Event, Invoke, Ok, Seen
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.core.indexing import index_run
from reliable_pubsub.lab.core.received import ReceivedMessages
from reliable_pubsub.lab.core.rules_of_delivery import delivered_once
from reliable_pubsub.lab.core.rules_of_order import sightings
from reliable_pubsub.lab.core.rules_of_puts import no_duplicate, publisher_order, unknown_outcomes
from reliable_pubsub.lab.core.rules_of_subscribers import everything_ends, nothing_while_away
from reliable_pubsub.lab.core.run import LabRun
from reliable_pubsub.lab.core.run_index import RunIndex
from reliable_pubsub.lab.core.subscription import NEVER, SubscriptionSpan
from reliable_pubsub.lab.core.verdict import RuleVerdict

Log = Mapping[str, Sequence[Seen]]  # by topic; the place in the sequence is the offset
Part = tuple[str, int, int]  # of a message: publisher, sequence, CRC-32


def rollback_in(run: LabRun) -> int | None:
    """Which line says that the store was set back; None if it never was."""
    for index, line in enumerate(run.lines):
        if isinstance(line, Event) and line.what == "rollback":
            return index
    return None


def sentences(rules: Sequence[RuleVerdict]) -> Iterator[str]:
    """Each violation, after the name of its rule."""
    for rule in rules:
        yield from (f"{rule.rule}: {violation.text}" for violation in rule.violations)


class Seam:
    """A run in which the store was set back."""

    def __init__(self, run: LabRun, index: int, choices: Mapping[str, str]) -> None:
        """Take it apart; see `check_after_rollback`."""
        self.run_index: RunIndex = index_run(run)
        self.at_ns = run.lines[index].at_ns
        self.choices = choices
        # Topics that the store had lost; created again they may have the log id that they had.
        self.created_again = {
            line.topic for line in run.lines[index:] if isinstance(line, CreatedLine)
        }
        self.old: dict[str, list[Seen]] = {}
        for line in self.run_index.stored:
            if line.at_ns < self.at_ns:
                self.old.setdefault(line.topic, []).extend(line.messages)
        self.new: Log = {
            topic: list(log.entries.values()) for topic, log in self.run_index.logs.items()
        }
        self.kept = {topic: self._kept(topic) for topic in self.new}

    def _kept(self, topic: str) -> int:
        """How many messages the two lines share."""
        both = zip(self.old.get(topic, ()), self.new[topic], strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))

    def choice(self, client: str) -> str:
        """What a client does about a changed log."""
        return self.choices[client]

    def stands(self, log: Log, topic: str, seen: Seen) -> bool:
        """Whether a line has this message, taken at this time."""
        line = log.get(topic, ())
        return seen.offset < len(line) and _same(line[seen.offset], seen)

    def end_at(self, topic: str, at_ns: int) -> int:
        """Where the durable log ended at a time."""
        end = self.kept.get(topic, 0) if at_ns > self.at_ns else 0
        for line in self.run_index.stored:
            if line.topic == topic and (line.at_ns > self.at_ns) == (at_ns > self.at_ns):
                end = line.messages[-1].offset + 1 if line.at_ns < at_ns else end
        return end

    def forget_places(self) -> None:
        """Take the plan away from puts that a process without memory made in a session of before.

        The set-back proxy has forgotten the epochs. A process that has forgotten its own gets one
        that was given before, and then a late put of the dead process that had it is not fenced:
        it may come between those of the living one.
        """
        for attempt in self.run_index.attempts():
            if attempt.remembers or attempt.place is None:
                continue
            if attempt.invoked_ns < self._session_ns(attempt.publisher, attempt.place[0]):
                attempt.place = None

    def _session_ns(self, publisher: str, life: int) -> int:
        """When a life heard of the first epoch that the set-back proxy has granted."""
        epochs = {
            line.epoch: line.at_ns
            for line in reversed(self.run_index.granted)
            if (line.role, line.client) == ("publisher", publisher) and line.at_ns > self.at_ns
        }
        heard = (line for one, _, line in self.run_index.hellos if one.number == life)
        return min(
            (line.at_ns for line in heard if epochs.get(line.epoch, NEVER) < line.at_ns),
            default=NEVER,
        )


def check_after_rollback(run: LabRun, index: int, choices: Mapping[str, str]) -> Iterator[str]:
    """Give every broken rule, in words.

    Args:
        index: of the line that says that the store was set back.
        choices: by client, what it does about a changed log: stop, rewind or adopt.
    """
    yield from sentences(check(LabRun(lines=run.lines[:index], outputs={})).rules)
    seam = Seam(run, index, choices)
    findings = [everything_ends(seam.run_index, ())]
    seam.forget_places()
    delivered, all_received = delivered_once(seam.run_index)
    findings += [
        no_duplicate(seam.run_index),
        publisher_order(seam.run_index),
        delivered,
        nothing_while_away(seam.run_index, all_received),
        unknown_outcomes(seam.run_index),
    ]
    yield from sentences([finding.verdict() for finding in findings])
    yield from _acknowledged_is_stored(seam)
    yield from _nothing_acknowledged_is_gone_in_silence(seam)
    yield from _whatever_was_seen_stood(seam)
    for received in all_received:
        for before, subscription in zip(
            [None, *received.stream.subscriptions], received.stream.subscriptions, strict=False
        ):
            who = f"{received.stream.subscriber} on {received.stream.topic!r}"
            yield from _keeps_to_a_line(seam, received, subscription, who)
            if before is not None and subscription.moved:
                yield from _moves_for_a_reason(seam, received, before, subscription, who)
        yield from _reaches_the_end(seam, received)


def _same(one: Seen, other: Seen) -> bool:
    return _part(one) == _part(other) and one.timestamp_ns == other.timestamp_ns


def _part(seen: Seen) -> Part:
    return (seen.publisher, seen.sequence, seen.crc)


def _acknowledged_is_stored(seam: Seam) -> Iterator[str]:
    """What was acknowledged stood on one of the lines; if it was put since, on the new one."""
    for _, invoke, line in seam.run_index.effects:
        if line.op != "put":
            continue
        lines = [seam.new] if invoke.at_ns > seam.at_ns else [seam.new, seam.old]
        offset = line.offset
        if offset is None or not any(
            [_part(seen) for seen in log.get(line.topic, ())[offset : offset + line.count]]
            == _parts(invoke)
            for log in lines
        ):
            yield (
                f"acknowledged means stored: {line.process} on {line.topic!r}, sequence "
                f"{line.sequence} at {offset}, stands on none of the lines"
            )


def _nothing_acknowledged_is_gone_in_silence(seam: Seam) -> Iterator[str]:
    """A publisher with a receipt for a message that is gone gets no further receipt, unasked."""
    left = {topic: {_part(seen) for seen in line} for topic, line in seam.new.items()}
    gone: dict[tuple[str, int, str], Ok] = {}
    for life, invoke, line in seam.run_index.effects:
        if line.op != "put":
            continue
        who = (line.process, 0 if life.remembers else life.number, line.topic)
        receipt = gone.get(who)
        if (
            receipt is not None
            and receipt.at_ns < invoke.at_ns
            and invoke.at_ns > seam.at_ns
            and seam.choice(line.process) == "stop"
        ):
            yield (
                f"nothing is silent: {line.process} on {line.topic!r}, sequence {line.sequence} "
                f"was taken, and its sequence {receipt.sequence}, acknowledged before, is gone"
            )
        if not left.get(line.topic, set()).issuperset(_parts(invoke)):
            gone.setdefault(who, line)


def _parts(invoke: Invoke) -> list[Part]:
    return [(invoke.process, invoke.sequence + n, crc) for n, crc in enumerate(invoke.crcs)]


def _whatever_was_seen_stood(seam: Seam) -> Iterator[str]:
    """What a client has seen was on one of the lines."""
    for who, topic, seen in sightings(seam.run_index):
        if not (seam.stands(seam.new, topic, seen) or seam.stands(seam.old, topic, seen)):
            yield f"readers see the log: {who} saw on {topic!r} {seen}"


def _keeps_to_a_line(
    seam: Seam, received: ReceivedMessages, subscription: SubscriptionSpan, who: str
) -> Iterator[str]:
    """What one subscription gave, without what came again, stands on one line."""
    topic = received.stream.topic
    kept = _kept_by(subscription)
    if not any(all(seam.stands(log, topic, seen) for seen in kept) for log in (seam.old, seam.new)):
        shown = [(seen.offset, seen.publisher, seen.sequence) for seen in kept]
        yield f"one line of the log: {who} continues over the seam: {shown}"


def _kept_by(subscription: SubscriptionSpan) -> list[Seen]:
    """What it gave; what was in hand when a process died and came again counts once."""
    kept: list[Seen] = []
    last = (0, 0)  # life and first offset of the last get
    for life, _, line in subscription.happenings:
        if not isinstance(line, Ok) or line.op != "get":
            continue
        first = line.messages[0].offset
        if life != last[0] and first == last[1]:
            kept = [seen for seen in kept if seen.offset < first]
        kept += line.messages
        last = (life, first)
    return kept


def _moves_for_a_reason(
    seam: Seam,
    received: ReceivedMessages,
    before: SubscriptionSpan,
    subscription: SubscriptionSpan,
    who: str,
) -> Iterator[str]:
    """A client leaves its place only if it was asked to, and only if something it had is gone."""
    topic = received.stream.topic
    choice = seam.choice(received.stream.subscriber)
    had = max(before.handed_end, before.recorded_end, before.confirmed)
    assert before.opened is not None
    assert subscription.opened is not None
    was_lost = topic in seam.created_again and before.called_ns < seam.at_ns
    same_log = before.opened.log == subscription.opened.log and not was_lost
    # A late copy of a SUB that was set back may begin it again, after its place.
    begun_again = subscription.adopted and choice == "adopt"
    if choice == "stop" or (same_log and had <= seam.kept[topic] and not begun_again):
        yield f"one line of the log: {who}, {choice}, left {had} for {subscription.start}"
    if choice == "rewind" and subscription.start != 0:
        yield f"one line of the log: {who} does not begin again, but at {subscription.start}"


def _reaches_the_end(seam: Seam, received: ReceivedMessages) -> Iterator[str]:
    """A finished client has, in a subscription that continues, all that was there at that moment.

    No more: a late copy of a put that was set back may arrive when all are done. What it
    received may be more only if it was in hand when its process died, is gone, and it was asked to
    continue without it.
    """
    stream, current = received.stream, received.stream.current
    finished = seam.run_index.finished[stream.subscriber]
    if not finished.drained or current is None or current.ended:
        return
    acknowledged = [line for _, _, line in current.happenings if line.op == "acknowledge"]
    last = acknowledged[-1] if acknowledged else None
    end = seam.end_at(stream.topic, last.at_ns) if isinstance(last, Ok) else None
    choice = seam.choice(stream.subscriber)
    more = choice != "stop" and (received.position or 0) > (end or 0)
    if not isinstance(last, Ok) or last.cursor != end or (received.position != end and not more):
        cursor = last.cursor if isinstance(last, Ok) else None
        yield (
            f"to the end: {stream.subscriber} on {stream.topic!r}, {choice}, stands at {cursor}, "
            f"received up to {received.position}; the log ended at {end}"
        )
