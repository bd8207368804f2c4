"""The events of a seed as the lines of a journal, which `lab/core/checker.py` judges.

Clients write their own lines, as real ones do. The simulator, which knows everything, writes the
rest: what the proxy's disk holds, at the moment it does, and the faults and their targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from reliable_pubsub.common.core.actions import DeleteTopic, EndSubscription, ForgetClient
from reliable_pubsub.common.core.journal import AnyLine, Event, Finished, Found, FoundEnd, Seen
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.lab.auditor import NAME as AUDITOR
from reliable_pubsub.lab.core.run import LabRun, OutputLine
from reliable_pubsub.proxy.core.journal import ProxyJournal
from reliable_pubsub.proxy.core.lines import seen_in
from reliable_pubsub.proxy.core.records import Appended, Granted, TopicCreated
from reliable_pubsub.proxy.core.state import Record
from reliable_pubsub.proxy.core.subscription_records import Expired, Subscribed
from reliable_pubsub.proxy.operators.records import Administered

from .simulated_store import SimulatedStore
from .world import World


class Recording:
    """The lines of all processes of a seed, in one order: each has a time of its own."""

    def __init__(self, world: World) -> None:
        self.lines: list[AnyLine] = []
        self.outputs: dict[str, Sequence[OutputLine]] = {}
        self.rolled_back = False  # the store was set back
        self.expired: set[tuple[str, str]] = set()  # topic, subscriber: it has been silent
        self.actions: dict[int, Administered] = {}  # of operators, by number
        self._topics: dict[int, str] = {}
        self.took_messages = False  # and lost a message or a topic that a client may know
        self.took_subscriptions: set[str] = set()  # and those of these clients
        self._nonces: dict[tuple[str, str, int], list[bytes]] = {}  # role, client, epoch
        self.world = world
        self._last_ns = 0
        self._simulator = self.recorder("simulator", 1)
        self._reads = count(1)
        self._commits = 0
        proxy = self.recorder("proxy", 1)
        proxy.begin("proxy", durability="sync")
        self._proxy = ProxyJournal(proxy, ())

    @property
    def run(self) -> LabRun:
        """Everything that a verdict rests on."""
        return LabRun(lines=self.lines, outputs=self.outputs)

    def recorder(self, process: str, pid: int, *, output: str = "") -> Recorder:
        """Writes the lines of one life; see `Recorder`."""
        return Recorder(Life(self, process, pid), output=output)

    def now_ns(self) -> int:
        """The world's time, later than that of the last line: lines of one time have no order."""
        self._last_ns = max(self._last_ns + 1, int(self.world.now_s * 1e9))
        return self._last_ns

    # What the simulator knows.

    def committed(self, records: Sequence[Record]) -> None:
        """The proxy's disk has these."""
        for record in records:
            if isinstance(record, Granted):
                self._nonces_of(record).append(record.nonce)
            elif isinstance(record, Administered):
                assert record.number not in self.actions, f"action {record.number} is stored twice"
                self.actions[record.number] = record
            elif isinstance(record, TopicCreated):
                self._topics[record.topic_id] = record.topic
            elif isinstance(record, Expired):
                self.expired.add((self._topics[record.topic_id], record.subscriber))
        self._commits += 1
        self._proxy.submitted(records, self._commits)
        self._proxy.durable(self._commits)

    def has_been_ended(self, topic: str, subscriber: str) -> bool:
        """Whether an operator has ended a subscription; then nothing was kept for it."""
        return any(
            action == EndSubscription(topic=topic, subscriber=subscriber)
            or action == DeleteTopic(topic=topic)
            or action == ForgetClient(role="subscriber", of=subscriber)
            for action in (one.action for one in self.actions.values())
        )

    def set_back(self, gone: Sequence[Record]) -> None:
        """The proxy's disk has lost these."""
        self.event("rollback", "proxy", f"{len(gone)} records are gone")
        self.rolled_back = True
        self.took_messages = any(isinstance(one, Appended | TopicCreated) for one in gone)
        self.took_subscriptions = {one.subscriber for one in gone if isinstance(one, Subscribed)}
        for record in gone:
            if isinstance(record, Granted):
                self._nonces_of(record).remove(record.nonce)

    def _nonces_of(self, grant: Granted) -> list[bytes]:
        return self._nonces.setdefault((grant.role, grant.client, grant.epoch), [])

    def nonces(self, role: str, client: str, epoch: int) -> Sequence[bytes]:
        """Of those to whom an epoch was granted: one, unless the store was set back."""
        return self._nonces.get((role, client, epoch), ())

    def event(self, what: str, target: str = "", detail: str = "") -> None:
        """Something was done to a process or a disk."""
        self._simulator.line(Event, what=what, target=target, detail=detail)

    def finished(self, target: str, **facts: object) -> None:
        """How a client has ended."""
        self._simulator.line(Finished, target=target, **facts)

    def found(self, topic: str, messages: Iterable[Seen]) -> None:
        """A part of a log was read, without a subscription."""
        reader = self.recorder(AUDITOR, next(self._reads))
        reader.line(Found, topic=topic, messages=tuple(messages))

    def audit(
        self,
        store: SimulatedStore,
        topics: Iterable[str],
        positions: Mapping[str, Mapping[str, int]],
    ) -> None:
        """Read every log to its end.

        Args:
            topics: what was put to; the store may have forgotten one.
            positions: by topic, the cursors of its active subscriptions.
        """
        stored = {topic.topic: topic for topic in store.state().topics}
        for name in sorted({*stored, *topics}):
            reader = self.recorder(AUDITOR, next(self._reads))
            topic = stored.get(name)
            batches = store.batches(topic.topic_id) if topic else ()
            messages = tuple(seen for batch in batches for seen in seen_in(batch))
            reader.line(Found, topic=name, messages=messages)
            reader.line(
                FoundEnd,
                topic=name,
                start=topic.start if topic else 0,
                end=topic.end if topic else 0,
                positions=dict(positions.get(name, {})),
            )


class Life:
    """Where one life of a process writes to. Implements `recorder.JournalSink`."""

    def __init__(self, recording: Recording, process: str, pid: int) -> None:
        self.process = process
        self.pid = pid
        self.now_ns = recording.now_ns
        self.wall_ns = recording.world.wall_ns
        self.write = recording.lines.append

    def close(self) -> None:
        """Nothing to do."""
