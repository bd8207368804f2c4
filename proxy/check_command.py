"""`reliable-pubsub check`: whether a stopped store is sound, and what it holds."""

from __future__ import annotations

from pathlib import Path

import click

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, EXIT_CODES, readable_errors
from reliable_pubsub.common.signals import stop_on_signals
from reliable_pubsub.common.terminal import say

from .contents import progress_of, read_contents, show_contents, untouched_store


@click.command(epilog=EXIT_CODES, context_settings=CONTEXT_SETTINGS)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, readable=False))
def main(directory: Path) -> None:
    """Check the store in DIR, a data directory or a backup, and print its contents.

    Every row and every body is read, as at a start of the proxy: exit code 5, with topic and
    offsets, if anything is not as it was written. A store that is damaged, or was closed, is not
    changed, and may be on a read-only disk. The proxy must not run; `reliable-pubsub status` asks
    one that does.

    \b
      reliable-pubsub check proxy-data
    """
    with readable_errors(), stop_on_signals("stopped: the check was not completed"):
        with untouched_store(directory) as store, progress_of("checking") as checked:
            contents = read_contents(store, checked)
        say(f"sound: {directory}")
        show_contents(contents)


if __name__ == "__main__":
    main(prog_name="reliable-pubsub check")
