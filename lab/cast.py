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

from .disk import SmallDisk
from .link import Address, Link, Links
from .progress import HistoryProgress, OutputProgress
from .scenario import PROXY, Client, Role, Scenario
from .variants import OPTIONS

ANY_PORT: Final = "tcp://127.0.0.1:*"
FOLDERS: Final = ("plans", "histories", "outputs", "logs", "state", "data")
BACKUPS: Final = "backups"
GRACE_S: Final = 5.0  # between SIGTERM and SIGKILL, at the end
READY: Final = re.compile(
    rb"^ready: proxy publishers=tcp://127\.0\.0\.1:(\d+) subscribers=tcp://127\.0\.0\.1:(\d+) .*\n",
    re.MULTILINE,
)


class Member:
    """One process of the scenario, over all its lives."""

    def __init__(self, name: str, role: Role, directory: Path) -> None:
        """Nothing runs yet."""
        self.name = name
        self.role: Role = role
        self.lives = 0
        self.stopped = False  # SIGSTOP
        self.link: Link | None = None  # of a client
        self.log = directory / "logs" / f"{name}.log"
        self.history = directory / "histories" / f"{name}.jsonl"
        self.output = directory / "outputs" / f"{name}.jsonl"
        self.state_dir = directory / "state" / name
        self.done = HistoryProgress(self.history)
        self.received = OutputProgress(self.output)
        self._child: subprocess.Popen[bytes] | None = None
        self._log_bytes = 0  # what earlier lives wrote

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
        """SIGSTOP, and wait until it stands still."""
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


class Cast:
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
        self._addresses: dict[str, Address] = {}  # where the proxy of this moment is, by role
        self._write_plan(PROXY, scenario.proxy)
        for client in scenario.clients.values():
            self._write_plan(client.name, client.plan)
            member = Member(client.name, client.role, directory)
            member.link = self.links.open(partial(self._addresses.get, client.role))
            self.members[client.name] = member

    def _write_plan(self, name: str, plan: object) -> None:
        path = self._directory / "plans" / f"{name}.yaml"
        path.write_text(yaml.safe_dump(plan, sort_keys=False, allow_unicode=True), encoding="utf-8")

    @property
    def clients(self) -> Mapping[str, Client]:
        """Publishers and subscribers, as the scenario has them."""
        return self._scenario.clients

    def start(self, name: str) -> None:
        """Start a process, for the first time or again, by the same command."""
        if name == PROXY:
            self._addresses.clear()
        self.members[name].begin(self.command(name))

    def command(self, name: str) -> list[str]:
        """What a person would type."""
        member, fault = self.members[name], self._scenario.fault
        line = [sys.executable, "-m"]
        line += ["reliable_pubsub.lab.variants", fault] if fault else ["reliable_pubsub"]
        plan = str(self._directory / "plans" / f"{name}.yaml")
        history = ["--history", str(member.history)]
        if name == PROXY:
            line += ["proxy", "-f", plan, "--data-dir", str(self.data_dir), *history]
            line += ["--publisher-endpoint", ANY_PORT, "--subscriber-endpoint", ANY_PORT]
            return [*(self.disk.enter if self.disk else ()), *line]
        client = self.clients[name]
        assert member.link is not None
        host, port = member.link.address
        line += [member.role, "-f", plan, "-i", client.id, "--endpoint", f"tcp://{host}:{port}"]
        line += ["--state-dir", str(member.state_dir), "--quiet", *history]
        line += ["--ack-timeout", str(client.ack_timeout_s)]
        line += ["--send-retries", str(client.send_retries)]
        if member.role == "subscriber":
            line += ["--output", str(member.output)]
        return [*line, *OPTIONS.get((fault, member.role), ())]

    def proxy_is_ready(self) -> bool:
        """Whether the proxy has said so in this life; from then on the links reach it."""
        if not self._addresses and self.proxy.runs:
            found = READY.search(self.proxy.said())
            if found:
                for role, port in zip(("publisher", "subscriber"), found.groups(), strict=True):
                    self._addresses[role] = ("127.0.0.1", int(port))
        return bool(self._addresses) and self.proxy.runs

    @property
    def endpoint(self) -> str:
        """Where the proxy answers subscribers now, without a link between."""
        host, port = self._addresses["subscriber"]
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
