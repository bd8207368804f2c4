"""Dead letters: parts of rules V2 and V6. A message that is given up is no loss, and no gap. Pure.

Its subscriber said so (`reject`), its letter is in `<topic>.dead` once, and no other client puts
there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from zlib import crc32

from reliable_pubsub.common.core.dead_letter import DEAD_SUFFIX, is_dead
from reliable_pubsub.common.core.journal import Ok

from .final_log import FinalLog
from .finding import Finding
from .run_index import RunIndex
from .verdict import key_of

WITHOUT_PAYLOAD = crc32(b"")  # of a letter whose payload did not fit


def check_no_letter_twice(index: RunIndex, finding: Finding) -> None:
    """V2. One letter for each message of a subscription, with the content of the message."""
    if index.rollbacks_ns:
        return  # a message that was given up may be given up again
    seen: set[tuple[str, str, int, int]] = set()
    for line in index.dead_letters:
        finding.checked += 1
        key = (line.topic, line.subscriber, line.generation, line.offset)
        what = f"{line.subscriber}'s letter for offset {line.offset} of {line.topic!r}"
        if key in seen:
            finding.broken(
                f"{what} is stored twice, the second time at offset {line.letter.offset}",
                key_of(line.dead_topic, line.letter),
            )
        seen.add(key)
        log = index.logs.get(line.topic)
        message = log.entries.get(line.offset) if log else None
        if message is not None and line.letter.crc not in (message.crc, WITHOUT_PAYLOAD):
            finding.broken(f"{what} has another content", key_of(line.dead_topic, line.letter))
    for topic, log in index.logs.items():
        if is_dead(topic):
            _check_copies(index, log, finding)


def _check_copies(index: RunIndex, letters: FinalLog, finding: Finding) -> None:
    """No subscriber has more letters of one content than it was subscribed to messages of it."""
    topic = letters.topic.removesuffix(DEAD_SUFFIX)
    log = index.logs.get(topic)
    if log is None or not log.is_whole:
        return
    messages = Counter(entry.crc for entry in log.entries.values())
    for subscriber, entries in letters.by_publisher.items():
        if (subscriber, topic) in index.members:
            continue  # its letters are of a group, and rule V13 has them
        stream = index.streams.get((subscriber, topic))
        subscriptions = len(stream.subscriptions) if stream else 0
        # If an operator moved or ended one, its messages may come again.
        subscriptions += len(index.moves.get((topic, subscriber), ()))
        subscriptions += sum(1 for _ in index.ends_by_operator(topic, subscriber))
        copies = Counter(entry.crc for entry in entries if entry.crc != WITHOUT_PAYLOAD)
        finding.checked += len(entries)
        for entry in entries:
            if copies.get(entry.crc, 0) > messages[entry.crc] * subscriptions:
                finding.broken(
                    f"{letters.topic!r} has {copies.pop(entry.crc)} letters of {subscriber} with "
                    f"the content of offset {entry.offset}, and it was subscribed to "
                    f"{messages[entry.crc] * subscriptions} such messages",
                    key_of(letters.topic, entry),
                )


def check_letters_are_there(index: RunIndex, finding: Finding) -> None:
    """V6. Each message that was given up is among the dead letters."""
    for subscriber, topic, offset, letter in _given_up(index):
        log = index.logs.get(topic + DEAD_SUFFIX)
        if log is None and not index.has_proxy:
            continue
        finding.checked += 1
        entry = log.entries.get(letter) if log else None
        gone = log is not None and letter < index.removed_below(log.topic)
        if not gone and (entry is None or entry.publisher != subscriber):
            finding.broken(
                f"{subscriber} gave offset {offset} of {topic!r} up, and its letter is not stored "
                f"at offset {letter} of {topic + DEAD_SUFFIX!r}: lost"
            )


def _given_up(index: RunIndex) -> Iterator[tuple[str, str, int, int]]:
    """Subscriber, topic, offset, and offset of the letter, where the proxy has answered."""
    for stream in index.streams.values():
        for subscription in stream.subscriptions:
            for _, _, line in subscription.happenings:
                if not isinstance(line, Ok) or line.op != "reject" or line.cursor is None:
                    continue
                if line.offset is not None:  # else the letter of an earlier process
                    yield stream.subscriber, stream.topic, line.cursor - 1, line.offset
