"""`reliable-pubsub keys`: make, show and list the keys of encrypted endpoints."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
from msgspec import structs
from rich.console import Console
from rich.table import Table

from .access.refused_keys import refused_keys
from .command_line import CONTEXT_SETTINGS, CommandGroup, readable_errors
from .core.certificates import NO_DATES, PUBLIC_SUFFIX, SECRET_SUFFIX, KeyDates
from .core.rights import Rights
from .key_files import new_pair, read_clients, read_dates, read_public
from .terminal import cell, say

_FOLDER = click.option(
    "--folder",
    default="keys",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the key files are.",
)


@click.group("keys", cls=CommandGroup, context_settings=CONTEXT_SETTINGS)
def main() -> None:
    """Keys for endpoints that other machines reach: traffic is encrypted, and strangers kept out.

    \b
    Two hosts:
      reliable-pubsub keys new proxy                  # on the proxy's host
      reliable-pubsub keys new sensor-1               # on the client's host
      # exchange the two .key files (not .key_secret); then
      reliable-pubsub proxy --publisher-endpoint 'tcp://*:5555' \\
          --secret-key keys/proxy.key_secret --clients clients/
      reliable-pubsub publisher -f plan.yaml -i sensor-1 --endpoint tcp://proxy:5555 \\
          --secret-key keys/sensor-1.key_secret --server-key keys/proxy.key

    More: docs/how-to/security.md.
    """


@main.command()
@click.argument("name")
@_FOLDER
@click.option("--owner", default="", help="Give the files to this user; only root can.")
@click.option("--group", default="", help="Let this group read the secret (0640).")
@click.option(
    "--days",
    type=click.IntRange(1, 36_500),
    help="Expire after this many days: servers then refuse it.  [default: never]",
)
def new(name: str, folder: Path, owner: str, group: str, days: int | None) -> None:
    """Make the key pair NAME: NAME.key to give away, NAME.key_secret (mode 0600) to keep.

    Root's secret may be group-readable. That of another user may be only if the process that reads
    it has the setting secret_key_readers `group`.
    """
    with readable_errors():
        now = datetime.now(UTC)
        dates = KeyDates(now, now + timedelta(days) if days else None)
        public_file, secret_file = new_pair(folder, name, dates, owner=owner, group=group)
        say(f"public  {public_file}  {read_public(str(public_file))}")
        say(f"secret  {secret_file}  (keep it on this machine)")


@main.command()
@click.argument("name")
@_FOLDER
def show(name: str, folder: Path) -> None:
    """Print the public key NAME, for a settings file or a YAML of clients."""
    with readable_errors():
        click.echo(read_public(str(folder / f"{name}{PUBLIC_SUFFIX}")))


@main.command("list")
@_FOLDER
def list_keys(folder: Path) -> None:
    """List the keys of a folder: name, public key, whether the secret is here, and its rights.

    With a folder of clients it tells mistakes in rights.yaml, too.
    """
    with readable_errors():
        table = Table("name", "public key", "secret", "rights", "made", "expires")
        for key, one in sorted(read_clients(folder).items(), key=lambda item: item[1].name):
            is_here = (folder / f"{one.name}{SECRET_SUFFIX}").exists()
            public_file = folder / f"{one.name}{PUBLIC_SUFFIX}"
            dates = read_dates(public_file) if folder.is_dir() else NO_DATES
            shown = [f"{at:%Y-%m-%d}" if at else "" for at in (dates.created, dates.expires)]
            row = (one.name, key, "here" if is_here else "", _in_words(one.rights), *shown)
            table.add_row(*map(cell, row))
        Console(width=None if sys.stdout.isatty() else 140).print(table)


@main.command()
@click.argument("audit_log", type=click.Path(path_type=Path), default="proxy-data/audit.jsonl")
@click.option(
    "--clients", type=click.Path(path_type=Path), help="A folder of keys, to name those it has."
)
def refused(audit_log: Path, clients: Path | None) -> None:
    """List the keys that a proxy or relay has refused, by its AUDIT_LOG and the older files beside.

    A key is refused if it is not in the folder of clients, or has expired. At most five refusals a
    second have a line of their own; the last line counts the others.
    """
    with readable_errors():
        names = {key: one.name for key, one in (read_clients(clients) if clients else {}).items()}
        found, left_out = refused_keys(audit_log)
        table = Table("key", "name", "times", "first", "last")
        for key, one in sorted(found.items(), key=lambda item: item[1].last, reverse=True):
            row = (key, names.get(key, ""), f"{one.times:,}", one.first, one.last)
            table.add_row(*map(cell, row))
        Console(width=None if sys.stdout.isatty() else 140).print(table)
        say(f"refused: {len(found)} keys, and {left_out:,} connections without a line")


def _in_words(rights: Rights) -> str:
    """Which rights a key has, without their patterns."""
    words = [name for name, value in structs.asdict(rights).items() if value and name != "ids"]
    return ", ".join(words) or "none"
