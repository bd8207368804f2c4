"""`reliable-pubsub config show`: every setting with its value and where it comes from."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from .command_line import EXIT_CODES, CommandGroup, readable_errors, resolve_all
from .core.connection_string import without_password
from .core.names import client_id
from .core.settings import BY_NAME, ENVIRONMENT_PREFIX, Setting
from .terminal import cell
from .topic_settings import split_document
from .yaml_file import load_yaml


@click.group(cls=CommandGroup, epilog=EXIT_CODES)
def main() -> None:
    """Settings: command line > settings file > environment > default."""


@main.command("show")
@click.argument("component", default="proxy")
@click.option(
    "-f",
    "--config-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A settings file (YAML) as given to `proxy -f`.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document, for programs.")
def show(component: str, config_file: Path | None, as_json: bool) -> None:
    """Show the settings of COMPONENT (proxy, or the id of a client) with their origins.

    A component's own file is $RELIABLE_PUBSUB_DIR/COMPONENT/settings.json (the directory is the
    current one if the variable is not set).
    """
    with readable_errors():
        file, topics = split_document(load_yaml(config_file)) if config_file else ({}, {})
        resolved = resolve_all(client_id(component), {}, file)
        rows = dict(resolved)
        for topic, own in topics.items():
            rows |= {f"topics.{topic}.{name}": one for name, one in own.items()}
        store = rows["store"]
        rows["store"] = replace(store, value=without_password(str(store.value)))
        if as_json:
            document = {
                name: {
                    "value": one.value,
                    "origin": one.origin,
                    "unit": _setting(name).unit,
                    "variable": _setting(name).variable,
                }
                for name, one in rows.items()
            }
            click.echo(msgspec.json.encode(document).decode())
            return
        table = Table(title=f"settings of {component}", title_justify="left")
        for column in ("setting", "value", "origin", "meaning"):
            table.add_column(column, overflow="fold")
        for name, one in rows.items():
            setting = _setting(name)
            table.add_row(*map(cell, (name, setting.shown(one.value), one.origin, setting.help)))
        Console().print(table)
        click.echo(f"environment variable: {ENVIRONMENT_PREFIX} and the name in capitals")


def _setting(name: str) -> Setting:
    """The setting of a row; that of a topic is called `topics.<topic>.<name>`."""
    return BY_NAME[name.rpartition(".")[2]]
