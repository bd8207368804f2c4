"""Rules V3 and V7: one value for an offset, nothing goes back. Pure."""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Iterator

from reliable_pubsub.common.core.journal import (
    Ok,
    Seen,
)

from . import log_faults
from .final_log import FinalLog
from .finding import Finding
from .rules_of_administration import check_actions
from .run_index import RunIndex
from .verdict import key_of


def one_value(index: RunIndex) -> Finding:
    """V3. All who saw an offset saw one message there, which the log has; no holes."""
    finding = Finding(
        "V3",
        "one message for each offset, the same for all, and no holes",
        "no process saw any offset",
    )
    known: dict[str, dict[int, tuple[str, Seen]]] = {}
    for who, topic, seen in sightings(index):
        finding.checked += 1
        log = index.logs.get(topic)
        entry = log.entries.get(seen.offset) if log is not None else None
        if entry is not None:
            if entry is not seen and not _same(entry, seen):
                _differs(index, finding, topic, who, seen, ("the log", entry))
        elif log is not None and seen.offset >= log.first:
            finding.broken(
                f"{who} saw {seen.publisher}_{seen.sequence} at offset {seen.offset} of {topic!r}, "
                f"which the log ({log.start} to {log.end - 1}) does not have"
                + index.reported_to(topic, seen.offset, seen.offset + 1),
                key_of(topic, seen),
            )
        else:
            first = known.setdefault(topic, {}).setdefault(seen.offset, (who, seen))
            if first[1] is not seen and not _same(first[1], seen):
                _differs(index, finding, topic, who, seen, first)
    for log in index.logs.values():
        _check_density(index, log, finding)
    _check_growth(index, finding)
    _check_log_ids(index, finding)
    return finding


def sightings(index: RunIndex) -> Iterator[tuple[str, str, Seen]]:
    """Every sighting of a message: process, topic, message."""
    for found in index.found:
        for seen in found.messages:
            yield "the auditor", found.topic, seen
    for stored in index.stored:
        for seen in stored.messages:
            yield stored.process, stored.topic, seen
    for (topic, publisher), attempts in index.puts.items():
        for attempt in attempts.values():
            if attempt.offset is not None and topic not in index.logs:  # else it is V1
                yield (
                    publisher,
                    topic,
                    Seen(attempt.offset, publisher, attempt.sequence, attempt.crc),
                )
    for line in index.gets:
        for seen in line.messages:
            yield line.process, line.topic, seen
    for subscriber, lines in index.outputs.items():
        who = f"{subscriber} (output)"
        for entry in lines:
            yield who, entry.topic, entry.message


def _same(one: Seen, other: Seen) -> bool:
    return (
        one.sequence == other.sequence
        and one.crc == other.crc
        and one.publisher == other.publisher
        and (
            one.timestamp_ns == other.timestamp_ns or not one.timestamp_ns or not other.timestamp_ns
        )
    )


def _differs(
    index: RunIndex, finding: Finding, topic: str, who: str, seen: Seen, first: tuple[str, Seen]
) -> None:
    reports = index.reported_to(topic, seen.offset, seen.offset + 1)
    finding.violations.append(log_faults.differs(topic, first, (who, seen), reports))


def _check_density(index: RunIndex, log: FinalLog, finding: Finding) -> None:
    """No holes, except reported losses; times grow with the offsets."""
    expected = log.start
    time_ns = 0
    before: Seen | None = None
    for offset, entry in log.entries.items():
        if entry.timestamp_ns and entry.timestamp_ns < time_ns:
            finding.violations.append(log_faults.time_goes_back(log.topic, entry, time_ns))
        time_ns = max(time_ns, entry.timestamp_ns)
        if offset < expected:
            continue
        if offset > expected:
            _hole(index, log, expected, min(offset, log.end), before, finding)
        expected = offset + 1
        before = entry
    if expected < log.end:
        _hole(index, log, expected, log.end, before, finding)
    elif expected > log.end:
        finding.violations.append(
            log_faults.beyond_the_end(log.topic, expected - 1, log.end, before)
        )


def _hole(
    index: RunIndex, log: FinalLog, first: int, end: int, before: Seen | None, finding: Finding
) -> None:
    if all(index.was_told_lost(log.topic, offset) for offset in range(first, end)):
        return
    finding.violations.append(log_faults.hole(log.topic, first, end, before))


def _check_growth(index: RunIndex, finding: Finding) -> None:
    """Each offset is stored once and found once, and later batches have later times."""
    found: dict[tuple[int, str], int] = {}
    for page in index.found:
        next_offset = found.get((page.pid, page.topic), 0)
        for seen in page.messages:
            if seen.offset < next_offset:
                fault = log_faults.found_after(page.topic, seen, next_offset - 1)
                finding.violations.append(fault)
            next_offset = seen.offset + 1
        found[(page.pid, page.topic)] = next_offset
    ends: dict[str, tuple[int, int]] = {}
    begins: dict[int, list[int]] = {}  # of the proxies, by process
    for life in index.lives.values():
        if life.role == "proxy":
            insort(begins.setdefault(life.pid, []), life.began_ns)
    by_life: dict[tuple[int, int, str], int] = {}  # where a life of the proxy has come to
    for line in index.stored:
        if not line.messages:
            continue
        first = line.messages[0]
        life_of = (line.pid, bisect(begins.get(line.pid, ()), line.at_ns), line.topic)
        end, time_ns = ends.get(line.topic, (0, 0))
        if first.offset < end:
            finding.broken(
                f"{line.process} stored offset {first.offset} of {line.topic!r}, where it had "
                f"stored up to {end - 1} before" + index.reported_to(line.topic, first.offset, end),
                key_of(line.topic, first),
            )
        elif first.offset > by_life.get(life_of, first.offset):
            finding.broken(
                f"{line.process} stored offset {first.offset} of {line.topic!r}, where {end} was "
                "to come",
                key_of(line.topic, first),
            )
        elif first.timestamp_ns and first.timestamp_ns <= time_ns:
            finding.broken(
                f"{line.topic!r}: a later batch must have a later time: {first.timestamp_ns} ns "
                f"at offset {first.offset}, after {time_ns} ns",
                key_of(line.topic, first),
            )
        end = line.messages[-1].offset + 1
        ends[line.topic] = (end, first.timestamp_ns)
        by_life[life_of] = end


def _check_log_ids(index: RunIndex, finding: Finding) -> None:
    """A topic has one log; a second one is another data directory."""
    first: dict[str, tuple[str, str]] = {}
    for line in index.created:
        if line.topic in first:
            finding.broken(
                f"{line.process} created {line.topic!r} twice: as log {first[line.topic][1]} and "
                f"as {line.log}" + index.reported_to(line.topic)
            )
        first[line.topic] = (line.process, line.log)
    for stream in index.streams.values():
        for subscription in stream.subscriptions:
            opened = subscription.opened
            if opened is None or not opened.log:
                continue
            who, log = first.setdefault(stream.topic, (stream.subscriber, opened.log))
            if log != opened.log:
                finding.broken(
                    f"{stream.topic!r} is log {log} for {who}, and {opened.log} for "
                    f"{stream.subscriber}" + index.reported_to(stream.topic)
                )


def nothing_goes_back(index: RunIndex) -> Finding:
    """V7. Epochs, generations and cursors only grow, across all restarts, but for operators."""
    finding = Finding(
        "V7",
        "cursors, generations and epochs never go back, unless an operator moves them",
        "no hello, no subscription and no position in any journal",
    )
    _check_grants(index, finding)
    _check_hellos(index, finding)
    places: dict[tuple[str, str], tuple[int, int]] = {}
    for line in index.positions:
        finding.checked += 1
        key = (line.topic, line.subscriber)
        place = (line.generation, line.cursor)
        before = places.get(key, (0, 0))
        if place < before:
            finding.broken(
                f"{line.process} has {line.subscriber} on {line.topic!r} at generation "
                f"{place[0]}, cursor {place[1]}, after generation {before[0]}, cursor {before[1]}"
                + index.reported_to(line.topic)
            )
        places[key] = place
    _check_cursors(index, finding)
    check_actions(index, finding)
    return finding


def _check_grants(index: RunIndex, finding: Finding) -> None:
    epochs: dict[tuple[str, str], int] = {}
    for line in index.granted:
        finding.checked += 1
        before = epochs.get((line.role, line.client), 0)
        if line.epoch <= before:
            finding.broken(
                f"{line.process} granted {line.role} {line.client} epoch {line.epoch} after "
                f"{before}"
            )
        epochs[(line.role, line.client)] = line.epoch


def _check_hellos(index: RunIndex, finding: Finding) -> None:
    """No epoch for two processes; one asked for later is higher."""
    of_client: dict[tuple[str, str], list[tuple[int, int, int, Ok]]] = {}
    for life, invoked_ns, line in index.hellos:
        entry = (line.at_ns, invoked_ns, life.number, line)
        of_client.setdefault((life.process, life.role), []).append(entry)
    for (client, role), answers in of_client.items():
        owners: dict[int, int] = {}
        over = 0  # those that were answered before this one was asked
        highest = 0
        by_end = sorted(answers, key=lambda entry: entry[0])
        for _, invoked_ns, number, line in sorted(answers, key=lambda entry: entry[1]):
            finding.checked += 1
            while over < len(by_end) and by_end[over][0] <= invoked_ns:
                highest = max(highest, by_end[over][3].epoch)
                over += 1
            owner = owners.setdefault(line.epoch, number)
            if owner != number:
                finding.broken(f"two processes of {role} {client} got epoch {line.epoch}")
            elif line.epoch < highest:
                finding.broken(f"{role} {client} got epoch {line.epoch} after {highest}")


def _check_cursors(index: RunIndex, finding: Finding) -> None:
    """A subscriber continues at or above what it has recorded, or the proxy confirmed."""
    for stream in index.streams.values():
        generation = 0
        for subscription in stream.subscriptions:
            opened = subscription.opened
            who = f"{stream.subscriber} on {stream.topic!r}"
            if opened is not None:
                finding.checked += 1
                if opened.generation < generation:
                    finding.broken(
                        f"{who} got generation {opened.generation} after {generation}"
                        + index.reported_to(stream.topic)
                    )
                generation = opened.generation
            proxys = theirs = subscription.start
            last_life = 0
            for life, remembers, line in subscription.happenings:
                if not isinstance(line, Ok) or line.op == "get" or line.cursor is None:
                    continue
                finding.checked += 1
                if life != last_life and (not remembers or subscription.qos < 2):
                    theirs = proxys  # what it had recorded in memory is lost with it
                last_life = life
                if line.cursor < theirs:
                    finding.broken(
                        f"{who}: {line.op} at cursor {line.cursor}, after {theirs}"
                        + index.reported_to(stream.topic)
                    )
                theirs = max(theirs, line.cursor)
                if line.op != "record":
                    proxys = max(proxys, line.cursor)
