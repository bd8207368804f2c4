"""`reliable-pubsub lab show`: a scenario file with its lesson."""

from __future__ import annotations

import click

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, readable_errors

from .catalogue import complete, load_scenario, scenario_path


@click.command("show", context_settings=CONTEXT_SETTINGS)
@click.argument("scenario", shell_complete=complete)
def main(scenario: str) -> None:
    """Print a scenario: its lesson and question, who takes part, and what happens to them.

    SCENARIO is a YAML file, or the name of one that is shipped (`reliable-pubsub lab list`).
    """
    with readable_errors():
        path = scenario_path(scenario)
        load_scenario(path)  # refuse what could not run
        click.echo(path.read_text(encoding="utf-8"), nl=False)
