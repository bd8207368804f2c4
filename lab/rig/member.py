"""One process of a run of the lab, over all its lives."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..core.scenario import Role, ScenarioEvent
from .child_process import ChildProcess, endpoints_in
from .link import Address, TcpLink
from .progress import JournalProgress, OutputProgress

GRACE_S: Final = 20.0  # between SIGTERM and SIGKILL


class ScenarioMember:
    """One process of the scenario, over all its lives."""

    def __init__(self, name: str, role: Role, directory: Path) -> None:
        self.name = name
        self.role: Role = role
        self.lives = 0
        self.stopped = False  # SIGSTOP
        self.is_over = False  # ended with the scenario, because its plan has no end of its own
        self.request_links: Sequence[TcpLink] = ()  # to each node above; of a proxy to its database
        self.push_link: TcpLink | None = None  # of a relay or subscriber: what is pushed to it
        self.doors: dict[str, Address] = {}  # of a node that is ready in this life, by their names
        self.log = directory / "logs" / f"{name}.log"
        self.journal = directory / "journals" / f"{name}.jsonl"
        self.output = directory / "outputs" / f"{name}.jsonl"
        self.state_dir = directory / "state" / name
        self.done = JournalProgress(self.journal)
        self.received = OutputProgress(self.output)
        self.may_stand_by = False  # it shares its log with another one
        self.ready_s = 0.0  # when it was last seen to become ready, or to stand by
        self._said: str | None = None  # then
        self._child: ChildProcess | None = None

    @property
    def links(self) -> tuple[TcpLink, ...]:
        """The link for requests first."""
        return (*self.request_links, *((self.push_link,) if self.push_link else ()))

    @property
    def endpoints(self) -> str:
        """Of its links for requests, as its command names them."""
        return ",".join(endpoint_of(link) for link in self.request_links)

    def is_ready(self) -> bool:
        """Whether a node has said so in this life; from then on the links below reach it.

        A proxy that has lost its term stands by, and may be ready again.
        """
        if self._child is None or not self._child.runs:
            return False
        if self.doors and not self.may_stand_by:
            return True
        line = self._child.newest_state() if self.may_stand_by else self._child.ready_line()
        if line != self._said:
            self._said, self.ready_s = line, time.monotonic()
            self.doors.clear()
            for name, endpoint in endpoints_in(line or "").items():
                host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
                self.doors[name] = (host, int(port))
        return bool(self.doors)

    def change_links(self, event: ScenarioEvent) -> str:
        """What breaks a network breaks both links; some events are of one. Gives a detail."""
        match event.what:
            case "cut":
                for link in self.links:
                    link.cut(after_bytes=event.after_bytes)
                return f"after {event.after_bytes} more bytes" if event.after_bytes else ""
            case "cut_push":
                assert self.push_link is not None
                self.push_link.cut()
            case "half_open":
                for link in self.links:
                    link.half_open()
            case "delay":
                for link in self.request_links:
                    link.delay(event.by_s)
                return f"by {event.by_s:g} s"
            case "slow":
                for link in self.links:
                    link.slow(event.bytes_per_s)
                return f"{event.bytes_per_s:,} bytes/s"
            case _:
                for link in self.links:
                    link.heal()
        return ""

    @property
    def runs(self) -> bool:
        """Whether it lives, stopped or not."""
        return self._child is not None and self._child.runs

    @property
    def waited_s(self) -> float:
        """Return how long it has waited for a core in this run."""
        return 0.0 if self._child is None else self._child.waited_s

    @property
    def has_begun(self) -> bool:
        """Whether it has said in this life that it is ready; from then on SIGTERM ends it well."""
        return self._child is not None and self._child.runs and bool(self._child.ready_line())

    @property
    def exit_code(self) -> int | None:
        """Of its last life; negative: the signal that ended it; None while it runs, or before."""
        return None if self._child is None else self._child.exit_code

    @property
    def count(self) -> int:
        """Messages that it has put, or got."""
        return self.received.lines if self.role == "subscriber" else self.done.put

    def look(self) -> None:
        """Read how far it is."""
        self.done.look()
        self.received.look()

    def begin(self, command: list[str]) -> None:
        """Start a life; what it says goes to its log."""
        self.doors.clear()
        self._said = None
        self._child = ChildProcess(command, self.log, environment={"PYTHONUNBUFFERED": "1"})
        self.lives += 1
        self.stopped = False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it lives."""
        if self._child is not None and self.runs:
            self._child.signal(number)
            if number in (signal.SIGSTOP, signal.SIGCONT):
                self.stopped = number == signal.SIGSTOP

    def pause(self) -> None:
        """Send SIGSTOP, and wait until the process is stopped."""
        if self._child is not None and self.runs:
            self._child.pause()
            self.stopped = True

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self.stopped = False

    def end(self) -> None:
        """SIGTERM, patience, SIGKILL."""
        self.signal(signal.SIGCONT)
        if self._child is not None:
            self._child.end(GRACE_S)


def endpoint_of(link: TcpLink) -> str:
    """Where a link listens."""
    host, port = link.address
    return f"tcp://{host}:{port}"
