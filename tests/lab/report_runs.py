"""Runs made up for the report: a proxy, two publishers, three subscribers and all faults, by seed.

Nothing here is random twice: the same arguments give the same lines. Times are in seconds of the
run and become nanoseconds in the lines.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from msgspec import Struct, structs

from reliable_pubsub.common.core.journal import (
    AnyLine,
    Begin,
    End,
    Event,
    Failed,
    Invoke,
    Ok,
    PositionLine,
    Seen,
    StoredLine,
    Unknown,
)
from reliable_pubsub.lab.core.run import LabRun
from reliable_pubsub.lab.core.verdict import Losses, MessageKey, RuleVerdict, Verdict, Violation

START_NS = 7_000_000_000_000
WALL_NS = 1_790_000_000_000_000_000

# (begin, end): away for good or for a while. Who dies at the end of a life is killed.
LIVES = {
    "proxy": [(0.0, 6.0), (6.7, 13.0), (13.4, 20.0)],
    "publisher-1": [(0.3, 9.03), (9.8, 19.4)],
    "publisher-2": [(0.5, 19.4)],
    "subscriber-1": [(0.2, 11.0), (11.9, 19.8)],
    "subscriber-2": [(0.2, 19.8)],
    "subscriber-3": [(3.0, 19.8)],
}
FAULTS = [  # what, end, target, from, to, detail
    ("stop", "continue", "subscriber-2", 4.0, 5.6, ""),
    ("cut", "heal", "subscriber-1", 15.0, 16.2, "both directions"),
    ("delay", "heal", "publisher-2", 7.5, 9.5, "100 ms"),
    ("fill_disk", "free_disk", "proxy", 17.2, 18.0, ""),
]
TOPICS = {"publisher-1": "orders", "publisher-2": "sensors/temperature"}
TITLES = [
    "Every acknowledged message is in the log",
    "No message is in the log twice",
    "The log holds only what was put, unchanged",
    "A publisher's order is the log's order",
    "All see one order of offsets",
    "An offset never changes its message",
    "What is shown is durable",
    "Each subscriber receives without gap",
    "Each output line stands once",
    "A put after a subscription is delivered",
    "A fenced life has no effect",
    "Who was to finish has finished",
]


class _Put(Struct):
    """A message on its way."""

    publisher: str
    sequence: int
    begin_s: float
    stored_s: float
    topic: str
    offset: int = 0


def at(time_s: float) -> int:
    return START_NS + round(time_s * 1e9)


def _up(process: str, time_s: float) -> float:
    """The first moment from `time_s` on at which a process can work; 99 if never again."""
    for begin, end in LIVES[process]:
        if time_s < end:
            time_s = max(time_s, begin)
            break
    else:
        return 99.0
    for _, _, target, begin, end, _ in FAULTS:
        if target == process and begin <= time_s < end and target != "publisher-2":
            time_s = end
    return time_s


def _both(process: str, time_s: float) -> float:
    """The first moment at which a process and the proxy can work together."""
    for _ in range(6):
        time_s = _up("proxy", _up(process, time_s))
    return time_s


def _pid(process: str, time_s: float) -> int:
    life = sum(begin <= time_s for begin, _ in LIVES[process])
    return 1000 + 100 * list(LIVES).index(process) + life


def sound_run(
    puts_per_s: float = 12.0, seed: int = 1, names: dict[str, str] | None = None
) -> LabRun:
    """A run in which everything goes wrong and nothing is lost."""
    chance = random.Random(seed)
    lines: list[AnyLine] = [*_lives(), *_faults()]
    stored = _puts(lines, chance, puts_per_s)
    for subscriber in ("subscriber-1", "subscriber-2", "subscriber-3"):
        for topic in TOPICS.values():
            _deliveries(lines, chance, subscriber, [p for p in stored if p.topic == topic])
    lines.sort(key=lambda line: line.at_ns)
    return LabRun(lines=[_renamed(line, names or {}) for line in lines], outputs={})


def _renamed(line: AnyLine, names: dict[str, str]) -> AnyLine:
    fields = ("process", "topic", "target")
    changes = {f: names[getattr(line, f)] for f in fields if getattr(line, f, None) in names}
    return structs.replace(line, **changes) if changes else line


def _lives() -> list[AnyLine]:
    lines: list[AnyLine] = []
    for process, lives in LIVES.items():
        role = process.split("-")[0]
        for index, (begin, end) in enumerate(lives):
            pid = _pid(process, begin)
            wall_ns = WALL_NS + round(begin * 1e9)
            lines.append(
                Begin(at_ns=at(begin), process=process, pid=pid, role=role, wall_ns=wall_ns)
            )
            if index < len(lives) - 1:
                lines.append(
                    Event(at_ns=at(end), process="lab", pid=1, what="kill", target=process)
                )
            else:
                lines.append(End(at_ns=at(end), process=process, pid=pid))
    return lines


def _faults() -> list[AnyLine]:
    lines: list[AnyLine] = [Event(at_ns=at(18.2), process="lab", pid=1, what="quiet")]
    for what, over, target, begin, end, detail in FAULTS:
        event = Event(
            at_ns=at(begin), process="lab", pid=1, what=what, target=target, detail=detail
        )
        lines += [event, structs.replace(event, at_ns=at(end), what=over, detail="")]
    return lines


def _puts(lines: list[AnyLine], chance: random.Random, puts_per_s: float) -> list[_Put]:
    puts: list[_Put] = []
    for publisher, topic in TOPICS.items():
        now_s, sequence, call = LIVES[publisher][0][0] + 0.2, 0, 0
        while (now_s := _up(publisher, now_s)) < 19.0:
            sequence, call = sequence + 1, call + 1
            pid = _pid(publisher, now_s)
            crcs = (sequence,)
            lines.append(
                Invoke(
                    at_ns=at(now_s), process=publisher, pid=pid, op="put", call=call,
                    topic=topic, sequence=sequence, crcs=crcs,
                )
            )  # fmt: skip
            slow = 0.1 if 7.5 <= now_s < 9.5 and publisher == "publisher-2" else 0.0
            stored_s = _both(publisher, now_s + chance.uniform(0.003, 0.012) + slow)
            if stored_s > now_s + 0.5:
                stored_s += chance.uniform(0.05, 0.3)  # after a silence it asks again
            life_end = next(end for begin, end in LIVES[publisher] if begin <= now_s < end)
            puts.append(_Put(publisher, sequence, now_s, stored_s, topic))
            heard_s = stored_s + chance.uniform(0.001, 0.004) + slow
            if heard_s < life_end:
                _answer(lines, puts[-1], pid, call, heard_s)
            now_s = min(max(heard_s, stored_s), 30.0) + chance.expovariate(puts_per_s)
    ends: dict[str, int] = {}
    for put in sorted(puts, key=lambda p: p.stored_s):
        put.offset = ends.get(put.topic, 0)
        ends[put.topic] = put.offset + 1
    return _stored(lines, puts)


def _answer(lines: list[AnyLine], put: _Put, pid: int, call: int, heard_s: float) -> None:
    line: dict[str, Any] = {
        "at_ns": at(heard_s),
        "process": put.publisher,
        "pid": pid,
        "call": call,
    }
    if put.sequence == 40 and put.publisher == "publisher-2":
        lines.append(
            Unknown(**line, op="put", code="PROXY_UNREACHABLE", topic=put.topic,
                    sequence=put.sequence)
        )  # fmt: skip
        return
    lines.append(
        Ok(**line, op="put", topic=put.topic, sequence=put.sequence, count=1, durability="sync",
           duplicate=heard_s > put.begin_s + 0.5)
    )  # fmt: skip


def _stored(lines: list[AnyLine], puts: list[_Put]) -> list[_Put]:
    """The proxy's lines; and the offsets, known only now, in the acknowledgements."""
    offsets = {(p.topic, p.sequence): p.offset for p in puts}
    for index, line in enumerate(lines):
        if isinstance(line, Ok) and line.op == "put":
            lines[index] = structs.replace(line, offset=offsets[(line.topic, line.sequence)])
    for put in puts:
        seen = _seen(put)
        lines.append(
            StoredLine(at_ns=at(put.stored_s), process="proxy", pid=_pid("proxy", put.stored_s),
                   topic=put.topic, epoch=1, messages=(seen,))
        )  # fmt: skip
    return sorted(puts, key=lambda p: p.stored_s)


def _seen(put: _Put, delivery_count: int = 1) -> Seen:
    return Seen(put.offset, put.publisher, put.sequence, put.sequence, 0, delivery_count)


def _deliveries(
    lines: list[AnyLine], chance: random.Random, subscriber: str, puts: list[_Put]
) -> None:
    now_s = LIVES[subscriber][0][0] + 0.05
    first = sum(put.stored_s < now_s for put in puts)
    call = 1
    topic = puts[0].topic
    line: dict[str, Any] = {"process": subscriber, "op": "subscribe", "topic": topic}
    pid = _pid(subscriber, now_s)
    lines.append(Invoke(**line, at_ns=at(now_s), pid=pid, call=call))
    lines.append(Ok(**line, at_ns=at(now_s + 0.01), pid=pid, call=call, cursor=first, generation=1))
    redelivered = False
    for put in puts[first:]:
        now_s = _both(subscriber, max(now_s, put.stored_s) + chance.uniform(0.002, 0.02))
        if now_s > 19.7:
            return
        call += 1
        pid = _pid(subscriber, now_s)
        count = 1
        if subscriber == "subscriber-1" and now_s >= 11.9 and not redelivered:
            redelivered, count = True, 2  # what it had not recorded when it was killed
        line = {"process": subscriber, "pid": pid, "call": call, "op": "get", "topic": topic}
        lines.append(Invoke(**line, at_ns=at(now_s)))
        lines.append(Ok(**line, at_ns=at(now_s), messages=(_seen(put, count),)))
        if put.offset % 10 == 0:
            lines.append(
                PositionLine(at_ns=at(now_s + 0.001), process="proxy", pid=_pid("proxy", now_s),
                         topic=topic, subscriber=subscriber, generation=1, cursor=put.offset,
                         active=True)
            )  # fmt: skip
    if subscriber == "subscriber-3":
        lines.append(
            Failed(at_ns=at(12.0), process=subscriber, pid=_pid(subscriber, 12.0), op="get",
                   call=call + 1, code="LOST", topic=topic, first=3, end=5)
        )  # fmt: skip


def holding_verdict(checked: int = 1234) -> Verdict:
    """All twelve rules hold; one has nothing to judge."""
    return Verdict(
        rules=[
            RuleVerdict(f"V{n}", title, 0 if n == 11 else checked, [])
            for n, title in enumerate(TITLES, start=1)
        ]
    )


LOST = MessageKey("orders", "publisher-1", 42)


def broken_verdict(text: str = "", message: MessageKey | None = LOST) -> Verdict:
    """V1 is broken by one message, V8 by many."""
    text = text or (
        "topic orders: message publisher-1_42 was acknowledged with offset 41 (durability sync), "
        "but the log, read to its end 164, holds another message there"
    )
    gaps = [
        Violation(f"subscriber-{n % 3 + 1}, topic orders: offset {n} follows {n - 2}")
        for n in range(50, 70)
    ]
    broken = {"V1": [Violation(text, message)], "V8": gaps}
    return Verdict(
        rules=[
            structs.replace(rule, violations=broken.get(rule.rule, []))
            for rule in holding_verdict().rules
        ],
        losses=[Losses("orders", "publisher-1", 164, 0, 3, 0), Losses("orders", "x", 164, 0, 0, 9)],
        warnings=["subscriber-3: no output file was given, so V9 was not judged for it"],
    )


def damaged_run(run: LabRun, lost: MessageKey = LOST) -> LabRun:
    """The same run, but a message that was acknowledged is neither stored nor delivered."""

    def is_lost(seen: Seen, topic: str) -> bool:
        return MessageKey(topic, seen.publisher, seen.sequence) == lost

    keep: Callable[[AnyLine], bool] = lambda line: (  # noqa: E731
        not isinstance(line, StoredLine | Ok)
        or not any(is_lost(s, line.topic) for s in line.messages)
    )
    return structs.replace(run, lines=[line for line in run.lines if keep(line)])
