"""Rule V6: each subscriber has each offset once, in order, without gap. Pure.

What counts is its output file, if it has one, else what `get` gave to its program.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter

from reliable_pubsub.common.core.journal import Failed

from .final_log import TopicStart, starts_of
from .finding import Finding
from .received import HandOverReader, OutputReader, ReceivedMessages
from .rules_of_dead_letters import check_letters_are_there
from .rules_of_unstored import check_unstored
from .run_index import REMOVING, RunIndex
from .subscription import SubscriberStream
from .verdict import Losses, key_of


def delivered_once(index: RunIndex) -> tuple[Finding, list[ReceivedMessages]]:
    """V6. From the subscription point on each offset once, in order, without gap."""
    finding = Finding(
        "V6",
        "each subscriber has every offset from where it subscribed, once, in order",
        "no subscriber has an output or a journal of what it was given",
    )
    all_received: list[ReceivedMessages] = []
    for (subscriber, topic), stream in _all_streams(index).items():
        output = index.outputs.get(subscriber)
        if output is not None:
            lines = [line.message for line in output if line.topic == topic]
            received = OutputReader(index, stream, finding).read(lines)
        else:
            losses_ns = index.power_losses.get(subscriber, [])
            received = HandOverReader(index, stream, finding, losses_ns).read()
        finding.checked += received.count
        all_received.append(received)
    _check_told_losses(index, finding)
    check_unstored(index, finding)
    check_letters_are_there(index, finding)
    return finding, all_received


def _all_streams(index: RunIndex) -> dict[tuple[str, str], SubscriberStream]:
    """Also those of which only an output is there."""
    streams = dict(index.streams)
    for subscriber, lines in index.outputs.items():
        for topic in {line.topic: None for line in lines}:
            if (subscriber, topic) in index.members:
                continue  # in a group: V13
            streams.setdefault((subscriber, topic), SubscriberStream(subscriber, topic))
    return streams


def _check_told_losses(index: RunIndex, finding: Finding) -> None:
    """LOST names exactly the offsets that were removed, and only after that is durable."""
    starts = starts_of(index.created, index.trimmed)
    for life, line in index.told_lost:
        finding.checked += 1
        what = f"{life.process} was told that {line.topic!r} lost {line.first} to {line.end - 1}"
        log = index.logs.get(line.topic)
        if line.by_operator and index.has_proxy:
            action = index.lost_by_operator(life.process, line)
            if action is None:
                finding.broken(f"{what} by an operator, and none has done that before")
            if action is None or action.action not in REMOVING:
                continue  # skipped: the messages stay for others
        if line.first >= line.end:
            finding.broken(f"{what}: that is nothing")
        elif line.waiting_max is not None:
            if log is not None and line.end + line.waiting_max > log.end:
                waiting = log.end - line.end
                finding.broken(
                    f"{what} because {line.waiting_max} may wait, and {waiting} came after it"
                )
            continue
        elif log is not None and log.audited:
            there = [n for n in range(max(line.first, log.start), line.end) if n in log.entries]
            if there:
                entry = log.entries[there[0]]
                finding.broken(
                    f"{what}, and offset {there[0]} is in the log",
                    key_of(line.topic, entry),
                )
            elif line.end > log.end:
                finding.broken(f"{what}, and the log ends at {log.end}")
        why = _never_began_there(starts.get(line.topic, ()), line)
        if why:
            finding.broken(f"{what}{why}")


def _never_began_there(starts: Sequence[TopicStart], line: Failed) -> str:
    """Why a topic cannot have begun at the end of a reported loss by then; "" if it can.

    The last lines of a life of the proxy may be missing: only those within one life are complete.
    """
    place = bisect_left(starts, line.end, key=attrgetter("offset"))
    if place == len(starts):
        return ""
    start = starts[place]
    if start.offset == line.end:
        return " before that was durable" if start.at_ns > line.at_ns else ""
    before = starts[place - 1] if place else None
    if before is None or before.pid != start.pid:
        return ""
    return f", and it began at {before.offset}, and then at {start.offset}"


def subscriber_losses(index: RunIndex, received: ReceivedMessages) -> Losses | None:
    """What a subscriber did not receive and what was not reported to it as lost."""
    stream = received.stream
    line = index.finished.get(stream.subscriber)
    end = end_for(index, received) if line is not None and line.drained else None
    suffix = max(end - received.position, 0) if end and received.position is not None else 0
    sizes = [last - first for first, last in received.skipped]
    lost = sum(sizes) + suffix
    if not lost:
        return None
    begin = stream.subscriptions[0].start if stream.subscriptions else None
    prefix = sizes[0] if received.skipped and received.skipped[0][0] == begin else 0
    return Losses(
        stream.topic,
        stream.subscriber,
        received.count + lost,
        prefix,
        sum(sizes) - prefix,
        suffix,
    )


def end_for(index: RunIndex, received: ReceivedMessages) -> int | None:
    """The position of a subscriber that has everything; None if it is not subscribed."""
    current = received.stream.current
    log = index.logs.get(received.stream.topic)
    if current is None or current.ended or log is None:
        return None
    topic, subscriber = received.stream.topic, received.stream.subscriber
    if (topic, subscriber, current.generation) in index.clean_ends:
        return None
    if index.has_begun_again(topic, subscriber, current.generation, log.end):
        return None
    if current.leaving:  # whether it has left is unknown
        end_line = index.found_ends.get(topic)
        if end_line is None or subscriber not in end_line.positions:
            return None
    return log.end
