"""A trial with keys: encrypted endpoints of proxy and relay, an honest pair, and hostile peers.

The hostile go nowhere, to the proxy and its relay, or elsewhere: to endpoints where the kernel
drops what asks for a connection, which shows what they take from the machine to be hostile.

"Puts by CPU" is what the pair puts for each second of CPU that it, the proxy and the relay have:
all that the attacked processes spend on the hostile is missing to it, and nothing that the hostile
themselves spend, who would be on other machines. Where a core is idle, the pair loses less.

A second honest subscriber is pushed to, by way of the relay if that is attacked. Its file is judged
by content, too.
"""

from __future__ import annotations

import os
import random
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path

from msgspec.structs import replace

from reliable_pubsub.common.core.settings import ENVIRONMENT_PREFIX
from reliable_pubsub.relay.listener import Gate, listen
from reliable_pubsub.relay.sockets import BACKLOG
from scripts.delivery import Verdict
from tests.integration.harness import Process, eventually
from tests.integration.keyed_service import KeyedService
from tests.integration.relay_tree import RelayProcess

from . import honest
from .board import AT_THE_PROXY, ELSEWHERE, NOWHERE, Board
from .client_processes import complaints, differences, ended, verdicts_of
from .crowd import Address, Crowd, address_of, press
from .curve_attacks import keyless_attacks
from .floods import INGRESS, PUSH, RELAY, REQUEST, Endpoint, Place, places
from .intruders import OWN_ID, OWN_TOPIC, Target, intrude
from .newcomers import Waited, newcomers
from .trial import PLACES, SCENE, Measured, Trial, Window, footprint, make_known

GROWN_MIB_MAX = 100.0  # of a process, at its highest
INTRUDERS_SHARE = 0.5  # of the hostile: three of the six sorts have keys
PUSHED = replace(SCENE, subscriber="honest-pushed")
HONEST, RELAY_KEY, UNKNOWN = "honest", "relay", "stranger"
ALL = ("put", "get", "history", "dead_letters", "status")


class SecureResult(Measured, frozen=True, kw_only=True):
    """A whole trial."""

    verdicts: dict[str, Verdict]  # by honest subscriber
    keyless: int  # connections without a key, half open or slow
    intrusions: int  # with a key
    denials: int  # answers DENIED to them
    grown_mib: dict[str, float]  # of proxy and relay: at the highest, more than before
    problems: list[str]


class Deployment(KeyedService):
    """A proxy, and a relay if it is attacked; both know the keys of the honest and the intruder."""

    def __init__(self, directory: Path, connections_per_s_max: int = 0) -> None:
        """Make keys and rights.

        Args:
            connections_per_s_max: the setting of proxy and relay.
        """
        directory.mkdir()
        super().__init__(directory)
        name = f"{ENVIRONMENT_PREFIX}CONNECTIONS_PER_S_MAX"
        self._environment = ("env", f"{name}={connections_per_s_max}")
        for name in (HONEST, OWN_ID, RELAY_KEY):
            self.add_key(name)
        topics = {right: [SCENE.topic] for right in ALL}
        every = {right: ["*"] for right in ALL}
        self.say_rights(
            honest={"ids": ["honest-*"], **topics, "status": ["*"]},
            intruder={"put": [OWN_TOPIC], "get": [OWN_TOPIC]},
            relay={"relay": True, "ids": ["*"], **every},
            sensor_1={"status": ["*"]},
        )

    def run(self, room: str, *arguments: str | Path, prefix: Sequence[str] = ()) -> Process:
        """Start a process with the setting."""
        return super().run(room, *arguments, prefix=(*self._environment, *prefix))

    def start_all(self, endpoints: frozenset[Endpoint]) -> dict[str, str]:
        """Start; give the endpoints without keys, by name, and reach the proxy as the honest."""
        self.start()
        at = {
            "publisher": str(self.publisher_endpoint),
            "subscriber": str(self.subscriber_endpoint),
            "push": self.push_endpoint,
            "ingress": self.ingress_endpoint,
        }
        self.publisher_endpoint = self.reach(at["publisher"], HONEST)
        self.subscriber_endpoint = self.reach(at["subscriber"], HONEST)
        self.attacked: dict[str, Process] = {"proxy": self.proxy}
        if RELAY in endpoints:
            options = (
                *("--upstream", at["subscriber"], "--clients", str(self.known)),
                *("--secret-key", str(self.secret(RELAY_KEY))),
                *("--server-key", str(self.keys / "proxy.key")),
            )
            relay = RelayProcess(self, "relay", *options)
            self.attacked["relay"] = relay.process
            at |= {"relay": relay.endpoint, "relay_push": relay.push_endpoint}
        return at

    def targets(self, at: Mapping[str, str], endpoints: frozenset[Endpoint]) -> list[Target]:
        """What intruders go to."""
        names = {
            REQUEST: ("publisher", "subscriber"),
            PUSH: ("push",),
            INGRESS: ("ingress",),
            RELAY: ("relay", "relay_push"),
        }
        return [
            Target(
                name, self.reach(at[name], OWN_ID, server), self.reach(at[name], UNKNOWN, server)
            )
            for endpoint in names
            if endpoint in endpoints
            for name in names[endpoint]
            for server in [RELAY_KEY if endpoint == RELAY else "proxy"]
        ]


def run_keyless(
    board: Board, near: list[Place], elsewhere: list[Place], rate: float, seed: int
) -> None:
    """The process of those without keys."""
    os.nice(19)
    crowd, following = Crowd(), keyless_attacks(near, seed)
    addresses = {
        AT_THE_PROXY: [address_of(place.endpoint) for place in near],
        ELSEWHERE: [address_of(place.endpoint) for place in elsewhere],
    }

    def target() -> list[Address] | None:
        board["attacks"], board["refused"] = crowd.counts["begun"], crowd.counts["refused"]
        return addresses.get(board["crowd_goes"])

    press(crowd, following, target, per_s=rate, stopping=lambda: bool(board["all_end"]))


def highest_mib(pid: int) -> float:
    """The most memory that a process has held."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found.group(1)) / 1024


class KeptOut:
    """Endpoints that let no connection in, at no cost for any process."""

    def __init__(self, names: Iterable[str]) -> None:
        """Listen at one for each name."""
        listeners = {name: listen("tcp://127.0.0.1:*", BACKLOG) for name in names}
        self._descriptors = [one.descriptor for one in listeners.values()]
        self.at: dict[str, str] = {}
        for name, one in listeners.items():
            Gate(one).set_open(is_open=False)
            with socket.socket(fileno=os.dup(one.descriptor)) as listening:
                self.at[name] = f"tcp://127.0.0.1:{listening.getsockname()[1]}"

    def close(self) -> None:
        """End them."""
        for descriptor in self._descriptors:
            os.close(descriptor)


class SecureTrial(Trial):
    """A deployment, its clients, and endpoints that keep everyone out."""

    hostile = ("crowd", "intruders")
    honest = ("publisher", "subscriber", "pushed")
    settle_s = (
        3.0  # handshakes that were begun end meanwhile, and what a bound lets in at once is in
    )

    def __init__(
        self,
        directory: Path,
        endpoints: frozenset[Endpoint],
        *,
        seed: int,
        attacks_per_s: float,
        connections_per_s_max: int = 0,
        puts_per_s: float = inf,
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            connections_per_s_max: the setting of proxies and relays; 0: its default.
            puts_per_s: pace of the honest publisher.
        """
        self._puts_per_s = puts_per_s
        super().__init__(directory, seed=seed, attacks_per_s=attacks_per_s)
        most = connections_per_s_max
        self._near = self._service = Deployment(directory / "near", most)
        self._endpoints = endpoints
        self._outputs = {
            scene.subscriber: directory / f"{scene.subscriber}.jsonl" for scene in (SCENE, PUSHED)
        }

    @contextmanager
    def running(self) -> Iterator[None]:
        """All clients at work; the hostile go nowhere yet."""
        board, near, chosen = self._board, self._near, self._endpoints
        kept_out: KeptOut | None = None
        try:
            near_at = near.start_all(chosen)
            kept_out = KeptOut(near_at)
            make_known(near)
            polled_at = pushed_at = near.subscriber_endpoint
            if RELAY in chosen:
                pushed_at = near.reach(near_at["relay"], HONEST, RELAY_KEY)
            with near.open_subscriber(PUSHED.subscriber) as subscriber:
                subscriber.subscribe(SCENE.topic)
            polled, pushed = (str(path) for path in self._outputs.values())
            start = self._processes.start
            start("subscriber", honest.subscribe, SCENE, polled_at, polled)
            start("pushed", honest.subscribe, PUSHED, pushed_at, pushed, is_pushed=True)
            start("publisher", honest.publish, SCENE, near.publisher_endpoint, self._puts_per_s)
            keyless = self._attacks_per_s * (1 - INTRUDERS_SHARE)
            found = places(chosen, near_at), places(chosen, kept_out.at)
            start("crowd", run_keyless, *found, keyless, self._seed)
            targets = {
                AT_THE_PROXY: near.targets(near_at, chosen),
                ELSEWHERE: near.targets(kept_out.at, chosen),
            }
            rate = self._attacks_per_s * INTRUDERS_SHARE
            start("intruders", intrude, SCENE, targets, rate, self._seed)
            for slot in ("deliveries", "pushed_deliveries"):
                eventually(lambda slot=slot: board[slot] > 50, "delivery to the honest")  # type: ignore[misc]
            yield
        finally:
            self._processes.stop()
            near.close()
            if kept_out is not None:
                kept_out.close()

    def _serving(self) -> list[int]:
        return [one.pid for one in self._near.attacked.values()]

    def measure(
        self, *, groups: int, window_s: float, tick: Callable[[], None] = lambda: None
    ) -> SecureResult:
        """Windows of each sort in shuffled order; then judge."""
        chance = random.Random(self._seed)
        order = [p for _ in range(groups) for p in chance.sample(list(PLACES), len(PLACES))]
        return self._measured(order, lambda place: self.window(place, window_s), tick)

    def newcomers(
        self, seconds: float, tick: Callable[[float], None] = lambda _: None
    ) -> dict[str, dict[str, Waited]]:
        """How long newcomers take without the hostile, and beside them without a pause."""
        board, found = self._board, {}
        for place in (NOWHERE, AT_THE_PROXY):
            board["crowd_goes"] = place
            time.sleep(self.settle_s)
            found[PLACES[place]] = newcomers(self._near.publisher_endpoint, seconds, tick)
        board["crowd_goes"] = NOWHERE
        return found

    def attacked(self, connections: int) -> SecureResult:
        """So many hostile connections of each of the two processes at the proxy; then judge."""

        def meet(_: int) -> None:
            board = self._board
            board["crowd_goes"] = AT_THE_PROXY
            eventually(
                lambda: (
                    self._broken()
                    or (
                        min(board["attacks"], board["intrusions"]) >= connections
                        and board["denials"]
                    )
                ),
                "hostile connection",
            )

        return self._measured([AT_THE_PROXY], meet, lambda: None)

    def _measured(
        self,
        order: list[int],
        pass_through: Callable[[int], Window | None],
        tick: Callable[[], None],
    ) -> SecureResult:
        board, attacked = self._board, self._near.attacked
        before = {name: footprint(one.pid).resident_mib for name, one in attacked.items()}
        windows = []
        for place in order:
            if not self._broken() and (window := pass_through(place)) is not None:
                windows.append(window)
            tick()
        board["crowd_goes"] = NOWHERE
        grown = {
            name: highest_mib(one.pid) - before[name]
            for name, one in attacked.items()
            if one.exit_code is None
        }
        problems = self._broken() or list(self._end_honest())
        verdicts = verdicts_of(board, SCENE, self._outputs)
        problems += differences(verdicts)
        problems += [
            f"the {name} grew by {mib:.0f} MiB, more than {GROWN_MIB_MAX:.0f}"
            for name, mib in grown.items()
            if mib > GROWN_MIB_MAX
        ]
        if board["answers_beyond_rights"]:
            count = board["answers_beyond_rights"]
            problems.append(f"intruders got {count} answers that are not DENIED")
        return SecureResult(
            windows=windows,
            verdicts=verdicts,
            keyless=board["attacks"],
            intrusions=board["intrusions"],
            denials=board["denials"],
            grown_mib=grown,
            problems=problems,
        )

    def _broken(self) -> list[str]:
        """What leaves nothing to wait for."""
        found = ended(self._near.attacked)
        names = [name for name in self.hostile if not self._processes[name].is_alive()]
        return found + [f"the process of the {name} has ended; see above" for name in names]

    def _end_honest(self) -> Iterator[str]:
        """End the honest; say what went wrong with any process."""
        yield from self._processes.end_honest("subscriber", "pushed")
        yield from self._broken()
        yield from complaints(self._near.attacked, self._near)
