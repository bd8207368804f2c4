"""`reliable-pubsub examples`: the step files and scenarios that are shipped, as your own files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import click

import reliable_pubsub

from .command_line import CONTEXT_SETTINGS, readable_errors
from .core.errors import ConfigurationError
from .terminal import say

# In a checkout a link to the folder next to the package; without links, that folder itself.
_HERE: Final = Path(reliable_pubsub.__file__).parent
CONFIGS: Final = next(
    (one for one in (_HERE / "configs", _HERE.parent / "configs") if one.is_dir()),
    _HERE / "configs",
)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), default=Path())
def main(folder: Path) -> None:
    """Copy the examples to DIR/configs, DIR being the current directory: step files, scenarios.

    \b
      reliable-pubsub examples
      reliable-pubsub publisher -f configs/figure2_publisher.yaml -i publisher-1

    Nothing is overwritten.
    """
    with readable_errors():
        target = folder / CONFIGS.name
        if target.exists():
            raise ConfigurationError(
                f"{target} is there already, and nothing was copied; name another directory"
            )
        try:
            shutil.copytree(CONFIGS, target)
        except OSError as error:
            raise ConfigurationError(f"{target}: cannot be made: {error}") from error
        files = sum(path.is_file() for path in target.rglob("*"))
        say(f"{target}: {files} files; `reliable-pubsub lab list` describes the scenarios")
