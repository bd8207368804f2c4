"""Several small worlds as one run: each with topics and clients of its own, of one proxy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import fields, replace

from reliable_pubsub.common.core.journal import AnyLine, Begin, Seen
from reliable_pubsub.lab.core.run import OutputLine

from .small_world import SmallWorld

NAMES = ("process", "topic", "subscriber", "client", "dead_topic", "target", "output")
ALL_KNOW = ("", "proxy", "auditor", "lab")


def side_by_side(worlds: Sequence[SmallWorld]) -> SmallWorld:
    """What happened in each, at the same time."""
    every = SmallWorld()
    every.lines.clear()
    for number, world in enumerate(worlds):
        prefix = f"w{number}."
        for line in world.lines:
            if not (number and isinstance(line, Begin) and line.process == "proxy"):
                every.lines.append(renamed(line, prefix))
        for name, lines in world.outputs.items():
            every.outputs[prefix + name] = [
                OutputLine(prefix + line.topic, _seen(line.message, prefix)) for line in lines
            ]
        every.payloads |= world.payloads
    every.lines.sort(key=lambda line: line.at_ns)
    return every


def renamed(line: AnyLine, prefix: str) -> AnyLine:
    """The same, of other clients and topics."""
    changed: dict[str, Any] = {}
    for one in fields(line):
        value = getattr(line, one.name)
        if one.name in NAMES and value not in ALL_KNOW:
            changed[one.name] = prefix + value
        elif isinstance(value, Seen):
            changed[one.name] = _seen(value, prefix)
        elif isinstance(value, tuple) and value and isinstance(value[0], Seen):
            changed[one.name] = tuple(_seen(seen, prefix) for seen in value)
        elif isinstance(value, dict):
            changed[one.name] = {prefix + name: cursor for name, cursor in value.items()}
    return replace(line, **changed)


def _seen(seen: Seen, prefix: str) -> Seen:
    return replace(seen, publisher=prefix + seen.publisher)
