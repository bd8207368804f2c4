"""What a report draws over time: the lives of each process, what it did, what was done to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from reliable_pubsub.common.core.journal import (
    AnyLine,
    Begin,
    End,
    Event,
    Failed,
    Finished,
    Found,
    FoundEnd,
    Invoke,
    Ok,
    ProxyLine,
    Seen,
    StoredLine,
    Unknown,
)

from .core.verdict import MessageKey

MarkKind = Literal["put", "retried", "unknown", "failed", "commit", "delivery", "redelivery"]
ROLES = ("proxy", "relay", "publisher", "subscriber")  # from top to bottom
LINK_FAULTS = ("cut", "cut_push", "half_open", "delay", "slow")
PERIODS = {"stop": "continue", "fill_disk": "free_disk"} | dict.fromkeys(LINK_FAULTS, "heal")
DEATHS = frozenset({"kill", "power_loss", "rollback"})  # a rollback begins with kill -9
_SILENT = frozenset({*PERIODS.values(), "restart"})  # a bar ends or begins there


class LaneLife(Struct):
    """One life of a process. It is filled while the lines are read."""

    begin_ns: int
    end_ns: int  # so far: its last line
    pid: int
    ended: Literal["", "done", "error", "killed"] = ""  # "": it was there at the end
    code: str = ""
    open_puts: dict[int, tuple[int, Invoke]] = {}  # by call: when it began, what it is now


class LaneMark(Struct, frozen=True):
    """Something that a process did."""

    at_ns: int
    until_ns: int
    kind: MarkKind
    text: str
    count: int = 1  # operations it represents; above 1 it is a sum
    messages: tuple[MessageKey, ...] = ()


class LaneFault(Struct, frozen=True):
    """Something that was done to a process, a link or a disk."""

    what: str
    target: str
    detail: str
    at_ns: int
    until_ns: int | None = None  # None: a moment, not a period


class Lane(Struct):
    """One process."""

    process: str
    role: str
    lives: list[LaneLife] = []
    marks: list[LaneMark] = []
    faults: list[LaneFault] = []

    @property
    def kills(self) -> int:
        """How many of its lives were ended from outside."""
        return sum(life.ended == "killed" for life in self.lives)


class Scene(Struct, frozen=True, kw_only=True):
    """All lanes over one axis of time."""

    begin_ns: int
    end_ns: int
    wall_ns: int  # wall clock at the begin; 0: no line says so
    lanes: Sequence[Lane]
    elsewhere: Sequence[LaneFault]  # of no process that has a lane
    faults: Sequence[LaneFault]  # all


def scene(lines: Sequence[AnyLine]) -> Scene:
    """Put the lines of a run into lanes."""
    reader = _Reader()
    for line in lines:
        reader.read(line)
    begin_ns = lines[0].at_ns if lines else 0
    end_ns = max((line.at_ns for line in lines), default=0)
    return reader.scene(begin_ns, max(end_ns, begin_ns + 1))


class _Reader:
    """Takes the lines one by one, by time."""

    def __init__(self) -> None:
        self._lanes: dict[str, Lane] = {}
        self._open_faults: dict[tuple[str, str], Event] = {}
        self._faults: list[LaneFault] = []
        self._wall_ns = 0

    def read(self, line: AnyLine) -> None:
        if isinstance(line, Event):
            self._event(line)
            return
        if isinstance(line, Found | FoundEnd | Finished):
            return
        role = _role(line)
        lane = self._lanes.setdefault(line.process, Lane(line.process, role))
        if isinstance(line, Begin):
            lane.role = line.role
            self._wall_ns = self._wall_ns or line.wall_ns
        life = self._life(lane, line)
        if not life.ended:
            life.end_ns = max(life.end_ns, line.at_ns)
        if isinstance(line, End):
            life.ended, life.code = ("error" if line.code else "done"), line.code
        elif isinstance(line, Invoke):
            if line.op == "put":
                began_ns = life.open_puts.get(line.call, (line.at_ns, line))[0]
                life.open_puts[line.call] = (began_ns, line)
        elif isinstance(line, Ok | Failed | Unknown):
            lane.marks += _answer_marks(line, life)
        elif isinstance(line, StoredLine):
            lane.marks.append(_commit(line))

    def _life(self, lane: Lane, line: AnyLine) -> LaneLife:
        """The life a line belongs to: a `begin` or a new process id begins one."""
        if not isinstance(line, Begin):
            for life in reversed(lane.lives):
                if life.pid == line.pid:
                    return life
        life = LaneLife(line.at_ns, line.at_ns, line.pid)
        lane.lives.append(life)
        return life

    def _event(self, event: Event) -> None:
        for begin, end in PERIODS.items():
            if event.what == end and (begin, event.target) in self._open_faults:
                self._close(begin, event.target, event.at_ns)
        if event.what in PERIODS:
            self._open_faults.setdefault((event.what, event.target), event)
        elif event.what not in _SILENT:
            fault = LaneFault(event.what, event.target, event.detail, event.at_ns)
            self._faults.append(fault)
        if event.what in DEATHS:
            self._close("stop", event.target, event.at_ns)
            lane = self._lanes.get(event.target)
            for life in lane.lives if lane else ():
                if not life.ended:
                    life.ended, life.end_ns = "killed", event.at_ns

    def _close(self, what: str, target: str, at_ns: int) -> None:
        event = self._open_faults.pop((what, target), None)
        if event is not None:
            self._faults.append(LaneFault(what, target, event.detail, event.at_ns, at_ns))

    def scene(self, begin_ns: int, end_ns: int) -> Scene:
        for what, target in list(self._open_faults):
            self._close(what, target, end_ns)
        elsewhere = []
        for fault in sorted(self._faults, key=lambda fault: fault.at_ns):
            if fault.target in self._lanes and self._lanes[fault.target].role in ROLES:
                self._lanes[fault.target].faults.append(fault)
            else:
                elsewhere.append(fault)
        lanes = [lane for lane in self._lanes.values() if lane.role in ROLES]
        for lane in lanes:
            for life in lane.lives:
                if not life.ended:
                    life.end_ns = end_ns
                for began_ns, invoke in life.open_puts.values():
                    lane.marks.append(_unanswered(began_ns, invoke, life))
            lane.marks.sort(key=lambda mark: mark.at_ns)
        lanes.sort(key=lambda lane: (ROLES.index(lane.role), lane.process))
        return Scene(
            begin_ns=begin_ns,
            end_ns=end_ns,
            wall_ns=self._wall_ns,
            lanes=lanes,
            elsewhere=elsewhere,
            faults=sorted(self._faults, key=lambda fault: fault.at_ns),
        )


def _role(line: AnyLine) -> str:
    """What a process without a `begin` must be, by what it says."""
    if isinstance(line, ProxyLine):
        return "proxy"
    if isinstance(line, Invoke | Ok | Failed | Unknown) and line.op in ("put", "hello"):
        return "publisher"
    return "subscriber"


def _answer_marks(line: Ok | Failed | Unknown, life: LaneLife) -> Iterable[LaneMark]:
    began_ns = line.at_ns
    if line.op == "put":
        began_ns, invoke = life.open_puts.pop(line.call, (line.at_ns, None))
        what = _put_text(invoke) if invoke else f"put to {line.topic}"
        messages = _put_messages(invoke) if invoke else ()
        if isinstance(line, Ok):
            where = "" if line.offset is None else f" at offset {line.offset}"
            text = f"{what}: acknowledged{where} after {duration(line.at_ns - began_ns)}"
            kind: MarkKind = "retried" if line.duplicate else "put"
            text += ", an earlier attempt had stored it" if line.duplicate else ""
            yield LaneMark(began_ns, line.at_ns, kind, text, 1, messages)
            return
    elif isinstance(line, Ok):
        yield from _delivery_marks(line) if line.op == "get" else ()
        return
    else:
        what, messages = f"{line.op} of {line.topic}" if line.topic else line.op, ()
    if isinstance(line, Unknown):
        text = f"{what}: outcome unknown ({line.code}) after {duration(line.at_ns - began_ns)}"
        yield LaneMark(began_ns, line.at_ns, "unknown", text, 1, messages)
    else:
        lost = f", offsets {line.first} to {line.end - 1} were lost" if line.end else ""
        yield LaneMark(line.at_ns, line.at_ns, "failed", f"{what}: {line.code}{lost}", 1, messages)


def _delivery_marks(line: Ok) -> Iterable[LaneMark]:
    """The messages of one hand-over; those that came before, apart."""
    kinds: dict[MarkKind, list[Seen]] = defaultdict(list)
    for seen in line.messages:
        kinds["redelivery" if seen.delivery_count > 1 else "delivery"].append(seen)
    for kind, messages in kinds.items():
        verb = "delivered again" if kind == "redelivery" else "delivered"
        text = f"{_seen_text(line.topic, messages)} {verb}"
        yield LaneMark(line.at_ns, line.at_ns, kind, text, 1, _keys(line.topic, messages))


def _commit(line: StoredLine) -> LaneMark:
    text = f"{_seen_text(line.topic, line.messages)} durable"
    return LaneMark(line.at_ns, line.at_ns, "commit", text, 1, _keys(line.topic, line.messages))


def _unanswered(began_ns: int, invoke: Invoke, life: LaneLife) -> LaneMark:
    text = f"{_put_text(invoke)}: no answer in this life, outcome unknown"
    return LaneMark(began_ns, life.end_ns, "unknown", text, 1, _put_messages(invoke))


def _put_text(invoke: Invoke) -> str:
    count = max(len(invoke.crcs), 1)
    first = f"{invoke.process}_{invoke.sequence}"
    last = f" to _{invoke.sequence + count - 1} ({count} messages)" if count > 1 else ""
    return f"put {first}{last} to {invoke.topic}"


def _put_messages(invoke: Invoke) -> tuple[MessageKey, ...]:
    sequences = range(invoke.sequence, invoke.sequence + max(len(invoke.crcs), 1))
    return tuple(MessageKey(invoke.topic, invoke.process, sequence) for sequence in sequences)


def _seen_text(topic: str, messages: Sequence[Seen]) -> str:
    first, last = messages[0], messages[-1]
    if len(messages) == 1:
        return f"{first.publisher}_{first.sequence} of {topic}, offset {first.offset}:"
    return f"{len(messages)} messages of {topic}, offsets {first.offset} to {last.offset}:"


def _keys(topic: str, messages: Sequence[Seen]) -> tuple[MessageKey, ...]:
    return tuple(MessageKey(topic, seen.publisher, seen.sequence) for seen in messages)


def duration(length_ns: float) -> str:
    """A duration for people, three digits of it."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if length_ns >= size:
            return (
                f"{length_ns / size:.3g} {unit}" if length_ns < 1e12 else f"{length_ns / 1e9:.0f} s"
            )
    return f"{length_ns:.0f} ns"
