"""A siege: floods of chosen endpoints, beside an honest publisher and two honest subscribers.

One subscriber polls, the other is pushed to; where a relay is attacked, it is below the relay. What
is judged is content and memory: each message once, and no process above the bounds of its
endpoints. What takes time is told, and judged by the command alone.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.limits import (
    GROWTH_BYTES_MAX,
    HELD_BYTES_MAX,
    MIB,
    UNHEARD_BYTES_MAX_TOGETHER,
)
from scripts.delivery import Verdict
from tests.integration.harness import Process, Service, eventually
from tests.integration.relay_tree import RelayProcess

from . import honest
from .attacks import Attack
from .board import AT_THE_PROXY, NOWHERE, Board
from .client_processes import ClientProcesses, complaints, differences, ended, verdicts_of
from .crowd import Address, Crowd, address_of, press
from .floods import RELAY, Endpoint, Place, many_small_plain_subscriptions, places
from .trial import SCENE, footprint, make_known

LOOK_S = 0.02
BURST, BURST_EVERY_S = 200, 10.0  # connections at once at a push endpoint
PUSHED = replace(SCENE, subscriber="honest-pushed")
# Of a process: what its connections may say, and what libzmq may hold beyond it, before and while
# connections are cut off for it.
GROWTH_MIB_MAX = (UNHEARD_BYTES_MAX_TOGETHER + GROWTH_BYTES_MAX + HELD_BYTES_MAX) / MIB


class Memory(Struct):
    """What a process held."""

    before_mib: float
    most_mib: float
    bound_mib: float


class Outcome(Struct, frozen=True, kw_only=True):
    """A whole siege."""

    verdicts: dict[str, Verdict]
    memory: dict[str, Memory]
    puts: int
    attacks: int
    deliveries_beside: int  # to both subscribers, while the flood lasted
    longest_s: dict[str, float]  # silence, by who had it
    problems: list[str]


def flood_of(found: Sequence[Place], seed: int) -> Callable[[], tuple[Attack, int]]:
    """Attacks without end: each place in its turn, each kind of it as often as the others."""
    chance = random.Random(seed)

    def of(place: Place) -> Iterator[Attack]:
        kinds = list(place.kinds)
        while True:
            chance.shuffle(kinds)
            for kind in kinds:
                yield kind(chance, SCENE, place.role)

    def endless() -> Iterator[tuple[Attack, int]]:
        all_of_them = [of(place) for place in found]
        while True:
            for number, attacks in enumerate(all_of_them):
                yield next(attacks), number

    return endless().__next__


def run_flood(board: Board, found: Sequence[Place], rate: float, seed: int) -> None:
    """The crowd's process: a steady flood, and bursts at push endpoints."""
    os.nice(19)
    crowd, chance = Crowd(), random.Random(seed)
    addresses = [address_of(place.endpoint) for place in found]
    push_endpoints = [place for place in found if many_small_plain_subscriptions in place.kinds]
    next_burst_s = 0.0

    def target() -> list[Address] | None:
        nonlocal next_burst_s
        board["attacks"], board["refused"] = crowd.counts["begun"], crowd.counts["refused"]
        if board["crowd_goes"] != AT_THE_PROXY:
            return None
        if push_endpoints and time.monotonic() >= next_burst_s:
            next_burst_s = time.monotonic() + BURST_EVERY_S
            place = chance.choice(push_endpoints)
            one = many_small_plain_subscriptions(chance, SCENE, place.role)
            for _ in range(BURST):
                crowd.begin(replace(one, repeats=True), address_of(place.endpoint))
        return addresses

    following = flood_of(found, seed)
    press(crowd, following, target, per_s=rate, stopping=lambda: bool(board["all_end"]))


class Siege:
    """A proxy, perhaps a relay, and their clients."""

    def __init__(
        self,
        directory: Path,
        endpoints: frozenset[Endpoint],
        *,
        seed: int,
        attacks_per_s: float,
    ) -> None:
        """Prepare; nothing runs yet."""
        self._service = Service(directory)
        self._endpoints = endpoints
        self._outputs = {
            scene.subscriber: directory / f"{scene.subscriber}.jsonl" for scene in (SCENE, PUSHED)
        }
        self._seed = seed
        self._attacks_per_s = attacks_per_s
        self._board = Board()
        self._processes = ClientProcesses(self._board)
        self._attacked: dict[str, Process] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """The honest at work; no flood yet."""
        service, board = self._service, self._board
        try:
            self._attacked["proxy"] = service.start_proxy()
            make_known(service)
            with service.open_subscriber(PUSHED.subscriber) as subscriber:
                subscriber.subscribe(SCENE.topic)
            at = {
                "publisher": service.publisher_endpoint,
                "subscriber": service.subscriber_endpoint,
                "push": service.push_endpoint,
                "ingress": service.ingress_endpoint,
            }
            pushed_at = at["subscriber"]
            if RELAY in self._endpoints:
                relay = RelayProcess(service, "relay", "--upstream", at["subscriber"])
                self._attacked["relay"] = relay.process
                at |= {"relay": relay.endpoint, "relay_push": relay.push_endpoint}
                pushed_at = relay.endpoint
            polled, pushed = (str(path) for path in self._outputs.values())
            start = self._processes.start
            start("subscriber", honest.subscribe, SCENE, at["subscriber"], polled)
            start("pushed", honest.subscribe, PUSHED, pushed_at, pushed, is_pushed=True)
            start("publisher", honest.publish, SCENE, at["publisher"])
            found = places(self._endpoints, at)
            start("crowd", run_flood, found, self._attacks_per_s, self._seed)
            for slot in ("deliveries", "pushed_deliveries"):
                eventually(lambda slot=slot: board[slot] > 50, "delivery to the honest")  # type: ignore[misc]
            yield
        finally:
            self._processes.stop()
            service.close()

    def run(self, seconds: float, tick: Callable[[float], None] = lambda _: None) -> Outcome:
        """Flood for so long; then judge."""
        board, memory = self._board, {}
        for name, process in self._attacked.items():
            mib = footprint(process.pid).resident_mib
            memory[name] = Memory(mib, mib, mib + GROWTH_MIB_MAX)
        for slot in ("put_us", "deliveries_us", "pushed_deliveries_us"):
            board[slot] = 0
        delivered = board["deliveries"] + board["pushed_deliveries"]
        board["crowd_goes"] = AT_THE_PROXY
        eventually(lambda: board["attacks"] > 0, "flood")
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s and not ended(self._attacked):
            time.sleep(LOOK_S)
            tick(LOOK_S)
            self._look(memory)
        attacks = board["attacks"]
        delivered = board["deliveries"] + board["pushed_deliveries"] - delivered
        board["crowd_goes"] = NOWHERE
        self._look(memory)
        problems = ended(self._attacked) or list(self._end())
        verdicts = verdicts_of(board, SCENE, self._outputs)
        problems += differences(verdicts)
        problems += [
            f"the {name} held {one.most_mib:.0f} MiB, more than {one.bound_mib:.0f}"
            for name, one in memory.items()
            if one.most_mib > one.bound_mib
        ]
        slots = {"a put": "put_us", "polled": "deliveries_us", "pushed": "pushed_deliveries_us"}
        return Outcome(
            verdicts=verdicts,
            memory=memory,
            puts=board["puts"],
            attacks=attacks,
            deliveries_beside=delivered,
            longest_s={name: board[slot] / 1e6 for name, slot in slots.items()},
            problems=problems,
        )

    def _look(self, memory: dict[str, Memory]) -> None:
        for name, process in self._attacked.items():
            if process.exit_code is None:
                one = memory[name]
                one.most_mib = max(one.most_mib, footprint(process.pid).resident_mib)

    def _end(self) -> Iterator[str]:
        """End the honest; say what went wrong with any process."""
        yield from self._processes.end_honest("subscriber", "pushed")
        if not self._board["attacks"] or not self._processes["crowd"].is_alive():
            yield "there was no flood; see above"
        yield from ended(self._attacked)
        yield from complaints(self._attacked, self._service)
