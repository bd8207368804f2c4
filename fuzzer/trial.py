"""A trial: a real proxy, an honest pair, and the crowd beside them, in windows.

The honest pair works all the time; the windows only differ in where the crowd goes: nowhere, to
the proxy, or elsewhere, which is an acceptor that gives each of them the proxy's half of a
handshake and throws away what it hears. The same attacks at the same pace cost the same CPU there,
so "elsewhere" against "nowhere" is what the crowd itself takes from a small machine, and "at the
proxy" against "elsewhere" is what the proxy loses to them. The windows stand in groups of three in
shuffled order, and each ratio is taken within a group: a machine that is busy with something else
is busy in all three.

At the end the accomplices put on the honest topic too, and the honest subscriber's file is judged
by content.
"""

from __future__ import annotations

import os
import random
import select
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from reliable_pubsub.common.core.errors import PubSubError
from scripts.delivery import Verdict, compare
from tests.integration.harness import Service, eventually

from . import accomplices, honest, zmtp
from .attacks import KINDS, Attack, Scene, attack
from .board import AT_THE_PROXY, ELSEWHERE, HONEST_TOPIC, IDLE, NOWHERE, OWN_TOPIC, Board, forked
from .client_processes import ClientProcesses, unexpected_of
from .crowd import Address, Crowd, address_of, press

SCENE = Scene(topic="honest", publisher="honest-pub", subscriber="honest-sub", old_epoch=1)
SETTLE_S = 0.3  # from a change of the crowd's way to the window
DESCRIPTORS_SPARE = 8  # beside those of before: a status request, a connection that is closing
ACCOMPLICE_PUTS_MIN = 5
DESCRIPTORS_BACK_S = 30.0  # silent connections end by handshake and heartbeat limits
PLACES = {NOWHERE: "honest alone", ELSEWHERE: "crowd elsewhere", AT_THE_PROXY: "crowd at the proxy"}


class Window(Struct, frozen=True, kw_only=True):
    """What happened in one window, per second."""

    place: int
    puts: float
    deliveries: float
    attacks: float
    proxy_cpu: float  # seconds of CPU per second
    crowd_cpu: float
    served_cpu: float  # of the honest, and of the processes that serve them

    @property
    def puts_by_cpu(self) -> float:
        """Puts for each second of CPU of the honest and of what serves them."""
        return self.puts / max(self.served_cpu, 1e-9)


class Footprint(Struct, frozen=True, kw_only=True):
    """What the proxy holds of the machine."""

    resident_mib: float
    descriptors: int


class Measured(Struct, frozen=True, kw_only=True):
    """Windows, in groups of one for each place."""

    windows: list[Window]

    def median(self, place: int, of: Callable[[Window], float]) -> float:
        """Median over the windows of a place."""
        return statistics.median(of(window) for window in self.windows if window.place == place)

    def ratio(self, of: Callable[[Window], float], place: int, against: int) -> float:
        """Median of the ratios within each group of three."""
        size = len(PLACES)
        groups = [self.windows[at : at + size] for at in range(0, len(self.windows), size)]
        by_place = [{window.place: of(window) for window in group} for group in groups]
        return statistics.median(one[place] / max(one[against], 1e-9) for one in by_place)


class Result(Measured, frozen=True, kw_only=True):
    """A whole trial."""

    verdict: Verdict
    puts: int
    accomplice_puts: int
    accomplice_answers: int
    attacks: int
    silences: int
    before: Footprint
    after: Footprint
    descriptors_most: int
    problems: list[str]


def hostile_attacks(seed: int) -> Callable[[], tuple[Attack, int]]:
    """Attacks without end, each kind as often as the others, and which endpoint (0, 1) each is for.

    The same seed gives the same attacks in the same order.
    """
    chance = random.Random(seed)

    def endless() -> Iterator[tuple[Attack, int]]:
        names = list(KINDS)
        while True:
            chance.shuffle(names)
            for name in names:
                place = chance.randrange(2)
                role = ("publisher", "subscriber")[place]
                yield attack(name, chance, SCENE, role), place  # type: ignore[arg-type]

    return endless().__next__


def run_crowd(
    board: Board, proxy: list[Address], elsewhere: Address, rate: float, seed: int
) -> None:
    """The crowd's process."""
    os.nice(19)
    crowd, following = Crowd(), hostile_attacks(seed)

    def target() -> list[Address] | None:
        board["attacks"], board["refused"] = crowd.counts["begun"], crowd.counts["refused"]
        return {AT_THE_PROXY: proxy, ELSEWHERE: [elsewhere] * 2}.get(board["crowd_goes"])

    press(crowd, following, target, per_s=rate, stopping=lambda: bool(board["all_end"]))


def accept_all(board: Board, pipe: Any) -> None:
    """Elsewhere: greet each client, and read all that it says."""
    os.nice(19)
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    listener.setblocking(False)
    pipe.send(listener.getsockname())
    greeting = (zmtp.greeting() + zmtp.ready(b"ROUTER")).ljust(zmtp.HANDSHAKE_BYTES, b"\0")
    epoll = select.epoll()
    epoll.register(listener, select.EPOLLIN)
    guests: dict[int, socket.socket] = {}
    while not board["all_end"]:
        for descriptor, _ in epoll.poll(0.1):
            if descriptor == listener.fileno():
                guest, _ = listener.accept()
                guest.setblocking(False)
                guests[guest.fileno()] = guest
                epoll.register(guest, select.EPOLLIN)
                with suppress(OSError):  # it has left already
                    guest.send(greeting)
                continue
            try:
                data = guests[descriptor].recv(65_536)
            except OSError:
                data = b""
            if not data:
                guests.pop(descriptor).close()


def cpu_s(pid: int) -> float:
    """CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def footprint(pid: int) -> Footprint:
    """Memory and descriptors of a process now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Footprint(
        resident_mib=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
    )


def make_known(service: Service) -> None:
    """Give both honest clients an epoch that will be an old one, and the subscription."""
    with service.open_publisher(SCENE.publisher) as publisher:
        publisher.connect()
    with service.open_subscriber(SCENE.subscriber) as subscriber:
        subscriber.subscribe(SCENE.topic)


class Trial:
    """One proxy and its clients."""

    hostile: tuple[str, ...] = ("crowd",)  # processes that attack, at a pace
    honest: tuple[str, ...] = ("publisher", "subscriber")
    settle_s = SETTLE_S

    def __init__(self, directory: Path, *, seed: int, attacks_per_s: float) -> None:
        """Prepare; nothing runs yet."""
        self._service = Service(directory)
        self._output = directory / "honest.jsonl"
        self._seed = seed
        self._attacks_per_s = attacks_per_s
        self._board = Board()
        self._processes = ClientProcesses(self._board)

    @contextmanager
    def running(self) -> Iterator[None]:
        """All clients at work; the crowd goes nowhere yet."""
        try:
            self._service.start_proxy()
            make_known(self._service)
            service, board = self._service, self._board
            endpoints = (service.publisher_endpoint, service.subscriber_endpoint)
            mine, its = forked.Pipe()
            start = self._processes.start
            start("elsewhere", accept_all, its)
            proxy = [address_of(endpoint) for endpoint in endpoints]
            start("crowd", run_crowd, proxy, mine.recv(), self._attacks_per_s, self._seed)
            start("accomplices", accomplices.conspire, SCENE, *endpoints, self._seed)
            start("subscriber", honest.subscribe, SCENE, endpoints[1], str(self._output))
            start("publisher", honest.publish, SCENE, endpoints[0])
            eventually(lambda: board["deliveries"] > 50, "delivery to the honest pair")
            yield
        finally:
            self._processes.stop()
            self._service.close()

    def window(self, place: int, window_s: float) -> Window:
        """Send the crowd somewhere, and look for so long."""
        board, proxy = self._board, self._service.proxy.pid
        board["accomplices_do"] = OWN_TOPIC if place == AT_THE_PROXY else IDLE
        board["crowd_goes"] = place
        time.sleep(self.settle_s)

        def look() -> list[float]:
            attacks = board["attacks"] + board["intrusions"]
            hostile_s, honest_s = (
                sum(cpu_s(self._processes[name].pid or 0) for name in names)
                for names in (self.hostile, self.honest)
            )
            counts = (board["puts"], board["deliveries"], attacks)
            served_s = honest_s + sum(map(cpu_s, self._serving()))
            return [time.perf_counter(), *counts, cpu_s(proxy), hostile_s, served_s]

        begin = look()
        time.sleep(window_s)
        seconds, *rest = (after - before for before, after in zip(begin, look(), strict=True))
        puts, deliveries, attacks, proxy_cpu, crowd_cpu, served_cpu = (
            one / seconds for one in rest
        )
        return Window(
            place=place,
            puts=puts,
            deliveries=deliveries,
            attacks=attacks,
            proxy_cpu=proxy_cpu,
            crowd_cpu=crowd_cpu,
            served_cpu=served_cpu,
        )

    def _serving(self) -> list[int]:
        """The processes that serve the honest."""
        return [self._service.proxy.pid]

    def run(
        self,
        *,
        groups: int,
        window_s: float,
        together_attacks: int,
        tick: Callable[[], None] = lambda: None,
    ) -> Result:
        """Windows, then all on the honest topic for so many attacks, then the judgement."""
        chance, board, pid = random.Random(self._seed), self._board, self._service.proxy.pid
        windows: list[Window] = []
        before = footprint(pid)
        descriptors_most = before.descriptors
        for place in [p for _ in range(groups) for p in chance.sample(list(PLACES), len(PLACES))]:
            if not self._broken():
                windows.append(self.window(place, window_s))
                descriptors_most = max(descriptors_most, self._footprint(before).descriptors)
            tick()
        board["crowd_goes"], board["accomplices_do"] = AT_THE_PROXY, HONEST_TOPIC
        enough = board["attacks"] + together_attacks
        eventually(
            lambda: (
                self._broken()
                or (board["attacks"] >= enough and board["accomplice_puts"] > ACCOMPLICE_PUTS_MIN)
            ),
            "attack, or put of an accomplice on the honest topic",
        )
        descriptors_most = max(descriptors_most, self._footprint(before).descriptors)
        tick()
        board["crowd_goes"], board["accomplices_do"] = NOWHERE, IDLE
        broken = self._broken()
        problems = broken or list(self._end(before))
        verdict = self._judge()
        if not (broken or verdict.perfect):
            problems.append(f"the honest subscriber's file is not what was put: {verdict}")
        return Result(
            windows=windows,
            verdict=verdict,
            puts=board["puts"],
            accomplice_puts=board["accomplice_puts"],
            accomplice_answers=board["accomplice_answers"],
            attacks=board["attacks"],
            silences=board["silences"],
            before=before,
            after=self._footprint(before),
            descriptors_most=descriptors_most,
            problems=problems,
        )

    def _end(self, before: Footprint) -> Iterator[str]:
        """End the honest pair; say what went wrong with any process."""
        board, proxy = self._board, self._service.proxy
        yield from self._processes.end_honest("subscriber")
        if board["silences"]:
            yield f"{board['silences']} requests of the honest publisher went unanswered"
        if board["refused"]:
            yield f"{board['refused']} attacks could not begin"
        yield from self._broken()
        if proxy.exit_code is not None:
            return
        if unexpected := unexpected_of(proxy):
            yield f"the proxy complained: {unexpected}"
        try:
            self._service.status()
        except PubSubError as error:
            yield f"the proxy does not answer: {error}"
            return
        most = before.descriptors + DESCRIPTORS_SPARE
        try:
            eventually(
                lambda: footprint(proxy.pid).descriptors <= most,
                f"end of the hostile connections: more than {most} descriptors",
                timeout_s=DESCRIPTORS_BACK_S,
            )
        except AssertionError as error:
            yield str(error)

    def _broken(self) -> list[str]:
        """What leaves nothing to wait for."""
        proxy, found = self._service.proxy, []
        if proxy.exit_code is not None:
            found.append(f"the proxy ended with exit code {proxy.exit_code}: {proxy.stderr}")
        if not self._processes["accomplices"].is_alive():
            found.append("the accomplices got a wrong answer, or none; see above")
        return found

    def _footprint(self, otherwise: Footprint) -> Footprint:
        """What the proxy holds, if it is there."""
        proxy = self._service.proxy
        return otherwise if proxy.exit_code is not None else footprint(proxy.pid)

    def _judge(self) -> Verdict:
        """Compare the honest subscriber's file with what was put."""
        puts: dict[str, Sequence[bytes]] = {
            SCENE.publisher: [honest.payload(n + 1) for n in range(self._board["puts"])],
            accomplices.PUBLISHER: [
                accomplices.payload(n + 1) for n in range(self._board["accomplice_puts"])
            ],
        }
        outputs = {SCENE.subscriber: self._output}
        (verdict,) = compare(outputs, {SCENE.subscriber: [SCENE.topic]}, {SCENE.topic: puts})
        return verdict
