"""The rules that a history must keep. Pure: history in, violations out.

Each violation begins with the name of its rule. Offsets give the order of versions, so one pass is
enough; no search for an order is needed. What holds after the store was set back to an older copy
is in `after_rollback.py`.
Source: the queue and Kafka workloads of Jepsen, which check sets and orders in the same way.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from reliable_pubsub.common.batch import decode_batch
from reliable_pubsub.proxy.records import (
    Appended,
    ControlSeen,
    CursorMoved,
    Granted,
    Record,
    Subscribed,
    TopicCreated,
    Unsubscribed,
)

from .after_rollback import RULES_AFTER_ROLLBACK
from .history import Acknowledged, Entry, HandedOver, History, Line, Log, entry_of

Ends = tuple[list[int], list[int]]  # indices in order, and the highest offset up to each


def check(history: History) -> list[str]:
    """Give every broken rule, in words."""
    violations = list(history.violations)
    violations += history.unfinished
    log = _log_of(history.committed, violations)
    violations += _records_grow(history)
    violations += _told_lost_is_gone(history)
    if history.rollback is not None:
        before = _log_of(history.rollback.before, violations)
        for rule_after in RULES_AFTER_ROLLBACK:
            violations += rule_after(history, before, log)
        return violations
    for rule in (
        _each_put_stands_once,
        _acknowledged_is_stored,
        _real_time_order,
        _readers_agree_with_the_log,
        _outputs_are_complete,
        _handed_over_in_order,
        _subscription_points,
        _final_subscriptions,
    ):
        violations += rule(history, log)
    return violations


def _log_of(records: Sequence[Record], violations: list[str]) -> Log:
    """Everything that ever became durable, by topic and offset; also checks density."""
    names: dict[int, str] = {}
    log: Log = {}
    for record in records:
        if isinstance(record, TopicCreated):
            if record.topic in log:
                violations.append(f"one log for each topic: {record.topic!r} was created twice")
            names[record.topic_id] = record.topic
            log[record.topic] = []
        elif isinstance(record, Appended):
            stored = log[names[record.topic_id]]
            if record.base != len(stored):
                violations.append(f"dense offsets: {record.base} behind {len(stored) - 1}")
            for index, payload in enumerate(decode_batch(record.body, record.count).payloads):
                sequence = record.first_sequence + index
                stored.append((record.publisher, sequence, payload, record.timestamp_ns))
    return log


def _records_grow(history: History) -> Iterator[str]:
    """Durable epochs, generations, cursors, times never go back; old epochs have no effect."""
    epochs: dict[tuple[str, str], int] = {}
    places: dict[tuple[int, str], tuple[int, int]] = {}
    times: dict[int, int] = {}
    for record in history.committed:
        match record:
            case Granted(role, client, epoch):
                if epoch <= epochs.get((role, client), 0):
                    yield f"epochs grow: {role} {client} got {epoch} after {epochs[role, client]}"
                epochs[(role, client)] = epoch
            case Appended():
                if record.epoch != epochs.get(("publisher", record.publisher)):
                    yield f"fenced epochs have no effect: {record.publisher} {record.epoch} put"
                if record.timestamp_ns <= times.get(record.topic_id, 0):
                    yield f"timestamps grow: {record.timestamp_ns} at offset {record.base}"
                times[record.topic_id] = record.timestamp_ns
            case Subscribed() | Unsubscribed() | CursorMoved():
                key = (record.topic_id, record.subscriber)
                place = (record.generation, record.cursor)
                if place < places.get(key, (0, 0)):
                    yield f"cursors grow: {key} went from {places[key]} to {place}"
                places[key] = place
        if isinstance(record, Subscribed | Unsubscribed | ControlSeen):
            client = record.subscriber
            if record.epoch != epochs.get(("subscriber", client)):
                yield f"fenced epochs have no effect: {client} {record.epoch} subscribed or left"


def _told_lost_is_gone(history: History) -> Iterator[str]:
    """LOST names exactly what is gone: up to a start of the topic that is durable."""
    for index, subscriber, topic, first, end in history.told_lost:
        gone_since = history.trims.get((topic, end), index)
        if first >= end or gone_since >= index:
            yield f"LOST is exact: {subscriber} was told of {topic!r} {first} to {end - 1}"


def _each_put_stands_once(history: History, log: Log) -> Iterator[str]:
    """The messages of each (publisher, topic) are its plan: once, in order, under 1, 2, 3, ...

    A publisher without state may have put a message again in a later life: then each life's.
    """
    found: dict[tuple[str, str], list[tuple[int, str, int]]] = {}
    for topic, stored in log.items():
        for publisher, sequence, payload, _ in stored:
            owner, planned, life = payload.decode().split("/")
            if owner != publisher:
                yield f"each put once, in order: one of {owner} stands under {publisher}"
            found.setdefault((publisher, topic), []).append((sequence, planned, int(life)))
    for publisher, plan in history.plans.items():
        for topic in {item.topic: None for item in plan}:
            here = found.pop((publisher, topic), [])
            planned_count = sum(item.count for item in plan if item.topic == topic)
            indices = [int(planned) for _, planned, _ in here]
            if publisher in history.no_state:
                lives = [(life, int(planned)) for _, planned, life in here]
                right = lives == sorted(set(lives)) and set(indices) == set(range(planned_count))
            else:
                right = indices == list(range(planned_count))
            if not right or [sequence for sequence, _, _ in here] != list(range(1, len(here) + 1)):
                yield (
                    f"each put once, in order: {publisher} on {topic!r} has (sequence, message, "
                    f"life) {here}, not 1..{planned_count}"
                )
    if found:
        yield f"each put once, in order: nobody planned {sorted(found)}"


def _acknowledged_is_stored(history: History, log: Log) -> Iterator[str]:
    """What was acknowledged stands where the receipt says."""
    for event in history.acknowledged:
        receipt = event.receipt
        if receipt.offset is None:
            if not history.trimmed:
                yield f"acknowledged means stored: {event.publisher} without offset: {receipt}"
            continue
        stored = log.get(receipt.topic, [])[receipt.offset : receipt.offset + receipt.count]
        if len(stored) != receipt.count or not all(
            _is_message(event, number, entry) for number, entry in enumerate(stored)
        ):
            yield f"acknowledged means stored: {receipt}, the log has {stored} there"


def _is_message(event: Acknowledged, number: int, entry: Entry) -> bool:
    """Whether an entry of the log is a message of a put; number 0 is its first one."""
    publisher, sequence, payload, _ = entry
    owner, planned, life = payload.decode().split("/")
    return (
        (publisher, owner) == (event.publisher, event.publisher)
        and (sequence, int(planned))
        == (event.receipt.first_sequence + number, event.item.first + number)
        and event.life in (0, int(life))
    )


def _real_time_order(history: History, log: Log) -> Iterator[str]:
    """A put that was acknowledged before another was called has the smaller offset."""
    ends: dict[str, Ends] = {}
    for event in history.acknowledged:
        if event.receipt.offset is not None:
            indices, highest = ends.setdefault(event.item.topic, ([], []))
            indices.append(event.index)
            highest.append(max(event.receipt.offset, highest[-1] if highest else 0))
    for event in history.acknowledged:
        offset = event.receipt.offset
        if offset is None:
            continue
        indices, highest = ends[event.item.topic]
        place = bisect_left(indices, event.first_called) - 1
        if place >= 0 and offset <= highest[place]:
            yield f"real-time order: {event.item} at {offset} is not behind {highest[place]}"


def _readers_agree_with_the_log(history: History, log: Log) -> Iterator[str]:
    """Nobody has ever seen an offset that holds another message at the end (hole H30)."""
    for (topic, offset), reads in history.read.items():
        stored = log.get(topic, [])
        for reader, message in reads:
            seen = entry_of(message)
            if offset >= len(stored) or stored[offset] != seen:
                now = stored[offset] if offset < len(stored) else "nothing"
                yield f"readers see the log: {reader} read {seen} at {offset}, which holds {now}"


def _outputs_are_complete(history: History, log: Log) -> Iterator[str]:
    """Each offset from the subscription point on: once, in order, without gap, to the end."""
    for subscriber, lines in history.outputs.items():
        expected: dict[str, int | None] = {}
        for line in lines:
            yield from _check_line(subscriber, line, expected)
        for topic, end in expected.items():
            if end is not None and end != len(log.get(topic, [])):
                yield f"to the end: {subscriber} ended at {topic!r} {end} of {len(log[topic])}"


def _check_line(subscriber: str, line: Line, expected: dict[str, int | None]) -> Iterator[str]:
    if line.kind == "subscribed":
        if expected.get(line.topic) not in (None, line.offset):
            yield f"resumed where it was: {subscriber} {line.topic!r} {line.offset}, not {expected}"
        expected[line.topic] = line.offset
    elif line.kind == "unsubscribed":
        expected[line.topic] = None
    else:
        if line.offset != expected.get(line.topic):
            yield (
                f"once, in order, without gap: {subscriber} has {line.topic!r} {line.kind} "
                f"{line.offset} where {expected.get(line.topic)} was to come"
            )
        expected[line.topic] = line.end if line.kind == "lost" else line.offset + 1


def _handed_over_in_order(history: History, log: Log) -> Iterator[str]:
    """Without an output file: no gap; only what was in hand at a crash comes again, marked.

    Without state anything above the last cursor that was acknowledged to the proxy comes again.
    """
    begins: dict[tuple[str, str], int] = {}
    for event in history.subscribed:
        begins.setdefault((event.subscriber, event.topic), event.cursor)
    for (subscriber, topic), groups in history.handed_over.items():
        position = begins[(subscriber, topic)]  # what is to come next
        last: HandedOver | None = None
        remembered: set[int] = set()  # handed over, and not forgotten by a power loss
        for group in groups:
            first, offsets = group.first, group.offsets
            new_process = last is not None and last.life != group.life
            floor = last.first if last else 0
            if last is not None and last.power_losses != group.power_losses:
                remembered.clear()
                floor = first
            if subscriber in history.no_state:
                remembered.clear()
                floor = group.acknowledged
            again = new_process and floor <= first <= position
            if first != position and not again:
                yield (
                    f"without gap: {subscriber} got {topic!r} {first} where {position} was to come"
                )
            for message in group.messages:
                if message.offset in remembered and not message.redelivered:
                    yield f"repeats are marked: {subscriber} got {topic!r} {message.offset} again"
            if group.lost is None and offsets != list(range(first, first + len(offsets))):
                yield f"without gap: {subscriber} got {topic!r} {offsets} at once"
            remembered.update(offsets)
            position = group.lost[1] if group.lost else offsets[-1] + 1
            last = group
        if position != len(log.get(topic, [])):
            yield f"to the end: {subscriber} ended at {topic!r} {position} of {len(log[topic])}"


def _subscription_points(history: History, log: Log) -> Iterator[str]:
    """A put called after subscribe returned is behind the cursor; one that was over is not."""
    by_topic: dict[str, list[Acknowledged]] = {}
    for event in history.acknowledged:
        if event.receipt.offset is not None:
            by_topic.setdefault(event.item.topic, []).append(event)
    for returned in history.subscribed:
        over = by_topic.get(returned.topic, [])
        for event in over:
            offset = event.receipt.offset or 0
            if event.first_called > returned.index and offset < returned.cursor:
                yield (
                    f"subscription point: {returned.subscriber} on {returned.topic!r} missed "
                    f"{offset}, it began at {returned.cursor}"
                )
        before = bisect_right([event.index for event in over], returned.first_called)
        for event in over[:before]:
            offset = event.receipt.offset or 0
            if offset >= returned.cursor:
                yield (
                    f"subscription point: {returned.subscriber} began at {returned.cursor}, "
                    f"behind was {offset}"
                )


def _final_subscriptions(history: History, log: Log) -> Iterator[str]:
    """At the end the proxy and the clients agree on who is subscribed."""
    for final in history.final:
        active = history.proxy_active.get((final.subscriber, final.topic), False)
        if active != final.active:
            yield (
                f"who is subscribed: {final.subscriber} on {final.topic!r}: the client says "
                f"active={final.active}, the proxy active={active}"
            )
        if final.active and final.cursor != len(log.get(final.topic, [])):
            yield f"to the end: {final.subscriber} stands at {final.topic!r} {final.cursor}"
