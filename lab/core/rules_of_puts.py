"""Rules V1, V2, V4, V5 and V11: the outcome of the puts. Pure.

Each rule is one pass over the puts, or over the log, in the order of offsets or of time. Source:
the queue and Kafka workloads of Jepsen, which compare sets and orders in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter, itemgetter

from reliable_pubsub.common.core.dead_letter import is_dead
from reliable_pubsub.common.core.journal import Seen

from . import log_faults
from .final_log import FinalLog
from .finding import Finding, as_range, runs_of
from .rules_of_dead_letters import check_no_letter_twice
from .rules_of_transactions import check_whole
from .run_index import Attempt, Attempts, RunIndex
from .verdict import Losses, MessageKey, key_of

NO_LOG = "no log: neither an auditor nor a proxy wrote a journal"


def durable_acknowledgement(index: RunIndex) -> tuple[Finding, list[Losses]]:
    """V1, and the losses of each publisher: from the beginning, the middle or the end."""
    finding = Finding(
        "V1",
        "what was acknowledged was durable by then, and is stored where its receipt says",
        "no put was acknowledged" if index.logs else NO_LOG,
    )
    losses: list[Losses] = []
    if not index.logs:
        return finding, losses
    for (topic, publisher), attempts in index.puts.items():
        acknowledged = [attempt for attempt in attempts.values() if attempt.acknowledged]
        if not acknowledged:
            continue
        acknowledged.sort(key=attrgetter("sequence"))
        finding.checked += len(acknowledged)
        log = index.logs.get(topic) or FinalLog(topic, audited=True)
        gone = [a for a in acknowledged if not _is_where_it_should_be(index, log, a, finding)]
        if not gone:
            continue
        by_sequence = {attempt.sequence: attempt for attempt in gone}
        for first, last in runs_of(sorted(by_sequence)):
            finding.broken(
                _lost_text(index, log, by_sequence[first], by_sequence[last]),
                by_sequence[first].key,
            )
        there = [attempt.sequence not in by_sequence for attempt in acknowledged]
        losses.append(losses_of(topic, publisher, there))
    return finding, losses


def _is_where_it_should_be(index: RunIndex, log: FinalLog, put: Attempt, finding: Finding) -> bool:
    """False: the message is lost. One that is at another offset is reported here."""
    removed_below = index.removed_below(put.topic)
    if put.offset is None:
        why = _not_removed(log, put, removed_below)
        if why:
            finding.broken(
                f"{put.key.message_id} on {put.topic!r} was acknowledged as stored and removed "
                f"since, and {why}",
                put.key,
            )
        return True
    entry = log.entries.get(put.offset)
    if entry is None:
        if put.offset < removed_below:
            return True
    elif _is(entry, put):
        return log.start <= put.offset or put.offset < removed_below
    place = log.place_of(put.publisher, put.sequence, put.crc)
    if place is None:
        return False
    there = f"{entry.publisher}_{entry.sequence}" if entry else "nothing"
    finding.broken(
        f"{put.key.message_id} on {put.topic!r} was acknowledged at offset {put.offset}, where "
        f"{there} is; it is at {place}",
        put.key,
    )
    return True


def _not_removed(log: FinalLog, put: Attempt, removed_below: int) -> str:
    """The evidence that a message was not stored and removed; "" if there is no such evidence."""
    place = log.place_of(put.publisher, put.sequence, put.crc)
    if place is not None:
        return "" if place < removed_below else f"it is at offset {place}"
    if not removed_below:
        return "nothing was removed from that topic"
    return "it was never stored" if log.is_whole else ""


def _is(entry: Seen, put: Attempt) -> bool:
    return (
        entry.sequence == put.sequence and entry.crc == put.crc and entry.publisher == put.publisher
    )


def _lost_text(index: RunIndex, log: FinalLog, first: Attempt, last: Attempt) -> str:
    assert first.offset is not None
    assert last.offset is not None
    entry = log.entries.get(first.offset)
    now = f"where {entry.publisher}_{entry.sequence} is" if entry else "which the log ends at"
    if entry is None and log.start <= first.offset < log.end:
        now = "where the log has a hole"
    elif first.offset < log.start:
        now = f"and the log begins at {log.start}, without a word of the proxy"
    elif first.offset > log.end:
        now = f"and the log ends at {log.end}"
    level = f" with durability {first.durability}" if first.durability not in ("", "sync") else ""
    return (
        f"{first.publisher} on {first.topic!r}: sequence {as_range(first.sequence, last.sequence)} "
        f"acknowledged{level} at offset {as_range(first.offset, max(first.offset, last.offset))}, "
        f"{now}: lost{index.reported_to(first.topic, first.offset, last.offset + 1)}"
    )


def losses_of(topic: str, who: str, there: Sequence[bool]) -> Losses:
    """Count losses by their position. If all are lost, they count as lost from the end."""
    lost = len(there) - sum(there)
    suffix = next((n for n, is_there in enumerate(reversed(there)) if is_there), len(there))
    prefix = 0 if suffix == len(there) else there.index(True)
    return Losses(topic, who, len(there), prefix, lost - prefix - suffix, suffix)


def no_duplicate(index: RunIndex) -> Finding:
    """V2. No message twice, none that was never put, none whose put failed."""
    finding = Finding(
        "V2", "no message twice, none that was never put, none whose put failed", NO_LOG
    )
    writers = index.writers
    strangers = {
        line.client for line in index.granted if line.role == "publisher"
    } - writers  # without a journal, what they put is unknown
    for topic, log in index.logs.items():
        for publisher, entries in log.by_publisher.items():
            finding.checked += len(entries)
            attempts = index.puts.get((topic, publisher), {})
            _check_repeats(topic, entries, finding)
            _check_plan(topic, publisher, entries, attempts, finding)
            if writers and publisher not in strangers and not is_dead(topic):
                _check_ghosts(topic, entries, attempts, finding)
    check_no_letter_twice(index, finding)
    return finding


def _check_repeats(topic: str, entries: Sequence[Seen], finding: Finding) -> None:
    first_at: dict[int, int] = {}
    for entry in entries:
        if entry.qos < 2:
            continue  # every copy is stored
        before = first_at.setdefault(entry.sequence, entry.offset)
        if before != entry.offset:
            finding.violations.append(log_faults.stored_twice(topic, entry, before))


def _check_ghosts(
    topic: str, entries: Sequence[Seen], attempts: Attempts, finding: Finding
) -> None:
    for entry in entries:
        attempt = attempts.get((entry.sequence, entry.crc))
        key = key_of(topic, entry)
        what = f"{key.message_id} at offset {entry.offset} of {topic!r}"
        if attempt is None:
            finding.broken(f"{what} (crc {entry.crc:08x}) is a ghost: it was never put", key)
        elif attempt.failed:
            finding.broken(
                f"{what} is stored, and its put failed for certain with {attempt.code}", key
            )


def _check_plan(
    topic: str, publisher: str, entries: Sequence[Seen], attempts: Attempts, finding: Finding
) -> None:
    """Each place of the plan is stored under one number, and the places are in order."""
    at: dict[tuple[int, int, int], Seen] = {}
    last = (0, -1, -1)
    for entry in entries:
        attempt = attempts.get((entry.sequence, entry.crc))
        if attempt is None or attempt.place is None:
            continue
        place = attempt.place
        other = at.setdefault(place, entry)
        where = f"{publisher}'s message {place[1]}:{place[2]} (step:message)"
        if other.sequence != entry.sequence:
            finding.broken(
                f"{where} is on {topic!r} under two numbers: {other.sequence} at offset "
                f"{other.offset} and {entry.sequence} at offset {entry.offset}",
                key_of(topic, entry),
            )
        elif place < last:
            finding.broken(
                f"{where} is on {topic!r} at offset {entry.offset}, after "
                f"{last[1]}:{last[2]}: not the order of the plan",
                key_of(topic, entry),
            )
        last = max(last, place)


def publisher_order(index: RunIndex) -> Finding:
    """V4. In the order of offsets a publisher's numbers are 1, 2, 3, ..., as far as stored."""
    finding = Finding(
        "V4", "each publisher's messages are stored in its order, without gap", NO_LOG
    )
    for log in index.logs.values():
        whole = log.first == 0
        for entries in log.by_publisher.values():
            finding.checked += len(entries)
            numbered = [entry for entry in entries if entry.qos == 2]
            if numbered:
                _check_order(index, log, numbered, finding, whole=whole)
    for (topic, publisher), attempts in index.puts.items():
        acknowledged = sorted(
            a.sequence for a in attempts.values() if a.acknowledged and a.qos == 2
        )
        finding.checked += 0 if index.logs else len(acknowledged)
        invoked = {sequence for sequence, _ in attempts}
        for before, after in pairwise(acknowledged):
            missing = [n for n in range(before + 1, after) if n not in invoked]
            if missing:
                finding.broken(
                    f"{publisher} on {topic!r}: sequences {before} and {after} are acknowledged, "
                    f"and {as_range(missing[0], missing[-1])} between them was never put",
                    MessageKey(topic, publisher, after),
                )
    return finding


def _check_order(
    index: RunIndex, log: FinalLog, entries: Sequence[Seen], finding: Finding, *, whole: bool
) -> None:
    topic = log.topic
    last = 0 if whole else entries[0].sequence - 1
    last_offset = -1
    for entry in entries:
        sequence = entry.sequence
        if sequence < last:
            finding.violations.append(log_faults.out_of_order(topic, entry, last))
        elif sequence > last + 1 and not any(
            index.was_told_lost(topic, offset)
            for offset in range(last_offset + 1, entry.offset)
            if offset not in log.entries
        ):
            finding.violations.append(log_faults.missing_before(topic, entry, last))
        last = max(last, sequence)
        last_offset = entry.offset


def puts_by_topic(index: RunIndex) -> dict[str, list[tuple[int, Attempt]]]:
    """The attempts whose offset is known, with it."""
    by_topic: dict[str, list[tuple[int, Attempt]]] = {}
    for attempt in index.attempts():
        offset = index.offset_of(attempt)
        if offset is not None:
            by_topic.setdefault(attempt.topic, []).append((offset, attempt))
    return by_topic


def real_time_order(index: RunIndex) -> Finding:
    """V5. What was acknowledged before another put began has the smaller offset."""
    finding = Finding(
        "V5",
        "acknowledged before another put began: the smaller offset",
        "no put was acknowledged with an offset",
    )
    for topic, puts in puts_by_topic(index).items():
        over = [(a.acknowledged_ns, offset, a) for offset, a in puts if a.acknowledged]
        over.sort(key=itemgetter(0))
        begun = [(a.invoked_ns, offset, a) for offset, a in puts]
        begun.sort(key=itemgetter(0))
        finding.checked += len(begun) if over else 0
        highest, holder = -1, None
        place = 0
        for invoked_ns, offset, attempt in begun:
            while place < len(over) and over[place][0] < invoked_ns:
                if over[place][1] > highest:
                    _, highest, holder = over[place]
                place += 1
            if offset <= highest and holder is not None:
                finding.broken(
                    f"{attempt.key.message_id} on {topic!r} was put after "
                    f"{holder.key.message_id} was acknowledged at offset {highest}, and has "
                    f"offset {offset}",
                    attempt.key,
                )
    return finding


def unknown_outcomes(index: RunIndex) -> Finding:
    """V11. A put of unknown outcome is stored once or not at all; a transaction whole.

    A publisher that finished its plan has settled what was unknown on the way.
    """
    finding = Finding("V11", "what has an unknown outcome is stored once or not at all")
    finding.reason = "every put had a definite outcome" if index.logs else NO_LOG
    if not index.logs:
        return finding
    check_whole(index, finding)
    for (topic, publisher), attempts in index.puts.items():
        unknown = [a for a in attempts.values() if a.undecided and a.qos == 2]
        if not unknown:
            continue
        finding.checked += len(unknown)
        log = index.logs.get(topic) or FinalLog(topic, audited=True)
        stored: dict[tuple[int, int, int], list[Seen]] = {}
        by_number: dict[tuple[int, int], list[Seen]] = {}
        for entry in log.by_publisher.get(publisher, ()):
            by_number.setdefault((entry.sequence, entry.crc), []).append(entry)
            known = attempts.get((entry.sequence, entry.crc))
            if known is not None and known.place is not None:
                stored.setdefault(known.place, []).append(entry)
        line = index.finished.get(publisher)
        finished = line is not None and line.done and line.expected
        settled = {a.place for a in attempts.values() if a.acknowledged}
        for attempt in unknown:
            here = by_number.get((attempt.sequence, attempt.crc), [])
            if attempt.place is not None:
                here = stored.get(attempt.place, [])
            if len(here) > 1:
                places = ", ".join(f"{e.offset} (number {e.sequence})" for e in here)
                finding.broken(
                    f"{attempt.key.message_id} on {topic!r} had an unknown outcome and its content "
                    f"is stored {len(here)} times, at offsets {places}",
                    attempt.key,
                )
            elif (
                not here
                and finished
                and attempt.place is not None
                and attempt.remembers
                and attempt.place not in settled  # acknowledged and gone is for V1
                and not index.removed_below(topic)
            ):
                finding.broken(
                    f"{attempt.key.message_id} on {topic!r} had an unknown outcome, {publisher} "
                    "has finished its plan, and the message is stored nowhere"
                    + index.reported_to(topic),
                    attempt.key,
                )
    return finding
