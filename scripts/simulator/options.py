"""A shape on the command line: the options that say it, and the command that repeats a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from .simulation import WHOLE
from .swarm import CLASSES, FAULTS_S, Shape

F = TypeVar("F", bound=Callable[..., Any])

NOTHING = "nothing"  # as a class of faults: none of them
_COUNT = click.IntRange(min=0)
_NUMBERS: dict[str, tuple[click.ParamType[Any], str]] = {  # of `Shape`
    "publishers": (click.IntRange(min=1), "At most so many publishers."),
    "subscribers": (_COUNT, "At most so many subscribers."),
    "messages": (_COUNT, "At most so many messages of each publisher."),
    "steps": (_COUNT, "At most so many steps of each subscriber, before it gets what is left."),
    "faults_s": (
        click.FloatRange(min=0),
        f"Let faults happen for so many seconds of simulated time, else {FAULTS_S:g}.",
    ),
}


def shape_options(command: F) -> F:
    """Add the options of a shape to a command."""
    for name, (kind, text) in reversed(_NUMBERS.items()):
        command = click.option(_flag(name), type=kind, help=text)(command)
    only = click.option(
        "--only",
        multiple=True,
        type=click.Choice((*CLASSES, NOTHING)),
        metavar="CLASS",
        help=f"Only this class of faults; {NOTHING!r}: none of them. May be repeated.",
    )
    without = click.option(
        "--without",
        multiple=True,
        type=click.Choice(CLASSES),
        metavar="CLASS",
        help="Without this class of faults. May be repeated.",
    )
    return without(only(command))


def shape_of(
    without: tuple[str, ...], only: tuple[str, ...], **numbers: float | int | None
) -> Shape:
    """The shape that the options say.

    Raises:
        click.UsageError: two of them exclude each other.
    """
    if without and only:
        raise click.UsageError("--without and --only exclude each other; say one of them")
    if only:
        without = tuple(name for name in CLASSES if name not in only)
    said = {name: number for name, number in numbers.items() if number is not None}
    return Shape(without=without, **said)  # type: ignore[arg-type]  # click has checked them


def replay_command(seed: int, fault: str | None = None, shape: Shape = WHOLE) -> str:
    """How to see one seed again."""
    words = [f"scripts/simulate --start {seed} --seeds 1"]
    if fault:
        words.append(f"--fault '{fault}'")
    only = [name for name in CLASSES if name not in shape.without] or [NOTHING]
    if len(only) < len(shape.without):
        words += [f"--only {name}" for name in only]
    else:
        words += [f"--without {name}" for name in shape.without]
    for name in _NUMBERS:
        number = getattr(shape, name)
        if number != getattr(WHOLE, name):
            words.append(f"{_flag(name)} {number:g}")
    return " ".join([*words, "--trace"])


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
