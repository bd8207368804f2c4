"""What is shown of a run while it happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from reliable_pubsub.common.terminal import cell

from .core.scenario import Scenario
from .rig.member import ScenarioMember
from .rig.processes import Processes
from .text_table import text_table

EVENTS_SHOWN: Final = 8
BAR: Final = 20  # characters


class LiveStory:
    """What happened, line by line; on no terminal each line is written as it comes."""

    def __init__(self, console: Console, clock: Callable[[], float], *, quiet: bool) -> None:
        self.lines: list[str] = []
        self._console = console
        self._clock = clock
        self._begin_s = clock()
        self._at_once = not console.is_terminal and not quiet

    def tell(self, text: str) -> None:
        line = f"{self._clock() - self._begin_s:6.2f} s  {text}"
        self.lines.append(line)
        if self._at_once:
            self._console.print(cell(line), soft_wrap=True)


def live(console: Console) -> Live:
    """A picture that is redrawn, on a terminal."""
    return Live(console=console, transient=True, refresh_per_second=8)


def picture(scenario: Scenario, processes: Processes, story: Sequence[str]) -> Group:
    """The processes, how far they are, and what happened last."""
    rows = []
    for name, member in processes.members.items():
        progress = _progress(scenario, member) if name in scenario.clients else ""
        state, link = state_of(member), link_of(member)
        shown = Text(state, _STYLES.get(state, "")), Text(link, "" if link == "ok" else "yellow")
        rows.append((name, shown[0], str(member.lives), progress, shown[1]))
    columns = ("process", "state", "lives", "put or received", "link")
    table = text_table(scenario.title, columns, rows, box=box.SIMPLE)
    return Group(table, *(cell(line) for line in story[-EVENTS_SHOWN:]))


_STYLES: Final = {"killed": "bold red", "stopped": "yellow", "done": "green", "runs": "cyan"}


def state_of(member: ScenarioMember) -> str:
    """Its state, in a word or two."""
    code = member.exit_code
    if code is None:
        return "stopped" if member.stopped else "runs" if member.lives else "waits"
    is_done = code == 0 or member.is_over
    return "killed" if code < 0 else "done" if is_done else f"exit code {code}"


def link_of(member: ScenarioMember) -> str:
    """The state of its links; of the one for pushes only if it is another one."""
    states = [link.state for link in member.links]
    if len(set(states)) > 1:
        return ", ".join([*states[:-1], f"pushes {states[-1]}" if member.push_link else states[-1]])
    return states[0] if states else ""


def _progress(scenario: Scenario, member: ScenarioMember) -> str:
    planned = scenario.messages_planned(scenario.clients[member.name])
    filled = min(BAR * member.count // max(planned, 1), BAR)
    return f"{'█' * filled}{'·' * (BAR - filled)} {member.count:>5} of {planned}"
