"""Three levels of relays, each machine a network namespace of its own, joined by real links.

    top ──link0── r1 ──link1── r2 ──link2── r3 ──link3── leaf

No process sees further than one link. Needs user namespaces or root, and ip(8); skipped without.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from reliable_pubsub.lab.rig.child_process import ChildProcess, NotReadyError

from .harness import Process, Service, eventually

MACHINES = ("top", "r1", "r2", "r3", "leaf")
SUBSCRIBERS = 4
MESSAGES = 60
PAYLOAD_BYTES = 2_000


def address(link: int) -> str:
    """The address of the upper end of a link."""
    return f"10.77.{link}.1"


def set_up() -> str:
    """The commands that make the namespaces and the links."""
    lines = ["mount -t tmpfs none /run/netns 2>/dev/null || mount -t tmpfs none /run", "set -e"]
    lines.append("mkdir -p /run/netns")
    lines += [f"ip netns add {machine}" for machine in MACHINES]
    lines += [f"ip -n {machine} link set lo up" for machine in MACHINES]
    for link, (above, below) in enumerate(pairwise(MACHINES)):
        pair = f"down{link} netns {above} type veth peer name up{link} netns {below}"
        lines += [
            f"ip link add {pair}",
            f"ip -n {above} addr add {address(link)}/30 dev down{link}",
            f"ip -n {below} addr add 10.77.{link}.2/30 dev up{link}",
            f"ip -n {above} link set down{link} up",
            f"ip -n {below} link set up{link} up",
        ]
    return "\n".join([*lines, "echo ready: network", "exec cat"])


class Network:
    """The namespaces; they are gone with the process that holds them."""

    def __init__(self, directory: Path) -> None:
        """Make them.

        Raises:
            NotReadyError: this machine does not allow it.
        """
        command = ["unshare", "--map-root-user", "--net", "--mount", "sh", "-c", set_up()]
        self._holder = ChildProcess(command, directory / "network.log", talks=True)
        self._holder.ready()

    def on(self, machine: str) -> tuple[str, ...]:
        """The prefix of a command that runs there."""
        return (
            *("nsenter", f"--target={self._holder.pid}", "--user", "--net", "--mount"),
            *("--preserve-credentials", f"--wd={Path.cwd()}", "--"),
            *("ip", "netns", "exec", machine),
        )

    def run(self, machine: str, *command: str) -> str:
        """Run a short command there, and return its output."""
        return subprocess.run(
            [*self.on(machine), *command], capture_output=True, text=True, check=True
        ).stdout

    def sent_bytes(self, link: int) -> int:
        """The bytes that have gone down a link, as the kernel counts them."""
        told = self.run(MACHINES[link], "ip", "-json", "-s", "link", "show", f"down{link}")
        return int(json.loads(told)[0]["stats64"]["tx"]["bytes"])

    def close(self) -> None:
        """End it."""
        self._holder.kill()


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    if not (shutil.which("ip") and shutil.which("unshare") and shutil.which("nsenter")):
        pytest.skip("ip(8), unshare(1) and nsenter(1) are needed")
    try:
        network = Network(tmp_path)
    except NotReadyError as error:
        pytest.skip(f"no network namespaces here: {error}")
    yield network
    network.close()


def launch_proxy(service: Service, network: Network) -> Process:
    return service.run(
        "proxy", "--data-dir", service.directory / "data", "--allow-plaintext",
        "--publisher-endpoint", f"tcp://{address(0)}:7000",
        "--subscriber-endpoint", f"tcp://{address(0)}:7001",
        "--push-endpoint", f"tcp://{address(0)}:7002",
        prefix=network.on("top"),
    )  # fmt: skip


def launch_relay(service: Service, network: Network, level: int) -> Process:
    relay = service.run(
        "relay", "-i", f"relay-{level}", "--allow-plaintext",
        "--upstream", f"tcp://{address(level - 1)}:7001",
        "--endpoint", f"tcp://{address(level)}:7001",
        "--push-endpoint", f"tcp://{address(level)}:7002",
        prefix=network.on(f"r{level}"),
    )  # fmt: skip
    relay.ready()
    return relay


def launch_subscriber(service: Service, network: Network, name: str) -> Process:
    steps = f"""
        steps:
          - {{action: subscribe, topic: t, push: true}}
          - {{action: get, topic: t, number_of_times: {MESSAGES}, batch: 5}}
    """
    return service.run(
        "subscriber", "-f", service.file(f"{name}.yaml", steps), "-i", name, "--allow-plaintext",
        "--endpoint", f"tcp://{address(3)}:7001", "--output", service.output(name), "-q",
        "--state-dir", service.directory / name, "--ack-timeout", "0.5", "--send-retries", "1000",
        prefix=network.on("leaf"),
    )  # fmt: skip


def links_of(network: Network) -> dict[str, list[str]]:
    """Who is linked below each relay, by the topology command of the machine at the end."""
    told = network.run(
        "leaf", sys.executable, "-m", "reliable_pubsub", "topology", "--json", "--allow-plaintext",
        "--endpoint", f"tcp://{address(3)}:7001",
    )  # fmt: skip
    nodes = [node for node in json.loads(told) if isinstance(node, dict)]
    return {node["node"]: [below["client"] for below in node["below"]] for node in nodes}


def test_three_levels_in_namespaces_lose_nothing_and_send_one_copy_on_each_link(
    service: Service, network: Network
) -> None:
    launch_proxy(service, network).ready()
    relays = {level: launch_relay(service, network, level) for level in (1, 2, 3)}
    names = [f"s{number}" for number in range(SUBSCRIBERS)]
    subscribers = [launch_subscriber(service, network, name) for name in names]
    for subscriber in subscribers:
        subscriber.ready()
    eventually(lambda: set(links_of(network).get("relay-3", ())) == set(names), "links")
    before = {link: network.sent_bytes(link) for link in range(4)}
    steps = f"""
        steps:
          - topic: t
            message: {"x" * PAYLOAD_BYTES}
            number_of_times: {MESSAGES}
            sleep_between_messages: 0.05
    """

    publisher = service.run(
        "publisher", "-f", service.file("p.yaml", steps), "-i", "p", "--allow-plaintext", "-q",
        "--endpoint", f"tcp://{address(0)}:7000", "--state-dir", service.directory / "p",
        prefix=network.on("top"),
    )  # fmt: skip
    eventually(lambda: service.line_count("s0") >= MESSAGES // 3, "a third")
    sent = {link: network.sent_bytes(link) - before[link] for link in range(4)}
    network.run("r1", "ip", "link", "set", "down1", "down")
    relays[3].kill()
    launch_relay(service, network, 3)
    network.run("r1", "ip", "link", "set", "down1", "up")
    publisher.done()
    for subscriber in subscribers:
        subscriber.done()

    for name in names:
        lines = [json.loads(line) for line in service.output(name).read_text().splitlines()]
        assert [line["offset"] for line in lines] == list(range(MESSAGES))
    for link in range(3):
        assert sent[link] < sent[3] / 2, f"link {link}: one copy for {SUBSCRIBERS} subscribers"
