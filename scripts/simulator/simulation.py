"""One seed: build a world, cause faults, stop them, check what happened."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar
from unittest.mock import patch

from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.dead_letter import DELIVERIES_USED_UP
from reliable_pubsub.common.core.message_base import QoS, SessionKind
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.reading import without_collection
from reliable_pubsub.lab.variants import Rule, planted
from reliable_pubsub.proxy.core import topic_log
from reliable_pubsub.proxy.core.engine import Engine
from reliable_pubsub.proxy.core.records import Forgotten, TopicCreated, Trimmed
from reliable_pubsub.proxy.core.state import Record
from reliable_pubsub.proxy.core.subscription_records import Expired
from reliable_pubsub.proxy.dead_letters.verbs import DeadLettered
from reliable_pubsub.proxy.groups.state import is_group
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.relay.core import interest_link
from reliable_pubsub.subscriber.client import Subscriber

from .after_rollback import check_after_rollback, rollback_in, sentences
from .looping_subscribers import LoopingSubscriberMachine
from .machine import Machine
from .network import Network
from .recording import Recording
from .simulated_callers import CallingMachine, calls
from .simulated_clients import (
    Item,
    PublisherMachine,
)
from .simulated_database import SimulatedDatabase, SimulatedServing
from .simulated_members import GroupTermsAsked, MemberMachine
from .simulated_offers import OfferNetwork
from .simulated_operators import OperatorMachine
from .simulated_patterns import PatternMachine
from .simulated_proxy import TOPICS, SimulatedProxy
from .simulated_push import RESEND_S, PushNetwork
from .simulated_sink import SinkMachine, sink_plan
from .simulated_store import SimulatedStore
from .simulated_subscribers import (
    Step,
    SubscriberMachine,
    Subscribing,
)
from .swarm import Faults, Shape, swarm
from .world import World

M = TypeVar("M", bound=Machine)

QUIET_S = 20.0  # then everything must come to its end within this
STARTS = ("now", "last", "earliest", "newest", "offset", "time")  # what a subscribe may say


class Variant(Struct, frozen=True, kw_only=True):
    """The parts of a system; the sound ones, unless a fault is planted."""

    rules: Mapping[Rule, Rule] = {}  # functions of proxy/core, and those in their place
    engine: type[Engine] = Engine
    proxy: type[SimulatedProxy] = SimulatedProxy
    store: type[SimulatedStore] = SimulatedStore
    database: type[SimulatedDatabase] = SimulatedDatabase
    serving: type[SimulatedServing] = SimulatedServing
    publisher: Callable[..., Publisher] = Publisher
    subscriber: Callable[..., Subscriber] = Subscriber


class Outcome(Struct, frozen=True):
    """What a seed showed."""

    seed: int
    violations: Sequence[str]
    events: int
    counts: Mapping[str, int]  # how often each class of faults has happened
    trace: Sequence[str]


SOUND = Variant()
WHOLE = Shape()


def run_seed(
    seed: int, variant: Variant = SOUND, shape: Shape = WHOLE, *, tracing: bool = False
) -> Outcome:
    """Run one seed and check it. The same seed gives the same run, on every machine."""
    world = World(seed, tracing=tracing)
    with without_collection():  # a world hangs together until it ends
        violations = judge(run_world(world, variant, shape))
    return Outcome(seed, violations, world.events_count, world.counts, world.trace)


def judge(simulation: Simulation) -> list[str]:
    """What is wrong with a run, each sentence after the name of its rule."""
    run = simulation.recording.run
    rollback = rollback_in(run)
    if rollback is None:
        return [*simulation.raised, *sentences(check(run).rules)]
    return [*simulation.raised, *check_after_rollback(run, rollback, simulation.choices)]


def run_world(world: World, variant: Variant = SOUND, shape: Shape = WHOLE) -> Simulation:
    """Run one seed; what happened is not judged yet."""
    chance = random.getstate()
    random.seed(world.seed)  # the clients' jitter
    segment = world.random.randint(1, 6)  # batches; small, so that retention has something to cut
    try:
        with (
            patch.object(topic_log, "SEGMENT_BATCHES", segment),
            patch.object(interest_link, "RESEND_S", RESEND_S),
            planted(variant.rules),
        ):
            simulation = Simulation(world, variant, shape)
            simulation.run()
    finally:
        random.setstate(chance)
    return simulation


class Simulation:
    """The world of one seed, with all its machines."""

    def __init__(self, world: World, variant: Variant, shape: Shape) -> None:
        """Build everything the seed asks for; nothing runs yet."""
        self._world = world
        self._variant = variant
        self._shape = shape
        self._faults = swarm(world.seed, world.random, shape)
        self.recording = Recording(world)
        self.raised: list[str] = []  # what the core itself raised
        self._put_by_s = float("inf")  # when nothing more can be put
        world.note("world", str(self._faults))
        self._store = variant.store(self._committed, self.recording.set_back)
        self._database = variant.database(world, self._store)
        names = ("proxy", "proxy-2") if self._faults.standby else ("proxy",)
        self._proxies = [variant.proxy(world, self._faults, self._store, name) for name in names]
        self._network = Network(world, self._faults, self._proxies)
        self._pushes = PushNetwork(world, self._faults, self._network)
        self._offers = OfferNetwork(world, self._faults)
        for proxy in self._proxies:
            proxy.engine_class = variant.engine
            proxy.pushes, proxy.offers = self._pushes, self._offers
            if self._faults.standby:
                proxy.serving = variant.serving(proxy, self._database)
            if self._faults.dead_limit:
                proxy.dead_topics_max = len(TOPICS) + world.seed % 2
        self._machines: list[Machine] = []
        self._created_s: dict[str, float] = {}  # when topics became durable
        self._add_publishers()
        subscribers = self._add_subscribers()
        if self._faults.operate and subscribers:
            faults = self._faults
            self._added(OperatorMachine, "o0").begin(
                subscribers,
                forgets=not (faults.zombie or faults.twin),
                truncates=not faults.same_bytes,
            )
        if self._faults.group:
            self._add_members()
        if self._faults.pattern:
            draw = random.Random(f"pattern of {world.seed}")
            one = self._added(PatternMachine, "t0")
            ends, push = draw.random() < 0.3, bool(self._faults.push)
            stored_end = lambda topic: self._store.end(topic)  # noqa: E731
            lease_s = draw.uniform(0.2, 1.0) if draw.random() < 0.3 else None
            one.begin_with(
                *(self._end, self._created_s, stored_end), ends=ends, push=push, lease_s=lease_s
            )

    def _added(self, kind: type[M], name: str) -> M:
        """A machine of this world, without a program yet."""
        machine = kind(name, self._world, self._network, self._faults, self.recording)
        puts = kind.role == "publisher"
        machine.make = self._variant.publisher if puts else self._variant.subscriber
        machine.pushes, machine.offers = self._pushes, self._offers
        self._machines.append(machine)
        return machine

    def _add_publishers(self) -> None:
        """Those with a plan, a sink of transactions, and one that is called without a plan."""
        chance, shape = self._world.random, self._shape
        for number in range(_at_most(shape.publishers, chance.randint(2, 3))):
            publisher = self._added(PublisherMachine, f"p{number}")
            publisher.begin(_publisher_plan(chance, shape, self._faults))
        if self._faults.sink:
            sink = self._added(SinkMachine, "w0")
            sink.begin(sink_plan(chance, sink.name, TOPICS))
        if self._faults.set_back:
            caller = self._added(CallingMachine, "c0")
            caller.begin(calls(random.Random(f"calls {self._world.seed}"), TOPICS))

    def _add_subscribers(self) -> list[str]:
        """Those with a plan; return their names."""
        chance, shape = self._world.random, self._shape
        subscribers: list[str] = []
        for number in range(_at_most(shape.subscribers, chance.randint(2, 3))):
            loops = chance.random() < 0.35
            kind = LoopingSubscriberMachine if loops else SubscriberMachine
            subscriber = self._added(kind, f"s{number}")
            steps = _subscriber_steps(chance, shape, self._faults)
            subscriber.begin(steps, _terms(chance, self._faults), self._end)
            subscribers.append(subscriber.name)
        return subscribers

    def _add_members(self) -> None:
        """Members of one group; the last one comes late."""
        draw = random.Random(f"members {self._world.seed}")
        terms = GroupTermsAsked.drawn(draw)
        for number in range(draw.randint(2, 3)):
            member = self._added(MemberMachine, f"m{number}")
            member.begin_in(terms, self._store, self._end, draw.random())

    @property
    def choices(self) -> Mapping[str, str]:
        """By client, what it does about a changed log."""
        return {machine.name: machine.on_log_changed for machine in self._machines}

    def _committed(self, records: Sequence[Record]) -> None:
        self.recording.committed(records)
        for record in records:
            if isinstance(record, TopicCreated):
                self._created_s[record.topic] = self._world.now_s
            if isinstance(record, Expired):
                # A clean session always has a lease.
                kind = "lease" if record.terms.lease_ms else "expire"
                kind = "clean" if record.terms.session == "clean" else kind
                self._world.happened(kind, record.subscriber, f"expired: {record}")
            elif isinstance(record, DeadLettered):
                used_up = DELIVERIES_USED_UP.encode() in record.body
                self._world.counts["max_deliveries"] += used_up
        self._world.counts["trim"] += sum(isinstance(record, Trimmed) for record in records)
        self._world.counts["forget"] += sum(isinstance(record, Forgotten) for record in records)

    def _end(self, topic: str) -> int | None:
        """Where a topic ends for good; None as long as a client may put."""
        if not all(machine.done for machine in self._machines if machine.role == "publisher"):
            return None
        # Of two kinds of puts a copy may be stored as long as one is under way: those at QoS 1, and
        # one that its publisher has forgotten, if it does not claim an epoch any more.
        lasts = self._faults.put_qos_1 or self._faults.set_back
        copies_s = self._faults.late_s + 0.5 if lasts else 0.0
        self._put_by_s = min(self._put_by_s, self._world.now_s + copies_s)
        return self._store.end(topic) if self._world.now_s >= self._put_by_s else None

    def run(self) -> None:
        """Run the seed."""
        world = self._world
        for proxy in self._proxies:
            proxy.start()
        for machine in self._machines:
            machine.start(world.random.uniform(0.0, 0.1))
        self._plan_faults()
        with self._collected():
            world.run(self._shape.faults_s)
            self._calm_down()
            self._await_the_end()
            world.run(self._shape.faults_s + QUIET_S)
        self._look_at_the_end()
        world.close([p for machine in self._machines for p in machine.processes])

    @contextmanager
    def _collected(self) -> Iterator[None]:
        """Whatever the core raises is a broken rule."""
        try:
            yield
        except Exception as error:
            self.raised.append(f"{type(error).__name__}: {error}")
            self._world.note("world", f"failed: {error!r}")

    def _plan_faults(self) -> None:
        """Draw when things happen that no message triggers."""
        faults, chance = self._faults, self._world.random
        faults_s = self._shape.faults_s

        def happen(rate: float, act: Callable[[], None]) -> None:
            for _ in range(int(rate * faults_s + chance.random())) if rate else ():
                self._world.at(chance.uniform(0.0, faults_s), act)

        def a_machine() -> Machine:
            return chance.choice(self._machines)

        def proxy() -> SimulatedProxy:
            return self._proxies[0] if len(self._proxies) == 1 else chance.choice(self._proxies)

        happen(faults.partition, lambda: self._cut(self._network.cut, self._machines))
        happen(faults.half_open, lambda: self._cut(self._network.half_open, self._machines))
        happen(faults.storage_full, lambda: proxy().fill_storage(chance.uniform(0.005, 0.1)))
        happen(faults.proxy_stop, lambda: proxy().stop(chance.uniform(0.01, 0.3)))
        happen(faults.client_stop, lambda: a_machine().stand_still(chance.uniform(0.01, 0.3)))
        listening = [one for one in self._machines if isinstance(one, SubscriberMachine)]
        if listening:
            happen(
                faults.silence,
                lambda: chance.choice(listening).stand_still(chance.uniform(0.1, 0.7), "silence"),
            )
            happen(faults.push_cut, lambda: self._cut(self._pushes.cut, listening))
        happen(faults.zombie, lambda: a_machine().freeze_and_replace())
        happen(faults.clock_jump, self._jump)
        happen(faults.proxy_crash * 4, lambda: proxy().crash("at a random moment"))
        happen(
            faults.database_cut,
            lambda: self._database.cut(proxy().name, chance.uniform(0.02, 0.4)),
        )
        happen(
            faults.proxy_cut,
            lambda: self._network.cut_door(proxy().name, chance.uniform(0.02, 0.4)),
        )
        if faults.rollback:
            commits = chance.choice((1, 3, 10, 30, 1000))
            when_s = chance.uniform(0.1, faults_s)
            self._world.at(when_s, lambda: proxy().roll_back(chance.randint(1, commits)))

    def _cut(self, cut: Callable[[str, float], None], machines: Sequence[Machine]) -> None:
        chance = self._world.random
        cut(chance.choice(machines).name, chance.uniform(0.02, 0.4))

    def _jump(self) -> None:
        jump_s = self._world.random.uniform(-7200, 7200)
        self._world.happened("clock_jump", "world", f"the wall clock jumps by {jump_s:.0f} s")
        self._world.wall_offset_ns += int(jump_s * 1e9)

    def _calm_down(self) -> None:
        """Stop all faults; what is dead restarts on its own."""
        self.recording.event("quiet")
        self._world.note("world", "quiet from here on")
        self._world.quiet = True

    def _await_the_end(self) -> None:
        """Stop the world a little after all are done, so that late copies arrive too."""
        if all(machine.done for machine in self._machines):
            self._world.at(2.0 * self._faults.late_s + 0.2, self._world.stop)
        else:
            self._world.at(0.02, self._await_the_end)

    def _look_at_the_end(self) -> None:
        """Note how each has ended, and what the proxy holds."""
        for machine in self._machines:
            self.raised += machine.judge(self._store.appended())
        for machine in self._machines:
            subscribes = isinstance(machine, SubscriberMachine | MemberMachine)
            done = machine.done and machine.stopped_by is None
            self.recording.finished(
                machine.name,
                done=done,
                expected=machine.stopped_by is None,
                drained=done and subscribes,
                messages=machine.messages if isinstance(machine, PublisherMachine) else None,
                detail=str(machine.stopped_by or ""),
            )
            if isinstance(machine, SubscriberMachine) and machine.output:
                self.recording.outputs[machine.name] = machine.lines
        states = (proxy.state for proxy in self._proxies if proxy.serves)
        state = next(states, None)
        positions = {
            topic: {
                who: one.cursor
                for who, one in log.subscriptions.items()
                if one.active and not is_group(who)
            }
            for topic, log in (state.topics if state else {}).items()
        }
        self.recording.audit(self._store, TOPICS, positions)


def _at_most(bound: int | None, drawn: int) -> int:
    return drawn if bound is None else min(bound, drawn)


def _publisher_plan(chance: random.Random, shape: Shape, faults: Faults) -> list[Item]:
    """15 to 20 messages over both topics, in requests of one or several."""
    left = _at_most(shape.messages, chance.randint(15, 20))
    next_index = dict.fromkeys(TOPICS, 0)
    plan: list[Item] = []
    while left > 0:
        topic = chance.choice(TOPICS)
        count = min(chance.choice((1, 1, 1, 2, 4)), left)
        qos: QoS = 1 if faults.put_qos_1 and chance.random() < faults.put_qos_1 else 2
        item = Item(topic, next_index[topic], count, qos)
        next_index[topic] += count
        left -= count
        if qos == 2 and faults.transaction and chance.random() < faults.transaction:
            other = TOPICS[1 - TOPICS.index(topic)]
            more = chance.choice((1, 1, 2))
            item = replace(item, also=(Item(other, next_index[other], more),))
            next_index[other] += more
            left -= more
        plan.append(item)
    return plan


def _subscriber_steps(chance: random.Random, shape: Shape, faults: Faults) -> list[Step]:
    """Subscribe, get some, perhaps unsubscribe and come back; at the end get everything."""
    of_topic: list[list[Step]] = []
    topics = TOPICS if chance.random() < 0.7 else (chance.choice(TOPICS),)
    for topic in topics:

        def subscribe(topic: str = topic) -> Step:
            said = faults.start and chance.random() < faults.start
            return Step("subscribe", topic, start=chance.choice(STARTS) if said else "")

        steps = [subscribe(), Step("get", topic, chance.randint(1, 15))]
        for _ in range(chance.choice((0, 0, 1, 2))):
            steps += [Step("unsubscribe", topic), subscribe()]
            steps.append(Step("get", topic, chance.randint(1, 8)))
        if faults.seek and chance.random() < faults.seek:
            steps.append(Step("seek", topic, start=chance.choice(STARTS)))
            steps.append(Step("get", topic, chance.randint(1, 8)))
        if chance.random() < 0.25:
            steps.append(Step("unsubscribe", topic))
        of_topic.append(steps)
    merged: list[Step] = []
    while of_topic:
        steps = chance.choice(of_topic)
        merged.append(steps.pop(0))
        if not steps:
            of_topic.remove(steps)
    merged = merged[: shape.steps]
    last = {step.topic: step.action for step in merged}
    stays = any(action != "unsubscribe" for action in last.values())
    return [*merged, Step("drain")] if stays else merged


def _terms(chance: random.Random, faults: Faults) -> dict[str, Subscribing]:
    """What a subscriber asks for, by topic; nothing is drawn where nothing may be asked."""

    def happens(probability: float) -> bool:
        return bool(probability) and chance.random() < probability

    qos: QoS = 1 if happens(faults.get_qos_1) else 2
    terms: dict[str, Subscribing] = {}
    for topic in TOPICS:
        clean = happens(faults.clean)
        lease_s = chance.uniform(0.03, 0.15) if clean or happens(faults.lease) else None
        push = happens(faults.push)
        deliveries = chance.choice((1, 2, 3)) if happens(faults.max_deliveries) else None
        session: SessionKind = "clean" if clean else "persistent"
        terms[topic] = Subscribing(qos, session, lease_s, push, deliveries)
    return terms
