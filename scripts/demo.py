"""The demo: the figure of three publishers, three topics and four subscribers, under kill -9.

The crash lab runs the scenario configs/demo/demo.yaml. The verdict comes from the output files,
by a judge that imports nothing of the project (scripts/delivery.py).
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from reliable_pubsub.common.core.journal import Event
from reliable_pubsub.common.core.steps import PlanPosition, PublisherStep, SubscriberStep
from reliable_pubsub.common.signals import stop_on_signals
from reliable_pubsub.lab.catalogue import load_scenario
from reliable_pubsub.lab.core.scenario import Scenario
from reliable_pubsub.lab.reading import read_run
from reliable_pubsub.lab.running import INTERRUPTED, perform, run_directory
from reliable_pubsub.lab.text_table import text_table, wide_console
from reliable_pubsub.publisher.runner import PublisherPlan
from scripts.delivery import Verdict, compare
from scripts.demo_picture import Frame, frame_of, picture_of

ROOT = Path(__file__).resolve().parent.parent
SCENARIO = ROOT / "configs" / "demo" / "demo.yaml"
RUN = ROOT / "run" / "demo"
FRAME_S = 0.2


def judge(scenario: Scenario) -> list[Verdict]:
    """Each output file against what the step files say is put."""
    puts: dict[str, dict[str, list[bytes]]] = {}
    topics: dict[str, list[str]] = {}
    for name, client in scenario.clients.items():
        steps = [step for step in client.steps if isinstance(step, PublisherStep)]
        plan = PublisherPlan(steps, SCENARIO)
        for chunk in plan.chunks(PlanPosition()):
            mine = puts.setdefault(steps[chunk.step].topic, {}).setdefault(name, [])
            mine += plan.payloads(chunk, len(mine) + 1)
        if client.role == "subscriber":
            gets = [step for step in client.steps if isinstance(step, SubscriberStep)]
            topics[name] = [step.topic for step in gets if step.action == "subscribe"]
    return compare({name: RUN / "outputs" / f"{name}.jsonl" for name in topics}, topics, puts)


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """What the output files say."""
    rows: list[list[str | Text]] = []
    for verdict in verdicts:
        word = Text("yes", "green") if verdict.perfect else Text("NO", "bold red")
        rows.append([verdict.subscriber, *(f"{n:,}" for n in verdict.counts.values()), word])
    columns = ("subscriber", *(f"#{name}" for name in verdicts[0].counts), "once?")
    return text_table("counted from the output files", columns, rows, box=box.SIMPLE)


class Film:
    """What was seen of the run, five times a second."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self._begin_s = time.monotonic()

    def see(self, *shown: RenderableType) -> None:
        """Keep it, if the last one is old enough or there is more than one thing to see."""
        at_s = time.monotonic() - self._begin_s
        if not self.frames or len(shown) > 1 or at_s >= self.frames[-1].at_s + FRAME_S:
            self.frames.append(frame_of(at_s, *shown))


@click.command()
@click.option("--keep", is_flag=True, help="Keep the run directory (run/demo) afterwards.")
@click.option(
    "--picture",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the run as an animated SVG, such as docs/demo.svg.",
)
def main(keep: bool, picture: Path | None) -> None:
    """Run the demo; exit code 0 only if every subscriber has every message exactly once."""
    console = wide_console(100)
    scenario = load_scenario(SCENARIO)
    shutil.rmtree(RUN, ignore_errors=True)
    film = Film()
    ended = "stopped: every process of the demo has been ended"
    with run_directory(RUN, SCENARIO), stop_on_signals(ended, exit_code=INTERRUPTED):
        wrong = perform(scenario, RUN, console, quiet=False, see=film.see if picture else None)
    verdicts = judge(scenario)
    kills = Counter(
        line.target
        for line in read_run(RUN).lines
        if isinstance(line, Event) and line.what == "kill"
    )
    ok = not wrong and all(verdict.perfect for verdict in verdicts)
    killed = ", ".join(f"{name} {count}x" for name, count in kills.items()) or "none"
    judged: list[RenderableType] = [verdict_table(verdicts), *map(Text, wrong)]
    judged.append(Text(f"kill -9: {killed}. {'Exactly once held.' if ok else 'It did NOT hold.'}"))
    console.print(*judged, sep="\n")
    if picture:
        film.see(*judged)
        picture.write_text(picture_of(film.frames, title=__doc__.partition("\n")[0]))
    if ok and not keep:
        shutil.rmtree(RUN)
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main(prog_name="scripts/demo")
