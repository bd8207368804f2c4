"""The processes of a run: started as a person would start them, signalled, always reaped."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import yaml

from .child_process import ANY_PORT, ChildProcess, endpoints_in
from .core.scenario import PROXY, Client, Event, Relay, Role, Scenario
from .disk import SmallDisk
from .link import Address, Link, Links
from .progress import JournalProgress, OutputProgress
from .variants import OPTIONS

FOLDERS: Final = ("plans", "journals", "outputs", "logs", "state", "data")
BACKUPS: Final = "backups"
GRACE_S: Final = 5.0  # between SIGTERM and SIGKILL


class Member:
    """One process of the scenario, over all its lives."""

    def __init__(self, name: str, role: Role, directory: Path) -> None:
        self.name = name
        self.role: Role = role
        self.lives = 0
        self.stopped = False  # SIGSTOP
        self.link: Link | None = None  # to the node above; the proxy has none
        self.push_link: Link | None = None  # of a relay or subscriber: what is pushed to it
        self.doors: dict[str, Address] = {}  # of a node that is ready in this life, by their names
        self.log = directory / "logs" / f"{name}.log"
        self.journal = directory / "journals" / f"{name}.jsonl"
        self.output = directory / "outputs" / f"{name}.jsonl"
        self.state_dir = directory / "state" / name
        self.done = JournalProgress(self.journal)
        self.received = OutputProgress(self.output)
        self._child: ChildProcess | None = None

    @property
    def links(self) -> tuple[Link, ...]:
        """The link for requests first."""
        return tuple(link for link in (self.link, self.push_link) if link is not None)

    def is_ready(self) -> bool:
        """Whether a node has said so in this life; from then on the links below reach it."""
        if self._child is None or not self._child.runs:
            return False
        if not self.doors and (line := self._child.ready_line()):
            for name, endpoint in endpoints_in(line).items():
                host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
                self.doors[name] = (host, int(port))
        return bool(self.doors)

    def change_links(self, event: Event) -> str:
        """What breaks a network breaks both links; some events are of one. Gives a detail."""
        assert self.link is not None
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
                self.link.delay(event.by_s)
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


class Processes:
    """All processes of a scenario, their links, and the run directory."""

    def __init__(self, scenario: Scenario, directory: Path) -> None:
        """Prepare an emptied directory and the links; nothing runs yet.

        Raises:
            ConfigurationError: a small disk is needed, and cannot be had.
        """
        self._scenario = scenario
        self._directory = directory
        self.data_dir = directory / "data"
        for folder in FOLDERS:
            (directory / folder).mkdir(parents=True)
        log = directory / "logs" / "disk.log"
        self.disk = SmallDisk(self.data_dir, log) if scenario.needs_small_disk else None
        self.links = Links()
        self.proxy = Member(PROXY, "proxy", directory)
        self.members: dict[str, Member] = {PROXY: self.proxy}
        self._write_plan(PROXY, scenario.proxy)
        for relay in scenario.relays.values():
            self.members[relay.name] = self._below(relay.through, relay.name, "relay")
        for client in scenario.clients.values():
            self._write_plan(client.name, client.plan)
            self.members[client.name] = self._below(client.through, client.name, client.role)

    def _below(self, through: str, name: str, role: Role) -> Member:
        """A process with links to the node above it."""
        member, above = Member(name, role, self._directory), self.members[through].doors
        requests = "requests" if through != PROXY else f"{role.replace('relay', 'subscriber')}s"
        member.link = self.links.open(partial(above.get, requests))
        if role != "publisher":
            member.push_link = self.links.open(partial(above.get, "push"))
        return member

    def _write_plan(self, name: str, plan: object) -> None:
        path = self._directory / "plans" / f"{name}.yaml"
        path.write_text(yaml.safe_dump(plan, sort_keys=False, allow_unicode=True), encoding="utf-8")

    @property
    def clients(self) -> Mapping[str, Client]:
        """Publishers and subscribers, as the scenario has them."""
        return self._scenario.clients

    def start(self, name: str) -> None:
        """Start a process, for the first time or again, by the same command."""
        self.members[name].begin(self.command(name))

    def command(self, name: str) -> list[str]:
        """What a person would type."""
        member, fault = self.members[name], self._scenario.fault
        line = [sys.executable, "-m"]
        line += ["reliable_pubsub.lab.variants", fault] if fault else ["reliable_pubsub"]
        plan = str(self._directory / "plans" / f"{name}.yaml")
        journal = ["--journal", str(member.journal)]
        if name == PROXY:
            line += ["proxy", "-f", plan, "--data-dir", str(self.data_dir), *journal]
            line += ["--publisher-endpoint", ANY_PORT, "--subscriber-endpoint", ANY_PORT]
            line += ["--push-endpoint", ANY_PORT]
            return [*(self.disk.enter if self.disk else ()), *line]
        assert member.link is not None
        if name in self._scenario.relays:
            return [*line, *self._relay_options(self._scenario.relays[name]), *journal]
        client = self.clients[name]
        line += [member.role, "-f", plan, "-i", client.id, "--endpoint", _endpoint(member.link)]
        line += ["--state-dir", str(member.state_dir), "--quiet", *journal]
        line += ["--ack-timeout", str(client.ack_timeout_s)]
        line += ["--send-retries", str(client.send_retries)]
        if member.role == "subscriber":
            assert member.push_link is not None
            line += ["--output", str(member.output), "--push-via", _endpoint(member.push_link)]
        return [*line, *OPTIONS.get((fault, member.role), ())]

    def _relay_options(self, relay: Relay) -> list[str]:
        member = self.members[relay.name]
        assert member.link is not None
        assert member.push_link is not None
        return [
            *("relay", "-i", relay.name, "--strategy", relay.strategy),
            *("--upstream", _endpoint(member.link), "--push-via", _endpoint(member.push_link)),
            *("--endpoint", ANY_PORT, "--push-endpoint", ANY_PORT),
        ]

    def look_for_doors(self) -> bool:
        """See which nodes are ready; say whether the proxy is."""
        for name in self._scenario.relays:
            self.members[name].is_ready()
        return self.proxy.is_ready()

    @property
    def endpoint(self) -> str:
        """Where the proxy answers subscribers now, without a link between."""
        host, port = self.proxy.doors["subscribers"]
        return f"tcp://{host}:{port}"

    def back_up(self, name: str) -> None:
        """Copy the data directory, as it is at one moment."""
        self.proxy.pause()
        copy = self._directory / BACKUPS / name
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.data_dir, copy)
        self.proxy.signal(signal.SIGCONT)

    def roll_back(self, name: str) -> None:
        """Put a copy in the place of the data directory; the proxy is dead."""
        shutil.rmtree(self.data_dir)
        shutil.copytree(self._directory / BACKUPS / name, self.data_dir)

    def close(self) -> None:
        """End and reap all of it, whatever has happened."""
        for member in self.members.values():
            if member.name != PROXY:
                member.kill()
        self.proxy.end()
        self.links.close()
        if self.disk is not None:
            self.disk.close()


def _endpoint(link: Link) -> str:
    host, port = link.address
    return f"tcp://{host}:{port}"
