"""`reliable-pubsub restore`: a data directory from a backup, and what its clients will see."""

from __future__ import annotations

from pathlib import Path

import click

from reliable_pubsub.common.command_line import (
    CONTEXT_SETTINGS,
    EXIT_CODES,
    complain,
    readable_errors,
)
from reliable_pubsub.common.signals import stop_on_signals
from reliable_pubsub.common.terminal import say

from .backup import back_up
from .contents import progress_of, read_contents, require_store, show_contents, untouched_store

CONSEQUENCES = """\
Clients keep their own state, and will see:
- messages that were put after the backup are gone: each topic ends where the table says;
- publishers and subscribers that were ahead of that stop with LOG_CHANGED (exit code 4). Restart \
publishers with --on-log-changed adopt: their next messages follow the restored ones. Restart \
subscribers with adopt (from the end of the restored messages) or rewind (all of them again);
- all others continue as if nothing had happened; a put that was under way is put again, once;
- subscriptions that began after the backup begin again where their subscribers are, and \
acknowledgements since then are taken from the subscribers.
Never run the original as well: two logs would have the same name."""


@click.command(epilog=EXIT_CODES, context_settings=CONTEXT_SETTINGS)
@click.argument("backup", metavar="BACKUP", type=click.Path(path_type=Path, readable=False))
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, readable=False))
def main(backup: Path, directory: Path) -> None:
    """Copy BACKUP to the new data directory DIR, check it, and say what clients will see.

    The backup stays as it is. Nothing is written over: name a directory that does not exist, or an
    empty one.

    \b
      reliable-pubsub restore backups/monday proxy-data-restored
      reliable-pubsub proxy --data-dir proxy-data-restored
    """
    with readable_errors(), stop_on_signals("stopped: nothing was restored"):
        require_store(backup)
        with progress_of("restoring") as checked:
            back_up(backup, directory, checked=checked)
        with untouched_store(directory) as store:
            contents = read_contents(store)
        say(f"restored: {directory}")
        show_contents(contents)
        complain(CONSEQUENCES)


if __name__ == "__main__":
    main(prog_name="reliable-pubsub restore")
