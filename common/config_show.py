"""`reliable-pubsub config show`: every setting with its value and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from .command_line import EXIT_CODES, CommandGroup, complain, readable_errors, resolve_all
from .core.components import COMPONENTS, unused_settings
from .core.connection_string import without_password
from .core.names import client_id
from .core.resolving import Resolved
from .core.settings import BY_NAME, ENVIRONMENT_PREFIX, Setting
from .state_file import has_state
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
    """Show the settings of COMPONENT (proxy, relay, or the id of a client) with their origins.

    A component's own file is $RELIABLE_PUBSUB_DIR/COMPONENT/settings.json (the directory is the
    current one if the variable is not set).
    """
    with readable_errors():
        file, topics = split_document(load_yaml(config_file)) if config_file else ({}, {})
        resolved = resolve_all(client_id(component), {}, file)
        rows = dict(resolved)
        for topic, own in topics.items():
            rows |= {f"topics.{topic}.{name}": one for name, one in own.items()}
        is_client = has_state(Path(str(resolved["state_dir"].value)), component)
        unused = unused_settings(component, is_client=is_client)
        _warn(component, resolved, unused, is_known=is_client or component in COMPONENTS)
        store = rows["store"]
        rows["store"] = replace(store, value=without_password(str(store.value)))
        if as_json:
            document = {
                name: {
                    "value": one.value,
                    "origin": one.origin,
                    "used": name not in unused,
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
            meaning = f"not used by {component}: {setting.help}" if name in unused else setting.help
            row = map(cell, (name, setting.shown(one.value), one.origin, meaning))
            table.add_row(*row, style="dim" if name in unused else "")
        Console().print(table)
        click.echo(f"environment variable: {ENVIRONMENT_PREFIX} and the name in capitals")


def _warn(
    component: str, resolved: Mapping[str, Resolved], unused: frozenset[str], *, is_known: bool
) -> None:
    """Warn of an id without a process, and of settings in a file without effect."""
    if not is_known:
        complain(
            f"warning: {component} is the id of no client with a state in "
            f"{resolved['state_dir'].value}. These settings count for a publisher, subscriber or "
            f"relay that is started with this id; other components are {', '.join(COMPONENTS)}"
        )
    for name, one in resolved.items():
        if name in unused and one.origin != "default" and one.origin != BY_NAME[name].variable:
            complain(f"warning: {one.origin}: {name} has no effect: {component} does not use it")


def _setting(name: str) -> Setting:
    """The setting of a row; that of a topic is called `topics.<topic>.<name>`."""
    return BY_NAME[name.rpartition(".")[2]]
