"""How a journal is damaged, and what the checker says of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from reliable_pubsub.common.core.journal import (
    AnyLine,
    Finished,
    Found,
    FoundEnd,
    Ok,
    Seen,
    StoredLine,
)
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.core.run import OutputLine
from reliable_pubsub.lab.core.verdict import Verdict

from .small_world import SmallWorld


def broken(verdict: Verdict) -> set[str]:
    return {rule.rule for rule in verdict.rules if not rule.holds}


def texts(verdict: Verdict) -> list[str]:
    return [violation.text for rule in verdict.rules for violation in rule.violations]


def assert_sound(world: SmallWorld) -> Verdict:
    verdict = check(world.run)
    assert texts(verdict) == []
    assert not verdict.losses
    return verdict


# How a journal is damaged.


def places(world: SmallWorld, kind: type[AnyLine], **facts: object) -> list[int]:
    """Indices of the lines that say this."""
    return [
        index
        for index, line in enumerate(world.lines)
        if isinstance(line, kind)
        and all(getattr(line, name) == value for name, value in facts.items())
    ]


def change(world: SmallWorld, index: int, **facts: Any) -> None:
    world.lines[index] = replace(world.lines[index], **facts)


def line_at(world: SmallWorld, index: int) -> Any:
    return world.lines[index]


def edit_log(world: SmallWorld, topic: str, edit: Callable[[Seen], Seen | None]) -> None:
    """Change what the auditor found; None removes a message."""
    for index in places(world, Found, topic=topic):
        edited = [edit(seen) for seen in line_at(world, index).messages]
        change(world, index, messages=tuple(seen for seen in edited if seen is not None))


def edit_everywhere(world: SmallWorld, topic: str, edit: Callable[[Seen], Seen]) -> None:
    """Change what every client saw of a topic, so that all agree on it."""
    for index, line in enumerate(world.lines):
        if isinstance(line, Found | StoredLine | Ok) and line.topic == topic and line.messages:
            change(world, index, messages=tuple(map(edit, line.messages)))
    for name, lines in world.outputs.items():
        world.outputs[name] = [
            OutputLine(line.topic, edit(line.message)) if line.topic == topic else line
            for line in lines
        ]


def append_found(world: SmallWorld, topic: str, publisher: str, sequence: int, crc: int) -> None:
    """One more message at the end of the log, which no reader sees."""
    index = places(world, FoundEnd, topic=topic)[-1]
    end = line_at(world, index).end
    seen = Seen(end, publisher, sequence, crc, 1_000 + end)
    world.lines.insert(
        index, Found(at_ns=1, process="auditor", pid=2, topic=topic, messages=(seen,))
    )
    change(world, index + 1, end=end + 1)


def not_drained(world: SmallWorld) -> None:
    for index in places(world, Finished):
        change(world, index, drained=False)


def batch(world: SmallWorld, index: int) -> tuple[Seen, ...]:
    return tuple(line_at(world, index).messages)


def move_subscription(world: SmallWorld, name: str, by: int) -> None:
    index = places(world, Ok, op="subscribe", process=name)[0]
    change(world, index, cursor=line_at(world, index).cursor + by)
