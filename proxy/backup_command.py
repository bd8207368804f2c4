"""`reliable-pubsub backup`: to a directory, a series of them, standard output, or a bucket."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from reliable_pubsub.common.command_line import (
    CONTEXT_SETTINGS,
    EXIT_CODES,
    complain,
    readable_errors,
    settings_from,
)
from reliable_pubsub.common.core.backup_series import name_at, parse_keep, superfluous
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.places import check_archive, is_in_objects
from reliable_pubsub.common.signals import stop_on_signals
from reliable_pubsub.common.terminal import say

from .backup import back_up
from .backup_mark import mark_backup
from .backup_places import STREAM, back_up_to_stdout, place_of
from .contents import progress_of


@click.command(epilog=EXIT_CODES, context_settings=CONTEXT_SETTINGS)
@click.argument("target", metavar="TARGET", type=click.Path(readable=False, allow_dash=True))
@click.option(
    "--data-dir",
    type=click.Path(readable=False),
    help="The data directory to copy: that of the proxy, which may run.",
)
@click.option(
    "--keep",
    metavar="7d,4w",
    help="TARGET holds a series: add a backup named after the time, then remove all but the newest "
    "of each of 7 days and of each of 4 weeks. Also h, m (months) and y.",
)
def main(target: str, data_dir: str | None, keep: str | None) -> None:
    """Copy the store of a proxy to TARGET, while it runs or while it does not.

    TARGET is a new directory; with --keep, a directory that holds a series of backups; `-` for
    standard output (a tar file); or s3://BUCKET/PREFIX, which always holds a series.

    Puts and gets continue meanwhile. The copy shows one moment, is checked as at a start of the
    proxy, and appears under its name when it is whole. An object in a bucket is read back and
    compared. `cp -r` of a running store is not a backup: its files show two moments, and the proxy
    refuses it.

    \b
    Make one, and start from it:
      reliable-pubsub backup backups/monday --data-dir proxy-data
      reliable-pubsub proxy --data-dir backups/monday

    \b
    Every night; then the newest one on another host:
      reliable-pubsub backup /backups --keep 7d,4w --data-dir proxy-data
      reliable-pubsub backup - --data-dir proxy-data | ssh host reliable-pubsub restore - proxy-data

    A proxy that starts from a copy is set back to the time of the backup. Clients that are ahead of
    it stop with LOG_CHANGED (exit code 4); choose how they continue with --on-log-changed rewind or
    adopt. Other clients continue normally. Messages put since the backup are lost, unless their
    publishers have not finished sending them. Never run the original and a copy at the same time.
    """
    rules = None
    with (
        readable_errors(),
        stop_on_signals("stopped: no copy was made"),
        progress_of("backing up") as checked,
    ):
        source = Path(settings_from("proxy", {"data_dir": data_dir}).data_dir)
        rules = parse_keep(keep) if keep is not None else None
        if target == STREAM:
            if rules is not None:
                raise UsageError("--keep needs a directory or a bucket, not standard output")
            complain(f"backed up: standard output {back_up_to_stdout(source, checked)}")
            mark_backup(source)
            return
        if rules is None and not is_in_objects(check_archive(target)):
            where, found = target, back_up(source, Path(target), checked=checked)
        else:
            where, found = place_of(target).add(name_at(datetime.now(UTC)), source, checked)
        mark_backup(source)
        say(f"backed up: {where} {found}")
    if rules is not None:
        with readable_errors(), stop_on_signals("stopped: the backup was made; old ones remain"):
            place = place_of(target)
            for name in superfluous(place.names(), rules):
                place.remove(name)
                say(f"removed: {name}")


if __name__ == "__main__":
    main(prog_name="reliable-pubsub backup")
