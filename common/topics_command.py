"""`reliable-pubsub topics`: the names of all topics, or what each has as JSON."""

from __future__ import annotations

from contextlib import closing

import click
import msgspec

from .command_line import CONTEXT_SETTINGS, asking_options, client_settings, key_options
from .core.visible import visible
from .pipes import NO_ID, PIPE_EXIT_CODES, ends_as_in_a_pipe, write_out
from .status_client import StatusClient
from .surroundings import retry_policy


@click.command(epilog=PIPE_EXIT_CODES, context_settings=CONTEXT_SETTINGS)
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each topic.")
@asking_options("subscriber")
@key_options(server=False, client=True)
def main(as_json: bool, allow_plaintext: bool, quiet: bool, **said: str | None) -> None:
    """Print the topics, one a line; `status` shows more of them.

    \b
    reliable-pubsub topics --json | jq -r 'select(.end > 1000) | .topic'
    """
    with ends_as_in_a_pipe():
        settings, where = client_settings(
            "subscriber", NO_ID, said, allow_plaintext=allow_plaintext
        )
        with closing(StatusClient(where, retry_policy(settings))) as client:
            for one in client.ask(rows_max=0).topics:
                names = ("topic", "start", "end", "stored_bytes")
                fields = {name: getattr(one, name) for name in names}
                line = msgspec.json.encode(fields).decode() if as_json else one.topic
                write_out(f"{visible(line)}\n".encode())
