"""One proxy with its relays and clients: started, watched through what they write, always reaped.

Tests, the fuzzer, the benchmark and the lab's own tools start their proxies here.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.status import StatusReport, TopicStatus
from reliable_pubsub.common.status_client import StatusClient
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.relay.topology import ask_node
from reliable_pubsub.subscriber.client import Subscriber

from .child_process import ChildProcess, proxy_command
from .own_ports import OwnPorts
from .waiting import PATIENCE_S, eventually

# A client that outlives every restart of the proxy, and asks again soon.
STUBBORN: Final = RetryPolicy(timeout_s=0.5, retries_max=1000, pause_s=0.05, pause_s_max=0.3)
STUBBORN_OPTIONS: Final = ("--ack-timeout", "0.4", "--send-retries", "1000", "--quiet")


class Process(ChildProcess):
    """A child process; what it writes is in two files."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        directory: Path,
        number: int,
        *,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it, in `directory` if no other working directory is named."""
        self.name = name
        super().__init__(
            command,
            directory / f"{number:03}-{name}.stdout",
            errors=directory / f"{number:03}-{name}.stderr",
            cwd=cwd or directory,
            environment=environment,
        )

    @property
    def stdout(self) -> str:
        """What it has written so far."""
        return self.output.read_text()

    @property
    def stderr(self) -> str:
        """What it has complained of so far."""
        return self.errors.read_text()

    @property
    def complaints(self) -> str:
        """The same in one line."""
        return " ".join(self.stderr.split())

    def wait(self, within_s: float | None = PATIENCE_S) -> int:
        """Wait for its end; return the exit code.

        Raises:
            TimeoutError: it still runs.
        """
        try:
            return super().wait(within_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self} still runs\n{self.stdout}\n{self.stderr}") from None

    def done(self) -> None:
        """Wait for its end, which must be a good one."""
        assert self.wait() == 0, f"{self} ended with {self.exit_code}\n{self.stderr}"

    def terminate(self) -> int:
        """SIGTERM; return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"


class Service:
    """One proxy with its clients, in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        """Start nothing yet."""
        self.directory = directory
        self.data_dir = directory / "data"
        self.state_dir = directory / "state"
        self._ports = OwnPorts()
        self.publisher_endpoint = self.own_endpoint()
        self.subscriber_endpoint = self.own_endpoint()
        self.push_endpoint = self.own_endpoint()
        self.ingress_endpoint = self.own_endpoint()
        self.processes: list[Process] = []
        self._proxy: Process | None = None
        self._proxy_options: tuple[str | Path, ...] = ()

    @property
    def proxy(self) -> Process:
        """The proxy that was started last."""
        assert self._proxy is not None, "no proxy was started"
        return self._proxy

    def own_endpoint(self) -> str:
        """An endpoint that stays ours while the process that listens there is dead."""
        return self._ports.endpoint()

    # Processes.

    def run(self, room: str, *arguments: str | Path, prefix: Sequence[str] = ()) -> Process:
        """Start `python -m reliable_pubsub.<room>`; with room "" the one command of all."""
        module = f"reliable_pubsub.{room}" if room else "reliable_pubsub"
        command = [*prefix, sys.executable, "-m", module, *map(str, arguments)]
        return self.run_command(room or "command", command)

    def run_command(self, name: str, command: Sequence[str]) -> Process:
        """Start any other command."""
        number = len(self.processes)
        self.processes.append(Process(name, command, self.directory, number))
        return self.processes[-1]

    def launch_proxy(self, *options: str | Path, prefix: Sequence[str] = ()) -> Process:
        """Start a proxy where the last one was, without waiting for it."""
        self._proxy_options = options
        endpoints = {
            "publishers": self.publisher_endpoint,
            "subscribers": self.subscriber_endpoint,
            "push": self.push_endpoint,
            "ingress": self.ingress_endpoint,
        }
        command = proxy_command(self.data_dir, *map(str, options), endpoints=endpoints)
        self._proxy = self.run_command("proxy", [*prefix, *command])
        return self._proxy

    def start_proxy(self, *options: str | Path, prefix: Sequence[str] = ()) -> Process:
        """Start a proxy, wait until it is ready, remember its ports for the next start."""
        proxy = self.launch_proxy(*options, prefix=prefix)
        found = proxy.endpoints()
        self.publisher_endpoint = found["publishers"]
        self.subscriber_endpoint = found["subscribers"]
        self.push_endpoint = found.get("push", self.push_endpoint)  # unless it has no push
        self.ingress_endpoint = found.get("ingress", self.ingress_endpoint)
        return proxy

    def restart_proxy(self) -> Process:
        """kill -9 the proxy, start it again as it was."""
        self.proxy.kill()
        return self.start_proxy(*self._proxy_options)

    def file(self, name: str, content: str) -> Path:
        """Write a file; indented text is moved to the left."""
        path = self.directory / name
        path.write_text(textwrap.dedent(content))
        return path

    def publisher(
        self,
        client: str,
        steps: str,
        *more: str | Path,
        options: Sequence[str] = STUBBORN_OPTIONS,
        prefix: Sequence[str] = (),
    ) -> Process:
        """Start a publisher of a step file."""
        return self._client("publisher", client, steps, *options, *more, prefix=prefix)

    def subscriber(
        self,
        client: str,
        steps: str,
        *more: str | Path,
        options: Sequence[str] = STUBBORN_OPTIONS,
        prefix: Sequence[str] = (),
    ) -> Process:
        """Start a subscriber of a step file; its messages come into `output(client)`."""
        options = ("--output", str(self.output(client)), *options)
        return self._client("subscriber", client, steps, *options, *more, prefix=prefix)

    def _client(
        self, role: str, client: str, steps: str, *options: str | Path, prefix: Sequence[str]
    ) -> Process:
        file = self.file(f"{client}.yaml", steps)
        endpoint = self.publisher_endpoint if role == "publisher" else self.subscriber_endpoint
        common = ("-i", client, "--endpoint", endpoint, "--state-dir", self.state_dir)
        return self.run(role, "-f", file, *common, *options, prefix=prefix)

    def output(self, client: str) -> Path:
        """Where a subscriber's messages stand."""
        return self.directory / f"{client}.jsonl"

    def line_count(self, client: str) -> int:
        """Whole lines in the output file of a subscriber."""
        path = self.output(client)
        return path.read_bytes().count(b"\n") if path.exists() else 0

    # The library, in this process.

    def open_publisher(self, client: str, **more: Any) -> Publisher:
        """A publisher of the library."""
        options: dict[str, Any] = {"endpoint": self.publisher_endpoint, "retry": STUBBORN} | more
        return Publisher(client, **options)

    def open_subscriber(self, client: str, **more: Any) -> Subscriber:
        """A subscriber of the library."""
        options: dict[str, Any] = {"endpoint": self.subscriber_endpoint, "retry": STUBBORN} | more
        return Subscriber(client, **options)

    def status(self, retry: RetryPolicy = STUBBORN) -> StatusReport:
        """What the proxy says of itself."""
        client = StatusClient(self.subscriber_endpoint, retry)
        try:
            return client.ask()
        finally:
            client.close()

    def topic(self, name: str) -> TopicStatus:
        """What the proxy says of one topic."""
        return next(topic for topic in self.status().topics if topic.topic == name)

    def subscribed(self, topic: str, *clients: str) -> None:
        """Wait until the proxy has these subscriptions."""

        def look() -> bool:
            topics = [one for one in self.status().topics if one.topic == topic]
            names = {s.subscriber for one in topics for s in one.subscriptions}
            return names >= set(clients)

        eventually(look, f"subscription of {clients} to {topic}")

    def removed(self, topic: str) -> int:
        """Wait until retention has removed something; return the new start."""
        return eventually(lambda: self.topic(topic).start, f"removal from {topic}")

    def payloads(self, topic: str) -> list[bytes]:
        """Everything the proxy has of a topic."""
        with self.open_subscriber("auditor") as auditor:
            payloads: list[bytes] = []
            while messages := auditor.history(topic, len(payloads), max_messages=1000):
                assert messages[0].offset == len(payloads)
                payloads += [message.payload for message in messages]
            return payloads

    def close(self) -> None:
        """End and reap every process and what it has started, also after a failure."""
        for process in self.processes:
            process.kill_group()
        self._ports.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        """Close it; of a block that went well, no command may have left a traceback."""
        self.close()
        if kind is None:
            self.check_no_traceback()

    def check_no_traceback(self) -> None:
        """A command may end with an error, but never with a traceback."""
        for process in self.processes:
            assert "Traceback" not in process.stderr, f"{process}\n{process.stderr}"


class RelayProcess:
    """One relay; restarted, it has the same ports."""

    def __init__(
        self, service: Service, name: str, *options: str | Path, prefix: Sequence[str] = ()
    ) -> None:
        """Start it, and wait until it is ready."""
        self.service, self.name, self.options, self.prefix = service, name, options, prefix
        self.endpoint, self.push_endpoint = service.own_endpoint(), service.own_endpoint()
        self.start()

    def start(self) -> None:
        """Start it, for the first time or again."""
        at = ("--endpoint", self.endpoint, "--push-endpoint", self.push_endpoint)
        self.process = self.service.run(
            "relay", "-i", self.name, *at, *self.options, prefix=self.prefix
        )
        found = self.process.endpoints()
        self.endpoint, self.push_endpoint = found["requests"], found["push"]

    def is_settled(self) -> bool:
        """Whether the nodes above it have acknowledged what it wants."""
        return all(above.settled for above in ask_node(self.endpoint).above)
