"""The processes and the work of `scripts/bench profile`, and the CPU that each thread uses.

All through the public library, at durability `sync`; proxy, publisher and subscriber are processes
of their own.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from reliable_pubsub import Publisher, Subscriber
from reliable_pubsub.lab.rig.child_process import ChildProcess

from .measuring import PAYLOAD, Proxy, Worker, folder, proxy
from .watched_proxy import COUNTS

BATCH: Final = 100
SINGLES: Final = 50  # messages of a step
MANY: Final = 4_000
KEPT: Final = 400
LIVE: Final = 20
PAUSE_S: Final = 0.003  # between the puts of "put to handler"
IDLE_S: Final = 2.0
STEPS: Final = 4
WAITING_STEP: Final = STEPS  # one more, which takes long
WAITING: Final = "waiting, 1 s"
REQUESTS: Final = (WAITING, "requests", "")  # this many a second, beside the costs

Costs = dict[tuple[str, str, str], float]  # work, process, thread: us of CPU, or calls, a message

# The processes.


class Puts:
    """A publisher, with what it is to do."""

    def __init__(self, endpoint: str) -> None:
        self._publisher = Publisher("profile-publisher", endpoint=endpoint)
        self._publisher.connect()
        self.close = self._publisher.close

    def put(self, topic: str, messages: int, pause_s: float = 0.0) -> None:
        for _ in range(messages):
            self._publisher.put(topic, PAYLOAD)
            if pause_s:
                time.sleep(pause_s)

    def put_many(self, topic: str, messages: int) -> None:
        payloads = [PAYLOAD] * BATCH
        for _ in range(messages // BATCH):
            self._publisher.put_many(topic, payloads)


class Reads:
    """A subscriber, with what it is to do."""

    def __init__(
        self, client: str, endpoint: str, topics: Sequence[str], state_dir: str | None = None
    ) -> None:
        self._subscriber = Subscriber(client, endpoint=endpoint, state_dir=state_dir)
        self.close = self._subscriber.close
        for topic in topics:
            self._subscriber.subscribe(topic)

    def read(self, topic: str, messages: int) -> None:
        """Loop over that many messages, which exist or are being put."""
        found = self._subscriber.messages(topic, timeout_s=60.0)
        received = sum(1 for _ in islice(found, messages))
        if received != messages:
            raise RuntimeError(f"{received:,} of {messages:,} messages came")

    def wait(self, topic: str, seconds: float) -> None:
        """Wait for a message that does not come."""
        if list(self._subscriber.messages(topic, timeout_s=seconds)):
            raise RuntimeError("a message came to a topic without a publisher")


# Measuring.


def cpu_ns_by_thread(pid: int) -> dict[int, int]:
    """CPU so far of every thread of a process."""
    used = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            used[int(task.name)] = int((task / "schedstat").read_text().split()[0])
    return used


def cpu_ns(pid: int) -> int:
    """CPU so far of a process, by the threads that it has now."""
    return sum(cpu_ns_by_thread(pid).values())


def thread_names(process: Worker | Proxy) -> dict[int, str]:
    """What to call its threads: as Python calls them, or libzmq."""
    names = process.thread_names()
    for thread in cpu_ns_by_thread(process.pid):
        if thread not in names:
            own = Path(f"/proc/{process.pid}/task/{thread}/comm").read_text().strip()
            names[thread] = "libzmq " + own.removeprefix("ZMQbg/").split("/")[0]
    return names


class Here:
    """This version: a proxy and its clients, and what CPU they use."""

    def __init__(self, stack: ExitStack, scale: float) -> None:
        """Start the processes.

        Args:
            stack: ends them.
            scale: how much of the usual number of messages.
        """
        self._scale = scale
        self._counts_calls = bool(os.environ.get(COUNTS))
        enter = stack.enter_context
        running = enter(proxy())
        state = str(enter(folder()))
        self._subscribers = running.subscribers
        topics = ("singles", "many", "live")
        self._publisher = enter(Worker(Puts, running.publishers))
        self._subscriber = enter(Worker(Reads, "reader", running.subscribers, topics))
        self._keeper = enter(Worker(Reads, "keeper", running.subscribers, ["kept"], state))
        self._processes: dict[str, Worker | Proxy] = {
            "publisher": self._publisher,
            "proxy": running,
            "subscriber": self._subscriber,
            "with state_dir": self._keeper,
        }
        self._names: dict[str, dict[int, str]] = {name: {} for name in self._processes}
        for number in range(STEPS):  # warm
            self.step(number)
        self._names = {name: thread_names(one) for name, one in self._processes.items()}

    def step(self, number: int) -> Costs:
        """CPU of one of the `STEPS`, or of a subscriber that waits."""
        steps = (self._singles, self._many, self._kept, self._live, self._waiting)
        costs: Costs = {}
        steps[number](costs)
        return costs

    def _singles(self, costs: Costs) -> None:
        count = max(int(SINGLES * self._scale), 1)
        with self._measured(costs, "put", count, "publisher", "proxy"):
            self._publisher.call("put", "singles", count)
        with self._measured(costs, "messages(), put singly", count, "subscriber", "proxy"):
            self._subscriber.call("read", "singles", count)

    def _many(self, costs: Costs) -> None:
        count = max(int(MANY * self._scale) // BATCH, 1) * BATCH
        with self._measured(costs, f"put_many of {BATCH}", count, "publisher", "proxy"):
            self._publisher.call("put_many", "many", count)
        with self._measured(costs, f"messages(), batches of {BATCH}", count, "subscriber", "proxy"):
            self._subscriber.call("read", "many", count)

    def _kept(self, costs: Costs) -> None:
        count = max(int(KEPT * self._scale) // BATCH, 1) * BATCH
        self._publisher.call("put_many", "kept", count)
        with self._measured(costs, "the same, with a state_dir", count, "with state_dir", "proxy"):
            self._keeper.call("read", "kept", count)

    def _live(self, costs: Costs) -> None:
        count = max(int(LIVE * self._scale), 1)
        with self._measured(costs, "put to handler", count, "publisher", "proxy", "subscriber"):
            self._subscriber.begin("read", "live", count)
            self._publisher.call("put", "live", count, PAUSE_S)
            self._subscriber.result()

    def _waiting(self, costs: Costs) -> None:
        from reliable_pubsub.lab.rig.link import LinkTo  # an older version beside this one has none

        seconds = max(IDLE_S * self._scale, 0.1)
        with (
            closing(LinkTo(self._subscribers)) as link,
            Worker(Reads, "waiter", link.endpoint, ["idle"]) as waiter,
        ):
            self._publisher.call("put", "idle", 1)  # makes the topic
            waiter.call("read", "idle", 1)
            self._processes["waiting"] = waiter
            self._names["waiting"] = thread_names(waiter)
            before = link.up_reads
            with self._measured(costs, WAITING, seconds, "waiting", "proxy"):
                waiter.call("wait", "idle", seconds)
            costs[REQUESTS] = (link.up_reads - before) / seconds

    @contextmanager
    def _measured(self, costs: Costs, work: str, per: float, *watched: str) -> Iterator[None]:
        before = [self._used(name) for name in watched]
        yield
        after = [self._used(name) for name in watched]
        for name, was, now in zip(watched, before, after, strict=True):
            for thread, used in now.items():
                key = (work, name, self._names[name].get(thread, "another"))
                costs[key] = costs.get(key, 0.0) + (used - was.get(thread, 0)) / per

    def _used(self, name: str) -> dict[int, float]:
        """CPU of the threads of a process so far, in us, or the functions that they called."""
        process = self._processes[name]
        if self._counts_calls:
            return dict(process.thread_calls())
        return {thread: ns / 1e3 for thread, ns in cpu_ns_by_thread(process.pid).items()}


class There:
    """Another version: the same in a process that imports the package from its own tree."""

    def __init__(self, stack: ExitStack, tree: Path, scale: float) -> None:
        serving = f"from scripts.cpu_costs import serve; serve({scale})"
        command = [sys.executable, "-c", serving]
        log = stack.enter_context(folder()) / "log"
        errors = log.with_suffix(".errors")
        process = ChildProcess(command, log, errors=errors, cwd=tree, talks=True)
        self._process = stack.enter_context(process)

    def step(self, number: int) -> Costs:
        """CPU of one of the `STEPS`, or of a subscriber that waits."""
        line = self._process.ask(str(number))
        return dict(msgspec.json.decode(line, type=list[tuple[tuple[str, str, str], float]]))


Source = Here | There  # a version that can be measured


def serve(scale: float) -> None:
    """Answer the lines of standard input, for `There`; a signal ends what was started here, too.

    It runs with the package of another version: what is imported here has to be in that one, too.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with suppress(KeyboardInterrupt), ExitStack() as stack:
        here = Here(stack, scale)
        for line in sys.stdin:
            found = list(here.step(int(line)).items())
            print(msgspec.json.encode(found).decode(), flush=True)  # noqa: T201
