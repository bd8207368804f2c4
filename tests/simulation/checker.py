"""The rules that a history must keep. Pure: history in, violations out.

Offsets give the order of versions, so one pass is enough; no search for an order is needed.
Source: the queue and Kafka workloads of Jepsen, which check sets and orders in the same way.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from reliable_pubsub.common.batch import decode_batch
from reliable_pubsub.proxy.records import (
    Appended,
    ControlSeen,
    CursorMoved,
    Granted,
    Subscribed,
    TopicCreated,
    Unsubscribed,
)

from .history import HandedOver, History, Line

Log = dict[str, list[tuple[str, int, bytes]]]  # topic: publisher, sequence, payload by offset


def check(history: History) -> list[str]:
    """Give every broken rule, in words."""
    violations = list(history.violations)
    violations += history.unfinished
    log = _final_log(history, violations)
    for rule in (
        _epochs_and_cursors_grow,
        lambda h: _each_put_stands_once(h, log),
        lambda h: _acknowledged_is_stored(h, log),
        _real_time_order,
        lambda h: _readers_agree_with_the_log(h, log),
        lambda h: _outputs_are_complete(h, log),
        lambda h: _handed_over_in_order(h, log),
        _subscription_points,
        lambda h: _final_subscriptions(h, log),
    ):
        violations += rule(history)
    return violations


def _final_log(history: History, violations: list[str]) -> Log:
    """Everything that ever became durable, by topic and offset; also checks density."""
    names: dict[int, str] = {}
    log: Log = {}
    for record in history.committed:
        if isinstance(record, TopicCreated):
            if record.topic in log:
                violations.append(f"topic {record.topic!r} was created twice")
            names[record.topic_id] = record.topic
            log[record.topic] = []
        elif isinstance(record, Appended):
            stored = log[names[record.topic_id]]
            if record.base != len(stored):
                violations.append(f"dense offsets: {record.base} behind {len(stored) - 1}")
            for index, payload in enumerate(decode_batch(record.body, record.count).payloads):
                stored.append((record.publisher, record.first_sequence + index, payload))
    return log


def _epochs_and_cursors_grow(history: History) -> Iterator[str]:
    """Durable epochs, generations and cursors never go back; old epochs have no effect."""
    epochs: dict[tuple[str, str], int] = {}
    places: dict[tuple[int, str], tuple[int, int]] = {}
    for record in history.committed:
        match record:
            case Granted(role, client, epoch):
                if epoch <= epochs.get((role, client), 0):
                    yield f"epochs grow: {role} {client} got {epoch} after {epochs[role, client]}"
                epochs[(role, client)] = epoch
            case Appended():
                if record.epoch != epochs.get(("publisher", record.publisher)):
                    yield f"fenced epochs have no effect: {record.publisher} {record.epoch} put"
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


def _each_put_stands_once(history: History, log: Log) -> Iterator[str]:
    """The messages of each (publisher, topic) are its plan: once, in order, under 1, 2, 3, ..."""
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for topic, stored in log.items():
        for publisher, sequence, payload in stored:
            owner, planned, _ = payload.decode().split("/")
            if owner != publisher:
                yield f"a message of {owner} stands under {publisher}"
            found.setdefault((publisher, topic), []).append((sequence, planned))
    for publisher, plan in history.plans.items():
        for topic in {item.topic: None for item in plan}:
            stored_here = found.pop((publisher, topic), [])
            numbers = range(sum(item.count for item in plan if item.topic == topic))
            expected = [(number + 1, str(number)) for number in numbers]
            if stored_here != expected:
                yield (
                    f"each put once, in order: {publisher} on {topic!r} has (sequence, message) "
                    f"{stored_here}, not 1..{len(expected)}"
                )
    if found:
        yield f"nobody planned {sorted(found)}"


def _acknowledged_is_stored(history: History, log: Log) -> Iterator[str]:
    """What was acknowledged stands where the receipt says."""
    for event in history.acknowledged:
        receipt = event.receipt
        if receipt.offset is None:
            if not history.trimmed:
                yield f"{event.publisher} got a receipt without offset: {receipt}"
            continue
        stored = log.get(receipt.topic, [])[receipt.offset : receipt.offset + receipt.count]
        expected = [(event.publisher, receipt.first_sequence + n) for n in range(receipt.count)]
        if [(publisher, sequence) for publisher, sequence, _ in stored] != expected:
            yield f"acknowledged means stored: {receipt}, the log has {stored} there"


def _real_time_order(history: History) -> Iterator[str]:
    """A put that was acknowledged before another was called has the smaller offset."""
    offsets: dict[tuple[str, str, int], int] = {}
    ends: dict[str, list[tuple[int, int]]] = {}
    for event in history.acknowledged:
        receipt = event.receipt
        if receipt.offset is None:
            continue
        key = (event.publisher, receipt.topic, receipt.first_sequence - 1)
        offsets.setdefault(key, receipt.offset)
        known = ends.setdefault(receipt.topic, [])
        highest = max(receipt.offset, known[-1][1] if known else 0)
        known.append((event.index, highest))
    for key, invoked in history.invoked.items():
        before = ends.get(invoked.item.topic, [])
        place = bisect_left(before, (invoked.index, 0)) - 1
        if place >= 0 and key in offsets and offsets[key] <= before[place][1]:
            yield f"real-time order: {key} at {offsets[key]} is not behind {before[place][1]}"


def _readers_agree_with_the_log(history: History, log: Log) -> Iterator[str]:
    """Nobody has ever seen an offset that holds another message at the end (hole H30)."""
    for (topic, offset), (reader, message) in history.read.items():
        stored = log.get(topic, [])
        seen = (message.publisher, message.sequence, message.payload)
        if offset >= len(stored) or stored[offset] != seen:
            now = stored[offset] if offset < len(stored) else "nothing"
            yield f"{reader} read {seen} at {topic!r} {offset}, which holds {now}"


def _outputs_are_complete(history: History, log: Log) -> Iterator[str]:
    """Each offset from the subscription point on: once, in order, without gap, to the end."""
    for subscriber, lines in history.outputs.items():
        expected: dict[str, int | None] = {}
        for line in lines:
            yield from _check_line(subscriber, line, expected)
        for topic, end in expected.items():
            if end is not None and end != len(log.get(topic, [])):
                yield f"{subscriber} ended at {topic!r} {end} of {len(log.get(topic, []))}"


def _check_line(subscriber: str, line: Line, expected: dict[str, int | None]) -> Iterator[str]:
    if line.kind == "subscribed":
        if expected.get(line.topic) not in (None, line.offset):
            yield f"{subscriber} resumed {line.topic!r} at {line.offset}, not {expected}"
        expected[line.topic] = line.offset
    elif line.kind == "unsubscribed":
        expected[line.topic] = None
    else:
        if line.offset != expected.get(line.topic):
            yield (
                f"once, in order, without gap: {subscriber} has {line.topic!r} {line.offset} "
                f"where {expected.get(line.topic)} was to come"
            )
        expected[line.topic] = line.offset + 1


def _handed_over_in_order(history: History, log: Log) -> Iterator[str]:
    """Without an output file: no gap; only what was in hand at a crash comes again, marked."""
    begins: dict[tuple[str, str], int] = {}
    for event in history.subscribed:
        begins.setdefault((event.subscriber, event.topic), event.cursor)
    for (subscriber, topic), groups in history.handed_over.items():
        position = begins[(subscriber, topic)]  # what is to come next
        last: HandedOver | None = None
        remembered: set[int] = set()  # handed over, and not forgotten by a power loss
        for group in groups:
            offsets = [message.offset for message in group.messages]
            first = offsets[0]
            new_process = last is not None and last.incarnation != group.incarnation
            floor = last.messages[0].offset if last else 0
            if last is not None and last.power_losses != group.power_losses:
                remembered.clear()
                floor = first
            again = new_process and floor <= first <= position
            if first != position and not again:
                yield f"{subscriber} got {topic!r} {first} where {position} was to come"
            for message in group.messages:
                if message.offset in remembered and not message.redelivered:
                    yield f"{subscriber} got {topic!r} {message.offset} again, unmarked"
            if offsets != list(range(first, first + len(offsets))):
                yield f"{subscriber} got {topic!r} {offsets} at once"
            remembered.update(offsets)
            position = offsets[-1] + 1
            last = group
        if position != len(log.get(topic, [])):
            yield f"{subscriber} ended at {topic!r} {position} of {len(log.get(topic, []))}"


def _subscription_points(history: History) -> Iterator[str]:
    """A put called after subscribe returned is behind the cursor; one that was over is not."""
    offsets: dict[tuple[str, str, int], int] = {}
    done: dict[str, list[tuple[int, int]]] = {}
    for event in history.acknowledged:
        receipt = event.receipt
        if receipt.offset is not None:
            offsets[(event.publisher, receipt.topic, receipt.first_sequence - 1)] = receipt.offset
            done.setdefault(receipt.topic, []).append((event.index, receipt.offset))
    calls: dict[str, list[tuple[int, int]]] = {}
    for key, invoked in history.invoked.items():
        if key in offsets:
            calls.setdefault(invoked.item.topic, []).append((invoked.index, offsets[key]))
    for returned in history.subscribed:
        for index, offset in calls.get(returned.topic, []):
            if index > returned.index and offset < returned.cursor:
                yield (
                    f"{returned.subscriber} on {returned.topic!r} missed {offset}, it began at "
                    f"{returned.cursor}"
                )
        over = done.get(returned.topic, [])
        for _, offset in over[: bisect_right(over, (returned.first_called, -1))]:
            if offset >= returned.cursor:
                yield f"{returned.subscriber} subscribed at {returned.cursor}, behind was {offset}"


def _final_subscriptions(history: History, log: Log) -> Iterator[str]:
    """At the end the proxy and the clients agree on who is subscribed."""
    for final in history.final:
        active = history.proxy_active.get((final.subscriber, final.topic), False)
        if active != final.active:
            yield (
                f"{final.subscriber} on {final.topic!r}: the client says active={final.active}, "
                f"the proxy active={active}"
            )
        if final.active and final.cursor != len(log.get(final.topic, [])):
            yield f"{final.subscriber} stands at {final.topic!r} {final.cursor}"
