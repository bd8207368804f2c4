"""Arranges the lines of a run for the rules, in one pass. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from typing import Any, get_args

from msgspec.structs import replace

from reliable_pubsub.common.core import journal
from reliable_pubsub.common.core.batch import NO_OFFSET

from .final_log import final_logs
from .run import LabRun
from .run_index import Attempt, Life, RunIndex, Unstored
from .subscription import SubscriberStream
from .unlogged_stores import starts_after_a_kill, unlogged_stores
from .verdict import MessageKey

# What a call of a client writes: its beginning, and its outcome.
OfCall = journal.Invoke | journal.Ok | journal.Failed | journal.Unknown


def index_run(run: LabRun) -> RunIndex:
    """Arrange a run, in one pass over its lines."""
    reader = _Reader(RunIndex(run))
    handlers: dict[type, Callable[[Any], None]] = {
        journal.Begin: reader.begin,
        journal.End: reader.end,
        journal.Invoke: reader.invoke,
        journal.Ok: reader.ok,
        journal.Failed: reader.failed,
        journal.Unknown: reader.unknown,
        **dict.fromkeys(get_args(journal.ProxyLine), reader.index.proxy_lines.append),
        journal.Found: reader.index.found.append,
        journal.FoundEnd: reader.found_end,
        journal.Event: reader.event,
        journal.Finished: reader.finished,
    }
    for line in run.lines:
        handlers[type(line)](line)
    index = reader.index
    _arrange_proxy_lines(index)
    _supersede(index)
    superseded_ns = {life.number: life.superseded_ns for life in index.lives.values()}
    for stream in index.streams.values():
        moves = index.moves.get((stream.topic, stream.subscriber), {})
        places = {generation: move.end for generation, move in moves.items()}
        stream.arrange(superseded_ns, index.rollbacks_ns, places)
    starts = starts_after_a_kill(index.lives.values())
    index.logs = final_logs(
        index.found,
        index.found_ends,
        index.stored,
        index.trimmed,
        unlogged_stores(starts, index.puts, index.gets),
    )
    return index


def _arrange_proxy_lines(index: RunIndex) -> None:
    """What the proxy wrote, by its kind."""
    for line in index.proxy_lines:
        match line:
            case journal.StoredLine():
                index.stored.append(line)
            case journal.CreatedLine():
                index.created.append(line)
            case journal.DeadLetteredLine():
                index.dead_letters.append(line)
                index.stored.append(_stored(line))
            case journal.GrantedLine():
                index.granted.append(line)
            case journal.PositionLine():
                index.positions.append(line)
                if line.session == "clean" and not line.active:
                    index.clean_ends[(line.topic, line.subscriber, line.generation)] = line.at_ns
                elif line.session == "clean" and index.is_another(line):
                    index.clean_begins[(line.topic, line.subscriber)] = line
            case journal.ExpiredLine(session="clean"):
                index.clean_ends[(line.topic, line.subscriber, line.generation)] = line.at_ns
            case journal.TrimmedLine():
                index.trimmed.append(line)
            case journal.AdministeredLine():
                _administered(index, line)


def _administered(index: RunIndex, line: journal.AdministeredLine) -> None:
    index.administered.append(line)
    if line.action in ("set_cursor", "skip"):
        moves = index.moves.setdefault((line.topic, line.subscriber), {})
        moves[line.generation] = line


def _stored(line: journal.DeadLetteredLine) -> journal.StoredLine:
    """The entry that a dead letter makes in its log."""
    return journal.StoredLine(
        at_ns=line.at_ns,
        process=line.process,
        pid=line.pid,
        topic=line.dead_topic,
        epoch=0,
        messages=(line.letter,),
    )


def _supersede(index: RunIndex) -> None:
    """From when on the lives of a client no longer count.

    A life counts until it was replaced, by the word of the lab. Where the lab says nothing: until
    the one with the next higher epoch began (or, if that is the older process, until it heard of
    its epoch). A proxy that was set back begins with its epochs again.
    """
    granted_ns: dict[tuple[str, str, int], list[int]] = {}
    for line in index.granted:
        granted_ns.setdefault((line.role, line.client, line.epoch), []).append(line.at_ns)

    def order(life: Life) -> tuple[int, int]:
        # The answer may have come after the rollback that took the grant.
        granted = granted_ns.get((life.role, life.process, life.epoch), ())
        at_ns = max((one for one in granted if one < life.epoch_ns), default=life.epoch_ns)
        return bisect_left(index.rollbacks_ns, at_ns), life.epoch

    of_client: dict[tuple[str, str], list[Life]] = {}
    for life in index.lives.values():
        if (key := (life.process, life.pid)) in index.replaced:
            life.superseded_ns = index.replaced[key]
        elif life.epoch:
            of_client.setdefault((life.process, life.role), []).append(life)
    for same in of_client.values():
        same.sort(key=order)
        for life, newer in pairwise(same):
            if order(newer) > order(life):
                later = newer.began_ns > life.began_ns
                life.superseded_ns = newer.began_ns if later else newer.epoch_ns


class _Reader:
    """Takes the lines one by one."""

    def __init__(self, index: RunIndex) -> None:
        self.index = index

    def life(self, line: journal.AnyLine) -> Life:
        lives = self.index.lives
        key = (line.process, line.pid)
        life = lives.get(key)
        if life is None:
            number = len(lives) + 1
            life = lives[key] = Life(line.process, line.pid, number, number, began_ns=line.at_ns)
        return life

    def _is_of_group(self, life: Life, line: OfCall) -> bool:
        """Whether a line is of a group, whose rule looks at all of them in their order."""
        invoke = life.open.get(line.call)
        is_left = line.op == "unsubscribe" and bool(
            getattr(line, "group", "") or (invoke is not None and invoke.group)
        )
        if not is_left and line.op not in ("join", "take", "settle"):
            return False
        self.index.of_groups.append((life, line))
        self.index.members.add((line.process, line.topic))
        if isinstance(line, journal.Invoke):
            life.open[line.call] = line
        else:
            life.open.pop(line.call, None)
        return True

    def begin(self, line: journal.Begin) -> None:
        life = self.life(line)
        self.index.of_groups.append((life, line))
        if life.role:
            life = self._begun_again(life)
        life.role = line.role
        life.began_ns = life.began_ns or line.at_ns
        life.output = line.output
        life.durability = line.durability
        life.remembers = line.remembers

    def _begun_again(self, before: Life) -> Life:
        """A call was broken off, and the process continued: a life of its own, with its memory.

        A proxy that begins again in place has replaced itself, and remembers nothing.
        """
        lives = self.index.lives
        number = len(lives) + 1
        life = Life(before.process, before.pid, number, before.memory, began_ns=before.began_ns)
        if before.role == "proxy":
            life.memory, life.began_ns = number, 0
        life.epoch, life.epoch_ns = before.epoch, before.epoch_ns
        lives[(before.process, -number)] = before
        lives[(before.process, before.pid)] = life
        return life

    def end(self, line: journal.End) -> None:
        self.life(line).code = line.code
        self._note_changed(line.process, line.code)

    def event(self, line: journal.Event) -> None:
        if line.what == "power_loss":
            self.index.power_losses.setdefault(line.target, []).append(line.at_ns)
        elif line.what == "rollback":
            self.index.rollbacks_ns.append(line.at_ns)
        elif line.what == "replace":
            self.index.replaced[(line.target, int(line.detail))] = line.at_ns

    def finished(self, line: journal.Finished) -> None:
        self.index.finished[line.target] = line

    def found_end(self, line: journal.FoundEnd) -> None:
        self.index.found_ends[line.topic] = line

    def invoke(self, line: journal.Invoke) -> None:
        life = self.life(line)
        if self._is_of_group(life, line):
            return
        op = line.op
        before = life.open.get(line.call)
        life.open[line.call] = line
        if op == "put" and line.qos == 0:
            for sequence, crc in enumerate(line.crcs, start=line.sequence):
                self.index.offered[MessageKey(line.topic, line.process, sequence)] = crc
        elif op == "put":
            # What a call began under other numbers stays undecided: it may have been sent.
            attempts = life.open_attempts[line.call] = self._attempts(life, line)
            for attempt in attempts:
                attempt.put_by.add(line.transaction)
            if line.transaction:
                key = (line.process, life.number, line.transaction)
                whole = self.index.transactions.setdefault(key, {})
                whole |= {(one.topic, one.sequence, one.crc): one for one in attempts}
        elif op in ("subscribe", "unsubscribe"):
            moved = before is not None and before.cursor not in (None, line.cursor)
            self._stream(line).invoked(life.number, life.remembers, line, moved=moved)

    def _attempts(self, life: Life, line: journal.Invoke) -> list[Attempt]:
        known = self.index.puts.setdefault((line.topic, line.process), {})
        step = message = 0
        if line.plan:
            left, _, right = line.plan.partition(":")
            step, message = int(left), int(right)
        number = line.plan_run if life.remembers else life.memory
        again = {id(attempt) for attempt in life.open_attempts.get(line.call, ())}
        attempts = []
        for index, crc in enumerate(line.crcs):
            key = (line.sequence + index, crc)
            attempt = known.get(key)
            if attempt is None:
                attempt = known[key] = Attempt(
                    line.topic,
                    line.process,
                    line.sequence + index,
                    crc,
                    line.at_ns,
                    (number, step, message + index) if line.plan else None,
                    life.remembers,
                    line.qos,
                )
            if id(attempt) not in again:
                attempt.undecided += 1
            attempts.append(attempt)
        return attempts

    def ok(self, line: journal.Ok) -> None:
        life = self.life(line)
        if self._is_of_group(life, line):
            return
        invoke = life.open.pop(line.call, None)
        op = line.op
        if op == "put" and line.qos == 0:
            return  # it has left; nothing is promised of it
        if op == "get":
            line = self._without_unstored(life, line)
            if not line.messages:
                return
        if op == "put":
            self._put_ok(life.open_attempts.pop(line.call, []), line)
        elif op == "hello":
            if line.epoch > life.epoch:
                life.epoch = line.epoch
                life.epoch_ns = line.at_ns
            self.index.hellos.append((life, invoke.at_ns if invoke else line.at_ns, line))
        else:
            self._stream(line).add(life.number, life.remembers, line)
            if line.messages:
                self.index.gets.append(line)
        if invoke is not None and op not in ("hello", "get"):
            self.index.effects.append((life, invoke, line))

    def _without_unstored(self, life: Life, line: journal.Ok) -> journal.Ok:
        """A get without what was put at QoS 0: that is no part of any log."""
        unstored = [seen for seen in line.messages if seen.offset == NO_OFFSET]
        if not unstored:
            return line
        self.index.unstored += [Unstored(life, line.at_ns, line.topic, seen) for seen in unstored]
        stored = tuple(seen for seen in line.messages if seen.offset != NO_OFFSET)
        return replace(line, messages=stored)

    def _put_ok(self, attempts: list[Attempt], line: journal.Ok) -> None:
        if not attempts or attempts[0].sequence != line.sequence:
            self.index.unmatched[line.topic] += 1
            return
        for index, attempt in enumerate(attempts[: line.count]):
            attempt.undecided -= 1
            if not attempt.acknowledged:
                attempt.acknowledged_ns = line.at_ns
                attempt.durability = line.durability
            if line.offset is not None and attempt.offset is None:
                attempt.offset = line.offset + index

    def failed(self, line: journal.Failed) -> None:
        life = self.life(line)
        if self._is_of_group(life, line):
            self._note_changed(line.process, line.code)
            return
        invoke = life.open.pop(line.call, None)
        if invoke is not None and invoke.transaction:  # V2 looks for it; its number is free again
            key = (line.process, life.number, invoke.transaction)
            self.index.transactions.pop(key, None)
        for attempt in life.open_attempts.pop(line.call, ()):
            attempt.undecided -= 1
            attempt.code = line.code
        if line.code == "LOST":
            self.index.told_lost.append((life, line))
            self._stream(line).add(life.number, life.remembers, line)
        elif line.op == "reject" and invoke is not None:  # from there on it comes again
            again = replace(line, first=invoke.cursor or 0)
            self._stream(line).add(life.number, life.remembers, again)
        self._note_changed(line.process, line.code)

    def unknown(self, line: journal.Unknown) -> None:
        life = self.life(line)
        if self._is_of_group(life, line):
            self._note_changed(line.process, line.code)
            return
        invoke = life.open.pop(line.call, None)
        life.open_attempts.pop(line.call, None)
        if invoke is not None and line.code in ("TRUNCATED", "OUT_OF_RANGE"):
            self.index.refused_starts.append((invoke, line))
        self._note_changed(line.process, line.code)

    def _note_changed(self, process: str, code: str) -> None:
        if code == "LOG_CHANGED":
            self.index.told_changed[process] = None

    def _stream(self, line: journal.Invoke | journal.Ok | journal.Failed) -> SubscriberStream:
        key = (line.process, line.topic)
        stream = self.index.streams.get(key)
        if stream is None:
            stream = self.index.streams[key] = SubscriberStream(line.process, line.topic)
        return stream
