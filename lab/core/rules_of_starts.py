"""Where subscriptions begin that were asked to begin somewhere: a part of rule V8. Pure.

One that goes on, because its client brought a cursor beside the start, never begins below what its
subscriber has acknowledged; a replay may, and what comes again is marked.
"""

from __future__ import annotations

from itertools import pairwise

from .finding import Finding
from .run_index import RunIndex
from .subscription import Stream, Subscription
from .verdict import key_of


def check_start(
    index: RunIndex,
    stream: Stream,
    before: Subscription | None,
    subscription: Subscription,
    finding: Finding,
) -> None:
    """A subscription that was asked to begin somewhere begins there.

    Not judged: an age, whose moment only the proxy knows; `now`, which the rule itself judges.

    Args:
        before: the one before it in the same stream.
    """
    topic = stream.topic
    if subscription.by_operator:
        return  # where it begins was an operator's choice, and is judged with that
    at, _, value = subscription.asked.partition(" ")
    start = subscription.start
    lowest = _begins(index, topic, subscription.called_ns)
    at_own = _is_own_place(index, stream, before, subscription)
    asked = (
        f"{stream.subscriber} on {topic!r} asked for `{subscription.asked}` and began at {start}"
    )
    match at:
        case "offset" if start < int(value) or (start > int(value) and not at_own):
            finding.broken(asked)
        case "last" if before is not None:
            if not subscription.resumed and not _is_forgotten(index, stream, before, subscription):
                _check_last(index, stream, before, start, asked, finding)
        case "earliest" | "last" if index.has_proxy:
            if at == "last" and _had_subscription(index, stream, subscription):
                return  # from before this journal: its place is unknown
            assert subscription.opened is not None
            highest = _begins(index, topic, subscription.opened.at_ns)
            if start < lowest or (start > highest and not at_own):
                finding.broken(
                    f"{asked}; the topic began at {lowest}", index.message_at(topic, lowest)
                )
        case "time":
            _check_time(index, topic, subscription, asked, finding, at_own=at_own)
        case "newest":
            _check_newest(index, topic, subscription, asked, finding, at_own=at_own)
    if before is not None and not _forgets(index, stream, before, subscription):
        _check_not_again(index, topic, before, subscription, asked, finding)


def _check_not_again(
    index: RunIndex,
    topic: str,
    before: Subscription,
    subscription: Subscription,
    asked: str,
    finding: Finding,
) -> None:
    """Only a replay begins below what was acknowledged."""
    if not subscription.replay and subscription.start < before.confirmed:
        finding.broken(
            f"{asked}, which is no replay; it had acknowledged everything below {before.confirmed}",
            index.message_at(topic, subscription.start),
        )


def _is_own_place(
    index: RunIndex, stream: Stream, before: Subscription | None, subscription: Subscription
) -> bool:
    """Whether it begins where its subscriber was, and not earlier, as the start would have it."""
    if subscription.replay:
        return False
    if before is None:
        return subscription.resumed  # it brought a place: of a subscribe whose answer was not told
    highest = _highest(index, stream, before)
    return subscription.resumed or before.confirmed <= subscription.start <= highest


def _highest(index: RunIndex, stream: Stream, before: Subscription) -> int:
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


def _forgets(
    index: RunIndex, stream: Stream, before: Subscription, subscription: Subscription
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
    index: RunIndex, stream: Stream, before: Subscription, subscription: Subscription
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


def _check_last(
    index: RunIndex,
    stream: Stream,
    before: Subscription,
    start: int,
    asked: str,
    finding: Finding,
) -> None:
    """After what was acknowledged last, of what was handed over or given up."""
    highest = _highest(index, stream, before)
    if not before.confirmed <= start <= highest:
        finding.broken(
            f"{asked}; it had confirmed up to {before.confirmed}, and was given up to {highest}"
        )


def _had_subscription(index: RunIndex, stream: Stream, subscription: Subscription) -> bool:
    return any(
        line.topic == stream.topic
        and line.subscriber == stream.subscriber
        and line.at_ns < subscription.called_ns
        for line in index.positions
    )


def _check_time(
    index: RunIndex,
    topic: str,
    subscription: Subscription,
    asked: str,
    finding: Finding,
    *,
    at_own: bool,
) -> None:
    log = index.logs.get(topic)
    if log is None:
        return
    start = subscription.start
    time_ns = int(subscription.asked.partition(" ")[2])
    before, first = log.entries.get(start - 1), log.entries.get(start)
    if before is not None and before.timestamp_ns >= time_ns and not at_own:
        finding.broken(
            f"{asked}; offset {start - 1} was taken later than that, at {before.timestamp_ns} ns",
            index.message_at(topic, start - 1),
        )
    if first is not None and first.timestamp_ns < time_ns:
        finding.broken(
            f"{asked}, which was taken before that, at {first.timestamp_ns} ns",
            index.message_at(topic, start),
        )


def _check_newest(
    index: RunIndex,
    topic: str,
    subscription: Subscription,
    asked: str,
    finding: Finding,
    *,
    at_own: bool,
) -> None:
    count = int(subscription.asked.partition(" ")[2])
    over = [
        place + 1
        for a in index.attempts()
        if a.topic == topic and a.acknowledged_ns < subscription.called_ns
        for place in (index.offset_of(a),)
        if place is not None
    ]
    lowest = _begins(index, topic, subscription.called_ns)
    if subscription.start < max(max(over, default=0) - count, lowest):
        finding.broken(f"{asked}; the topic had {max(over, default=0)} messages by then")
    assert subscription.opened is not None
    by_ns = subscription.opened.at_ns
    highest = max(_ends(index, topic, by_ns) - count, _begins(index, topic, by_ns))
    if index.has_proxy and subscription.start > highest and not at_own:
        finding.broken(
            f"{asked}; the topic had at most {_ends(index, topic, by_ns)} messages by then",
            index.message_at(topic, highest),
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
    """Where a topic began by then, as far as the proxy told it."""
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
