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
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path

from reliable_pubsub.common.core.settings import ENVIRONMENT_PREFIX
from reliable_pubsub.relay.listener import ListenerGate, listen
from reliable_pubsub.relay.sockets import BACKLOG
from scripts.delivery import Verdict
from tests.integration.harness import Process, eventually
from tests.integration.keyed_service import KeyedService

from .attacked import PUSHED, Attacked, make_known
from .board import AT_THE_PROXY, ELSEWHERE, NOWHERE
from .crowd import run_crowd
from .curve_attacks import keyless_attacks
from .floods import INGRESS, PUSH, RELAY, REQUEST, SCENE, Endpoint, places
from .intruders import OWN_ID, OWN_TOPIC, Target, intrude
from .newcomers import Waited, newcomers
from .trial import PLACES, Measured, Trial, Window, footprint

GROWN_MIB_MAX = 100.0  # of a process, at its highest
INTRUDERS_SHARE = 0.5  # of the hostile: three of the six sorts have keys
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


def highest_mib(pid: int) -> float:
    """The most memory that a process has held."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found.group(1)) / 1024


class KeptOut:
    """Endpoints that accept no connection, at no cost for any process."""

    def __init__(self, names: Iterable[str]) -> None:
        """Listen at one for each name."""
        listeners = {name: listen("tcp://127.0.0.1:*", BACKLOG) for name in names}
        self._descriptors = list(listeners.values())
        self._gates = {name: ListenerGate(one) for name, one in listeners.items()}
        for gate in self._gates.values():
            gate.set_open(is_open=False)
        self.at = {name: f"tcp://127.0.0.1:{one.port}" for name, one in self._gates.items()}

    def close(self) -> None:
        """End them."""
        for gate in self._gates.values():
            gate.close()
        for descriptor in self._descriptors:
            os.close(descriptor)


class SecureTrial(Trial):
    """A deployment, its clients, and endpoints that keep everyone out."""

    hostile = ("crowd", "intruders")
    subscribers = Attacked.subscribers
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
        self._near = Deployment(directory / "near", connections_per_s_max)
        super().__init__(directory, self._near, seed=seed, attacks_per_s=attacks_per_s)
        self._puts_per_s = puts_per_s
        self._chosen = endpoints

    @contextmanager
    def running(self) -> Iterator[None]:
        """All clients at work; the hostile go nowhere yet."""
        near, chosen = self._near, self._chosen
        kept_out: KeptOut | None = None
        try:
            near.start()
            self._start_relay(
                chosen,
                str(near.subscriber_endpoint),
                *("--clients", str(near.known), "--secret-key", str(near.secret(RELAY_KEY))),
                *("--server-key", str(near.keys / "proxy.key")),
            )
            near_at = self._endpoints()
            near.publisher_endpoint = near.reach(near_at["publisher"], HONEST)
            near.subscriber_endpoint = near.reach(near_at["subscriber"], HONEST)
            kept_out = KeptOut(near_at)
            make_known(near, PUSHED)
            pushed_at = near.subscriber_endpoint
            if RELAY in chosen:
                pushed_at = near.reach(near_at["relay"], HONEST, RELAY_KEY)
            honest_at = (near.publisher_endpoint, near.subscriber_endpoint, pushed_at)
            self._start_honest(*honest_at, puts_per_s=self._puts_per_s)
            of_way = {AT_THE_PROXY: near_at, ELSEWHERE: kept_out.at}
            found = {way: places(chosen, at) for way, at in of_way.items()}
            keyless = self._attacks_per_s * (1 - INTRUDERS_SHARE)
            self._start("crowd", run_crowd, keyless_attacks, found, keyless, self._seed)
            targets = {way: near.targets(at, chosen) for way, at in of_way.items()}
            rate = self._attacks_per_s * INTRUDERS_SHARE
            self._start("intruders", intrude, SCENE, targets, rate, self._seed)
            self._await_honest()
            yield
        finally:
            self._stop()
            if kept_out is not None:
                kept_out.close()

    def measure(
        self, *, groups: int, window_s: float, tick: Callable[[], None] = lambda: None
    ) -> SecureResult:
        """Windows of each sort in shuffled order; then judge."""
        return self._measured(self._order(groups), lambda one: self.window(one, window_s), tick)

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
        board, attacked = self._board, self._attacked
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
        problems = self._broken() or list(self._end())
        verdicts = self._judge(problems)
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
