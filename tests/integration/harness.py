"""Real processes under test: started, watched through what they write, killed, always reaped.

Waiting is by observation (`eventually`): a line, a file, a status, each with a bound. Every child
writes to files below the test's own directory and is ended by the `Service` that started it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec
import zmq

from reliable_pubsub import Publisher, RetryPolicy, Subscriber
from reliable_pubsub.common.core.message_base import Reply
from reliable_pubsub.common.core.status import StatusReport, TopicStatus
from reliable_pubsub.common.status_client import StatusClient
from reliable_pubsub.common.system import IS_LINUX
from reliable_pubsub.lab.child_process import (
    ANY_PORT as ANY_PORT,
)
from reliable_pubsub.lab.child_process import (
    ChildProcess,
    RunningProcess,
)
from reliable_pubsub.lab.link import LinkTo
from reliable_pubsub.lab.own_ports import OwnPorts

from .fork_server import helper

REPOSITORY = Path(__file__).resolve().parents[2]
# A longer wait has failed. Sound runs end early; only a broken one, never a busy machine, needs it.
PATIENCE_S = 600.0
LOOK_AGAIN_S = 0.005  # at first; what takes long is looked at less often, for looking costs CPU
LOOK_AGAIN_S_MAX = 0.03
NOWHERE = "tcp://127.0.0.1:1"  # no process listens there

# A client that outlives every restart of the proxy, and asks again soon.
STUBBORN = RetryPolicy(timeout_s=0.5, retries_max=1000, pause_s=0.05, pause_s_max=0.3)
STUBBORN_OPTIONS = ("--ack-timeout", "0.4", "--send-retries", "1000", "--quiet")
# A client that hears soon that there is no answer; a busy machine may answer late, so not too soon.
IMPATIENT = RetryPolicy(timeout_s=5.0, retries_max=1, pause_s=0.01)
IMPATIENT_OPTIONS = ("--ack-timeout", "5", "--send-retries", "1", "--quiet")
# A client that believes a refusal soon, and waits for every answer.
BELIEVING = RetryPolicy(timeout_s=PATIENCE_S, retries_max=1, pause_s=0.01)
BELIEVING_OPTIONS = ("--ack-timeout", f"{PATIENCE_S:g}", "--send-retries", "1", "--quiet")

T = TypeVar("T")


def eventually(look: Callable[[], T | None], what: str, *, timeout_s: float = PATIENCE_S) -> T:
    """Look again and again until there is something to see; return it."""
    deadline_s = time.monotonic() + timeout_s
    pause_s = LOOK_AGAIN_S
    while not (found := look()):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"after {timeout_s:g} s there was still no {what}")
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, LOOK_AGAIN_S_MAX)
    return found


def children(pid: int) -> list[int]:
    """The processes that a process has started, and that it has not taken note of yet."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


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
        """Start it, in a working directory of the test's own if no other is named."""
        self.name = name
        super().__init__(
            command,
            directory / f"{number:03}-{name}.stdout",
            errors=directory / f"{number:03}-{name}.stderr",
            cwd=cwd or directory,
            environment={"PYTHONPATH": str(REPOSITORY), **(environment or {})},
        )

    def _start(
        self, command: Sequence[str], **options: Any
    ) -> tuple[RunningProcess, IO[bytes] | None]:
        """Fork one of our modules from a process that has imported it, on Linux."""
        if IS_LINUX and (child := helper(REPOSITORY).start(command, **options)):
            return child, None
        return super()._start(command, **options)

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

    def ready(self, within_s: float = PATIENCE_S) -> str:
        """Wait for the line that says it is ready; return it."""
        return super().ready(within_s)

    def wait(self, within_s: float | None = PATIENCE_S) -> int:
        """Wait for its end; return the exit code."""
        try:
            return super().wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} still runs\n{self.stdout}\n{self.stderr}") from None

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
        self._processes: list[Process] = []
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
        number = len(self._processes)
        self._processes.append(Process(name, command, self.directory, number))
        return self._processes[-1]

    def launch_proxy(self, *options: str | Path, prefix: Sequence[str] = ()) -> Process:
        """Start a proxy where the last one was, without waiting for it."""
        self._proxy_options = options
        self._proxy = self.run(
            "proxy",
            "--data-dir",
            self.data_dir,
            "--publisher-endpoint",
            self.publisher_endpoint,
            "--subscriber-endpoint",
            self.subscriber_endpoint,
            "--push-endpoint",
            self.push_endpoint,
            "--ingress-endpoint",
            self.ingress_endpoint,
            *options,
            prefix=prefix,
        )
        return self._proxy

    def start_proxy(self, *options: str | Path, prefix: Sequence[str] = ()) -> Process:
        """Start a proxy, wait until it is ready, remember its ports for the next start."""
        proxy = self.launch_proxy(*options, prefix=prefix)
        found = proxy.endpoints()
        self.publisher_endpoint = found["publishers"]
        self.subscriber_endpoint = found["subscribers"]
        self.push_endpoint, self.ingress_endpoint = found["push"], found["ingress"]
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
        self, client: str, steps: str, *more: str | Path, options: Sequence[str] = STUBBORN_OPTIONS
    ) -> Process:
        """Start a publisher of a step file."""
        common = ("-i", client, "--endpoint", self.publisher_endpoint, "--state-dir")
        file = self.file(f"{client}.yaml", steps)
        return self.run("publisher", "-f", file, *common, self.state_dir, *options, *more)

    def subscriber(
        self, client: str, steps: str, *more: str | Path, options: Sequence[str] = STUBBORN_OPTIONS
    ) -> Process:
        """Start a subscriber of a step file; its messages come into `output(client)`."""
        common = ("-i", client, "--endpoint", self.subscriber_endpoint, "--state-dir")
        file = self.file(f"{client}.yaml", steps)
        output = ("--output", self.output(client))
        return self.run("subscriber", "-f", file, *common, self.state_dir, *output, *options, *more)

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

    def status(self) -> StatusReport:
        """What the proxy says of itself."""
        client = StatusClient(self.subscriber_endpoint, STUBBORN)
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
        """End and reap every process, also after a failure."""
        for process in self._processes:
            process.kill()
        self._ports.close()

    def check_no_traceback(self) -> None:
        """A command may end with an error, but never with a traceback."""
        for process in self._processes:
            assert "Traceback" not in process.stderr, f"{process}\n{process.stderr}"


@contextmanager
def zmq_context(linger_ms: int = 0) -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    """A context that ends with its test, however that ends.

    One that is left to the garbage collector waits for its peers, forever, in whichever test runs
    then.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        yield context
    finally:
        context.destroy(linger=linger_ms)


@contextmanager
def losing_link(
    endpoint: str, *, answers: int, kind: type[Reply] | None = None
) -> Iterator[LinkTo]:
    """A link to one endpoint of the proxy: a number of answers pass, and the next one is lost.

    What comes after that is lost, too, until the link is healed.

    Args:
        kind: of the answers that are counted; None: of each.
    """
    with closing(LinkTo(endpoint)) as link:
        lose_answers(link, answers, kind)
        yield link


def lose_answers(link: LinkTo, after: int, kind: type[Reply] | None = None) -> None:
    """Let a number of answers of a kind pass, then lose them; a header begins with its name."""
    words = ["answer"] if kind is None else ["answer", kind.__struct_config__.tag]
    named = b"".join(map(msgspec.msgpack.encode, words))
    link.half_open("answers", awaited=[named] * (after + 1))
