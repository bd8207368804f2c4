"""The processes of a run: started as a user would start them, signalled, always reaped."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import yaml

from ..core.scenario import DATABASE, PROXY, Role, Scenario, ScenarioClient
from ..variants import OPTIONS
from .child_process import ANY_PORT
from .database import Database
from .disk import SmallDisk
from .link import TcpLinks
from .member import ScenarioMember, endpoint_of

FOLDERS: Final = ("plans", "journals", "outputs", "logs", "state", "data")
BACKUPS: Final = "backups"


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
        self.links = TcpLinks()
        self.database: Database | None = None
        self.proxies = [ScenarioMember(name, "proxy", directory) for name in scenario.proxies]
        self.members: dict[str, ScenarioMember] = {one.name: one for one in self.proxies}
        self._write_plan(PROXY, scenario.proxy)
        if scenario.database is not None:
            self.database = Database(directory, with_copy=scenario.database.copy)
            self.members[DATABASE] = self.database
            for proxy in self.proxies:
                proxy.may_stand_by = True
                proxy.request_links = [self.links.open(self.database.address)]
        for name, relay in scenario.relays.items():
            self.members[name] = self._below(relay.through, name, "relay")
        for client in scenario.clients.values():
            self._write_plan(client.name, client.plan)
            self.members[client.name] = self._below(client.through, client.name, client.role)

    def _below(self, through: str, name: str, role: Role) -> ScenarioMember:
        """A process with links to the node above it."""
        member = ScenarioMember(name, role, self._directory)
        requests, nodes = "requests", [self.members[through]]
        if through == PROXY:
            requests, nodes = f"{role.replace('relay', 'subscriber')}s", self.proxies
        member.request_links = [self.links.open(partial(one.doors.get, requests)) for one in nodes]
        if role != "publisher":
            member.push_link = self.links.open(lambda: _newest(nodes).doors.get("push"))
        return member

    @property
    def proxy(self) -> ScenarioMember:
        """The one that serves, or did last."""
        return _newest(self.proxies)

    def _write_plan(self, name: str, plan: object) -> None:
        path = self._directory / "plans" / f"{name}.yaml"
        path.write_text(yaml.safe_dump(plan, sort_keys=False, allow_unicode=True), encoding="utf-8")

    @property
    def clients(self) -> Mapping[str, ScenarioClient]:
        """Publishers and subscribers, as the scenario has them."""
        return self._scenario.clients

    def start(self, name: str) -> None:
        """Start a process, for the first time or again, by the same command."""
        self.members[name].begin(self.command(name))

    def command(self, name: str) -> list[str]:
        """The command as a user would type it."""
        member, fault = self.members[name], self._scenario.fault
        line = [sys.executable, "-m"]
        line += ["reliable_pubsub.lab.variants", fault] if fault else ["reliable_pubsub"]
        plan = str(self._directory / "plans" / f"{name}.yaml")
        journal = ["--journal", str(member.journal)]
        if member.role == "database":
            return []  # it starts itself
        if member.role == "proxy":
            return [*(self.disk.enter if self.disk else ()), *line, *self._proxy_options(member)]
        if name in self._scenario.relays:
            return [*line, *self._relay_options(name), *journal]
        client = self.clients[name]
        line += [member.role, "-f", plan, "-i", client.id, "--endpoint", member.endpoints]
        line += ["--state-dir", str(member.state_dir), "--quiet", *journal]
        line += ["--ack-timeout", str(client.ack_timeout_s)]
        line += ["--send-retries", str(client.send_retries)]
        if member.role == "subscriber":
            assert member.push_link is not None
            line += ["--output", str(member.output), "--push-via", endpoint_of(member.push_link)]
        return [*line, *OPTIONS.get((fault, member.role), ())]

    def _proxy_options(self, member: ScenarioMember) -> list[str]:
        options = ["proxy", "-f", str(self._directory / "plans" / f"{PROXY}.yaml")]
        options += ["--journal", str(member.journal)]
        options += ["--publisher-endpoint", ANY_PORT, "--subscriber-endpoint", ANY_PORT]
        options += ["--push-endpoint", ANY_PORT]
        if self.database is None:
            return [*options, "--data-dir", str(self.data_dir)]
        (link,) = member.request_links
        options += ["--ingress-endpoint", ANY_PORT, "--store", self.database.dsn(link.address)]
        return [*options, "--data-dir", str(self.data_dir / member.name)]

    def _relay_options(self, name: str) -> list[str]:
        member, strategy = self.members[name], self._scenario.relays[name].strategy
        assert member.push_link is not None
        return [
            *("relay", "-i", name, "--strategy", strategy),
            *("--upstream", member.endpoints, "--push-via", endpoint_of(member.push_link)),
            *("--endpoint", ANY_PORT, "--push-endpoint", ANY_PORT),
        ]

    def look_for_doors(self) -> bool:
        """See which nodes are ready; say whether a proxy serves."""
        relays = [self.members[name] for name in self._scenario.relays]
        ready = {node.name for node in (*self.proxies, *relays) if node.is_ready()}
        return not ready.isdisjoint(self._scenario.proxies)

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
            if member.role not in ("proxy", "database"):
                member.kill()
        for proxy in self.proxies:
            proxy.end()
        if self.database is not None:
            self.database.close()
        self.links.close()
        if self.disk is not None:
            self.disk.close()


def _newest(nodes: Sequence[ScenarioMember]) -> ScenarioMember:
    """Of several the one that has become ready last; it may have died since."""
    return max(nodes, key=lambda one: (one.runs and bool(one.doors), one.ready_s))
