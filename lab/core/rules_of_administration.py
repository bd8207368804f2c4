"""What operators did; nothing else moves or ends a subscription: a part of rule V7. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from reliable_pubsub.common.core.journal import (
    AdministeredLine,
    Failed,
    GroupMovedLine,
    Invoke,
    Ok,
    PositionLine,
    ProxyLine,
    StoredLine,
    TrimmedLine,
)
from reliable_pubsub.common.core.patterns.matching import is_of
from reliable_pubsub.common.core.patterns.pattern import Pattern

from .finding import Finding
from .run_index import RunIndex


@dataclass(slots=True)
class _Asked:
    """When a subscriber asked for something on a topic."""

    subscribe: list[int] = field(default_factory=list)
    unsubscribe: list[int] = field(default_factory=list)


def check_actions(index: RunIndex, finding: Finding) -> None:
    """An action changes what its line says; this decides where a subscriber continues."""
    if index.rollbacks_ns:
        return  # an operator's actions may be gone with the rest
    lines = index.proxy_lines
    for line, following in zip_longest(lines, lines[1:]):
        if isinstance(line, AdministeredLine):
            finding.checked += 1
            if following is not None and following.pid == line.pid:
                _check_effect(line, following, finding)
    _check_pauses(lines, finding)
    _check_causes(index, finding)
    _check_moved(index, finding)


def _check_effect(line: AdministeredLine, following: ProxyLine, finding: Finding) -> None:
    """The record of what it changes is in the same commit."""
    who = f"action {line.number} ({line.action})"
    match line.action:
        case "delete_topic" if line.first == line.end:
            pass  # there was nothing to remove
        case "truncate" | "delete_topic":
            is_it = isinstance(following, TrimmedLine) and following.topic == line.topic
            if not is_it or following.start != line.end:  # type: ignore[union-attr]
                finding.broken(
                    f"{who} removes what is below {line.end} of {line.topic!r}, {_told(following)}"
                )
        case "end_subscription" if line.subscriber.startswith("group:"):
            group = line.subscriber.removeprefix("group:")
            said_of = (line.topic, group, line.generation, line.end)
            if (
                not isinstance(following, GroupMovedLine)
                or (following.topic, following.group, following.generation, following.cursor)
                != said_of
            ):
                finding.broken(f"{who} ends {group!r} of {line.topic!r}, {_told(following)}")
        case "set_cursor" | "skip" | "end_subscription":
            said = (line.topic, line.subscriber, line.generation, line.end)
            active = line.action != "end_subscription"
            if (
                not isinstance(following, PositionLine)
                or (following.topic, following.subscriber, following.generation, following.cursor)
                != said
                or following.active != active
            ):
                finding.broken(
                    f"{who} says generation {line.generation}, cursor {line.end} for "
                    f"{line.subscriber} on {line.topic!r}, {_told(following)}"
                )


def _told(line: ProxyLine) -> str:
    return f"and what follows is {line}"


def _check_pauses(lines: Sequence[ProxyLine], finding: Finding) -> None:
    """Nothing is put while puts are paused."""
    paused: AdministeredLine | None = None
    for line in lines:
        if isinstance(line, AdministeredLine) and line.action in ("pause", "resume"):
            paused = line if line.action == "pause" else None
        elif isinstance(line, StoredLine) and paused is not None and line.pid == paused.pid:
            first = line.messages[0]
            finding.broken(
                f"{line.process} stored {first.publisher}_{first.sequence} on {line.topic!r} after "
                f"action {paused.number} had paused puts"
            )


def _asked(index: RunIndex) -> Mapping[tuple[str, str], _Asked]:
    """What was asked for, by topic and client; with a pattern for all topics that it matches."""
    asked: dict[tuple[str, str], _Asked] = {}
    for line in index.run.lines:
        if not isinstance(line, Invoke):
            continue
        topics: Iterable[str] = (line.topic,)
        if line.op in ("match", "unmatch"):
            topics = (one.topic for one in index.created if is_of(_pattern(line), one.topic))
        for topic in topics:
            of = asked.setdefault((topic, line.process), _Asked())
            if line.op in ("subscribe", "match"):
                of.subscribe.append(line.at_ns)
            elif line.op in ("unsubscribe", "unmatch"):
                of.unsubscribe.append(line.at_ns)
    return asked


def _pattern(line: Invoke) -> Pattern:
    kind, _, text = line.match.partition(" ")
    return Pattern(kind, text)


def _check_causes(index: RunIndex, finding: Finding) -> None:
    """A subscription begins again, or ends, because its subscriber or an operator asked for it."""
    asked = _asked(index)
    whole = {line.topic for line in index.created}  # the journal begins before these topics
    begun: dict[str, int] = {}
    for life in index.lives.values():
        if life.role == "subscriber":
            begun[life.process] = min(life.began_ns, begun.get(life.process, life.began_ns))
    unknown: set[tuple[str, str]] = set()  # its subscriber was there before, without a journal
    generations: dict[tuple[str, str], set[int]] = {}
    for line in index.positions:
        key = (line.topic, line.subscriber)
        if line.topic not in whole or line.subscriber not in begun:
            continue
        if line.at_ns < begun[line.subscriber]:
            unknown.add(key)
        if key in unknown:
            continue
        by_operator = index.moves.get(key, {})
        own = generations.setdefault(key, set())
        if line.generation not in by_operator:
            own.add(line.generation)
        times = asked.get(key, _Asked())
        who = f"{line.process} has {line.subscriber} on {line.topic!r}"
        ended = sum(one.at_ns < line.at_ns for one in index.ends_by_operator(*key))
        if len(own) > bisect_left(times.subscribe, line.at_ns) + ended:  # then it subscribes again
            finding.broken(
                f"{who} at generation {line.generation}, cursor {line.cursor}, which neither it "
                "nor an operator asked for"
            )
            own.discard(line.generation)
        if line.active or line.session == "clean" or index.ended_by_operator(line):
            continue
        if not bisect_left(times.unsubscribe, line.at_ns):
            finding.broken(f"{who} ended, which neither it nor an operator asked for")


def _check_moved(index: RunIndex, finding: Finding) -> None:
    """A subscriber that continues in a moved subscription continues where the operator put it."""
    for stream in index.streams.values():
        moves = index.moves.get((stream.topic, stream.subscriber), {})
        seen: set[int] = set()
        for subscription in stream.subscriptions:
            opened = [] if subscription.opened is None else [subscription.opened]
            lines = [line for _, _, line in subscription.happenings]
            for line in [*opened, *lines]:
                if isinstance(line, Failed) or line.op != "subscribe" or line.generation in seen:
                    continue
                seen.add(line.generation)
                _check_place(moves.get(line.generation), line, finding)


def _check_place(move: AdministeredLine | None, line: Ok, finding: Finding) -> None:
    if move is None or move.action != "set_cursor" or line.cursor is None:
        return
    if line.cursor > move.end:
        finding.broken(
            f"{line.process} continues at {line.cursor} of {line.topic!r}, and action "
            f"{move.number} had moved it to {move.end}"
        )
