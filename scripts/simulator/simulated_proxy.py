"""A proxy that dies: the real engine, in a shell with time, a disk and death as arguments.

The shell carries out the engine's outputs in order, as `proxy/server.py` does, and may die before
each. The committer takes a random time for a commit; the next one writes all that came meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub.common.access.core.authorisation import Authority
from reliable_pubsub.common.core.actions import AdminRequest
from reliable_pubsub.common.core.answers import Full, Lost, Malformed, MessageBatches, StorageFull
from reliable_pubsub.common.core.attention import Attention
from reliable_pubsub.common.core.dead_letter import DEAD_SUFFIX
from reliable_pubsub.common.core.limits import TOPICS_MAX
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.core.requests import Ack, AnyRequest, Bye, Dead, Get, Hello, Sub, Unsub
from reliable_pubsub.common.core.settings import OnBound
from reliable_pubsub.proxy.core.engine import Engine
from reliable_pubsub.proxy.core.outputs import Answer, Visible, Work
from reliable_pubsub.proxy.core.records import Appended, Decision
from reliable_pubsub.proxy.core.state import (
    BrokerSettings,
    EngineTiming,
    Memory,
    Parts,
    Record,
    Setup,
    State,
)
from reliable_pubsub.proxy.core.storage import NotServingError
from reliable_pubsub.proxy.core.stored import StoredState
from reliable_pubsub.proxy.core.topic_log import Retention
from reliable_pubsub.proxy.features import TABLES
from reliable_pubsub.proxy.push.pushes import Down, Pushes
from reliable_pubsub.proxy.qos0 import verbs as qos0
from reliable_pubsub.proxy.qos0.interest import Want, Wanted
from reliable_pubsub.proxy.transactions.staging import Staging
from reliable_pubsub.relay.core.unstored import decode_offer

from .ages import Ages
from .debts import DISK_PATIENCE_S, Debts
from .keyed import AUTHORITY, KEYS, NO_KEYS, judge_accounts
from .network import Reply
from .onlooker import Onlooker
from .silences import Silences
from .simulated_committer import SimulatedCommitter
from .simulated_database import DatabaseCommitter, SimulatedServing
from .simulated_offers import OfferNetwork
from .simulated_push import LEASE_S, PushNetwork, SimulatedFanOut
from .simulated_store import SimulatedStore
from .swarm import Faults
from .world import World

TOPICS: Final = ("a", "b")
TICK_S: Final = 0.02  # the real one is five times as long, as are the clients' timeouts
TURN_S: Final = 0.0005  # requests that come within it share a turn of the loop
STORAGE_RETRY_S: Final = 0.05
RETURN_S_MAX: Final = 0.1  # after a pause of the proxy, clients ask again within this
STORING_NOTHING: Final = (Ack, Unsub, Bye, Hello, AdminRequest)  # no message
FORGETFUL: Final = Memory(idle_sessions_max=1, ended_clean_max=0, unnumbered_max=0)


class Crash(Exception):
    """The proxy dies here."""


class WatchedEngine(Engine):
    """The engine under test, with what the world sees of its decisions."""

    world: World
    faults: Faults
    dead_topics_max: int
    onlooker: Onlooker
    _arrives = False

    def handle(
        self, request: AnyRequest, body: bytes, reply_to: Any, *, now_s: float, now_ns: int
    ) -> Decision:
        self._arrives = True
        try:
            decision = super().handle(request, body, reply_to, now_s=now_s, now_ns=now_ns)
        finally:
            self._arrives = False
        kept = self.waiting.of.get(request.client)
        self.world.counts["get_waits"] += kept is not None and kept.request is request
        return decision

    def _decide(self, request: AnyRequest, body: bytes, now_ns: int) -> Decision:
        settings = self.state.settings
        if isinstance(request, Dead):  # only topics of dead letters may be too many
            self.state.settings = replace(settings, topics_max=self.dead_topics_max)
        decision = super()._decide(request, body, now_ns)
        self.state.settings = settings
        if isinstance(decision.reply, StorageFull) and isinstance(request, STORING_NOTHING):
            tries_none = self.state.storage_full_until_s is not None
            assert tries_none, f"{request} stores no message, and a full disk refuses it"
        if self._arrives:  # a GET that waited says nothing of its sender when it is decided again
            self._silences.heard(request, self.state, self.world.now_s)
        self._note(request, decision)
        return decision

    def _new_state(self, stored: StoredState) -> State:
        self._silences, self._ages = Silences(), Ages()
        return super()._new_state(stored)

    def _due(self, now_s: float) -> Sequence[Record]:
        due = super()._due(now_s)
        self._silences.judge(self.state, due, now_s)
        self._ages.judge(self.state, due, now_s)
        return due

    def tick(self, *, now_s: float, now_ns: int) -> None:
        super().tick(now_s=now_s, now_ns=now_ns)
        self.onlooker.look(self.state)

    def _apply(self, records: Sequence[Record]) -> None:
        super()._apply(records)
        self._ages.stored(records, self.world.now_s)
        self._judge_quota(records)
        for client in self.state.part(Staging).clients:
            known = ("publisher", client) in self.state.sessions
            assert known, f"{client!r} has no session, and something staged"
        if self.faults.keys:
            self.world.counts["keys"] += 1
            judge_accounts(self.state)

    def _put_off(self) -> None:
        self.world.happened("disk_hangs", "proxy", "a commit takes longer than answers wait")
        super()._put_off()

    def _judge_quota(self, records: Sequence[Record]) -> None:
        """After a put, no subscription is above its bound; with `lose_oldest` it may lag."""
        if not self.faults.quota or self.faults.lose_oldest:
            return
        logs = [
            self.state.topic_by_id[one.topic_id] for one in records if isinstance(one, Appended)
        ]
        for log in logs:
            if log.topic not in TOPICS:
                continue  # dead letters have no bound
            for client, one in log.subscriptions.items():
                waiting = log.end - one.cursor if one.holds else 0
                assert waiting <= self.faults.waiting_messages_max, (
                    f"{waiting} messages of {log.topic!r} wait for {client!r}"
                )

    def _note(self, request: AnyRequest, decision: Decision) -> None:
        if isinstance(decision.reply, Malformed):
            raise AssertionError(f"a client sent what cannot be taken: {decision.reply.text}")
        if isinstance(request, Get) and isinstance(decision.reply, MessageBatches):
            session = self.state.sessions["subscriber", request.client]
            assert session.epoch == request.epoch, "a fenced session is shown messages"
        if isinstance(decision.reply, Full):
            self.world.counts["full"] += 1
            self.world.counts["quota"] += self.faults.quota
        elif isinstance(decision.reply, Lost) and decision.reply.waiting_max is not UNSET:
            self.world.counts["quota"] += 1
        elif isinstance(request, Sub) and request.start is not None and self.faults.rollback:
            self.world.counts["log_changed"] += 1  # a subscriber rewinds or adopts
        if self.world.tracing:
            self.world.note("proxy", f"{_brief(request)} -> {_brief(decision.reply)}")


class SimulatedProxy:
    """A proxy process that is started, killed and started again. Implements `network.Door`."""

    engine_class: type[Engine] = Engine  # planted faults put another one here
    attention_class: type[Attention] = Attention
    pushes: PushNetwork  # the pushes
    offers: OfferNetwork  # what comes at QoS 0
    dead_topics_max: int = TOPICS_MAX  # topics beside which none is made for dead letters
    serving: SimulatedServing | None = None  # of a store that several proxies share

    def __init__(
        self, world: World, faults: Faults, store: SimulatedStore, name: str = "proxy"
    ) -> None:
        self.name = name
        self.world = world
        self.store = store
        self.engine: Engine | None = None  # None: not running
        self._faults = faults
        self._life = 0
        self._points_left: int | None = None
        self._storage_full_until_s = -1.0
        self._keys = KEYS if faults.keys else NO_KEYS
        self._stopped_until_s = -1.0
        self._committer = SimulatedCommitter(self)
        self._debts = Debts()
        self._turn_is_open = False
        self._offers_wanted: frozenset[bytes] = frozenset()
        self._fan_out: SimulatedFanOut | None = None

    @property
    def state(self) -> State | None:
        """The state of the life that runs."""
        return self.engine.state if self.engine else None

    @property
    def listens(self) -> bool:
        """See `Door`: a standby has no endpoints."""
        return self.engine is not None

    @property
    def serves(self) -> bool:
        """Whether it runs, and its term is not over."""
        return self.engine is not None and (self.serving is None or self.serving.is_current)

    # What the world does to it.

    def start(self) -> None:
        """Start from what is durable, or stand by. An event."""
        if self.engine is not None:
            return
        self._life += 1
        self.world.note(self.name, f"starts, life {self._life}")
        self._points_left = None
        self._stopped_until_s = -1.0
        if self.world.chance(self._faults.proxy_crash):
            self._points_left = self.world.random.randint(1, 250)
        if self.serving is None:
            self.serve()
        else:
            self.serving.stand_by()

    def serve(self) -> None:
        """Read what is durable, and answer from now on."""
        make = SimulatedCommitter if self.serving is None else DatabaseCommitter
        self._committer = make(self)
        self._debts = Debts()
        self._turn_is_open = False
        self._offers_wanted = frozenset()
        pushes = Pushes(boot=self._boot, endpoint="inproc://push", lease_s=LEASE_S)
        self._attention = self.attention_class(TICK_S, RETURN_S_MAX)
        stored = self.store.state() if self.serving is None else self.serving.read()
        self.engine = self._new_engine(pushes, stored)
        self._fan_out = SimulatedFanOut(pushes, self.pushes.send, key=self._keys["subscriber"])
        self.pushes.proxy_started(self._fan_out)
        self.offers.proxy_started(self)
        self.later(TICK_S, self._tick)

    @property
    def _boot(self) -> str:
        return f"{self.name.replace('proxy', 'boot')}{self._life}"

    def crash(self, where: str) -> None:
        """Die: everything that is not durable is lost. It comes back after a while."""
        if self.engine is None:
            return
        self.world.happened("proxy_crash", self.name, f"ends {where}")
        assert self._fan_out is not None
        self.pushes.proxy_ended(self._fan_out)
        self.engine = self._fan_out = None
        self.offers.proxy_ended(self)
        self._life += 1
        self.world.at(self.world.random.uniform(0.005, 0.15), self.start)

    def stop(self, seconds: float) -> None:
        """Stand still for a while, all threads, as by SIGSTOP; then continue."""
        if self.engine is not None:
            self.world.happened("proxy_stop", self.name, f"stands still for {seconds:.3f} s")
            self._stopped_until_s = max(self._stopped_until_s, self.world.now_s + seconds)

    def roll_back(self, commits: int) -> None:
        """Be set back to a copy of the store from before the last commits, while it is down."""
        self.crash("so that its store can be set back")
        self.world.happened("rollback", self.name, f"its store is set back by {commits} commits")
        self.store.roll_back(commits)

    def fill_storage(self, seconds: float) -> None:
        """Let commits fail for a while, for lack of space."""
        self.world.note(self.name, f"disk is full for {seconds:.3f} s")
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
        """Schedule something for this life of the proxy, which may die in it."""
        life = self._life
        self.world.at(delay_s, lambda: self._act(life, action))

    def of_this_life(self) -> Callable[[Callable[[], None]], None]:
        """An event for this life only; if the process stands still, it waits until that is over."""
        life = self._life
        return lambda action: self._act(life, action)

    def _act(self, life: int, action: Callable[[], None]) -> None:
        if life != self._life:
            return
        if self.world.now_s < self._stopped_until_s:
            self.later(self._stopped_until_s - self.world.now_s, action)
        else:
            self._mortal(action)

    def point(self, where: str) -> None:
        """A point at which the proxy may die."""
        if self._points_left is not None and not self.world.quiet:
            self._points_left -= 1
            if self._points_left <= 0:
                raise Crash(where)

    # The shell: it carries values in and out of the engine.

    def _new_engine(self, pushes: Pushes, stored: StoredState) -> Engine:
        retention = Retention()
        if self._faults.trim:
            retention = Retention(
                # Else by age, so that clocks that are set matter.
                history_bytes=0 if not self._faults.clock_jump else Retention().history_bytes,
                history_s=0.0,
                topic_bytes_max=self._faults.topic_bytes_max,
                waiting_messages_max=self._faults.waiting_messages_max,
                on_bound=self._on_bound,
            )
        seen: dict[str, Any] = {
            "world": self.world,
            "faults": self._faults,
            "dead_topics_max": self.dead_topics_max,
            "onlooker": Onlooker(None if self._faults.standby else self.store),
        }
        engine_class = type("SimulatedEngine", (WatchedEngine, self.engine_class), seen)
        setup = Setup(
            boot=self._boot,
            reader=self.store,
            settings=BrokerSettings(
                retention=retention,
                topics={topic + DEAD_SUFFIX: Retention() for topic in TOPICS},
                trim_interval_s=TICK_S,
                storage_retry_s=STORAGE_RETRY_S,
                memory=FORGETFUL if self._faults.forget else Memory(),
            ),
            authority=AUTHORITY if self._faults.keys else Authority({}),
            attention=self._attention,
            kept=Parts(pushes, Wanted("sim://ingress")),
        )
        engine: Engine = engine_class(
            stored,
            setup,
            TABLES,
            timing=EngineTiming(lazy_s=TICK_S, disk_patience_s=DISK_PATIENCE_S),
        )
        return engine

    @property
    def _on_bound(self) -> OnBound:
        if self._faults.lose_oldest:
            return "lose_oldest"
        return "expire" if self._faults.expire else "reject"

    def receive(self, frames: Sequence[bytes], role: Role, reply: Reply) -> None:
        """Take a request, if we are running."""
        if self.engine is None:
            return
        if self.world.now_s < self._stopped_until_s:  # it lies in the buffers of this life
            self.later(0.0, lambda: self.receive(frames, role, reply))
            return
        now_s, now_ns = self.world.now_s, self.world.wall_ns()
        owed = self._debts.owed(frames, reply, now_s)
        key = self._keys[role]
        self.engine.receive(frames, owed, role=role, now_s=now_s, now_ns=now_ns, key=key)
        self._mortal(self._carry_out)

    def receive_offer(self, frames: Sequence[bytes]) -> None:
        """Take what was put at QoS 0, as `ingress.Ingress` does."""
        if self.world.now_s < self._stopped_until_s:
            self.later(0.0, lambda: self.receive_offer(frames))
            return
        assert self.engine is not None
        key = self._keys["publisher"]
        became = qos0.offered(self.engine, frames, now_ns=self.world.wall_ns(), key=key)
        if self.world.tracing:
            found = decode_offer(frames)
            self.world.note(self.name, f"{_brief(found.offer)} of {found.topic} -> {became}")
        self._mortal(self._carry_out)

    def _mortal(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Crash as crash:
            self.crash(str(crash))
        except NotServingError as error:
            self.crash(f"because {error}")

    def _carry_out(self) -> None:
        """Do what the engine says, in its order; the process may die before each output."""
        assert self.engine is not None
        if self.serving is not None:
            self.serving.confirm()
        while self.engine.outputs:
            output = self.engine.outputs.popleft()
            self.point(f"before {type(output).__name__}")
            match output:
                case Answer(reply, frames):
                    if self.serving is not None:
                        self.serving.judge()
                    reply(frames)
                case Work():
                    self._committer.submit(output)
                case Visible():
                    pass  # the store's readers see what is durable
                case Down():
                    assert self._fan_out is not None
                    self._fan_out.send(output)
                case Want(added, removed):
                    self._offers_wanted = self._offers_wanted - removed | added
                    if self._faults.put_qos_0:
                        self.offers.wants(self, self._offers_wanted)
        if self.engine.is_turn_due and not self._turn_is_open:
            self._turn_is_open = True
            self.later(self.world.random.uniform(0.0, TURN_S), self._end_turn)

    def _end_turn(self) -> None:
        assert self.engine is not None
        self._turn_is_open = False
        self.engine.end_turn(now_s=self.world.now_s, now_ns=self.world.wall_ns())
        self._carry_out()

    def take_outcomes(self) -> None:
        """Report to the engine the outcome of its work."""
        assert self.engine is not None
        while self._committer.outcomes:
            outcome = self._committer.outcomes.popleft()
            if outcome == "full":
                if self.serving is not None:
                    self.serving.confirm()  # before it reads what is durable
                self.commit_failed(self.engine)
            elif outcome == "error":
                self._carry_out()
                self.commit_broke(self.engine)
            else:
                self.engine.committed(outcome, is_full=self.storage_is_full())
        self._carry_out()

    def commit_broke(self, engine: Engine) -> None:
        """An I/O error: it is unknown what is durable, so the process ends."""
        raise Crash("because a commit failed: I/O error")

    def commit_failed(self, engine: Engine) -> None:
        """Go back to what is durable."""
        self.world.happened("storage_full", self.name, "a commit failed: disk full")
        segments = engine.state.durable_segments()
        stored = self.store.state()
        counted = {topic.topic_id: list(topic.segments) for topic in stored.topics}
        if not (self._faults.trim or self._faults.operate):
            for topic_id, expected in counted.items():
                found = [(s.base, s.end, s.body_bytes) for s in segments[topic_id]]
                assert found == [(s.base, s.end, s.body_bytes) for s in expected], "segments"
        self._committer.restart()
        engine.failed(stored, "the proxy's disk is full", now_s=self.world.now_s)

    def _tick(self) -> None:
        assert self.engine is not None
        assert self._fan_out is not None
        now_s = self.world.now_s
        self._fan_out.expire(self._attention.at(now_s))
        self.engine.tick(now_s=now_s, now_ns=self.world.wall_ns())
        self._carry_out()
        self._debts.judge(now_s)
        self.later(TICK_S, self._tick)


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
