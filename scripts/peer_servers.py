"""The brokers that `scripts/bench peers` measures: started here, each as durable as it can be made.

Each listens on a free port of the loopback interface, writes to a directory of its own, and ends
with the block that started it.
"""

from __future__ import annotations

import getpass
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import zmq
from msgspec import Struct

from reliable_pubsub.lab.rig.child_process import ChildProcess

from .measuring import child, folder, proxy, version

START_S: Final = 60.0
LOOKED_IN: Final = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
RABBITMQ: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the one in PATH changes its user


class System(Struct, frozen=True):
    """A broker that can be measured."""

    name: str  # for --only
    title: str
    product: str
    start: Callable[[], AbstractContextManager[str]]  # gives where clients connect
    version: Callable[[], str]
    acknowledged: Callable[[str], str]  # what an acknowledged message is, in that version
    delivered: str
    binary: str = sys.executable
    package: str = ""  # of Debian
    module: str = "zmq"  # of the client

    def missing(self) -> str:
        """What to do before it can be measured, or nothing."""
        if shutil.which(self.binary, path=LOOKED_IN) is None:
            return f"apt-get install {self.package}"
        if importlib.util.find_spec(self.module) is None:
            return "scripts/setup --bench"
        return ""


def free_port() -> int:
    """A port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def server(
    command: Sequence[str], port: int, home: Path, environment: Mapping[str, str] | None = None
) -> Iterator[ChildProcess]:
    """A server, from when it accepts connections.

    Raises:
        ClickException: it ended, or did not accept in time; with the end of what it printed.
    """
    program = [shutil.which(command[0], path=LOOKED_IN) or command[0], *command[1:]]
    log = home / "output.txt"
    with ChildProcess(program, log, cwd=home, environment=environment) as process:
        until_s = time.monotonic() + START_S
        while not _accepts(port):
            if not process.runs or time.monotonic() > until_s:
                raise click.ClickException(f"{command[0]} did not start: {process.said()[-500:]}")
            time.sleep(0.02)
        yield process


def printed_version(*command: str) -> str:
    """The first number with a dot that a program prints."""
    program = shutil.which(command[0], path=LOOKED_IN) or command[0]
    ran = subprocess.run([program, *command[1:]], capture_output=True, text=True, timeout=START_S)
    found = re.search(r"\d+\.\d+(\.\d+)?", ran.stdout + ran.stderr)
    return found.group() if found else "?"


# Ours, and the bare loop.


@contextmanager
def start_ours() -> Iterator[str]:
    """The proxy, with its default settings; both endpoints in one text."""
    with proxy() as running:
        yield f"{running.publishers} {running.subscribers}"


@contextmanager
def start_bare() -> Iterator[str]:
    """The bare loop: a REP socket; each request is written, synced, published and answered."""
    with folder() as home, child(be_bare, str(home / "log")) as endpoints:
        yield endpoints


def be_bare(pipe: Any, path: str) -> None:
    """Be the bare loop of a broker."""
    context: Any = zmq.Context()
    requests, published = context.socket(zmq.REP), context.socket(zmq.PUB)
    published.setsockopt(zmq.SNDHWM, 0)
    ports = [one.bind_to_random_port("tcp://127.0.0.1") for one in (requests, published)]
    pipe.send(" ".join(f"tcp://127.0.0.1:{port}" for port in ports))
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_TRUNC, 0o600)
    while True:
        topic, body = requests.recv_multipart()
        os.write(descriptor, body)
        os.fdatasync(descriptor)
        published.send_multipart([topic, body])
        requests.send(b"ok")


# The others.


@contextmanager
def served(command: Callable[[Path, int], Sequence[str]]) -> Iterator[str]:
    """A server with a folder and a port of its own, which make its command; returns the port."""
    with folder() as home:
        port = free_port()
        with server(command(home, port), port, home):
            yield str(port)


def redis(home: Path, port: int) -> list[str]:
    """Redis with an append-only file that is synced before each answer."""
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(home), "--save", ""]
    return ["redis-server", *options, "--appendonly", "yes", "--appendfsync", "always"]


def nats_syncs(version: str) -> bool:
    """Whether this version can sync before it acknowledges."""
    return tuple(map(int, version.split(".")[:2])) >= (2, 10)


def nats(home: Path, port: int) -> list[str]:
    """NATS with JetStream on disk; synced always, where the version can."""
    durable = "sync_interval: always" if nats_syncs(NATS.version()) else ""
    settings = home / "nats.conf"
    settings.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{home}" {durable} }}\n'
    )
    return ["nats-server", "-c", str(settings)]


def mosquitto(home: Path, port: int) -> list[str]:
    """Mosquitto that saves each second, and drops nothing.

    It can save after each change, but acknowledges first all the same, and writes its whole store
    each time: 90 messages a second.
    """
    settings = home / "mosquitto.conf"
    settings.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nuser {getpass.getuser()}\n"
        f"persistence true\npersistence_location {home}/\n"
        "autosave_interval 1\n"
        "max_queued_messages 0\nmax_inflight_messages 0\nset_tcp_nodelay true\n"
    )
    return ["mosquitto", "-c", str(settings)]


@contextmanager
def start_rabbitmq() -> Iterator[str]:
    """RabbitMQ, with a port mapper of its own."""
    with folder() as home:
        names, port = free_port(), free_port()
        plugins = home / "plugins"
        plugins.write_text("[].\n")
        here = {
            "HOME": str(home),
            "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(home / "store"),
            "RABBITMQ_LOG_BASE": str(home),
            "RABBITMQ_CONFIG_FILE": str(home / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_PID_FILE": str(home / "pid"),
        }
        (home / "mapper").mkdir()
        with (
            server(["epmd", "-port", str(names)], names, home / "mapper", here),
            server([RABBITMQ], port, home, here),
        ):
            yield str(port)


def rabbitmq_version() -> str:
    """From the folder of its program: asking it starts an Erlang."""
    found = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
    return found[-1].name.partition("-")[2] if found else "?"


ONCE: Final = "once and in order"
AT_LEAST_ONCE: Final = "at least once"
OURS: Final = System(
    name="ours",
    title="here",
    product="here",
    start=start_ours,
    version=version,
    acknowledged=lambda _: "synced to disk",
    delivered=f"{ONCE}, after crashes of publisher, broker and subscriber, too",
)
BARE: Final = System(
    name="bare",
    title="bare loop",
    product="bare loop",
    start=start_bare,
    version=lambda: "",
    acknowledged=lambda _: "synced to disk",
    delivered="to those that are connected, if nothing dies",
)
REDIS: Final = System(
    name="redis",
    title="Redis",
    product="Redis Streams",
    start=partial(served, redis),
    version=lambda: printed_version("redis-server", "--version"),
    acknowledged=lambda _: "synced to disk (`appendfsync always`)",
    delivered=f"{AT_LEAST_ONCE}; a retried XADD stores it twice",
    binary="redis-server",
    package="redis-server",
    module="redis",
)
NATS: Final = System(
    name="nats",
    title="NATS",
    product="NATS JetStream",
    start=partial(served, nats),
    version=lambda: printed_version("nats-server", "--version"),
    acknowledged=lambda version: (
        "synced to disk (`sync_interval: always`)"
        if nats_syncs(version)
        else "written, synced within 2 minutes (2.10 and newer can sync first)"
    ),
    delivered=f"{AT_LEAST_ONCE}; a retry within 2 minutes stores it once",
    binary="nats-server",
    package="nats-server",
    module="nats",
)
MOSQUITTO: Final = System(
    name="mosquitto",
    title="Mosquitto",
    product="Mosquitto, QoS 2",
    start=partial(served, mosquitto),
    version=lambda: printed_version("mosquitto", "-h"),
    acknowledged=lambda _: "in memory, saved within a second (`autosave_interval 1`)",
    delivered="once between client and broker, if neither loses its memory",
    binary="mosquitto",
    package="mosquitto",
    module="paho",
)
RABBIT: Final = System(
    name="rabbitmq",
    title="RabbitMQ",
    product="RabbitMQ, quorum queue",
    start=start_rabbitmq,
    version=rabbitmq_version,
    acknowledged=lambda _: "synced to disk (publisher confirms)",
    delivered=f"{AT_LEAST_ONCE}; a retried publish stores it twice",
    binary=RABBITMQ,
    package="rabbitmq-server",
    module="pika",
)
SYSTEMS: Final = {one.name: one for one in (OURS, REDIS, NATS, MOSQUITTO, RABBIT, BARE)}
