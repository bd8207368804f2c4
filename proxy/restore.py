"""`reliable-pubsub restore`: a data directory from a backup, and what its clients will see."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import click

from reliable_pubsub.common.command_line import (
    CONTEXT_SETTINGS,
    EXIT_CODES,
    complain,
    readable_errors,
)
from reliable_pubsub.common.core.backup_series import newest_at
from reliable_pubsub.common.core.errors import ConfigurationError, UsageError
from reliable_pubsub.common.core.places import is_in_objects
from reliable_pubsub.common.core.start import parse_start
from reliable_pubsub.common.owner import denied_to
from reliable_pubsub.common.signals import stop_on_signals
from reliable_pubsub.common.system import system_errors
from reliable_pubsub.common.terminal import say

from .backup import back_up
from .backup_places import STREAM, TAR, OnChecked, place_of, unpack
from .contents import holds_store, progress_of, read_contents, show_contents, untouched_store

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
@click.argument("backup", metavar="BACKUP", type=click.Path(readable=False, allow_dash=True))
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, readable=False))
@click.option(
    "--until",
    metavar="TIME",
    help="Of a series, take the newest backup begun at this time or before it (ISO 8601, such as "
    "2026-11-21T08:00:00Z).  [default: the newest]",
)
def main(backup: str, directory: Path, until: str | None) -> None:
    """Copy BACKUP to the new data directory DIR, check it, and say what clients will see.

    BACKUP is a backup; a directory or s3://BUCKET/PREFIX with a series of them; the tar file of a
    backup; or `-` for such a file on standard input. It stays as it is. Nothing is written over:
    name a DIR that does not exist, or an empty one.

    \b
      reliable-pubsub restore backups/monday proxy-data-restored
      reliable-pubsub proxy --data-dir proxy-data-restored
    """
    with readable_errors(), stop_on_signals("stopped: nothing was restored"):
        moment = _moment(until) if until else None
        with progress_of("restoring") as checked:
            _restore(backup, directory, moment, checked)
        with untouched_store(directory) as store:
            contents = read_contents(store)
        say(f"restored: {directory}")
        show_contents(contents)
        complain(CONSEQUENCES)


def _restore(backup: str, target: Path, until: datetime | None, checked: OnChecked) -> None:
    is_stream = backup == STREAM or (backup.endswith(TAR) and not is_in_objects(backup))
    if is_stream or (not is_in_objects(backup) and holds_store(Path(backup))):
        if until is not None:
            raise UsageError(f"--until chooses from a series of backups, but {backup} is one")
        if not is_stream:
            back_up(Path(backup), target, checked=checked)
        elif backup == STREAM:
            unpack(sys.stdin.buffer, target, "standard input", checked)
        else:
            with _opened(Path(backup)) as stream:
                unpack(stream, target, backup, checked)
        return
    folder, name = backup, ""
    if backup.endswith(TAR):
        folder, _, name = backup.removesuffix(TAR).rpartition("/")
    place = place_of(folder)
    name = name or newest_at(place.names(), until, backup)
    place.take(name, target, checked)
    say(f"backup: {name}")


def _opened(file: Path) -> IO[bytes]:
    with system_errors(
        lambda error: ConfigurationError(
            f"{file} cannot be read: {error.strerror}{denied_to(file, error)}"
        )
    ):
        return file.open("rb")


def _moment(text: str) -> datetime:
    """Parse a time with its zone."""
    return datetime.fromtimestamp(parse_start(f"time {text}").value / 1e9, UTC)


if __name__ == "__main__":
    main(prog_name="reliable-pubsub restore")
