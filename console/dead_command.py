"""`reliable-pubsub dead`: put dead letters again from a shell, as the console does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing

import click

from reliable_pubsub.common.command_line import (
    CONTEXT_SETTINGS,
    CommandGroup,
    asking_options,
    client_settings,
    complain,
    key_options,
)
from reliable_pubsub.common.core.dead_letter import DEAD_SUFFIX, is_dead
from reliable_pubsub.common.core.errors import NotPossibleError, UsageError
from reliable_pubsub.common.pipes import (
    NO_ID,
    PIPE_EXIT_CODES,
    ends_as_in_a_pipe,
    topic_argument,
)
from reliable_pubsub.common.status_client import StatusClient
from reliable_pubsub.common.surroundings import retry_policy
from reliable_pubsub.common.terminal import say

from .access import ConsoleClients


@click.group(cls=CommandGroup, epilog=PIPE_EXIT_CODES, context_settings=CONTEXT_SETTINGS)
def main() -> None:
    """Put dead letters again; `get TOPIC.dead --json` shows them, with the reasons.

    \b
    reliable-pubsub dead put-again orders
    """


@main.command(name="put-again", epilog=PIPE_EXIT_CODES)
@topic_argument()
@click.argument("offsets", nargs=-1, type=click.IntRange(min=0), metavar="[OFFSET...]")
@click.option("--publisher-endpoint", help="The proxy's publisher endpoint.")
@asking_options("subscriber")
@key_options(server=False, client=True)
def put_again(
    topic: str,
    offsets: tuple[int, ...],
    publisher_endpoint: str | None,
    allow_plaintext: bool,
    quiet: bool,
    **said: str | None,
) -> None:
    """Put the dead letters of TOPIC again, each once, however often this is run.

    OFFSETs are those in TOPIC.dead; without one, all of its letters are put again.

    \b
    reliable-pubsub dead put-again orders 3 4
    """
    with ends_as_in_a_pipe():
        dead = topic if is_dead(topic) else topic + DEAD_SUFFIX
        settings, where = client_settings(
            "subscriber", NO_ID, said, allow_plaintext=allow_plaintext
        )
        said["endpoint"] = publisher_endpoint
        _, to = client_settings("publisher", NO_ID, said, allow_plaintext=allow_plaintext)
        retry = retry_policy(settings)
        with closing(StatusClient(where, retry)) as client:
            found = [one for one in client.ask(rows_max=0).topics if one.topic == dead]
        if not found:
            raise UsageError(f"topic {topic!r} has no dead letters: {dead!r} does not exist")
        (letters,) = found
        if offsets and not letters.start <= min(offsets) <= max(offsets) < letters.end:
            raise UsageError(f"{dead!r} has letters {letters.start} to {letters.end - 1}")
        refused = 0
        with closing(ConsoleClients(where, to, retry)) as clients:
            for offset in offsets or _all_of(clients, dead):
                try:
                    is_new = clients.put_again(dead, offset, letters.log)
                    if not quiet:
                        say(f"{dead} {offset}: {'put again' if is_new else 'was put again before'}")
                except NotPossibleError as error:
                    complain(f"error [{error.code}]: {dead} {offset}: {error}")
                    refused = error.exit_code
        sys.exit(refused)


def _all_of(clients: ConsoleClients, dead: str) -> Iterator[int]:
    place = "earliest"
    while (listed := clients.messages(dead, place)).messages:
        yield from (one.offset for one in listed.messages)
        place = f"offset {listed.next}"
