"""The demo: the figure of three publishers, three topics and four subscribers, under kill -9.

Runs real processes from the step files in configs/demo, kills the proxy, a publisher and a
subscriber in mid-flow, starts them again, and judges from the output files alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reliable_pubsub.common.core.step_file import parse_publisher_steps, parse_subscriber_steps
from reliable_pubsub.common.core.steps import PlanPosition
from reliable_pubsub.common.yaml_file import load_yaml
from reliable_pubsub.publisher.runner import PublisherPlan
from scripts.delivery import Verdict, compare
from scripts.demo_picture import Frame, frame_of, picture_of

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "configs" / "demo"
RUN = ROOT / "run" / "demo"
PUBLISHERS = ("publisher-1", "publisher-2", "publisher-3")
SUBSCRIBERS = ("subscriber-1", "subscriber-2", "subscriber-3", "subscriber-4")
DEADLINE_S = 180.0
# At this share of all deliveries, this process is killed.
KILLS = ((0.15, "proxy"), (0.3, "publisher-1"), (0.45, "subscriber-2"), (0.6, "proxy"))
LOOK_S = 0.1
DOWN_S = 0.7  # how long a killed process stays away


def free_ports(count: int) -> list[int]:
    """Ports of loopback that are free at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def all_puts() -> dict[str, dict[str, list[bytes]]]:
    """What the step files tell the publishers to put: topic -> publisher -> payloads in order."""
    puts: dict[str, dict[str, list[bytes]]] = {}
    for publisher in PUBLISHERS:
        path = CONFIGS / f"{publisher}.yaml"
        plan = PublisherPlan(parse_publisher_steps(load_yaml(path)), path)
        for chunk in plan.chunks(PlanPosition()):
            topic = plan.steps[chunk.step].topic
            mine = puts.setdefault(topic, {}).setdefault(publisher, [])
            mine += plan.payloads(chunk, len(mine) + 1)
    return puts


def topics_of(subscriber: str) -> list[str]:
    """The topics a subscriber's step file subscribes to."""
    steps = parse_subscriber_steps(load_yaml(CONFIGS / f"{subscriber}.yaml"))
    return [step.topic for step in steps if step.action == "subscribe"]


class Cast:
    """The processes of the demo, started and killed by name."""

    def __init__(self) -> None:
        """Prepare an empty run directory."""
        shutil.rmtree(RUN, ignore_errors=True)
        RUN.mkdir(parents=True)
        publishers, subscribers = free_ports(2)
        self._publishers = f"tcp://127.0.0.1:{publishers}"
        self._subscribers = f"tcp://127.0.0.1:{subscribers}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.kills: dict[str, int] = {}

    def command(self, name: str) -> list[str]:
        """The command line of a process, as a person would type it."""
        if name == "proxy":
            where = ["--publisher-endpoint", self._publishers]
            where += ["--subscriber-endpoint", self._subscribers]
            return ["proxy", "--data-dir", str(RUN / "proxy-data"), *where]
        role = name.split("-")[0]
        endpoint = self._publishers if role == "publisher" else self._subscribers
        line = [role, "-f", str(CONFIGS / f"{name}.yaml"), "-i", name, "--endpoint", endpoint]
        line += ["--state-dir", str(RUN / "client-state"), "--quiet"]
        line += ["--ack-timeout", "0.5", "--send-retries", "30"]
        return [*line, "--output", str(output_of(name))] if role == "subscriber" else line

    def start(self, name: str) -> None:
        """Start a process; its words go to a log file."""
        with (RUN / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "reliable_pubsub", *self.command(name)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
            )

    def kill(self, name: str) -> None:
        """kill -9, nothing less."""
        process = self.processes[name]
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.kills[name] = self.kills.get(name, 0) + 1

    def state(self, name: str) -> str:
        """running, done, killed, or the exit code it failed with."""
        process = self.processes.get(name)
        if process is None:
            return "waiting"
        code = process.poll()
        if code is None:
            return "running"
        return {0: "done", -signal.SIGKILL: "killed"}.get(code, f"exit code {code}")

    def end(self) -> None:
        """End whatever still runs."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def output_of(subscriber: str) -> Path:
    """The output file of a subscriber."""
    return RUN / f"{subscriber}.jsonl"


def count_lines(path: Path) -> int:
    """Lines in a file; 0 if it is not there yet."""
    try:
        return path.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def picture_now(cast: Cast, expected: Mapping[str, int], story: list[str]) -> Group:
    """The processes and what has happened, as it stands now."""
    table = Table(title="exactly-once under kill -9", title_justify="left")
    for column in ("process", "state", "kills", "in its output file"):
        table.add_column(column)
    for name in ("proxy", *PUBLISHERS, *SUBSCRIBERS):
        progress = ""
        if name in expected:
            done = count_lines(output_of(name))
            filled = 20 * done // max(expected[name], 1)
            progress = f"{'█' * filled}{'·' * (20 - filled)} {done:>5} of {expected[name]}"
        state = cast.state(name)
        style = {"killed": "bold red", "done": "green"}.get(state, "")
        table.add_row(name, Text(state, style), str(cast.kills.get(name, 0)), progress)
    return Group(table, *(Text(line) for line in story[-6:]))


class Director:
    """Starts the cast in order, kills by the plan, restarts, watches."""

    def __init__(self, cast: Cast, expected: Mapping[str, int], say: list[str]) -> None:
        """Prepare; nothing runs yet."""
        self._cast = cast
        self._expected = expected
        self._story = say
        self._kills = list(KILLS)
        self._returns: list[tuple[float, str]] = []
        self._begin_s = time.monotonic()
        self._publishing = False
        self.failed = ""

    @property
    def since_s(self) -> float:
        """Seconds from the begin."""
        return time.monotonic() - self._begin_s

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        self._story.append(f"{self.since_s:6.1f} s  {text}")

    def begin(self) -> None:
        """The proxy first, then the subscribers."""
        for name in ("proxy", *SUBSCRIBERS):
            self._cast.start(name)
        self.tell("started the proxy and four subscribers")

    def turn(self) -> bool:
        """Do what is due; say whether everything has ended."""
        now_s = time.monotonic()
        if not self._publishing and self._all_subscribed():
            for name in PUBLISHERS:
                self._cast.start(name)
            self._publishing = True
            self.tell("all are subscribed; started three publishers")
        delivered = sum(count_lines(output_of(name)) for name in SUBSCRIBERS)
        share = delivered / sum(self._expected.values())
        while self._kills and share >= self._kills[0][0]:
            _, victim = self._kills.pop(0)
            if self._cast.state(victim) == "running":
                self._cast.kill(victim)
                self._returns.append((now_s + DOWN_S, victim))
                self.tell(f"kill -9 {victim} ({share:.0%} delivered)")
        for due_s, name in [one for one in self._returns if one[0] <= now_s]:
            self._returns.remove((due_s, name))
            self._cast.start(name)
            self.tell(f"started {name} again")
        clients = (*PUBLISHERS, *SUBSCRIBERS)
        bad = [n for n in ("proxy", *clients) if self._cast.state(n).startswith("exit code")]
        if bad:
            self.failed = f"{bad[0]} ended with {self._cast.state(bad[0])}, see its log in {RUN}"
        elif now_s - self._begin_s > DEADLINE_S:
            self.failed = f"not finished after {DEADLINE_S:.0f} s, see the logs in {RUN}"
        finished = all(self._cast.state(name) == "done" for name in clients)
        return bool(self.failed) or (finished and not self._returns)

    def _all_subscribed(self) -> bool:
        """Whether each subscriber has written its subscriptions: ask the proxy."""
        result = subprocess.run(
            [
                *(sys.executable, "-m", "reliable_pubsub", "status", "--json"),
                *("--endpoint", self._cast.command("proxy")[-1], "--ack-timeout", "2"),
            ],
            capture_output=True,
            check=False,
            cwd=ROOT,
        )
        wanted = sum(len(topics_of(name)) for name in SUBSCRIBERS)
        return result.returncode == 0 and result.stdout.count(b'"subscriber":') == wanted


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """What the output files say; `wrong` is altered, or not where others have it."""
    table = Table(title="counted from the output files", title_justify="left", box=box.SIMPLE)
    table.add_column("subscriber", no_wrap=True)
    for column in ("expected", "received", "lost", "duplicated", "out of order", "wrong"):
        table.add_column(column, justify="right", no_wrap=column != "out of order")
    table.add_column("once?", no_wrap=True)
    for verdict in verdicts:
        numbers = (
            verdict.expected,
            verdict.received,
            verdict.lost,
            verdict.duplicated,
            verdict.out_of_order,
            verdict.altered + verdict.misplaced,
        )
        word = Text("yes", "green") if verdict.perfect else Text("NO", "bold red")
        table.add_row(verdict.subscriber, *(f"{number:,}" for number in numbers), word)
    return table


def watch(director: Director, show: Callable[[], Group], story: list[str], console: Console) -> int:
    """Let the run go to its end, visible on the screen; give the lines of it that were told."""
    told = 0
    with Live(show(), console=console, transient=True, refresh_per_second=8) as live:
        while not director.turn():
            live.update(show())
            if not console.is_terminal:
                for line in story[told:]:
                    print(line, flush=True)  # noqa: T201  (a log file has no live picture)
                told = len(story)
            time.sleep(LOOK_S)
    return told


@click.command()
@click.option("--keep", is_flag=True, help="Keep the run directory (run/demo) afterwards.")
@click.option(
    "--picture",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the run as an animated SVG, such as docs/demo.svg.",
)
def main(keep: bool, picture: Path | None) -> None:
    """Run the demo; exit code 0 only if every subscriber has every message exactly once."""
    console = Console(width=None if sys.stdout.isatty() else 100)
    puts = all_puts()
    topics = {name: topics_of(name) for name in SUBSCRIBERS}
    sizes = {topic: sum(map(len, by_publisher.values())) for topic, by_publisher in puts.items()}
    expected = {name: sum(sizes[topic] for topic in topics[name]) for name in SUBSCRIBERS}
    story: list[str] = []
    cast = Cast()
    director = Director(cast, expected, story)
    frames: list[Frame] = []

    def show() -> Group:
        shown = picture_now(cast, expected, story)
        if picture:
            frames.append(frame_of(director.since_s, shown))
        return shown

    try:
        director.begin()
        told = watch(director, show, story, console)
    finally:
        cast.end()
    for line in story[told:]:
        console.print(line, highlight=False)
    verdicts = compare({name: output_of(name) for name in SUBSCRIBERS}, topics, puts)
    kills = ", ".join(f"{name} {count}x" for name, count in cast.kills.items())
    killed_all = {"proxy", "publisher-1", "subscriber-2"} <= set(cast.kills)
    ok = killed_all and not director.failed and all(verdict.perfect for verdict in verdicts)
    judged: list[RenderableType] = [verdict_table(verdicts)]
    if director.failed:
        judged.append(Text(director.failed, "bold red"))
    judged.append(
        Text(f"kill -9: {kills or 'none'}. {'Exactly once held.' if ok else 'It did NOT hold.'}")
    )
    console.print(*judged, sep="\n", highlight=False)
    if picture:
        frames.append(frame_of(director.since_s, *map(Text, story), Text(), *judged))
        picture.write_text(picture_of(frames, title=__doc__.partition("\n")[0]))
    if ok and not keep:
        shutil.rmtree(RUN, ignore_errors=True)
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
