"""Rule V10: a fenced process no longer has any effect. Pure."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from reliable_pubsub.common.core.journal import (
    ControlSeenLine,
    DeadLetteredLine,
    GrantedLine,
    PositionLine,
    ProxyLine,
    StoredLine,
)

from .finding import Finding
from .run_index import RunIndex
from .verdict import MessageKey, key_of


def fenced_are_silent(index: RunIndex) -> Finding:
    """V10. After an epoch is granted, nothing is done under an older one.

    A subscription that a pattern began is the proxy's doing, when the topic was created. Its client
    only learns of it, as by a get, and the answer may be late.
    """
    finding = Finding(
        "V10",
        "a fenced process has no effect any more",
        "no journal names an epoch",
    )
    granted = [(line.role, line.client, line.at_ns, line.epoch) for line in index.granted]
    granted += [(life.role, life.process, line.at_ns, line.epoch) for life, _, line in index.hellos]
    fences: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
    for role, client, at_ns, epoch in sorted(granted, key=lambda grant: grant[2]):
        times, highest = fences.setdefault((role, client), ([], []))
        times.append(at_ns)
        highest.append(max(epoch, highest[-1] if highest else 0))
    for life, invoke, line in index.effects:
        epoch = line.epoch or invoke.epoch
        role = "publisher" if line.op == "put" else "subscriber"
        fence = fences.get((role, line.process))
        is_told = line.op == "subscribe" and bool(invoke.match)
        if not epoch or fence is None or is_told:
            continue
        finding.checked += 1
        place = bisect_left(fence[0], invoke.at_ns) - 1
        if place >= 0 and epoch < fence[1][place]:
            key = MessageKey(line.topic, line.process, line.sequence) if line.sequence else None
            finding.broken(
                f"{line.process} (pid {life.pid}): {line.op} on {line.topic!r} under epoch {epoch} "
                f"was accepted, begun after epoch {fence[1][place]} was granted",
                key,
            )
    _check_proxy_epochs(index, finding, {key: max(both[1]) for key, both in fences.items()})
    return finding


def _check_proxy_epochs(
    index: RunIndex, finding: Finding, highest: dict[tuple[str, str], int]
) -> None:
    """In the proxy's own order: what it stores and moves belongs to the newest epoch."""
    newest: dict[tuple[str, str], int] = {}
    used: dict[tuple[str, str], int] = {}
    for line in index.proxy_lines:
        if isinstance(line, GrantedLine):
            client = (line.role, line.client)
            if newest.get(client, 0) < line.epoch <= used.get(client, 0):
                finding.broken(
                    f"{line.process} granted {line.role} {line.client} epoch {line.epoch} after "
                    "something was done under it"
                )
            newest[client] = line.epoch
            continue
        effect = _effect_of(line)
        if effect is None or not effect.epoch:
            continue
        finding.checked += 1
        client, epoch = effect.client, effect.epoch
        what = f"{line.process} {effect.what} under epoch {epoch}"
        if epoch < newest.get(client, 0):
            finding.broken(f"{what}, after it had granted {newest[client]}", effect.key)
        elif client in highest and epoch > highest[client]:
            finding.broken(f"{what}, which was never granted", effect.key)
        used[client] = max(epoch, used.get(client, 0))


@dataclass(slots=True)
class _Effect:
    """Something that the proxy did for a client."""

    client: tuple[str, str]  # role, id
    epoch: int  # 0: unknown
    what: str
    key: MessageKey | None = None


def _effect_of(line: ProxyLine) -> _Effect | None:
    match line:
        case StoredLine(topic=topic, epoch=epoch, messages=[first, *_]):
            what = f"stored {first.publisher}_{first.sequence} on {topic!r}"
            return _Effect(("publisher", first.publisher), epoch, what, key_of(topic, first))
        case PositionLine(topic=topic, subscriber=subscriber, epoch=epoch):
            return _Effect(("subscriber", subscriber), epoch, f"moved {subscriber} on {topic!r}")
        case DeadLetteredLine(topic=topic, subscriber=subscriber, epoch=epoch):
            what = f"let {subscriber} give up offset {line.offset} of {topic!r}"
            return _Effect(("subscriber", subscriber), epoch, what)
        case ControlSeenLine(subscriber=subscriber, epoch=epoch):
            return _Effect(("subscriber", subscriber), epoch, f"let {subscriber} leave")
    return None
