"""The second half of rule V1: durable, then visible. Pure.

The proxy writes of a record when it is durable, and before an answer that rests on it leaves. So an
answer that is heard before its line was sent too early. A killed proxy may leave a line out, and a
later one then writes of the same; so only the lines of one life of a proxy are compared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from reliable_pubsub.common.core.journal import Invoke, Ok, PositionLine, ProxyLine

from .finding import Finding
from .run_index import RunIndex


def visible_when_durable(index: RunIndex, finding: Finding) -> None:
    """Whatever was answered had been durable before."""
    if any(life.durability == "snapshot" for life in index.lives.values()):
        return  # it acknowledges from memory, by choice
    _check_puts(index, finding)
    _check_grants(index, finding)
    _check_positions(index, finding)


def _ran_since(index: RunIndex, line: ProxyLine, at_ns: int) -> bool:
    """Whether the life that wrote a line had begun by then."""
    return index.lives[(line.process, line.pid)].began_ns < at_ns


def _check_puts(index: RunIndex, finding: Finding) -> None:
    """The line of a message comes before its receipt."""
    lines: dict[tuple[str, str, int, int], ProxyLine] = {}
    for stored in index.stored:
        for seen in stored.messages:
            key = (stored.topic, seen.publisher, seen.sequence, seen.crc)
            lines.setdefault(key, stored)
    for put in index.attempts():
        line = lines.get((put.topic, put.publisher, put.sequence, put.crc))
        if line is None or line.at_ns < put.acknowledged_ns:
            continue
        if put.acknowledged and _ran_since(index, line, put.invoked_ns):
            finding.broken(
                f"{put.key.message_id} on {put.topic!r} was acknowledged before it was durable",
                put.key,
            )


def _check_grants(index: RunIndex, finding: Finding) -> None:
    """The line of an epoch comes before its HELLO_ACK."""
    lines: dict[tuple[str, str, int], ProxyLine] = {}
    for granted in index.granted:
        lines.setdefault((granted.role, granted.client, granted.epoch), granted)
    for life, invoked_ns, answer in index.hellos:
        line = lines.get((life.role, life.process, answer.epoch))
        if line is None or line.at_ns < answer.at_ns:
            continue
        if _ran_since(index, line, invoked_ns):
            finding.broken(
                f"{life.role} {life.process} heard of its epoch {answer.epoch} before that was "
                "durable"
            )


def _check_positions(index: RunIndex, finding: Finding) -> None:
    """The line of a subscription comes before what its subscriber hears of it."""
    positions: dict[tuple[str, str], list[PositionLine]] = {}
    for line in index.positions:
        positions.setdefault((line.subscriber, line.topic), []).append(line)
    times = {key: [line.at_ns for line in lines] for key, lines in positions.items()}
    for _, invoke, answer in index.effects:
        key = (answer.process, answer.topic)
        if answer.op == "put" or key not in positions:
            continue
        place = bisect_left(times[key], answer.at_ns)
        heard = _Heard(index, invoke, answer, positions[key][:place], positions[key][place:])
        early = {
            "subscribe": _is_early_subscribe,
            "acknowledge": _is_early_acknowledge,
            "unsubscribe": _is_early_unsubscribe,
        }.get(answer.op)
        if early is not None and early(heard):
            finding.broken(
                f"{answer.process} on {answer.topic!r} heard that its {answer.op} was done before "
                "that was durable"
            )


@dataclass(slots=True)
class _Heard:
    """An answer about a subscription, and what the proxy wrote of it before and after that."""

    index: RunIndex
    invoke: Invoke
    answer: Ok
    before: Sequence[PositionLine]
    after: Sequence[PositionLine]


def _is_early_subscribe(heard: _Heard) -> bool:
    """Its own record, of this generation and epoch, comes after the answer, and none before.

    One that a pattern has begun may have its record from an earlier session.
    """
    invoke, answer = heard.invoke, heard.answer

    def is_its(line: PositionLine) -> bool:
        is_of_session = bool(invoke.match) or line.epoch == answer.epoch
        return is_of_session and line.generation == answer.generation

    if invoke.match and any(map(is_its, heard.before)):
        return False
    if any(is_its(line) and line.at_ns > invoke.at_ns for line in heard.before):
        return False
    its = next(filter(is_its, heard.after), None)
    return its is not None and _ran_since(heard.index, its, invoke.at_ns)


def _is_early_acknowledge(heard: _Heard) -> bool:
    """The life that last wrote an older cursor writes this one after the answer.

    An answer that came late speaks of a session whose place a newer one may have left.
    """
    answer, last = heard.answer, heard.before[-1] if heard.before else None
    cursor = answer.cursor or 0
    if last is None or last.cursor >= cursor or last.epoch != answer.epoch:
        return False
    if last.generation in heard.index.moves.get((answer.topic, answer.process), {}):
        return False  # an operator has moved it back since
    reached = next((line for line in heard.after if line.cursor >= cursor), None)
    return reached is not None and (reached.pid, reached.generation) == (last.pid, last.generation)


def _is_early_unsubscribe(heard: _Heard) -> bool:
    """The life that had it as active last ends it after the answer."""
    if not heard.before or not heard.after:
        return False
    last, following = heard.before[-1], heard.after[0]
    if not last.active or following.active:
        return False
    return (following.pid, following.epoch) == (last.pid, heard.answer.epoch)
