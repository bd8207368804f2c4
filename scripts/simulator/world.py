"""The simulated world: time, events, and client processes of which exactly one runs.

Clients are synchronous, so each process is a greenlet: a stack of its own, in one thread. A process
that waits runs the events of the world itself, until one of them names the process that continues,
and switches to it. Nothing but the seed decides which one that is.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from greenlet import getcurrent, greenlet

WALL_BEGIN_NS: Final = 1_700_000_000 * 10**9


class Killed(BaseException):
    """The process dies here, as by `kill -9`: no handler of the program may run."""


class Interrupted(BaseException):
    """A signal handler raises here, and the program continues with the same client."""


Turn = greenlet  # where a process, or the world itself, continues
Event = Callable[[], Turn | None]  # runs at its time; returns the process that continues, if any


class World:
    """Simulated time, and the events that are due in it."""

    def __init__(self, seed: int, *, tracing: bool = False) -> None:
        """Begin at time 0.

        Args:
            tracing: keep a line for everything that happens.
        """
        self.seed = seed
        self.random = random.Random(seed)
        self.now_s = 0.0
        self.wall_offset_ns = 0  # grows and shrinks when the wall clock jumps
        self.quiet = False  # True: no faults from now on
        self.closing = False
        self.tracing = tracing
        self.trace: list[str] = []
        self.counts: Counter[str] = Counter()  # how often each class of faults has happened
        self.events_count = 0
        self._events: list[tuple[float, int, Event]] = []
        self._stopped = False
        self._main = getcurrent()
        self._failure: BaseException | None = None

    def wall_ns(self) -> int:
        """The wall clock: like ours, but it jumps."""
        return WALL_BEGIN_NS + int(self.now_s * 1e9) + self.wall_offset_ns

    def note(self, who: str, what: str) -> None:
        """Keep a line of the trace; callers ask `tracing` first where the text is dear."""
        if self.tracing:
            self.trace.append(f"{self.now_s:9.4f} s  {who:<10} {what}")

    def chance(self, probability: float) -> bool:
        """Draw; never true in the quiet phase."""
        return probability > 0 and not self.quiet and self.random.random() < probability

    def happens(self, fault: str, probability: float) -> bool:
        """Draw, and count."""
        if probability <= 0 or self.quiet or self.random.random() >= probability:
            return False
        self.counts[fault] += 1
        return True

    def happened(self, fault: str, who: str, what: str) -> None:
        """Count, and keep a line of the trace."""
        self.counts[fault] += 1
        self.note(who, what)

    def at(self, delay_s: float, event: Event) -> None:
        """Schedule an event; those at equal times happen in the order of the calls."""
        self.events_count += 1
        heapq.heappush(self._events, (self.now_s + delay_s, self.events_count, event))

    def stop(self) -> None:
        """End `run` after this event."""
        self._stopped = True

    def fail(self, error: BaseException) -> None:
        """End `run` with an error."""
        self._failure = self._failure or error
        self._stopped = True

    def run(self, until_s: float) -> None:
        """Run events until `stop`, or until a time is reached.

        Raises:
            BaseException: what an event, or the end of a process, raised.
        """
        self._stopped = False
        self.at(until_s - self.now_s, self.stop)
        self.drive()
        if self._failure is not None:
            raise self._failure

    def close(self, processes: list[Process]) -> None:
        """Kill every process that is left, so that nothing of it is left."""
        self.closing = True
        self._events.clear()
        for process in processes:
            if process.alive:
                self.at(0.0, process.kill)
        self._failure = None
        self._stopped = False
        self.drive()

    def drive(self) -> None:
        """Run events until one of them, here or elsewhere, names the caller."""
        turn = self.advance()
        if turn is not getcurrent():
            turn.switch()

    def turn_of(self, run: Callable[..., None]) -> Turn:
        """A greenlet of this world."""
        return Turn(run, self._main)

    def advance(self) -> Turn:
        """Run events until one names a process, or the world ends: then it is the caller's."""
        try:
            while self._events and not self._stopped:
                self.now_s, _, event = heapq.heappop(self._events)
                turn = event()
                if turn is not None:
                    return turn
        except BaseException as error:
            self.fail(error)
        return self._main


class Process:
    """A client process. Others run while it is in `wait`, and it may die at each `point`."""

    def __init__(self, world: World, name: str, program: Callable[[Process], None]) -> None:
        """Prepare; `start` lets it run.

        Args:
            program: what the process does; its exceptions are given to `on_end`.
        """
        self.world = world
        self.name = name
        self.alive = True
        self.frozen = False
        self.killed = False
        self.life = 0  # 1, 2, 3, ... among the processes of its machine
        self.epoch = 0  # granted by the proxy; 0: not yet
        self.nonce = b""  # by which the proxy tells it from the other processes of its id
        self.points_left: int | None = None  # it dies at this point; None: it does not
        self.interrupts = 0.0  # chance that a step of a call is interrupted
        self.on_end: Callable[[Process, BaseException | None], None] = lambda process, error: None
        self._program = program
        self._turn = world.turn_of(self._run)
        self._token = 0
        self._waiting = False
        self._due_meanwhile = False  # while it was frozen

    def start(self, delay_s: float) -> None:
        """Begin, after a while."""
        self._sleep_until_woken(delay_s)

    def point(self, what: str) -> None:
        """A place at which the process may die."""
        if self.points_left is not None and not self.world.quiet:
            self.points_left -= 1
            if self.points_left <= 0:
                self.world.note(self.name, f"killed at {what}")
                raise Killed

    def step(self, what: str) -> None:
        """A place within a call of a client: the process may die, or the call is broken off."""
        if self.points_left is not None:
            self.point(what)
        if self.interrupts and self.world.happens("interrupt", self.interrupts):
            self.world.note(self.name, f"interrupted at {what}")
            raise Interrupted

    def wait(self, timeout_s: float) -> None:
        """Run the world until `wake` is called, or time is over."""
        self._sleep_until_woken(timeout_s)
        self.world.drive()
        if self.killed:
            raise Killed

    def wake(self) -> Turn | None:
        """Continue it, if it waits. An event."""
        return self._due(self._token)

    def kill(self) -> Turn | None:
        """Kill it where it waits. An event."""
        if not self.alive or not self._waiting:
            return None
        self.world.note(self.name, "killed while it waits")
        self.killed = True
        self.frozen = False
        return self._due(self._token)

    def thaw(self) -> Turn | None:
        """Continue a frozen process. An event."""
        self.frozen = False
        return self._due(self._token) if self._due_meanwhile else None

    def _sleep_until_woken(self, timeout_s: float) -> None:
        self._token += 1
        self._waiting = True
        token = self._token
        self.world.at(timeout_s, lambda: self._due(token))

    def _due(self, token: int) -> Turn | None:
        if token != self._token or not self._waiting:
            return None
        if self.frozen:
            self._due_meanwhile = True
            return None
        self._waiting = self._due_meanwhile = False
        return self._turn

    def _run(self, *_: object) -> None:
        error: BaseException | None = None
        try:
            if not self.killed:
                self._program(self)
        except BaseException as raised:
            error = raised
        self.alive = False
        try:
            self.on_end(self, error)
        except BaseException as raised:
            self.world.fail(raised)
        getcurrent().parent = self.world.advance()  # continues when this one returns
