"""`reliable-pubsub examples`: copies the shipped step files, scenarios, programs and pages."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import click

import reliable_pubsub

from .command_line import CONTEXT_SETTINGS, readable_errors
from .core.errors import ConfigurationError
from .terminal import say

_COMPILED: Final = shutil.ignore_patterns("__pycache__")
_PACKAGE: Final = Path(reliable_pubsub.__file__).parent


def shipped(name: str) -> Path:
    """Return a shipped folder: in the package if that is installed, else beside it."""
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


CONFIGS: Final = shipped("configs")


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), default=Path())
def main(folder: Path) -> None:
    """Copy what is shipped to DIR, by default the current directory.

    \b
      configs    step files and scenarios
      examples   programs
      docs       the pages, with the class sheet lab.md

    \b
      reliable-pubsub examples
      reliable-pubsub publisher -f configs/figure2_publisher.yaml -i publisher-1

    Nothing is overwritten.
    """
    with readable_errors():
        targets = [folder / name for name in ("configs", "examples", "docs")]
        if found := [str(target) for target in targets if target.exists()]:
            raise ConfigurationError(
                f"{found[0]} is there already, and nothing was copied; name another directory"
            )
        for target in targets:
            try:
                shutil.copytree(shipped(target.name), target, ignore=_COMPILED)
            except OSError as error:
                raise ConfigurationError(f"{target}: cannot be made: {error}") from error
            say(f"{target}: {sum(path.is_file() for path in target.rglob('*'))} files")
        say("`reliable-pubsub lab list` describes the scenarios")
