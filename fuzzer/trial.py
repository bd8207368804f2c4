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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct

from reliable_pubsub.common.core.message_base import Role
from scripts.delivery import Verdict
from tests.integration.harness import Service, eventually

from . import accomplices, zmtp
from .attacked import Attacked, make_known
from .attacks import KINDS, Scene
from .board import AT_THE_PROXY, ELSEWHERE, HONEST_TOPIC, IDLE, NOWHERE, OWN_TOPIC, Board, forked
from .crowd import run_crowd
from .floods import SCENE, Place, flood_of

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

    verdicts: dict[str, Verdict]  # by honest subscriber
    puts: int
    accomplice_puts: int
    accomplice_answers: int
    attacks: int
    silences: int
    before: Footprint
    after: Footprint
    descriptors_most: int
    problems: list[str]


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


class Trial(Attacked):
    """One proxy and its clients."""

    subscribers: ClassVar[Mapping[str, Scene]] = {"subscriber": SCENE}
    hostile: tuple[str, ...] = ("crowd",)  # processes that attack, at a pace
    settle_s = SETTLE_S

    def __init__(
        self,
        directory: Path,
        service: Service | None = None,
        *,
        seed: int,
        attacks_per_s: float,
    ) -> None:
        """Prepare; nothing runs yet."""
        service = service or Service(directory)
        super().__init__(directory, service, seed=seed, attacks_per_s=attacks_per_s)

    @contextmanager
    def running(self) -> Iterator[None]:
        """All clients at work; the crowd goes nowhere yet."""
        try:
            self._attacked["proxy"] = self._service.start_proxy()
            make_known(self._service)
            at = self._endpoints()
            roles: tuple[Role, ...] = ("publisher", "subscriber")
            kinds = tuple(KINDS.values())
            mine, its = forked.Pipe()
            self._start("elsewhere", accept_all, its)
            acceptor = "tcp://{}:{}".format(*mine.recv())
            of_way = {
                AT_THE_PROXY: [Place(at[role], role, kinds) for role in roles],
                ELSEWHERE: [Place(acceptor, role, kinds) for role in roles],
            }
            self._start("crowd", run_crowd, flood_of, of_way, self._attacks_per_s, self._seed)
            endpoints = (at["publisher"], at["subscriber"])
            self._start("accomplices", accomplices.conspire, SCENE, *endpoints, self._seed)
            self._start_honest(*endpoints)
            self._await_honest()
            yield
        finally:
            self._stop()

    def window(self, place: int, window_s: float) -> Window:
        """Send the crowd to a place, and measure for this long."""
        board, proxy = self._board, self._service.proxy.pid
        board["accomplices_do"] = OWN_TOPIC if place == AT_THE_PROXY else IDLE
        board["crowd_goes"] = place
        time.sleep(self.settle_s)

        def look() -> list[float]:
            attacks = board["attacks"] + board["intrusions"]
            hostile_s, honest_s = (
                sum(cpu_s(self._clients[name].pid or 0) for name in names)
                for names in (self.hostile, ("publisher", *self.subscribers))
            )
            counts = (board["puts"], board["deliveries"], attacks)
            served_s = honest_s + sum(cpu_s(one.pid) for one in self._attacked.values())
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

    def _order(self, groups: int) -> list[int]:
        """Where the crowd goes, window by window: groups of one for each place, shuffled."""
        chance = random.Random(self._seed)
        return [p for _ in range(groups) for p in chance.sample(list(PLACES), len(PLACES))]

    def run(
        self,
        *,
        groups: int,
        window_s: float,
        together_attacks: int,
        tick: Callable[[], None] = lambda: None,
    ) -> Result:
        """Windows, then a number of attacks with all on the honest topic, then the judgement."""
        board, pid = self._board, self._service.proxy.pid
        windows: list[Window] = []
        before = footprint(pid)
        descriptors_most = before.descriptors
        for place in self._order(groups):
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
        problems = self._broken() or [*self._end(), *self._left_over(before)]
        return Result(
            windows=windows,
            verdicts=self._judge(problems),
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

    def _left_over(self, before: Footprint) -> Iterator[str]:
        """What must be gone when the honest pair has ended, and the crowd has left."""
        board, proxy = self._board, self._service.proxy
        if board["silences"]:
            yield f"{board['silences']} requests of the honest publisher went unanswered"
        if board["refused"]:
            yield f"{board['refused']} attacks could not begin"
        most = before.descriptors + DESCRIPTORS_SPARE
        try:
            eventually(
                lambda: proxy.exit_code is not None or footprint(proxy.pid).descriptors <= most,
                f"end of the hostile connections: more than {most} descriptors",
                timeout_s=DESCRIPTORS_BACK_S,
            )
        except AssertionError as error:
            yield str(error)

    def _footprint(self, otherwise: Footprint) -> Footprint:
        """What the proxy holds, if it is there."""
        proxy = self._service.proxy
        return otherwise if proxy.exit_code is not None else footprint(proxy.pid)
