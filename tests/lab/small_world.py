"""A tiny model of the product that writes sound journals, one step at a time.

Each step adds the lines that real processes would, in the order in which they would; time continues
by a millisecond with each line. Tests damage what it wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.dead_letter import DEAD_SUFFIX
from reliable_pubsub.common.core.journal import (
    AnyLine,
    Begin,
    CreatedLine,
    DeadLetteredLine,
    End,
    Event,
    Failed,
    Finished,
    Found,
    FoundEnd,
    GrantedLine,
    Invoke,
    Ok,
    PositionLine,
    Seen,
    StoredLine,
    TrimmedLine,
    Unknown,
    encode_line,
)
from reliable_pubsub.common.core.message_lines import message_line
from reliable_pubsub.lab.core.run import LabRun, OutputLine

PROXY = ("proxy", 1)
AUDITOR = ("auditor", 2)
LAB = ("lab", 3)


@dataclass
class Client:
    """A client id, and its present process."""

    name: str
    role: str
    pid: int = 0
    epoch: int = 0
    calls: int = 0
    remembers: bool = True
    output: str = ""
    planned: int = 0  # messages of its plan that were numbered
    plan_run: int = 1
    next_sequence: dict[str, int] = field(default_factory=dict)
    under_way: tuple[str, int, int] | None = None  # topic, sequence, plan place: in doubt
    generation: dict[str, int] = field(default_factory=dict)
    place: dict[str, int] = field(default_factory=dict)  # subscribed: the next offset
    durable: dict[str, int] = field(default_factory=dict)  # what power loss cannot take of it
    in_hand: dict[str, int] = field(default_factory=dict)  # after the last one delivered
    handed: dict[tuple[str, int], int] = field(default_factory=dict)  # how often


class SmallWorld:
    """Processes, a log, and the lines they write."""

    def __init__(self) -> None:
        self.lines: list[AnyLine] = []
        self.outputs: dict[str, list[OutputLine]] = {}
        self.log: dict[str, list[Seen]] = {}
        self.start: dict[str, int] = {}
        self.log_ns = 1_000  # time of the first message
        self.payloads: dict[int, bytes] = {}
        self.clients: dict[str, Client] = {}
        self.at_ns = 0
        self._pids = 100
        self.write(PROXY, Begin, role="proxy", wall_ns=0, boot="b1", durability="sync")

    @property
    def run(self) -> LabRun:
        """All of it."""
        return LabRun(lines=self.lines, outputs=self.outputs)

    def write(self, who: tuple[str, int], kind: type[AnyLine], **facts: object) -> None:
        """Add a line."""
        self.at_ns += 1_000_000
        name, pid = who
        self.lines.append(kind(at_ns=self.at_ns, process=name, pid=pid, **facts))  # type: ignore[arg-type]

    def topic(self, name: str) -> list[Seen]:
        """The log of a topic; it appears when it is first named."""
        if name not in self.log:
            self.log[name] = []
            self.write(PROXY, CreatedLine, topic=name, log=f"log-of-{name}")
        return self.log[name]

    def call(self, client: Client) -> int:
        """Number of the next call of a life."""
        client.calls += 1
        return client.calls

    # Lives.

    def start_client(
        self, name: str, role: str, *, output: bool = False, remembers: bool = True
    ) -> Client:
        """A client comes for the first time."""
        client = Client(name, role, remembers=remembers)
        self.clients[name] = client
        if output:
            client.output = f"{name}.jsonl"
            self.outputs[name] = []
        self.restart(name)
        return client

    def restart(self, name: str) -> None:
        """A new process of an id."""
        client = self.clients[name]
        self._pids += 1
        client.pid, client.calls = self._pids, 0
        who = (name, client.pid)
        self.write(
            who,
            Begin,
            role=client.role,
            wall_ns=0,
            output=client.output,
            remembers=client.remembers,
        )
        client.epoch += 1
        call = self.call(client)
        self.write(who, Invoke, op="hello", call=call, epoch=client.epoch)
        self.write(PROXY, GrantedLine, role=client.role, client=name, epoch=client.epoch)
        self.write(who, Ok, op="hello", call=call, epoch=client.epoch)

    def kill(self, name: str) -> None:
        """It dies; what it had in hand comes again."""
        self.write(LAB, Event, what="kill", target=name)
        client = self.clients[name]
        client.in_hand.clear()
        if not client.remembers:
            self._forget(client)

    def lose_power(self, name: str) -> None:
        """Its machine forgets what was written lazily."""
        self.kill(name)
        self.write(LAB, Event, what="power_loss", target=name)
        self._forget(self.clients[name])

    def _forget(self, client: Client) -> None:
        client.handed.clear()
        client.place.update(client.durable)

    # Publishers.

    def run_again(self, name: str) -> None:
        """A new process begins the plan again (--again)."""
        client = self.clients[name]
        self.restart(name)
        client.plan_run, client.planned = client.plan_run + 1, 0

    def put(
        self,
        name: str,
        topic: str,
        count: int = 1,
        *,
        outcome: str = "ok",
        stored: bool = True,
        duplicate: bool = False,
    ) -> None:
        """Put a batch, or continue with the one that is in doubt.

        Args:
            outcome: "ok", "killed", "unknown", or the code of a refusal.
            stored: whether the proxy has it in the end; a refusal never has.
        """
        client = self.clients[name]
        if client.under_way is None:
            sequence = client.next_sequence.get(topic, 1)
            client.under_way = (topic, sequence, client.planned)
            client.planned += count
        topic, sequence, planned = client.under_way
        who, call = (name, client.pid), self.call(client)
        payloads = [f"{name}/{planned + n}".encode() for n in range(count)]
        crcs = tuple(map(crc32, payloads))
        self.payloads.update(zip(crcs, payloads, strict=True))
        self.write(
            who,
            Invoke,
            op="put",
            call=call,
            topic=topic,
            epoch=client.epoch,
            sequence=sequence,
            crcs=crcs,
            plan=f"0:{planned}",
            plan_run=client.plan_run,
        )
        log = self.topic(topic)
        offset = len(log)
        if duplicate:
            offset = next(s.offset for s in log if s.publisher == name and s.sequence == sequence)
        elif stored and outcome in ("ok", "killed", "unknown"):
            batch = tuple(
                Seen(offset + n, name, sequence + n, crc, self.log_ns + offset)
                for n, crc in enumerate(crcs)
            )
            log.extend(batch)
            self.write(PROXY, StoredLine, topic=topic, epoch=client.epoch, messages=batch)
        if outcome == "ok":
            self.write(
                who,
                Ok,
                op="put",
                call=call,
                topic=topic,
                epoch=client.epoch,
                sequence=sequence,
                count=count,
                offset=offset,
                duplicate=duplicate,
                durability="sync",
            )
            client.under_way = None
            client.next_sequence[topic] = sequence + count
        elif outcome == "unknown":
            self.write(
                who,
                Unknown,
                op="put",
                call=call,
                topic=topic,
                sequence=sequence,
                code="PROXY_UNREACHABLE",
            )
        elif outcome != "killed":
            self.write(
                who, Failed, op="put", call=call, topic=topic, sequence=sequence, code=outcome
            )

    # Subscribers.

    def subscribe(
        self,
        name: str,
        topic: str,
        *,
        start: str = "",
        at: int | None = None,
        cursor: int | None = None,
    ) -> None:
        """Begin or resume a subscription; `at`: begin it again at this offset, as `start` says.

        Args:
            cursor: nothing below it is wanted again; None: it is a seek, but with `last`.
        """
        client = self.clients[name]
        who, call = (name, client.pid), self.call(client)
        seeks = cursor is None and start != "last"
        facts = {"start": start, "cursor": cursor, "seeks": seeks} if start else {}
        self.write(who, Invoke, op="subscribe", call=call, topic=topic, epoch=client.epoch, **facts)
        if topic not in client.place or at is not None:
            client.place[topic] = len(self.topic(topic)) if at is None else at
            client.generation[topic] = client.generation.get(topic, 0) + 1
        self._position(client, topic)
        client.in_hand.pop(topic, None)
        client.durable[topic] = client.place[topic]
        self.write(
            who,
            Ok,
            op="subscribe",
            call=call,
            topic=topic,
            epoch=client.epoch,
            log=f"log-of-{topic}",
            generation=client.generation[topic],
            cursor=client.place[topic],
        )

    def _position(self, client: Client, topic: str, *, active: bool = True) -> None:
        self.write(
            PROXY,
            PositionLine,
            topic=topic,
            subscriber=client.name,
            generation=client.generation[topic],
            cursor=client.place[topic],
            active=active,
            epoch=client.epoch,
        )

    def unsubscribe(self, name: str, topic: str) -> None:
        """End a subscription."""
        client = self.clients[name]
        who, call = (name, client.pid), self.call(client)
        self.write(who, Invoke, op="unsubscribe", call=call, topic=topic, epoch=client.epoch)
        self._position(client, topic, active=False)
        self.write(who, Ok, op="unsubscribe", call=call, topic=topic, epoch=client.epoch)
        del client.place[topic], client.durable[topic]
        client.in_hand.pop(topic, None)

    def get(self, name: str, topic: str, count: int = 1, *, record: bool = True) -> None:
        """Get messages, or a loss; a subscriber with an output writes and records them.

        Args:
            record: False: it dies before.
        """
        client = self.clients[name]
        client.place[topic] = client.in_hand.pop(topic, client.place[topic])
        offset, start = client.place[topic], self.start.get(topic, 0)
        who, call = (name, client.pid), self.call(client)
        if offset < start:
            self.write(
                who,
                Failed,
                op="get",
                call=call,
                topic=topic,
                code="LOST",
                first=offset,
                end=start,
            )
            client.place[topic] = start
            return
        messages = []
        for seen in self.log.get(topic, [])[offset : offset + count]:
            times = client.handed.get((topic, seen.offset), 0) + 1
            client.handed[(topic, seen.offset)] = times
            messages.append(
                Seen(
                    seen.offset,
                    seen.publisher,
                    seen.sequence,
                    seen.crc,
                    seen.timestamp_ns,
                    times,
                )
            )
        if not messages:
            return
        self.write(
            who,
            Ok,
            op="get",
            call=call,
            topic=topic,
            epoch=client.epoch,
            messages=tuple(messages),
        )
        if not client.output:
            client.in_hand[topic] = messages[-1].offset + 1
        elif record:
            self.outputs[name] += [
                OutputLine(topic, self.log[topic][seen.offset]) for seen in messages
            ]
            client.place[topic] = client.durable[topic] = messages[-1].offset + 1
            self._record(client, topic)

    def _record(self, client: Client, topic: str) -> None:
        self.write(
            (client.name, client.pid),
            Ok,
            op="record",
            call=self.call(client),
            topic=topic,
            epoch=client.epoch,
            cursor=client.place[topic],
        )

    def reject(self, name: str, topic: str, *, refused: bool = False) -> None:
        """Get a message and give it up: its letter is stored, and no output has it.

        Args:
            refused: the proxy has no room for the letter, so it is not given up.
        """
        client = self.clients[name]
        self.get(name, topic, record=False)
        who, offset = (name, client.pid), client.place[topic]
        call = self.call(client)
        facts = {"op": "reject", "call": call, "topic": topic, "epoch": client.epoch}
        self.write(who, Invoke, **facts, cursor=offset)
        if refused:
            client.in_hand.pop(topic, None)
            del facts["epoch"]
            self.write(who, Failed, **facts, code="DEAD_LETTER_REFUSED")
            return
        at = self.bury(name, topic, offset)
        client.in_hand.pop(topic, None)
        client.place[topic] = client.durable[topic] = offset + 1
        self._position(client, topic)
        self.write(who, Ok, **facts, offset=at, cursor=offset + 1)
        if client.output:
            self._record(client, topic)

    def bury(self, name: str, topic: str, offset: int) -> int:
        """The proxy stores the letter of a message; the offset of the letter."""
        client = self.clients[name]
        letters = self.topic(topic + DEAD_SUFFIX)
        crc, at = self.log[topic][offset].crc, len(letters)
        letter = Seen(at, name, at + 1, crc, self.log_ns + at)
        letters.append(letter)
        self.write(
            PROXY,
            DeadLetteredLine,
            topic=topic,
            subscriber=name,
            generation=client.generation[topic],
            offset=offset,
            dead_topic=topic + DEAD_SUFFIX,
            letter=letter,
            epoch=client.epoch,
        )
        return at

    def acknowledge(self, name: str, topic: str) -> None:
        """What is in hand is done; the proxy has that durably."""
        client = self.clients[name]
        cursor = client.in_hand.pop(topic, client.place[topic])
        client.place[topic] = client.durable[topic] = cursor
        who, call = (name, client.pid), self.call(client)
        self.write(
            who,
            Invoke,
            op="acknowledge",
            call=call,
            topic=topic,
            epoch=client.epoch,
            cursor=cursor,
        )
        self._position(client, topic)
        self.write(
            who,
            Ok,
            op="acknowledge",
            call=call,
            topic=topic,
            epoch=client.epoch,
            cursor=cursor,
        )

    # The proxy, and the end.

    def set_back(self, topic: str) -> None:
        """The proxy forgets a topic; what comes in its place has other times."""
        self.log[topic].clear()
        self.log_ns += 1_000
        self.write(LAB, Event, what="rollback", target="proxy")

    def trim(self, topic: str, start: int) -> None:
        """The topic begins here now."""
        self.start[topic] = start
        self.write(PROXY, TrimmedLine, topic=topic, start=start)

    def finish(self) -> None:
        """Quiet; every client receives everything and ends; an auditor reads the log."""
        self.write(LAB, Event, what="quiet")
        for client in self.clients.values():
            if client.role == "publisher" and client.under_way is not None:
                topic, sequence, _ = client.under_way
                stored = any(
                    (seen.publisher, seen.sequence) == (client.name, sequence)
                    for seen in self.log[topic]
                )
                self.put(client.name, topic, duplicate=stored)
        for client in self.clients.values():
            for topic in list(client.place):
                while self._left(client, topic):
                    self.get(client.name, topic, 2)
                self.acknowledge(client.name, topic)
            self.write((client.name, client.pid), End)
            self.write(
                LAB,
                Finished,
                target=client.name,
                done=True,
                drained=client.role == "subscriber",
                messages=client.planned if client.role == "publisher" else None,
            )
        self.audit()

    def _left(self, client: Client, topic: str) -> bool:
        position = client.in_hand.get(topic, client.place[topic])
        return position < len(self.log.get(topic, []))

    def audit_again(self) -> None:
        """An auditor has read the log too early; this one counts."""
        self.lines = [line for line in self.lines if not isinstance(line, Found | FoundEnd)]
        self.audit()

    def audit(self) -> None:
        """The log, as it is."""
        for topic, log in self.log.items():
            start = self.start.get(topic, 0)
            for first in range(start, len(log), 3):
                messages = tuple(log[first : first + 3])
                self.write(AUDITOR, Found, topic=topic, messages=messages)
            self.write(
                AUDITOR,
                FoundEnd,
                topic=topic,
                start=start,
                end=len(log),
                positions={
                    client.name: client.place[topic]
                    for client in self.clients.values()
                    if topic in client.place
                },
            )


def sound_world() -> SmallWorld:
    """A run with a bit of everything: kills, unknown outcomes, repeats, comings and goings."""
    world = SmallWorld()
    world.start_client("p1", "publisher")
    world.start_client("p2", "publisher")
    world.put("p1", "t", 2)
    world.start_client("s1", "subscriber", output=True)
    world.start_client("s2", "subscriber")
    world.subscribe("s1", "t")  # at 2
    world.put("p2", "t")
    world.subscribe("s2", "t")  # at 3
    world.put("p1", "t", 2, outcome="killed")
    world.kill("p1")
    world.restart("p1")
    world.put("p1", "t", 2, duplicate=True)
    world.get("s1", "t", 2)
    world.get("s2", "t")
    world.put("p2", "t", outcome="killed", stored=False)  # unknown, and never arrived
    world.kill("p2")
    world.restart("p2")
    world.put("p2", "t")
    world.get("s1", "t", record=False)
    world.kill("s1")
    world.restart("s1")
    world.subscribe("s1", "t")
    world.kill("s2")
    world.restart("s2")
    world.subscribe("s2", "t")
    world.get("s2", "t", 2)
    world.acknowledge("s2", "t")
    world.get("s1", "t")
    world.get("s1", "t")
    world.unsubscribe("s1", "t")
    world.put("p1", "t")
    world.subscribe("s1", "t")
    world.put("p2", "u")
    world.put("p1", "t", 2)
    world.put("p2", "t", outcome="unknown")
    world.finish()
    return world


def write_run(
    world: SmallWorld, folder: Path, file_of: Callable[[str], str] = lambda process: process
) -> None:
    """Write files as processes would: a journal for each, and output files.

    Args:
        file_of: the name of the journal of a process.
    """
    (folder / "out").mkdir(parents=True)
    for name in {file_of(line.process): None for line in world.lines}:
        lines = [encode_line(line) for line in world.lines if file_of(line.process) == name]
        (folder / f"{name}.jsonl").write_bytes(b"".join(lines))
    for name, output in world.outputs.items():
        lines = [_output_text(world, line) for line in output]
        (folder / "out" / f"{name}.jsonl").write_bytes(b"".join(lines))


def _output_text(world: SmallWorld, line: OutputLine) -> bytes:
    seen = line.message
    payload = world.payloads[seen.crc]
    return message_line(
        Message(line.topic, seen.offset, seen.publisher, seen.sequence, seen.timestamp_ns, payload)
    )
