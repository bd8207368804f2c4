"""The public names, calls and errors of this version are those that are recorded.

A call that is missing or takes other arguments breaks programs. `python -m
tests.core.test_public_interface` records the present ones, in public_interface.txt; CHANGELOG.md
states what changed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import click

import reliable_pubsub
from reliable_pubsub import PubSubError, aio, testing
from reliable_pubsub.__main__ import main

RECORD = Path(__file__).with_suffix("").with_name("public_interface.txt")
PLAIN = (str, bytes, int, float, type(None))


def of_module(module: ModuleType) -> Iterator[str]:
    """Each public name of a module, and what a program can do with it."""
    for name in module.__all__:
        one, path = getattr(module, name), f"{module.__name__}.{name}"
        if isinstance(one, type) and issubclass(one, PubSubError):
            yield f"{path}({', '.join(base.__name__ for base in one.__bases__)}) {one.code}"
        elif isinstance(one, type):
            yield from of_class(path, one)
        elif callable(one):
            yield f"{path}{arguments(one)}"


def arguments(call: Callable[..., object]) -> str:
    """What it takes, in order, with defaults that are plain values; types are in the reference."""
    taken = [
        one.replace(
            annotation=inspect.Parameter.empty,
            default=one.default
            if one.default is inspect.Parameter.empty or isinstance(one.default, PLAIN)
            else ...,
        )
        for one in inspect.signature(call).parameters.values()
        if not one.name.startswith("_")
    ]
    return str(inspect.Signature(taken))


def of_class(path: str, kind: type) -> Iterator[str]:
    """Its construction, and its public members."""
    builtin = next((base for base in (str, Warning) if issubclass(kind, base)), object)
    yield f"{path}{arguments(kind) if builtin is object else f'({builtin.__name__})'}"
    for name, _ in inspect.getmembers_static(kind):
        if name.startswith("_") or hasattr(builtin, name):
            continue
        value = getattr(kind, name)
        yield f"{path}.{name}{arguments(value) if callable(value) else ''}"


def of_command(path: str, command: click.Command) -> Iterator[str]:
    """A command with its arguments and options, and those below it."""
    if command.hidden:
        return
    words = [one.opts + one.secondary_opts for one in command.params if not is_hidden(one)]
    yield " ".join([path, *sorted("/".join(one) for one in words)])
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from of_command(f"{path} {name}", below)


def is_hidden(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and parameter.hidden


def present() -> list[str]:
    """The public interface as it is."""
    modules = (reliable_pubsub, aio, testing)
    return [
        *sorted(line for module in modules for line in of_module(module)),
        *of_command("reliable-pubsub", main),
    ]


def test_what_is_public_is_what_is_recorded() -> None:
    assert present() == RECORD.read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    RECORD.write_text("".join(f"{line}\n" for line in present()), encoding="utf-8")
