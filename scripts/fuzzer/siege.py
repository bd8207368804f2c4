"""A siege: hostile connections to chosen endpoints, beside an honest pair and a pushed subscriber.

One subscriber polls, the other is pushed to; where a relay is attacked, it is below the relay. What
is judged is content and memory: each message once, and no process above the bounds of its
endpoints. Times are reported; only the command judges them.

With keys, half of the hostile have none; the others have an unknown key, the id of an honest
client, or a request beyond their rights.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.errors import PubSubError
from reliable_pubsub.common.core.limits import (
    GROWTH_BYTES_MAX,
    HELD_BYTES_MAX,
    MIB,
    UNHEARD_BYTES_MAX_TOGETHER,
)
from reliable_pubsub.lab.rig.keyed_service import KeyedService
from reliable_pubsub.lab.rig.service import Process, RelayProcess, Service
from reliable_pubsub.lab.rig.waiting import eventually
from scripts.delivery import Verdict, compare

from . import honest
from .attacks import Scene
from .board import Board, forked
from .crowd import run_crowd
from .curve_attacks import keyless_attacks
from .floods import (
    INGRESS,
    PUSH,
    RELAY,
    REQUEST,
    SCENE,
    Endpoint,
    flood_of,
    many_small_plain_subscriptions,
    places,
)
from .intruders import OWN_ID, OWN_TOPIC, Target, intrude

PUSHED: Final = replace(SCENE, subscriber="honest-pushed")
SUBSCRIBERS: Final = {"deliveries": SCENE, "pushed_deliveries": PUSHED}  # by slot of the board
HONEST, RELAY_KEY, UNKNOWN = "honest", "relay", "stranger"  # names of keys
TOPIC_RIGHTS: Final = ("put", "get", "history", "dead_letters", "status")
END_S = 600.0  # an honest client has ended by then
STOP_S = 2.0  # a client that does not end within it after the stop is killed
DESCRIPTORS_SPARE = 8  # beside those of before: a status request, a connection that is closing
DESCRIPTORS_BACK_S = 300.0  # silent connections end by handshake and heartbeat limits
# Of a process: what its connections may say, and what libzmq may hold beyond it, before and while
# connections are cut off for it.
GROWTH_MIB_MAX = (UNHEARD_BYTES_MAX_TOGETHER + GROWTH_BYTES_MAX + HELD_BYTES_MAX) / MIB
SECURE_GROWTH_MIB_MAX = 100.0
# What a process says when more connections come than it lets in, which is what they are for.
ENTRANCE: Final = re.compile(
    r"warning: connections are kept out, .*?docs/how-to/operating\.md"
    r"|going on: no connections are kept out .*? of [\d,]+ s"
    r"|warning: [\d,]+ connections with unknown keys .*? every \d+ s"
)


class Memory(Struct, frozen=True):
    """What a process held."""

    before_mib: float
    most_mib: float
    bound_mib: float


class Outcome(Struct, frozen=True, kw_only=True):
    """A whole siege."""

    verdicts: dict[str, Verdict]  # by honest subscriber
    memory: dict[str, Memory]
    puts: int
    attacks: int
    intrusions: int  # with a key
    denials: int  # answers DENIED to them
    deliveries_beside: int  # to both subscribers, while the flood lasted
    longest_s: dict[str, float]  # silence, by who had it
    problems: list[str]


def make_known(service: Service, *more: Scene) -> None:
    """Give the honest clients an epoch that will be an old one, and the subscriptions."""
    with service.open_publisher(SCENE.publisher) as publisher:
        publisher.connect()
    for scene in (SCENE, *more):
        with service.open_subscriber(scene.subscriber) as subscriber:
            subscriber.subscribe(scene.topic)


def descriptors_of(pid: int) -> int:
    """How many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def memory_of(pid: int) -> tuple[float, float]:
    """MiB that a process holds, and the most that it has held."""
    text = Path(f"/proc/{pid}/status").read_text()
    now, most = (re.search(rf"{name}:\s+(\d+) kB", text) for name in ("VmRSS", "VmHWM"))
    assert now is not None
    assert most is not None
    return int(now[1]) / 1024, int(most[1]) / 1024


class Deployment(KeyedService):
    """A proxy that knows the keys of the honest, of a relay and of an intruder."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        for name in (HONEST, OWN_ID, RELAY_KEY):
            self.add_key(name)
        own = {right: [SCENE.topic] for right in TOPIC_RIGHTS}
        every = {right: ["*"] for right in TOPIC_RIGHTS}
        self.say_rights(
            honest={"ids": ["honest-*"], **own, "status": ["*"]},
            intruder={"put": [OWN_TOPIC], "get": [OWN_TOPIC]},
            relay={"relay": True, "ids": ["*"], **every},
            sensor_1={"status": ["*"]},
        )

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


class Siege:
    """A proxy, perhaps a relay, and honest and hostile clients in processes of their own."""

    def __init__(
        self,
        directory: Path,
        endpoints: frozenset[Endpoint],
        *,
        seed: int,
        attacks_per_s: float,
        is_secure: bool = False,
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            is_secure: all endpoints are encrypted and know keys and rights.
        """
        self._service = Deployment(directory) if is_secure else Service(directory)
        self._chosen = endpoints
        self._seed = seed
        self._attacks_per_s = attacks_per_s
        self._board = Board()  # what the clients report, and what they must do
        self._honest: dict[str, BaseProcess] = {}  # the publisher first
        self._hostile: dict[str, BaseProcess] = {}
        self._attacked: dict[str, Process] = {}
        self._outputs = {
            scene.subscriber: directory / f"{scene.subscriber}.jsonl"
            for scene in SUBSCRIBERS.values()
        }

    # Starting.

    @contextmanager
    def running(self) -> Iterator[None]:
        """The honest at work; no flood yet."""
        try:
            if isinstance(self._service, Deployment):
                self._start_with_keys(self._service)
            else:
                self._start_without_keys(self._service)
            for slot in SUBSCRIBERS:
                eventually(
                    lambda slot=slot: self._board[slot] > 50,  # type: ignore[misc]
                    "delivery to the honest",
                )
            yield
        finally:
            self._board["all_end"] = 1
            for process in (*self._honest.values(), *self._hostile.values()):
                process.join(STOP_S)
                process.kill()
                process.join()
            self._service.close()

    def _start_without_keys(self, service: Service) -> None:
        service.start_proxy()
        make_known(service, PUSHED)
        at = self._start_relay(service.subscriber_endpoint)
        pushed_at = at.get("relay", at["subscriber"])
        self._start_honest(at["publisher"], at["subscriber"], pushed_at)
        found = places(self._chosen, at)
        bursts = [one for one in found if many_small_plain_subscriptions in one.kinds]
        self._start_crowd(run_crowd, flood_of, found, self._attacks_per_s, bursts)

    def _start_with_keys(self, service: Deployment) -> None:
        service.start()
        at = self._start_relay(
            service.subscriber_endpoint,
            *("--clients", str(service.known), "--secret-key", str(service.secret(RELAY_KEY))),
            *("--server-key", str(service.keys / "proxy.key")),
        )
        service.publisher_endpoint = service.reach(at["publisher"], HONEST)
        service.subscriber_endpoint = service.reach(at["subscriber"], HONEST)
        make_known(service, PUSHED)
        pushed_at = service.subscriber_endpoint
        if RELAY in self._chosen:
            pushed_at = service.reach(at["relay"], HONEST, RELAY_KEY)
        self._start_honest(service.publisher_endpoint, service.subscriber_endpoint, pushed_at)
        rate = self._attacks_per_s / 2
        self._start_crowd(run_crowd, keyless_attacks, places(self._chosen, at), rate, ())
        targets = service.targets(at, self._chosen)
        self._hostile["intruders"] = self._started(intrude, SCENE, targets, rate, self._seed)

    def _start_relay(self, upstream: str, *options: str) -> dict[str, str]:
        """Start a relay if it is attacked; return all that can be attacked, without keys."""
        service = self._service
        self._attacked["proxy"] = service.proxy
        at = {
            "publisher": str(service.publisher_endpoint),
            "subscriber": str(service.subscriber_endpoint),
            "push": service.push_endpoint,
            "ingress": service.ingress_endpoint,
        }
        if RELAY in self._chosen:
            relay = RelayProcess(service, "relay", "--upstream", upstream, *options)
            self._attacked["relay"] = relay.process
            at |= {"relay": relay.endpoint, "relay_push": relay.push_endpoint}
        return at

    def _start_honest(self, publisher_at: str, *subscribers_at: str) -> None:
        self._honest["publisher"] = self._started(honest.publish, SCENE, publisher_at)
        for (slot, scene), endpoint in zip(SUBSCRIBERS.items(), subscribers_at, strict=True):
            output = str(self._outputs[scene.subscriber])
            self._honest[slot] = self._started(honest.subscribe, scene, endpoint, output, slot)

    def _start_crowd(self, run: Callable[..., None], *given: Any) -> None:
        self._hostile["crowd"] = self._started(run, *given, self._seed)

    def _started(self, target: Callable[..., None], *given: Any) -> BaseProcess:
        """Start a client; the board is its first argument."""
        process = forked.Process(target=target, args=(self._board, *given), daemon=True)
        process.start()
        return process

    # Attacking.

    def run(self, seconds: float = 0.0, connections: int = 0) -> Outcome:
        """Attack for this long, and with this many connections of each hostile process; judge."""
        board = self._board
        before = {
            name: (memory_of(one.pid)[0], descriptors_of(one.pid))
            for name, one in self._attacked.items()
        }
        for slot in ("put_us", *(f"{slot}_us" for slot in SUBSCRIBERS)):
            board[slot] = 0
        delivered = sum(board[slot] for slot in SUBSCRIBERS)
        begun = ("attacks", "intrusions") if self._is_secure else ("attacks",)
        board["flood"] = 1
        until_s = time.monotonic() + seconds

        def is_over() -> bool:
            is_enough = all(board[slot] > connections for slot in begun)
            is_denied = bool(board["denials"]) or not self._is_secure
            return time.monotonic() >= until_s and is_enough and is_denied

        eventually(
            lambda: is_over() or self._broken(),
            "end of the flood",
            timeout_s=seconds + END_S,
            since=lambda: [board[slot] for slot in (*begun, "denials")],
        )
        delivered = sum(board[slot] for slot in SUBSCRIBERS) - delivered
        board["flood"] = 0
        problems = self._broken()
        memory = {} if problems else self._memory({name: one[0] for name, one in before.items()})
        problems = problems or [*self._end(), *self._left_over(before["proxy"][1])]
        verdicts = self._judge(problems)
        problems += [
            f"the {name} held {one.most_mib:.0f} MiB, more than {one.bound_mib:.0f}"
            for name, one in memory.items()
            if one.most_mib > one.bound_mib
        ]
        if count := board["answers_beyond_rights"]:
            problems.append(f"intruders got {count} answers that are not DENIED")
        named = zip(("a put", "polled", "pushed"), ("put", *SUBSCRIBERS), strict=True)
        return Outcome(
            verdicts=verdicts,
            memory=memory,
            puts=board["puts"],
            attacks=board["attacks"],
            intrusions=board["intrusions"],
            denials=board["denials"],
            deliveries_beside=delivered,
            longest_s={name: board[f"{slot}_us"] / 1e6 for name, slot in named},
            problems=problems,
        )

    @property
    def _is_secure(self) -> bool:
        return isinstance(self._service, Deployment)

    # Judging.

    def _memory(self, before_mib: Mapping[str, float]) -> dict[str, Memory]:
        growth_mib_max = SECURE_GROWTH_MIB_MAX if self._is_secure else GROWTH_MIB_MAX
        return {
            name: Memory(mib, memory_of(self._attacked[name].pid)[1], mib + growth_mib_max)
            for name, mib in before_mib.items()
        }

    def _broken(self) -> list[str]:
        """What leaves nothing to wait for."""
        found = [
            f"the {name} ended with exit code {one.exit_code}: {one.stderr}"
            for name, one in self._attacked.items()
            if one.exit_code is not None
        ]
        return found + [
            f"the process of the {name} has ended; see above"
            for name, one in self._hostile.items()
            if not one.is_alive()
        ]

    def _end(self) -> Iterator[str]:
        """Let the honest finish, the publisher first; say what went wrong with any process."""
        for name, process in self._honest.items():
            self._board["publishing_ends" if name == "publisher" else "delivering_ends"] = 1
            process.join(END_S)
            if process.exitcode != 0:
                yield f"the honest {name} failed: exit code {process.exitcode}"
        yield from self._broken()
        for name, attacked in self._attacked.items():
            if unexpected := ENTRANCE.sub("", attacked.complaints).strip():
                yield f"the {name} complained: {unexpected}"
        try:
            self._service.status()
        except PubSubError as error:
            yield f"the proxy does not answer: {error}"

    def _left_over(self, descriptors: int) -> Iterator[str]:
        """Connections that are still open when the crowd has left."""
        proxy, most = self._service.proxy, descriptors + DESCRIPTORS_SPARE
        try:
            eventually(
                lambda: proxy.exit_code is not None or descriptors_of(proxy.pid) <= most,
                f"end of the hostile connections: more than {most} descriptors",
                timeout_s=DESCRIPTORS_BACK_S,
            )
        except AssertionError as error:
            yield str(error)

    def _judge(self, problems: list[str]) -> dict[str, Verdict]:
        """Compare the file of each honest subscriber with what was put; add the differences."""
        puts = {SCENE.publisher: [honest.payload(n + 1) for n in range(self._board["puts"])]}
        topics = {name: [SCENE.topic] for name in self._outputs}
        found = compare(self._outputs, topics, {SCENE.topic: puts})
        problems += [
            f"the file of {one.subscriber} is not what was put: {one}"
            for one in found
            if not one.perfect
        ]
        return {one.subscriber: one for one in found}
