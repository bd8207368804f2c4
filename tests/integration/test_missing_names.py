"""A host name whose name server is silent: while one connection waits for it, the others serve."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reliable_pubsub import RetryPolicy

from .harness import Service

ALONE = ("unshare", "--map-root-user", "--net", "--mount")
MISSING = "tcp://missing.example:5556"
# A network of its own, whose name server is silent; then the command.
SILENCE = """
import os, socket, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["mount", "--bind", sys.argv[1], "/etc/resolv.conf"], check=True)
silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
silent.bind(("127.0.0.54", 53))
silent.set_inheritable(True)
os.execvp(sys.argv[2], sys.argv[2:])
"""
ONCE = RetryPolicy(timeout_s=8.0, retries_max=0)  # a name is waited for at least 10 s


def in_silence(directory: Path) -> tuple[str, ...]:
    """The prefix of a command whose name server never answers."""
    if not all(map(shutil.which, ("unshare", "ip", "mount"))):
        pytest.skip("unshare(1), ip(8) and mount(8) are needed")
    resolving = directory / "resolv.conf"
    resolving.write_text("nameserver 127.0.0.54\n")
    prefix = (*ALONE, sys.executable, "-c", SILENCE, str(resolving))
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces here")
    return prefix


@pytest.mark.parametrize("order", ["after", "before"])
def test_a_relay_serves_while_the_name_of_another_node_above_is_looked_up(
    service: Service, tmp_path: Path, order: str
) -> None:
    prefix = in_silence(tmp_path)
    service.subscriber_endpoint = f"ipc://{tmp_path}/s"
    service.push_endpoint = f"ipc://{tmp_path}/d"
    service.start_proxy()
    relay = f"ipc://{tmp_path}/r"
    above = {
        "after": ("--upstream", service.subscriber_endpoint, "--upstream", MISSING),
        "before": ("--upstream", f"{MISSING},{service.subscriber_endpoint}"),
    }[order]
    bound = ("--endpoint", relay, "--push-endpoint", f"ipc://{tmp_path}/q", "--allow-plaintext")
    service.run("relay", *above, *bound, prefix=prefix).ready()

    with (
        service.open_publisher("p") as publisher,
        service.open_subscriber("s", endpoint=relay, retry=ONCE) as subscriber,
    ):
        subscriber.subscribe("t")
        for number in range(3):
            publisher.put("t", b"%d" % number)
            assert [one.payload for one in subscriber.get("t")] == [b"%d" % number]
