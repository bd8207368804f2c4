"""Command line of the fuzzer of connections."""

from __future__ import annotations

import secrets
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from reliable_pubsub.lab.text_table import wide_console

from .floods import ENDPOINTS, REQUEST
from .siege import Outcome, Siege

LONGEST_S = 10.0  # silence of the honest beside floods; generous
WIDTH = 100  # of what is shown where no terminal is


def show(outcome: Outcome, console: Console) -> None:
    """Show memory, what each honest subscriber received, and silences."""
    for name, memory in outcome.memory.items():
        console.print(
            f"{name}: {memory.before_mib:.0f} MiB before, at most {memory.most_mib:.0f}, "
            f"bound {memory.bound_mib:.0f}"
        )
    for name, verdict in outcome.verdicts.items():
        said = ", ".join(f"{what} {count:,}" for what, count in verdict.counts.items())
        console.print(f"{name}: {said}")
    silences = ", ".join(f"{name} {one:.2f} s" for name, one in outcome.longest_s.items())
    console.print(
        f"{outcome.attacks:,} hostile connections, {outcome.intrusions:,} with a key, "
        f"{outcome.denials:,} DENIED; longest silence: {silences}",
        highlight=False,
    )


def chosen(_: click.Context, __: click.Parameter, value: str) -> frozenset[str]:
    """The endpoints of a list."""
    names = frozenset(ENDPOINTS if value == "all" else value.split(","))
    if unknown := names.difference(ENDPOINTS):
        raise click.BadParameter(f"{', '.join(sorted(unknown))}: not one of {', '.join(ENDPOINTS)}")
    return names


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seconds", default=60.0, show_default=True, help="How long to attack.")
@click.option("--connections-per-s", default=100.0, show_default=True, help="Pace of the attacks.")
@click.option("--seed", type=int, help="The same attacks in the same order.")
@click.option(
    "--endpoints",
    default=REQUEST,
    show_default=True,
    callback=chosen,
    help="What is attacked: a list of request, push, ingress, relay; or all.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="All endpoints are encrypted and know keys and rights; some of the hostile have keys.",
)
def main(
    seconds: float,
    connections_per_s: float,
    seed: int | None,
    endpoints: frozenset[str],
    secure: bool,
) -> None:
    """Attack a proxy, and a relay, beside honest clients; judge what these got.

    With --secure, half of the connections have no key, are half open or slow; the others have an
    unknown key, a known one with the id of another client, or one that asks beyond its rights.

    Exit code 1 if a message was lost, doubled or wrong, if a process died, complained, kept
    connections or grew by more than its endpoints may hold, or if a silence was longer than 10 s.
    """
    seed = secrets.randbits(32) if seed is None else seed
    with tempfile.TemporaryDirectory(prefix="fuzz-") as directory:
        siege = Siege(
            Path(directory),
            endpoints,
            seed=seed,
            attacks_per_s=connections_per_s,
            is_secure=secure,
        )
        with Console(stderr=True).status("attacking"), siege.running():
            outcome = siege.run(seconds)
    console = wide_console(WIDTH)
    show(outcome, console)
    problems = outcome.problems + [
        f"{name}: nothing for {one:.1f} s, longer than {LONGEST_S:g} s"
        for name, one in outcome.longest_s.items()
        if one > LONGEST_S
    ]
    for problem in problems:
        console.print(problem, style="bold red")
    console.print(f"seed {seed}: {'failed' if problems else 'held'}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main(prog_name="scripts/fuzz")
