"""A siege: floods of chosen endpoints, beside an honest publisher and two honest subscribers.

One subscriber polls, the other is pushed to; where a relay is attacked, it is below the relay. What
is judged is content and memory: each message once, and no process above the bounds of its
endpoints. Times are reported; only the command judges them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from reliable_pubsub.common.core.limits import (
    GROWTH_BYTES_MAX,
    HELD_BYTES_MAX,
    MIB,
    UNHEARD_BYTES_MAX_TOGETHER,
)
from scripts.delivery import Verdict
from tests.integration.harness import Service, eventually

from .attacked import PUSHED, Attacked, make_known
from .board import AT_THE_PROXY, NOWHERE
from .crowd import run_crowd
from .floods import Endpoint, flood_of, many_small_plain_subscriptions, places
from .trial import footprint

LOOK_S = 0.02
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


class Siege(Attacked):
    """A proxy, perhaps a relay, and their clients."""

    def __init__(
        self, directory: Path, endpoints: frozenset[Endpoint], *, seed: int, attacks_per_s: float
    ) -> None:
        """Prepare; nothing runs yet."""
        super().__init__(directory, Service(directory), seed=seed, attacks_per_s=attacks_per_s)
        self._chosen = endpoints

    @contextmanager
    def running(self) -> Iterator[None]:
        """The honest at work; no flood yet."""
        service = self._service
        try:
            service.start_proxy()
            make_known(service, PUSHED)
            self._start_relay(self._chosen, service.subscriber_endpoint)
            at = self._endpoints()
            pushed_at = at.get("relay", at["subscriber"])
            self._start_honest(at["publisher"], at["subscriber"], pushed_at)
            found = places(self._chosen, at)
            bursts = [one for one in found if many_small_plain_subscriptions in one.kinds]
            given = ({AT_THE_PROXY: found}, self._attacks_per_s, self._seed, bursts)
            self._start("crowd", run_crowd, flood_of, *given)
            self._await_honest()
            yield
        finally:
            self._stop()

    def run(self, seconds: float, tick: Callable[[float], None] = lambda _: None) -> Outcome:
        """Flood for this long; then judge."""
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
        while time.monotonic() < until_s and not self._broken():
            time.sleep(LOOK_S)
            tick(LOOK_S)
            self._look(memory)
        attacks = board["attacks"]
        delivered = board["deliveries"] + board["pushed_deliveries"] - delivered
        board["crowd_goes"] = NOWHERE
        self._look(memory)
        problems = self._broken() or list(self._end())
        if not attacks:
            problems.append("there was no flood; see above")
        verdicts = self._judge(problems)
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
