"""Rule V13: a message of a group is with one live member at a time, and ends once. Pure.

A member holds a message from the moment in which its program was handed it until it settles it,
its lease ends by its own clock, or a newer process of its id is granted an epoch. Two such times
of one message must not overlap. What was acknowledged, and not refused, comes to no member again,
and is in the output of its member, if that has one. Each delivery has its own number, and a message
that no member was handed is no dead letter. Where the members had everything, each message was
acknowledged, rejected, or reported as lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from reliable_pubsub.common.core.journal import Begin, Failed, Invoke, Ok, Seen, Unknown

from .finding import Finding, as_range, runs_of
from .run_index import Life, RunIndex
from .subscription import NEVER
from .verdict import key_of

GroupKey = tuple[str, str, int]  # topic, group, generation


@dataclass(slots=True)
class Holding:
    """A message in the hands of a member."""

    process: str
    pid: int
    epoch: int
    seen: Seen
    from_ns: int
    until_ns: int
    is_fenced: bool = False  # it was handed over when a newer process had the id: it has no effect


@dataclass(slots=True)
class OfGroup:
    """What the members of one group say."""

    topic: str
    group: str
    generation: int = 0
    began_ns: int = NEVER  # when its first member asked to join
    start: int | None = None  # its first offset
    holdings: dict[int, list[Holding]] = field(default_factory=dict)  # by offset
    ended_ns: dict[int, int] = field(default_factory=dict)  # acknowledged: when it was answered
    may_have_ended: set[int] = field(default_factory=set)  # acknowledged without an answer
    twice: list[tuple[int, str]] = field(default_factory=list)
    # Acknowledged: offset, by which process, from the request to its answer.
    ends: list[tuple[int, str, int, int]] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    confirmed: set[int] = field(default_factory=set)  # a member may have had them


def one_holder(index: RunIndex) -> Finding:
    """V13. Never with two live holders, never after its end, and every message ends."""
    finding = Finding(
        "V13",
        "a message of a group is with one live member at a time, and ends once",
        "no client was in a group",
    )
    if index.rollbacks_ns:
        finding.reason = "the proxy was set back, and has forgotten who held what"
        return finding
    for of in _Groups(index).of.values():
        for offset, holdings in of.holdings.items():
            finding.checked += 1
            _check_holders(of, offset, holdings, finding)
        for offset, process in of.twice:
            finding.broken(f"{_what(of, offset)} was acknowledged a second time, by {process}")
        _check_who_ends(of, finding)
        _check_letters(index, of, finding)
        _check_outputs(index, of, finding)
        _check_ends(index, of, finding)
    return finding


def _check_holders(of: OfGroup, offset: int, holdings: Sequence[Holding], finding: Finding) -> None:
    ended_ns = of.ended_ns.get(offset, NEVER)
    before: Holding | None = None
    by_number: dict[int, Holding] = {}
    alive = [one for one in holdings if not one.is_fenced]
    for one in sorted(alive, key=lambda holding: holding.from_ns):
        key = key_of(of.topic, one.seen)
        if before is not None and one.from_ns < before.until_ns:
            finding.broken(
                f"{_what(of, offset)} came to {one.process} while {before.process} still held it "
                f"for {(before.until_ns - one.from_ns) / 1e6:.1f} ms",
                key,
            )
        other = by_number.setdefault(one.seen.delivery_count, one)
        if other is not one:
            finding.broken(
                f"{_what(of, offset)} came to {other.process} and again to {one.process}, both "
                f"times as delivery {one.seen.delivery_count}",
                key,
            )
        if one.from_ns > ended_ns:
            finding.broken(
                f"{_what(of, offset)} came to {one.process} after it had been acknowledged", key
            )
        if before is None or one.until_ns > before.until_ns:
            before = one


def _check_who_ends(of: OfGroup, finding: Finding) -> None:
    """No member ends what another one holds."""
    for offset, process, asked_ns, answered_ns in of.ends:
        for one in of.holdings.get(offset, ()):
            is_alive = one.from_ns < asked_ns and answered_ns < one.until_ns
            if one.process != process and is_alive and not one.is_fenced:
                text = f"{_what(of, offset)} was acknowledged by {process}"
                finding.broken(f"{text} while {one.process} held it", key_of(of.topic, one.seen))


def _check_letters(index: RunIndex, of: OfGroup, finding: Finding) -> None:
    """Check that a member had each message that became a dead letter (rule R29)."""
    place = (of.topic, f"group:{of.group}", of.generation)
    for line in index.dead_letters:
        is_of_group = (line.topic, line.subscriber, line.generation) == place
        if is_of_group and line.offset not in of.holdings and line.offset not in of.confirmed:
            finding.broken(
                f"{_what(of, line.offset)} is a dead letter, and no member was handed it",
                key_of(line.dead_topic, line.letter),
            )


def _check_outputs(index: RunIndex, of: OfGroup, finding: Finding) -> None:
    """What a member with an output has acknowledged is written there."""
    written = {
        process: {line.message.offset for line in lines if line.topic == of.topic}
        for process, lines in index.outputs.items()
    }
    for offset, process, _, _ in of.ends:
        if process in written and offset not in written[process]:
            finding.broken(
                f"{_what(of, offset)} was acknowledged by {process}, and is not in its output",
                index.message_at(of.topic, offset),
            )


def _check_ends(index: RunIndex, of: OfGroup, finding: Finding) -> None:
    """Where members have had everything: each message has ended."""
    end = index.found_ends.get(of.topic)
    members = [
        index.finished[name]
        for name, topic in index.members
        if name in index.finished and topic == of.topic
    ]
    if end is None or of.start is None or not any(one.drained for one in members):
        return
    if _was_ended(index, of):
        return  # and one of the same name may have begun after it
    rejected = {
        line.offset
        for line in index.dead_letters
        if line.topic == of.topic and line.subscriber == f"group:{of.group}"
    }
    missing = []
    for offset in range(of.start, end.end):
        finding.checked += 1
        if not (
            offset in of.ended_ns
            or offset in of.may_have_ended
            or offset in of.lost
            or offset in rejected
        ):
            missing.append(offset)
    for first, last in runs_of(missing):
        finding.broken(
            f"offset {as_range(first, last)} of {of.topic!r}: no member of {of.group!r} has "
            "acknowledged or rejected it, and the group has passed it: lost",
            index.message_at(of.topic, first),
        )


def _was_ended(index: RunIndex, of: OfGroup) -> bool:
    """Whether an operator ended the group, so that its messages need no end."""
    return any(
        (one.action, one.topic, one.subscriber, one.generation)
        == ("end_subscription", of.topic, f"group:{of.group}", of.generation)
        or (one.action == "delete_topic" and one.topic == of.topic and of.began_ns < one.at_ns)
        for one in index.administered
    )


def _what(of: OfGroup, offset: int) -> str:
    return f"offset {offset} of {of.topic!r} in group {of.group!r}"


class _Groups:
    """Takes the lines of members in their order."""

    def __init__(self, index: RunIndex) -> None:
        self.of: dict[GroupKey, OfGroup] = {}
        self._index = index
        self._in_hand: dict[tuple[str, int], list[tuple[GroupKey, Holding]]] = {}  # of a process
        # By process and topic: the group that it has joined, and its generation.
        self._joined: dict[tuple[str, str], tuple[str, int]] = {}
        # Without an answer, each with the group that it was sent to: a call may join another one.
        self._calls: dict[tuple[str, int, int], list[tuple[OfGroup, Invoke]]] = {}
        for life, line in index.of_groups:
            self._take(life, line)
        for invokes in self._calls.values():
            self._in_doubt(invokes)
        self._fence()

    def _place(self, process: str, topic: str) -> GroupKey:
        """The group that a process has joined last."""
        return (topic, *self._joined.get((process, topic), ("", 0)))

    def _group(self, process: str, topic: str) -> OfGroup:
        place = self._place(process, topic)
        return self.of.setdefault(place, OfGroup(*place))

    def _take(self, life: Life, line: Begin | Invoke | Ok | Failed | Unknown) -> None:
        who = (life.process, life.pid)
        if isinstance(line, Begin):  # it holds nothing: it is new, or its call was broken off
            self._release(who, line.at_ns)
            return
        call = (*who, line.call)
        if isinstance(line, Invoke):
            of = self._group(life.process, line.topic)
            self._calls.setdefault(call, []).append((of, line))
            of.confirmed |= {at for at, how in _each(line) if how == "extend"}
            self._let_go(who, line)
            return
        invokes = self._calls.pop(call, [])
        if isinstance(line, Ok):
            self._answered(life, line, invokes)
            return
        self._in_doubt(invokes)
        if isinstance(line, Failed) and line.code == "LOST":
            self._group(life.process, line.topic).lost |= set(range(line.first, line.end))

    def _let_go(self, who: tuple[str, int], line: Invoke) -> None:
        """What is settled is no longer in hand, whatever the answer is."""
        if line.op == "unsubscribe":
            self._release(who, line.at_ns)
            return
        place = self._place(who[0], line.topic)
        gone = {at for at, how in _each(line) if how != "extend"}
        held = self._in_hand.get(who, [])
        for of, one in held:
            if of == place and one.seen.offset in gone:
                one.until_ns = min(one.until_ns, line.at_ns)
        self._in_hand[who] = [
            pair for pair in held if pair[0] != place or pair[1].seen.offset not in gone
        ]

    def _release(self, who: tuple[str, int], at_ns: int) -> None:
        for _, one in self._in_hand.pop(who, []):
            one.until_ns = min(one.until_ns, at_ns)

    def _in_doubt(self, invokes: Sequence[tuple[OfGroup, Invoke]]) -> None:
        for of, invoke in invokes:
            of.may_have_ended |= {at for at, how in _each(invoke) if how in ("ack", "reject")}

    def _answered(self, life: Life, line: Ok, invokes: Sequence[tuple[OfGroup, Invoke]]) -> None:
        if line.op == "join":
            self._joined[life.process, line.topic] = (line.group, line.generation)
        of = self._group(life.process, line.topic)
        if line.op == "join" and line.cursor is not None:
            of.began_ns = min(of.began_ns, invokes[0][1].at_ns if invokes else line.at_ns)
            of.start = line.cursor if of.start is None else min(of.start, line.cursor)
        place = self._place(life.process, line.topic)
        refused = {first + n for first, count in line.refused for n in range(count)}
        in_doubt = {first + n for first, count in line.in_doubt for n in range(count)}
        of.may_have_ended |= in_doubt
        for asked, invoke in invokes:
            for at, how in _each(invoke):
                if at in refused or at in in_doubt:
                    continue
                if how == "ack":
                    if at in asked.ended_ns:
                        asked.twice.append((at, line.process))
                    asked.ended_ns.setdefault(at, line.at_ns)
                    asked.ends.append((at, line.process, invoke.at_ns, line.at_ns))
                elif how == "extend":
                    self._extend(life, place, at, invoke, line)
        who = (life.process, life.pid)
        for seen in line.messages:
            until_ns = line.at_ns + line.lease_ms * 10**6
            one = Holding(life.process, life.pid, line.epoch, seen, line.at_ns, until_ns)
            of.holdings.setdefault(seen.offset, []).append(one)
            self._in_hand.setdefault(who, []).append((place, one))

    def _extend(self, life: Life, place: GroupKey, at: int, invoke: Invoke, line: Ok) -> None:
        for of, one in self._in_hand.get((life.process, life.pid), []):
            if of == place and one.seen.offset == at and line.lease_ms:
                one.until_ns = max(one.until_ns, invoke.at_ns + line.lease_ms * 10**6)

    def _fence(self) -> None:
        """A newer epoch of its id ends what a process holds."""
        for line in self._index.granted:
            for of in self.of.values() if line.role == "subscriber" else ():
                for one in (one for some in of.holdings.values() for one in some):
                    if one.process == line.client and one.epoch < line.epoch:
                        one.until_ns = min(one.until_ns, line.at_ns)
                        one.is_fenced |= one.from_ns >= line.at_ns


def _each(invoke: Invoke) -> Iterator[tuple[int, str]]:
    """The offsets that a request settles, and how."""
    for first, count, _, how in invoke.outcomes:
        for at in range(first, first + count):
            yield at, how
