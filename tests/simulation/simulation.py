"""One seed: build a world, let faults happen, let it calm down, check what happened."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from msgspec import Struct

from reliable_pubsub.proxy import topic_log
from reliable_pubsub.proxy.broker import Broker
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.client import Subscriber

from .checker import check
from .history import History, Item
from .machine import Machine
from .network import Network, swarm
from .simulated_clients import (
    LoopingSubscriberMachine,
    MakePublisher,
    MakeSubscriber,
    PublisherMachine,
    Step,
    SubscriberMachine,
)
from .simulated_proxy import SimulatedProxy
from .simulated_store import SimulatedStore
from .world import World, one_core

FAULTS_S = 1.2  # the network, the disk and the processes fail for so long
QUIET_S = 20.0  # then everything must come to its end within this
TOPICS = ("a", "b")


class Variant(Struct, frozen=True, kw_only=True):
    """The parts of a system; the sound ones, unless a fault is planted."""

    broker: type[Broker] = Broker
    proxy: type[SimulatedProxy] = SimulatedProxy
    store: type[SimulatedStore] = SimulatedStore
    publisher: MakePublisher = Publisher
    subscriber: MakeSubscriber = Subscriber


class Outcome(Struct, frozen=True):
    """What a seed showed."""

    seed: int
    violations: Sequence[str]
    events: int
    trace: Sequence[str]


SOUND = Variant()


def run_seed(seed: int, variant: Variant = SOUND, *, tracing: bool = False) -> Outcome:
    """Run one seed and check it. The same seed gives the same run, on every machine."""
    world = World(seed, tracing=tracing)
    history = history_of(world, variant)
    violations = history.violations or check(history)
    return Outcome(seed, violations, world.events_count, world.trace)


def history_of(world: World, variant: Variant = SOUND) -> History:
    """Run one seed; give what happened, not yet checked."""
    chance = random.getstate()
    random.seed(world.seed)  # the clients' jitter
    segment = world.random.randint(1, 6)  # batches; small, so that retention has something to cut
    try:
        with one_core(), patch.object(topic_log, "SEGMENT_BATCHES", segment):
            simulation = Simulation(world, variant)
            simulation.run()
    finally:
        random.setstate(chance)
    return simulation.history


class Simulation:
    """The world of one seed, with everybody in it."""

    def __init__(self, world: World, variant: Variant) -> None:
        """Build everything the seed asks for; nothing runs yet."""
        self._world = world
        self._faults = swarm(world.random)
        self.history = History(trimmed=self._faults.trim)
        world.note("world", str(self._faults))
        store = variant.store(self.history.records_committed)
        self._proxy = variant.proxy(world, self._faults, store)
        self._proxy.broker_class = variant.broker
        network = Network(world, self._faults, self._proxy)
        self._network = network
        self._machines: list[Machine] = []
        for number in range(world.random.randint(2, 3)):
            publisher = PublisherMachine(f"p{number}", world, network, self._faults)
            publisher.make = variant.publisher
            publisher.begin(_publisher_plan(world.random), self.history)
            self._machines.append(publisher)
        planned = {
            topic: sum(
                item.count
                for plan in self.history.plans.values()
                for item in plan
                if item.topic == topic
            )
            for topic in TOPICS
        }
        for number in range(world.random.randint(2, 3)):
            loops = world.random.random() < 0.35
            kind = LoopingSubscriberMachine if loops else SubscriberMachine
            subscriber = kind(f"s{number}", world, network, self._faults)
            subscriber.make = variant.subscriber
            subscriber.begin(_subscriber_steps(world.random), self.history, planned.__getitem__)
            self._machines.append(subscriber)

    def run(self) -> None:
        """Let it happen."""
        world = self._world
        self._proxy.start()
        for machine in self._machines:
            machine.start(world.random.uniform(0.0, 0.1))
        self._plan_faults()
        with self._collected():
            world.run(FAULTS_S)
            self._calm_down()
            self._await_the_end()
            world.run(FAULTS_S + QUIET_S)
            self._look_at_the_end()
        world.close([p for machine in self._machines for p in machine.processes])

    @contextmanager
    def _collected(self) -> Iterator[None]:
        """Whatever the core raises is a broken rule."""
        try:
            yield
        except Exception as error:
            self.history.violations.append(f"{type(error).__name__}: {error}")
            self._world.note("world", f"failed: {error!r}")

    def _plan_faults(self) -> None:
        """Draw when things happen that no message triggers."""
        faults, chance, proxy = self._faults, self._world.random, self._proxy

        def happen(rate: float, act: Callable[[], None]) -> None:
            for _ in range(int(rate * FAULTS_S + chance.random())) if rate else ():
                self._world.at(chance.uniform(0.0, FAULTS_S), act)

        happen(faults.partition_rate, self._cut)
        happen(faults.storage_full_rate, lambda: proxy.fill_storage(chance.uniform(0.005, 0.1)))
        happen(faults.zombie_rate, lambda: chance.choice(self._machines).freeze_and_replace())
        happen(faults.clock_jump_rate, self._jump)
        happen(faults.proxy_crash * 4, lambda: proxy.crash("at a random moment"))

    def _cut(self) -> None:
        chance = self._world.random
        self._network.cut(chance.choice(self._machines).name, chance.uniform(0.02, 0.4))

    def _jump(self) -> None:
        jump_s = self._world.random.uniform(-7200, 7200)
        self._world.note("world", f"the wall clock jumps by {jump_s:.0f} s")
        self._world.wall_offset_ns += int(jump_s * 1e9)

    def _calm_down(self) -> None:
        """No more faults; what is dead comes back by itself."""
        self._world.note("world", "quiet from here on")
        self._world.quiet = True

    def _await_the_end(self) -> None:
        """Stop the world a little after everybody is done, so that late copies arrive too."""
        if all(machine.done for machine in self._machines):
            self._world.at(2.0 * self._faults.late_s + 0.2, self._world.stop)
        else:
            self._world.at(0.02, self._await_the_end)

    def _look_at_the_end(self) -> None:
        """Note what liveness asks for, and what the proxy holds."""
        self.history.unfinished = [
            f"liveness: {machine.name} is not done {QUIET_S:g} s after the last fault"
            for machine in self._machines
            if not machine.done
        ]
        broker = self._proxy.broker
        assert broker is not None, "the proxy did not come back"
        for topic, log in broker.topics.items():
            for subscriber, subscription in log.subscriptions.items():
                self.history.proxy_active[(subscriber, topic)] = subscription.active


def _publisher_plan(chance: random.Random) -> list[Item]:
    """15 to 20 messages over both topics, in requests of one or several."""
    left = chance.randint(15, 20)
    next_index = dict.fromkeys(TOPICS, 0)
    plan: list[Item] = []
    while left > 0:
        topic = chance.choice(TOPICS)
        count = min(chance.choice((1, 1, 1, 2, 4)), left)
        plan.append(Item(topic, next_index[topic], count))
        next_index[topic] += count
        left -= count
    return plan


def _subscriber_steps(chance: random.Random) -> list[Step]:
    """Subscribe, get some, perhaps unsubscribe and come back; at the end get everything."""
    of_topic: list[list[Step]] = []
    topics = TOPICS if chance.random() < 0.7 else (chance.choice(TOPICS),)
    for topic in topics:
        steps: list[Step] = [("subscribe", topic, 1), ("get", topic, chance.randint(1, 15))]
        for _ in range(chance.choice((0, 0, 1, 2))):
            steps += [("unsubscribe", topic, 1), ("subscribe", topic, 1)]
            steps += [("get", topic, chance.randint(1, 8))]
        if chance.random() < 0.25:
            steps.append(("unsubscribe", topic, 1))
        of_topic.append(steps)
    merged: list[Step] = []
    while of_topic:
        steps = chance.choice(of_topic)
        merged.append(steps.pop(0))
        if not steps:
            of_topic.remove(steps)
    stays = any(_last_action(merged, topic) != "unsubscribe" for topic in topics)
    return [*merged, ("drain", "", 1)] if stays else merged


def _last_action(steps: Sequence[Step], topic: str) -> str:
    return [action for action, of, _ in steps if of == topic][-1]
