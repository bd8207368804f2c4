"""`reliable-pubsub keys`: make, show and list the keys of encrypted endpoints."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec import structs
from rich.console import Console
from rich.table import Table

from .command_line import CONTEXT_SETTINGS, CommandGroup, readable_errors
from .core.certificates import PUBLIC_SUFFIX, SECRET_SUFFIX
from .core.rights import Rights
from .key_files import new_pair, read_clients, read_public
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
def new(name: str, folder: Path) -> None:
    """Make the key pair NAME: NAME.key to give away, NAME.key_secret (mode 0600) to keep."""
    with readable_errors():
        public_file, secret_file = new_pair(folder, name)
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
        table = Table("name", "public key", "secret", "rights")
        for key, one in sorted(read_clients(folder).items(), key=lambda item: item[1].name):
            is_here = (folder / f"{one.name}{SECRET_SUFFIX}").exists()
            table.add_row(
                *map(cell, (one.name, key, "here" if is_here else "", _in_words(one.rights)))
            )
        Console().print(table)


def _in_words(rights: Rights) -> str:
    """Which rights a key has, without their patterns."""
    words = [name for name, value in structs.asdict(rights).items() if value and name != "ids"]
    return ", ".join(words) or "none"
