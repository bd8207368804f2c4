"""A proxy that dies: the real broker, in a shell that keeps the law as `proxy/server.py` does.

Decide, apply, durable, then visible. The committer takes a random time for a commit and writes
everything that came in the meantime with the next one. The proxy may die at each point between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from reliable_pubsub.common.dead_letter import DEAD_SUFFIX
from reliable_pubsub.common.errors import MalformedError
from reliable_pubsub.common.limits import TOPICS_MAX
from reliable_pubsub.common.messages import (
    AnyReply,
    AnyRequest,
    BatchHeader,
    Dead,
    Full,
    ListenersReport,
    Lost,
    Sub,
)
from reliable_pubsub.common.settings import OnBound
from reliable_pubsub.common.wire import decode_request, encode_reply
from reliable_pubsub.proxy.broker import Broker
from reliable_pubsub.proxy.records import Appended, Decision, Record, StoredState
from reliable_pubsub.proxy.ring import Rings
from reliable_pubsub.proxy.state import BrokerSettings, Memory
from reliable_pubsub.proxy.topic_log import Retention
from reliable_pubsub.relay.pattern import Kinds, Pattern
from reliable_pubsub.relay.unstored import decode_offer, offer_prefixes
from reliable_pubsub.relay.wire import is_for_node

from .network import Answer
from .silences import Silences
from .simulated_offers import OfferNetwork
from .simulated_push import PushNetwork, PushTop
from .simulated_store import SimulatedStore
from .swarm import Faults
from .world import World

TOPICS: Final = ("a", "b")
TICK_S: Final = 0.02  # the real one is five times as long, as are the clients' timeouts
TURN_S: Final = 0.0005  # requests that come within it share a turn of the loop
STORAGE_RETRY_S: Final = 0.05
DISK_PATIENCE_S: Final = 0.04  # a slow commit may take twice as long
KINDS: Final = Kinds()
FORGETFUL: Final = Memory(idle_sessions_max=1, ended_clean_max=0, unnumbered_max=0)


Failure = Literal["full", "error"]  # of a commit: no space, or an I/O error


class Crash(Exception):
    """The proxy dies here."""


class _Held(Struct, frozen=True):
    visible_at: int
    since_s: float
    answer: Answer
    reply: AnyReply
    frames: list[bytes]


class _Work(Struct, frozen=True):
    records: Sequence[Record]
    lsn: int


class _Restart(Struct, frozen=True):
    """Behind this, records build on the durable state again."""


class SimulatedCommitter:
    """`committer.py`, with time as an argument. One for each life of the proxy."""

    def __init__(self, proxy: SimulatedProxy) -> None:
        """Begin with nothing to do."""
        self._proxy = proxy
        self._queue: list[_Work | _Restart] = []
        self._taken: list[Record] = []
        self._taken_lsn = 0
        self._urgent = False
        self._busy = False
        self._failed = False
        self.outcomes: deque[int | Failure] = deque()  # durable record number

    @property
    def waiting(self) -> bool:
        """Whether lazy records wait for company."""
        return bool(self._taken)

    def submit(self, records: Sequence[Record], lsn: int) -> None:
        """Take records; the last has number `lsn`."""
        self._taken.extend(records)
        self._taken_lsn = lsn
        self._urgent = self._urgent or any(record.urgent for record in records)

    def hand_over(self) -> None:
        """End of a turn: commit if an answer waits."""
        if self._urgent:
            self.flush()

    def flush(self) -> None:
        """Commit what there is."""
        if self._taken:
            self._queue.append(_Work(self._taken, self._taken_lsn))
            self._taken = []
            self._urgent = False
            self._begin()

    def restart(self) -> None:
        """After a failed commit."""
        self._taken = []
        self._urgent = False
        self._queue.append(_Restart())
        self._begin()

    def _begin(self) -> None:
        if self._busy or not self._queue:
            return
        records: list[Record] = []
        lsn = 0
        for item in self._queue:
            if isinstance(item, _Restart):
                self._failed = False
                records = []
            elif not self._failed:
                records.extend(item.records)
                lsn = item.lsn
        self._queue.clear()
        if records:
            self._busy = True
            self._proxy.later(self._proxy.commit_s(), lambda: self._finish(records, lsn))

    def _finish(self, records: Sequence[Record], lsn: int) -> None:
        self._proxy.point("before the commit")
        self._busy = False
        if self._proxy.storage_is_full():
            self._failed = True
            self.outcomes.append("full")
        elif self._proxy.disk_fails():
            self._failed = True
            if self._proxy.world.random.random() < 0.5:
                self._proxy.store.commit(records)  # nobody can know
            self.outcomes.append("error")
        else:
            self._proxy.store.commit(records)
            self.outcomes.append(lsn)
        self._proxy.point("after the commit")
        self._proxy.later(self._proxy.wake_s(), self._proxy.settle)
        self._begin()


class SimulatedProxy:
    """A proxy process that is started, killed and started again. Implements `network.Door`."""

    broker_class: type[Broker] = Broker  # planted faults put another one here
    pushes: PushNetwork  # what goes down by itself
    offers: OfferNetwork  # what comes at QoS 0
    dead_topics_max: int = TOPICS_MAX  # topics beside which none is made for dead letters

    def __init__(self, world: World, faults: Faults, store: SimulatedStore) -> None:
        """Begin stopped."""
        self.world = world
        self.store = store
        self.broker: Broker | None = None  # None: not running
        self._faults = faults
        self._life = 0
        self._points_left: int | None = None
        self._storage_full_until_s = -1.0
        self._stopped_until_s = -1.0
        self._held: deque[_Held] = deque()
        self._disk_hangs = False
        self._committer = SimulatedCommitter(self)
        self._turn_open = False
        self._lazy_at_s: float | None = None
        self._silences = Silences()
        self._rings = Rings()  # of one life

    # What the world does to it.

    def start(self) -> None:
        """Start from what is durable. An event."""
        if self.broker is not None:
            return
        self._life += 1
        self.world.note("proxy", f"starts, life {self._life}")
        self._points_left = None
        self._stopped_until_s = -1.0
        if self.world.chance(self._faults.proxy_crash):
            self._points_left = self.world.random.randint(1, 250)
        self._held.clear()
        self._disk_hangs = False
        self._committer = SimulatedCommitter(self)
        self._turn_open = False
        self._lazy_at_s = None
        self._rings = Rings()
        self.broker = self._new_broker(self.store.state(), None)
        self.pushes.proxy_started(PushTop(f"boot{self._life}", self.pushes.send))
        self.offers.proxy_started(self)
        self.later(TICK_S, self._tick)

    def crash(self, where: str) -> None:
        """Die: everything that is not durable is gone. It comes back after a while."""
        if self.broker is None:
            return
        self.world.happened("proxy_crash", "proxy", f"ends {where}")
        self.broker = self.pushes.top = None
        self.offers.proxy_ended()
        self._life += 1
        self.world.at(self.world.random.uniform(0.005, 0.15), self.start)

    def stop(self, seconds: float) -> None:
        """Stand still for a while, all threads, as by SIGSTOP; then go on."""
        if self.broker is not None:
            self.world.happened("proxy_stop", "proxy", f"stands still for {seconds:.3f} s")
            self._stopped_until_s = self.world.now_s + seconds

    def roll_back(self, commits: int) -> None:
        """Be set back to a copy of the store from before the last commits, while it is down."""
        self.crash("so that its store can be set back")
        self.world.happened("rollback", "proxy", f"its store is set back by {commits} commits")
        self.store.roll_back(commits)

    def fill_storage(self, seconds: float) -> None:
        """Let commits fail for a while, for lack of space."""
        self.world.note("proxy", f"disk is full for {seconds:.3f} s")
        self._storage_full_until_s = self.world.now_s + seconds

    def storage_is_full(self) -> bool:
        """Whether a commit fails now."""
        return not self.world.quiet and self.world.now_s < self._storage_full_until_s

    def disk_fails(self) -> bool:
        """Whether a commit ends with an I/O error."""
        return self.world.happens("commit_error", self._faults.commit_error)

    def commit_s(self) -> float:
        """How long the next commit takes."""
        slow = self._faults.slow_commits and not self.world.quiet
        self.world.counts["slow_commits"] += slow
        return self.world.random.uniform(0.0002, 0.08 if slow else 0.004)

    def wake_s(self) -> float:
        """How long the loop thread does not hear of a finished commit."""
        longest = 0.03 if self._faults.slow_commits and not self.world.quiet else 0.003
        return self.world.random.uniform(0.0, longest)

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Let this life of the proxy do something later, or die in it."""
        life = self._life

        def event() -> None:
            if life != self._life:
                return
            if self.world.now_s < self._stopped_until_s:
                self.world.at(self._stopped_until_s - self.world.now_s, event)
                return
            try:
                action()
            except Crash as crash:
                self.crash(str(crash))

        self.world.at(delay_s, event)

    def point(self, where: str) -> None:
        """A place at which the proxy may die."""
        if self._points_left is not None and not self.world.quiet:
            self._points_left -= 1
            if self._points_left <= 0:
                raise Crash(where)

    # The law: as `server.Server` has it.

    def _new_broker(self, stored: StoredState, storage_full_until_s: float | None) -> Broker:
        retention = Retention()
        if self._faults.trim:
            retention = Retention(
                history_bytes=0,
                history_s=0.0,
                topic_bytes_max=self._faults.topic_bytes_max,
                waiting_messages_max=self._faults.waiting_messages_max,
                on_bound=self._on_bound,
            )
        self._silences = Silences()
        return self.broker_class(
            stored,
            boot=f"boot{self._life}",
            reader=self.store,
            settings=BrokerSettings(
                retention=retention,
                topics={topic + DEAD_SUFFIX: Retention() for topic in TOPICS},
                trim_interval_s=TICK_S,
                storage_retry_s=STORAGE_RETRY_S,
                memory=FORGETFUL if self._faults.forget else Memory(),
            ),
            storage_full_until_s=storage_full_until_s,
            rings=self._rings,
        )

    @property
    def _on_bound(self) -> OnBound:
        if self._faults.lose_oldest:
            return "lose_oldest"
        return "expire" if self._faults.expire else "reject"

    def _judge_quota(self, broker: Broker, records: Sequence[Record]) -> None:
        """Behind a put no more waits for anybody than may; only `lose_oldest` lets them lag."""
        if not self._faults.quota or self._faults.lose_oldest:
            return
        logs = [broker.topic_of(one) for one in records if isinstance(one, Appended)]
        for log in logs:
            if log.topic not in TOPICS:
                continue  # dead letters have no bound
            for client, one in log.subscriptions.items():
                waiting = log.end - one.cursor if one.holds else 0
                assert waiting <= self._faults.waiting_messages_max, (
                    f"{waiting} messages of {log.topic!r} wait for {client!r}"
                )

    def receive(self, frames: Sequence[bytes], answer: Answer) -> None:
        """Take a request, if we are running."""
        if self.broker is None:
            return
        if self.world.now_s < self._stopped_until_s:  # it lies in the buffers of this life
            self.later(0.0, lambda: self.receive(frames, answer))
            return
        try:
            self._serve(self.broker, frames, answer)
        except Crash as crash:
            self.crash(str(crash))

    def _serve(self, broker: Broker, frames: Sequence[bytes], answer: Answer) -> None:
        if is_for_node(frames):
            assert self.pushes.top is not None
            answer(encode_reply(self.pushes.top.answer(frames, self.world.now_s)))
            return
        try:
            request, body = decode_request(frames)
        except MalformedError as error:
            raise AssertionError(f"a client sent what cannot be read: {error}") from error
        broker.heard(request, self.world.now_s)
        with self._room_for_dead_letters(broker, request):
            decision = broker.decide(request, body, now_ns=self.world.wall_ns())  # decide,
        self._silences.heard(request, decision.reply, self.world.now_s)
        if self._disk_hangs:
            decision = broker.without_waiting(request, decision)
        if isinstance(decision.reply, ListenersReport):
            assert self.pushes.top is not None
            pushed = self.pushes.top.is_wanted(decision.reply.topic)
            reply = replace(decision.reply, pushed=pushed, ingress_endpoint="sim://ingress")
            decision = replace(decision, reply=reply)
        self._note(request, decision)
        self.point("behind decide")
        if decision.records:
            broker.apply(decision.records)  # apply,
            self._judge_quota(broker, decision.records)
            self._committer.submit(decision.records, broker.lsn)  # durable,
            if not self._turn_open:
                self._turn_open = True
                self.later(self.world.random.uniform(0.0, TURN_S), self._end_turn)
        self.point("behind apply")
        if self.may_answer(broker, decision):  # then visible
            answer(encode_reply(decision.reply, decision.body))
        else:
            frames = encode_reply(decision.reply, decision.body)
            self._held.append(
                _Held(decision.visible_at, self.world.now_s, answer, decision.reply, frames)
            )

    @contextmanager
    def _room_for_dead_letters(self, broker: Broker, request: AnyRequest) -> Iterator[None]:
        """Only topics of dead letters may be too many."""
        settings = broker._settings
        if isinstance(request, Dead):
            broker._settings = replace(settings, topics_max=self.dead_topics_max)
        try:
            yield
        finally:
            broker._settings = settings

    def receive_offer(self, frames: Sequence[bytes]) -> None:
        """Take what was put at QoS 0, as `ingress.Ingress` does."""
        if self.world.now_s < self._stopped_until_s:
            self.later(0.0, lambda: self.receive_offer(frames))
            return
        assert self.broker is not None
        assert self.pushes.top is not None
        offered = decode_offer(frames)
        is_wanted = offered.topic in self._listened_to() or self.pushes.top.is_wanted(offered.topic)
        now_ns = self.world.wall_ns()
        taken = self.broker.take_offer(offered, is_wanted=is_wanted, now_ns=now_ns)
        if isinstance(taken, BatchHeader):
            self.pushes.top.take_unstored(offered.topic, taken, offered.body)
        if self.world.tracing:
            self.world.note("proxy", f"{_brief(offered.offer)} of {offered.topic} -> {taken}")

    def _listened_to(self) -> set[str]:
        assert self.broker is not None
        topics = self.broker.topics.items()
        return {
            topic for topic, log in topics if any(one.listens for one in log.subscriptions.values())
        }

    def _tell_what_is_wanted(self) -> None:
        """Publishers that put at QoS 0 know what somebody wants."""
        if not self._faults.put_qos_0:
            return
        assert self.pushes.top is not None
        pushed = {topic for topic in TOPICS if self.pushes.top.is_wanted(topic)}
        patterns = [Pattern("exact", topic) for topic in sorted(pushed | self._listened_to())]
        self.offers.wants(offer_prefixes(patterns, KINDS))

    def may_answer(self, broker: Broker, decision: Decision) -> bool:
        """Whether everything that an answer speaks of is durable."""
        return decision.visible_at <= broker.durable_lsn

    def _end_turn(self) -> None:
        self._turn_open = False
        self.point("before hand over")
        self._committer.hand_over()

    def settle(self) -> None:
        """Take the committer's outcomes: make visible what is durable."""
        assert self.broker is not None
        outcomes = self._committer.outcomes
        while outcomes:
            outcome = outcomes.popleft()
            self._disk_hangs = False
            if outcome == "full":
                self._release()
                self.commit_failed()
            elif outcome == "error":
                self._release()
                self.commit_broke()
            elif outcome > self.broker.durable_lsn:
                self.show(self.broker.committed(outcome))
        self.point("before answers")
        self._release()
        self._tell_what_is_wanted()

    def show(self, batches: Sequence[Appended]) -> None:
        """These are visible from here on: they are pushed too."""
        assert self.broker is not None
        assert self.pushes.top is not None
        for batch in batches:
            log = self.broker.topic_of(batch)
            self.pushes.top.take(log.topic, log.log, batch)

    def _release(self) -> None:
        assert self.broker is not None
        while self._held and self._held[0].visible_at <= self.broker.durable_lsn:
            held = self._held.popleft()
            held.answer(held.frames)
            self.point("between answers")

    def _put_off(self) -> None:
        assert self.broker is not None
        self._disk_hangs = True
        self.world.happened("disk_hangs", "proxy", "a commit takes longer than answers wait")
        while self._held:
            held = self._held.popleft()
            held.answer(encode_reply(self.broker.not_yet(held.reply)))

    def commit_broke(self) -> None:
        """An I/O error: nobody knows what is durable, so the process ends."""
        raise Crash("because a commit failed: I/O error")

    def commit_failed(self) -> None:
        """Go back to what is durable, refuse what waited."""
        assert self.broker is not None
        self.world.happened("storage_full", "proxy", "a commit failed: disk full")
        segments = self.broker.durable_segments()
        stored = self.store.state()
        counted = {topic.topic_id: list(topic.segments) for topic in stored.topics}
        if not self._faults.trim:
            for topic_id, expected in counted.items():
                found = [(s.base, s.end, s.body_bytes) for s in segments[topic_id]]
                assert found == [(s.base, s.end, s.body_bytes) for s in expected], "segments"
        self.broker = self._new_broker(stored, self.world.now_s + STORAGE_RETRY_S)
        self._committer.restart()
        while self._held:
            held = self._held.popleft()
            held.answer(encode_reply(self.broker.not_stored(held.reply)))

    def _tick(self) -> None:
        assert self.broker is not None
        now_s = self.world.now_s
        assert self.pushes.top is not None
        self.pushes.top.expire(now_s)
        if self._held and now_s - self._held[0].since_s > DISK_PATIENCE_S:
            self._put_off()
        due = self.broker.tick(now_s=now_s, now_ns=self.world.wall_ns())
        self._silences.judge(self.broker, due, now_s)
        if due:
            self.broker.apply(due)
            self._committer.submit(due, self.broker.lsn)
        if not self._committer.waiting:
            self._lazy_at_s = None
        elif self._lazy_at_s is None:
            self._lazy_at_s = now_s + TICK_S
        elif now_s >= self._lazy_at_s:
            self._committer.flush()
        self._tell_what_is_wanted()
        self.point("tick")
        self.later(TICK_S, self._tick)

    def _note(self, request: AnyRequest, decision: Decision) -> None:
        if isinstance(decision.reply, Full):
            self.world.counts["full"] += 1
            self.world.counts["quota"] += self._faults.quota
        elif isinstance(decision.reply, Lost) and decision.reply.waiting_max is not UNSET:
            self.world.counts["quota"] += 1
        elif isinstance(request, Sub) and request.start is not None and self._faults.rollback:
            self.world.counts["log_changed"] += 1  # a subscriber rewinds or adopts
        if self.world.tracing:
            self.world.note("proxy", f"{_brief(request)} -> {_brief(decision.reply)}")


def _brief(message: object) -> str:
    """A request or an answer in a few words, for the trace."""
    skipped = ("text", "nonce", "durability", "crc", "boot", "bytes_max", "batches")
    facts = {name: getattr(message, name) for name in getattr(message, "__struct_fields__", ())}
    words = [
        f"{name}={value}"
        for name, value in facts.items()
        if name not in skipped and value is not UNSET
    ]
    words += [f"{b.base}+{b.count}" for b in facts.get("batches", ())]
    return f"{type(message).__name__} {' '.join(words)}"
