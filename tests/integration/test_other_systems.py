"""A system that is not Linux: a proxy, a relay and clients without the calls that only Linux has.

The names are taken away in processes of their own, as macOS has them not; that macOS takes the
names it has instead is not shown here.
"""

from __future__ import annotations

import sys

import pytest

from .harness import PATIENCE_S, REPOSITORY, Process, Service

# Python imports this at its start (`sitecustomize`), also in the processes that the lab starts.
WITHOUT_PROC = """
import builtins, io

plain_open = open

def no_proc(path, *rest, **more):
    if str(path).startswith("/proc/"):
        raise FileNotFoundError(2, "No such file or directory", str(path))
    return plain_open(path, *rest, **more)

builtins.open = io.open = no_proc
"""
WITHOUT_LINUX = f"""{WITHOUT_PROC}
import asyncio, fcntl, os, select, selectors, socket, subprocess, sys

for module, names in {{
    os: ["eventfd", "eventfd_read", "eventfd_write", "fdatasync", "pidfd_open", "pipe2",
         "posix_fallocate", "sched_getaffinity", "sched_setaffinity", "O_TMPFILE"],
    select: ["epoll"],
    socket: ["SOCK_NONBLOCK", "SOCK_CLOEXEC", "TCP_INFO"],
}}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
selectors.DefaultSelector = selectors.PollSelector

plain_fcntl = fcntl.fcntl

def full_sync(descriptor, command, *rest):
    if command == fcntl.F_FULLFSYNC:
        return os.fsync(descriptor)
    return plain_fcntl(descriptor, command, *rest)

fcntl.F_FULLFSYNC, fcntl.fcntl = 51, full_sync
sys.platform = "darwin"
"""

CLIENTS = """
import sys
from reliable_pubsub import Publisher, Subscriber
from reliable_pubsub.common import system

publishers, subscribers, state, life = sys.argv[1:]
with Publisher("p", endpoint=publishers, state_dir=state) as publisher:
    with Subscriber("s", endpoint=subscribers, state_dir=state) as subscriber:
        subscriber.subscribe("t")
        publisher.put("t", life.encode())
        (message,) = subscriber.get("t", timeout_s=600)
        subscriber.subscribe("u")
        publisher.put_many("u", [b"1", b"2"])
        loop = subscriber.messages("u", timeout_s=600)  # it notes its place in a file of marks
        assert [next(loop).payload for _ in range(2)] == [b"1", b"2"]
        subscriber.unsubscribe("u")
        print(message.offset, message.payload.decode(), system.IS_LINUX)
"""


def elsewhere(
    service: Service, module: str, *arguments: object, system: str = WITHOUT_LINUX
) -> Process:
    """The command of one of our modules, on another system."""
    service.file("sitecustomize.py", system)
    path = f"PYTHONPATH={service.directory}:{REPOSITORY}"
    command = ["env", path, sys.executable, "-m", module, *map(str, arguments)]
    return service.run_command(module.split(".")[-1], command)


def proxy_elsewhere(service: Service, system: str = WITHOUT_LINUX) -> Process:
    return elsewhere(
        service, "reliable_pubsub.proxy",
        *("--data-dir", service.data_dir, "--publisher-endpoint", service.publisher_endpoint),
        *("--subscriber-endpoint", service.subscriber_endpoint),
        *("--push-endpoint", service.push_endpoint, "--ingress-endpoint", service.ingress_endpoint),
        system=system,
    )  # fmt: skip


def test_without_linux_a_proxy_that_is_killed_continues_and_clients_have_each_message_once(
    service: Service,
) -> None:
    service.file("clients.py", CLIENTS)
    for life in range(2):
        proxy = proxy_elsewhere(service)
        proxy.ready()
        clients = elsewhere(
            service, "clients", service.publisher_endpoint, service.subscriber_endpoint,
            service.state_dir, f"life-{life}",
        )  # fmt: skip
        clients.done()
        assert clients.stdout == f"{life} life-{life} False\n"
        status = elsewhere(
            service, "reliable_pubsub", "status", "--json", "--endpoint",
            service.subscriber_endpoint,
        )  # fmt: skip
        status.done()
        assert '"topic":"t"' in status.stdout
        assert '"is_memory_bounded":false' in status.stdout
        proxy.kill()

    last = proxy_elsewhere(service)
    last.ready()
    assert last.terminate() == 0


def test_on_a_linux_without_proc_a_proxy_serves(service: Service) -> None:
    proxy = proxy_elsewhere(service, WITHOUT_PROC)
    proxy.ready()
    with service.open_publisher("p") as publisher, service.open_subscriber("s") as subscriber:
        subscriber.subscribe("t", push=True)
        publisher.put("t", b"m")
        assert subscriber.get("t", timeout_s=PATIENCE_S)[0].payload == b"m"

    assert proxy.terminate() == 0


def test_without_linux_a_relay_passes_messages_on_and_ends_by_a_signal(service: Service) -> None:
    proxy = proxy_elsewhere(service)
    proxy.ready()
    endpoint = service.own_endpoint()
    relay = elsewhere(
        service, "reliable_pubsub.relay", "-i", "relay-1", "--endpoint", endpoint,
        "--push-endpoint", service.own_endpoint(), "--upstream", service.subscriber_endpoint,
    )  # fmt: skip
    relay.ready()
    with (
        service.open_publisher("p") as publisher,
        service.open_subscriber("s", endpoint=endpoint) as subscriber,
    ):
        subscriber.subscribe("t")
        publisher.put("t", b"m")
        assert subscriber.get("t", timeout_s=PATIENCE_S)[0].payload == b"m"

    assert relay.terminate() == 0
    assert proxy.terminate() == 0


def test_without_linux_a_scenario_of_the_lab_ends_as_it_says(service: Service) -> None:
    lab = elsewhere(
        service, "reliable_pubsub", "lab", "run", "proxy-dies", "--dir", service.directory / "run"
    )

    assert lab.wait() == 0, lab.stderr
    assert "As the scenario expects: " in lab.stdout


@pytest.mark.parametrize("wanted", ["F_FULLFSYNC", "fsync"])
def test_a_file_is_made_durable_by_the_strongest_call_there_is(
    wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On macOS fsync alone leaves the data in the memory of the disk."""
    import fcntl
    import os

    from reliable_pubsub.common.system import sync_data, sync_file

    calls: list[str] = []
    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.setattr(os, "fsync", lambda descriptor: calls.append("fsync"))

    def full_sync(descriptor: int, command: int) -> None:
        assert command == 51
        if wanted != "F_FULLFSYNC":
            raise OSError("this file system has none")
        calls.append("F_FULLFSYNC")

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", full_sync)

    sync_file(3)
    sync_data(3)

    assert calls == [wanted] * 2
