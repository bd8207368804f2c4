"""The processes of a run: started as a person would start them, signalled, always reaped."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import yaml

from .core.scenario import PROXY, Client, Event, Relay, Role, Scenario
from .disk import SmallDisk
from .link import Address, Link, Links
from .progress import JournalProgress, OutputProgress
from .variants import OPTIONS

ANY_PORT: Final = "tcp://127.0.0.1:*"
FOLDERS: Final = ("plans", "journals", "outputs", "logs", "state", "data")
BACKUPS: Final = "backups"
GRACE_S: Final = 5.0  # between SIGTERM and SIGKILL, at the end
READY: Final = re.compile(rb"^ready: (?:proxy|relay) (.*)\n", re.MULTILINE)
DOOR: Final = re.compile(rb"\b(publishers|subscribers|requests|push)=tcp://127\.0\.0\.1:(\d+)\b")


class Member:
    """One process of the scenario, over all its lives."""

    def __init__(self, name: str, role: Role, directory: Path) -> None:
        """Nothing runs yet."""
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
        self._child: subprocess.Popen[bytes] | None = None
        self._log_bytes = 0  # what earlier lives wrote

    @property
    def links(self) -> tuple[Link, ...]:
        """The link for requests first."""
        return tuple(link for link in (self.link, self.push_link) if link is not None)

    def is_ready(self) -> bool:
        """Whether a node has said so in this life; from then on the links below reach it."""
        if not self.doors and self.runs:
            found = READY.search(self.said())
            if found:
                for name, port in DOOR.findall(found[1]):
                    self.doors[name.decode()] = ("127.0.0.1", int(port))
        return bool(self.doors) and self.runs

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
        return self._child is not None and self._child.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Of its last life; negative: the signal that ended it; None while it runs, or before."""
        return None if self._child is None else self._child.poll()

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
        self._log_bytes = self.log.stat().st_size if self.log.exists() else 0
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RELIABLE_PUBSUB_")}
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment | {"PYTHONUNBUFFERED": "1", "COLUMNS": "100"},
                process_group=0,  # Ctrl-C is for the lab, which ends them all
            )
        self.lives += 1
        self.stopped = False

    def said(self) -> bytes:
        """What this life has written to its log."""
        with self.log.open("rb") as file:
            file.seek(self._log_bytes)
            return file.read()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it lives."""
        if self._child is not None and self.runs:
            self._child.send_signal(number)
            if number in (signal.SIGSTOP, signal.SIGCONT):
                self.stopped = number == signal.SIGSTOP

    def pause(self) -> None:
        """Send SIGSTOP, and wait until the process is stopped."""
        if self._child is not None and self.runs:
            self.signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self._child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def kill(self) -> None:
        """kill -9, and reap."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self.stopped = False

    def end(self) -> None:
        """SIGTERM, patience, SIGKILL."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        if self._child is not None:
            try:
                self._child.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                self.kill()


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
        self.disk = SmallDisk(self.data_dir) if scenario.needs_small_disk else None
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
