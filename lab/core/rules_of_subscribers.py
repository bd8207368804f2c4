"""Rules V8, V9 and V12: where subscriptions begin and end, and how a run ends. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from reliable_pubsub.common.core.journal import Ok

from .finding import Finding, as_range, runs_of
from .received import ReceivedMessages
from .rules_of_delivery import end_for
from .rules_of_puts import puts_by_topic
from .rules_of_sessions import check_ends
from .rules_of_starts import check_marks, check_refused_starts, check_start
from .run_index import Attempt, RunIndex
from .subscription import NEVER, SubscriberStream, SubscriptionSpan
from .verdict import MessageKey, key_of


def subscription_points(index: RunIndex) -> Finding:
    """V8. A put begun after `subscribe` returned is delivered; one over before is not."""
    finding = Finding(
        "V8",
        "what is put after a subscribe is delivered; what was over before is not",
        "no one subscribed, or no put has an offset",
    )
    over: dict[str, tuple[list[int], list[int], list[Attempt]]] = {}
    begun: dict[str, tuple[list[int], list[int], list[Attempt]]] = {}
    by_topic = puts_by_topic(index)
    for topic, puts in by_topic.items():
        acknowledged = [(a.acknowledged_ns, offset, a) for offset, a in puts if a.acknowledged]
        over[topic] = _extremes(sorted(acknowledged, key=_first), lowest=False)
        invoked = [(a.invoked_ns, offset, a) for offset, a in puts]
        # The lowest offset of all that begin later: from the end to the beginning.
        begun[topic] = _extremes(sorted(invoked, key=_first, reverse=True), lowest=True)
    earlier = _subscribed_before(index)
    for stream in index.streams.values():
        if stream.topic not in by_topic:
            continue
        who = f"{stream.subscriber} on {stream.topic!r}"
        for before, subscription in zip(
            [None, *stream.subscriptions], stream.subscriptions, strict=False
        ):
            if subscription.opened is None:
                continue
            finding.checked += 1
            times, offsets, attempts = begun[stream.topic]
            place = bisect_left(times, -subscription.opened.at_ns) - 1
            if place >= 0 and offsets[place] < subscription.start:
                finding.broken(
                    f"{who} subscribed at {subscription.start}; {attempts[place].key.message_id} "
                    f"was put after that and has offset {offsets[place]}: never delivered",
                    attempts[place].key,
                )
            if subscription.asked:
                check_start(index, stream, before, subscription, finding)
            key = (stream.subscriber, stream.topic, subscription.opened.generation)
            known = earlier.get(key, NEVER) < subscription.called_ns
            begins_again = subscription.asked == "now"
            if (
                subscription.moved
                or subscription.by_operator
                or (subscription.resumed and not begins_again)
                or (not begins_again and (subscription.asked or known))
            ):
                continue
            times, offsets, attempts = over[stream.topic]
            place = bisect_left(times, subscription.called_ns) - 1
            if place >= 0 and offsets[place] >= subscription.start:
                finding.broken(
                    f"{who} subscribed at {subscription.start}; {attempts[place].key.message_id} "
                    f"was acknowledged before that at offset {offsets[place]}: not to be delivered",
                    attempts[place].key,
                )
    check_refused_starts(index, finding)
    check_marks(index, finding)
    return finding


def _first(entry: tuple[int, int, Attempt]) -> int:
    return entry[0]


def _extremes(
    puts: Sequence[tuple[int, int, Attempt]], *, lowest: bool
) -> tuple[list[int], list[int], list[Attempt]]:
    """Times ascending (negated if they came descending), and the extreme offset up to each."""
    times: list[int] = []
    offsets: list[int] = []
    attempts: list[Attempt] = []
    for at_ns, offset, attempt in puts:
        times.append(-at_ns if lowest else at_ns)
        if not offsets or (offset < offsets[-1] if lowest else offset > offsets[-1]):
            offsets.append(offset)
            attempts.append(attempt)
        else:
            offsets.append(offsets[-1])
            attempts.append(attempts[-1])
    return times, offsets, attempts


def _subscribed_before(index: RunIndex) -> dict[tuple[str, str, int], int]:
    """When the proxy first wrote of a subscription: one older than the journal is resumed."""
    first: dict[tuple[str, str, int], int] = {}
    for line in index.positions:
        first.setdefault((line.subscriber, line.topic, line.generation), line.at_ns)
    return first


def nothing_while_away(index: RunIndex, all_received: Sequence[ReceivedMessages]) -> Finding:
    """V9. Nothing is delivered between an acknowledged unsubscribe and the next subscribe."""
    finding = Finding(
        "V9", "nothing is delivered between unsubscribe and subscribe", "no one unsubscribed"
    )
    for received in all_received:
        stream = received.stream
        finding.checked += sum(subscription.ended for subscription in stream.subscriptions)
        for line in stream.late:
            message = line.messages[0]
            finding.broken(
                f"{stream.subscriber} (pid {line.pid}) was given {message.publisher}_"
                f"{message.sequence} at offset {message.offset} of {stream.topic!r} after it had "
                "unsubscribed",
                key_of(stream.topic, message),
            )
        for message in received.late:
            finding.broken(
                f"{stream.subscriber}'s output has {message.publisher}_{message.sequence} at "
                f"offset {message.offset} of {stream.topic!r}, which was not given to it before "
                "it unsubscribed",
                key_of(stream.topic, message),
            )
    check_ends(index, finding)
    return finding


def everything_ends(index: RunIndex, all_received: Sequence[ReceivedMessages]) -> Finding:
    """V12. What was expected to finish did; who had to receive everything has it; all agree."""
    finding = Finding(
        "V12",
        "in the end everything is finished, delivered and agreed on",
        "no one wrote who was expected to finish",
    )
    for line in index.finished.values():
        finding.checked += line.expected
        if line.expected and not line.done:
            why = f": {line.detail}" if line.detail else ""
            finding.broken(f"{line.target} is not done{why}" + _stopped(index, line.target))
    _check_plans(index, finding)
    for received in all_received:
        stream = received.stream
        drained = index.finished.get(stream.subscriber)
        end = end_for(index, received)
        if drained is None or not drained.drained or end is None or _may_have_left(stream):
            continue
        finding.checked += 1
        if received.position != end:
            finding.broken(
                f"{stream.subscriber} is at {received.position} of {stream.topic!r}, which "
                f"ends at {end}",
                index.message_at(stream.topic, received.position),
            )
    _check_positions(index, all_received, finding)
    return finding


def _may_have_left(stream: SubscriberStream) -> bool:
    """Whether an unsubscribe may have ended it: then a pattern may have begun another one."""
    return stream.current is not None and stream.current.leaving


def _stopped(index: RunIndex, process: str) -> str:
    codes = [life.code for life in index.lives.values() if life.process == process and life.code]
    return f" (it ended with {codes[-1]})" if codes else ""


def _put_by(attempts: Iterable[Attempt]) -> Mapping[tuple[int, int], int]:
    """By message of the plan, the last run of the plan in which it was put.

    What was refused is not given up if the same life or a later one puts it again.
    """
    lives: dict[tuple[int, int], int] = {}
    for attempt in attempts:
        if attempt.place is not None and not attempt.failed:
            life, step, message = attempt.place
            lives[(step, message)] = max(life, lives.get((step, message), 0))
    return lives


def _check_plans(index: RunIndex, finding: Finding) -> None:
    """A publisher that has finished has put its plan: nothing was given up, nothing left out."""
    begun: dict[tuple[str, int], set[int]] = {}  # by publisher and step: messages
    at_level_1: set[str] = set()  # what they put so has no place in the plan
    for (topic, publisher), attempts in index.puts.items():
        line = index.finished.get(publisher)
        if line is None or not line.done or not line.expected:
            continue
        put_by = _put_by(attempts.values())
        at_level_1.update(a.publisher for a in attempts.values() if a.qos < 2)
        for attempt in attempts.values():
            place = attempt.place
            if place is None:
                continue
            begun.setdefault((publisher, place[1]), set()).add(place[2])
            # If it is stored all the same, that is V2.
            put_again = put_by.get((place[1], place[2]), -1) >= place[0]
            if not put_again and index.offset_of(attempt) is None:
                finding.broken(
                    f"{publisher} has finished, and its message {place[1]}:{place[2]} was refused "
                    f"with {attempt.code} and never put",
                    MessageKey(topic, publisher, attempt.sequence),
                )
    _check_sizes(index, finding)
    for (publisher, step), messages in begun.items():
        if publisher in at_level_1:
            continue
        left_out = sorted(set(range(min(messages), max(messages))) - messages)
        for first, last in runs_of(left_out):
            finding.broken(
                f"{publisher} has finished, and left out message {as_range(first, last)} of step "
                f"{step}"
            )


def _check_sizes(index: RunIndex, finding: Finding) -> None:
    """As many messages as the plan has were acknowledged, or are in a log."""
    put: dict[str, set[tuple[int, int]]] = {}
    unnumbered: Counter[str] = Counter()  # a plan puts them again until one is acknowledged
    for attempt in index.attempts():
        unnumbered[attempt.publisher] += attempt.qos < 2 and attempt.acknowledged
        if attempt.place is not None and (
            attempt.acknowledged or index.offset_of(attempt) is not None
        ):
            put.setdefault(attempt.publisher, set()).add(attempt.place[1:])
    for line in index.finished.values():
        count = len(put.get(line.target, ())) + unnumbered[line.target]
        if line.done and line.messages is not None and count < line.messages:
            finding.broken(
                f"{line.target} has finished, and put {count} of the {line.messages} messages of "
                "its plan"
            )


def _subscribes(subscription: SubscriptionSpan) -> Iterator[Ok]:
    """The answers to its subscribes."""
    if subscription.opened is not None:
        yield subscription.opened
    for _, _, line in subscription.happenings:
        if isinstance(line, Ok) and line.op == "subscribe":
            yield line


def _check_positions(
    index: RunIndex, all_received: Sequence[ReceivedMessages], finding: Finding
) -> None:
    """The proxy and the clients agree on who is subscribed, and where."""
    for received in all_received:
        stream = received.stream
        line = index.finished.get(stream.subscriber)
        end_line = index.found_ends.get(stream.topic)
        current = stream.current
        if line is None or not line.done or end_line is None or current is None:
            continue
        finding.checked += 1
        who = f"{stream.subscriber} on {stream.topic!r}"
        cursor = end_line.positions.get(stream.subscriber)
        end = index.logs[stream.topic].end if stream.topic in index.logs else NEVER
        again = index.has_begun_again(stream.topic, stream.subscriber, current.generation, end)
        if cursor is None:
            ended = (stream.topic, stream.subscriber, current.generation) in index.clean_ends
            by_operator = current.opened is not None and any(
                index.ended_by_operator(opened, later=True) for opened in _subscribes(current)
            )
            if not (current.leaving or current.ended or ended or again or by_operator):
                finding.broken(f"{who} is subscribed by its own word, and not by the proxy's")
            continue
        if current.ended:
            finding.broken(f"{who} has unsubscribed, and the proxy has it at cursor {cursor}")
            continue
        moves = index.moves.get((stream.topic, stream.subscriber), {})
        if moves and cursor == moves[max(moves)].end:
            continue  # an operator has put it there, and it has not asked since
        highest = max(current.handed_end, current.recorded_end, current.confirmed)
        if received.position is not None:
            highest = max(highest, received.position)
        may_have_left = again or _may_have_left(stream)
        if not current.confirmed <= cursor <= highest and not may_have_left:
            finding.broken(
                f"{who} confirmed {current.confirmed} and received up to {highest}; the proxy has "
                f"it at cursor {cursor}"
            )
