"""What was put at QoS 0: handed over at most once, and in no log. A part of rule V6. Pure."""

from __future__ import annotations

from reliable_pubsub.common.core.journal import Found, StoredLine

from .finding import Finding
from .run_index import RunIndex
from .verdict import MessageKey, key_of


def check_unstored(index: RunIndex, finding: Finding) -> None:
    """Losses are allowed here; a second copy is a fault, and so is one that was stored.

    What a process was pushed when another one had its id does not count, as with what is stored.
    """
    handed: set[tuple[str, MessageKey]] = set()
    writers = {(key.topic, key.publisher) for key in index.offered}
    for one in index.unstored:
        if one.at_ns >= one.life.superseded_ns:
            continue
        finding.checked += 1
        subscriber, topic, seen = one.life.process, one.topic, one.seen
        key = key_of(topic, seen)
        if (subscriber, key) in handed:
            finding.broken(f"{subscriber} was handed {_words(key)} a second time", key)
        handed.add((subscriber, key))
        if (topic, seen.publisher) in writers and seen.crc != index.offered.get(key):
            finding.broken(f"{subscriber} was handed {_words(key)} which was never put so", key)
    lines: list[StoredLine | Found] = [*index.stored, *index.found]
    for line in lines:
        for seen in line.messages:
            key = key_of(line.topic, seen)
            if key in index.offered or seen.qos == 0:
                finding.broken(f"{_words(key)} is in the log at {seen.offset}", key)


def _words(key: MessageKey) -> str:
    return f"{key.publisher}_{key.sequence} on {key.topic!r}, put at QoS 0,"
