"""How sessions end: a part of rule V9. Pure."""

from __future__ import annotations

from reliable_pubsub.common.core.journal import ExpiredLine, Ok, PositionLine

from .finding import Finding
from .run_index import RunIndex


def check_ends(index: RunIndex, finding: Finding) -> None:
    """A lease ends after twice its time in silence; an ended session is final and reported."""
    if index.rollbacks_ns:
        return  # a proxy that was set back does not know what has ended
    ended: dict[tuple[str, str], int] = {}
    for line in index.proxy_lines:
        if not isinstance(line, PositionLine | ExpiredLine):
            continue
        key = (line.topic, line.subscriber)
        who = f"{line.subscriber} on {line.topic!r}, generation {line.generation},"
        if isinstance(line, ExpiredLine):
            finding.checked += 1
            if line.silent_ms and (not line.lease_ms or line.silent_ms < 2 * line.lease_ms):
                finding.broken(
                    f"{who} has expired after {line.silent_ms} ms of silence; its lease is "
                    f"{line.lease_ms} ms, and twice that is borne"
                )
        elif line.active and line.generation <= ended.get(key, 0):
            finding.broken(f"{who} moved to {line.cursor} after it had ended")
        if line.session == "clean" if isinstance(line, ExpiredLine) else not line.active:
            ended[key] = line.generation
    _check_told(index, finding)


def _check_told(index: RunIndex, finding: Finding) -> None:
    """A subscriber that resumes an ended clean session has to get the report that it ended."""
    for stream in index.streams.values():
        for subscription in stream.subscriptions:
            generation = subscription.opened.generation if subscription.opened else 0
            for _, _, line in subscription.happenings:
                if not isinstance(line, Ok) or line.op != "subscribe":
                    continue
                key = (stream.topic, stream.subscriber, generation)
                if line.generation != generation and index.clean_ends.get(key, line.at_ns) < (
                    line.at_ns
                ):
                    finding.broken(
                        f"{stream.subscriber} on {stream.topic!r} continues at {line.cursor}, and "
                        f"was never told that its clean session {generation} had ended"
                    )
                generation = line.generation
