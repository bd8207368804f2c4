"""`reliable-pubsub history`: print a topic's stored messages, without a subscription or state."""

from __future__ import annotations

import sys

import click

from reliable_pubsub.common.command_line import (
    CONTEXT_SETTINGS,
    EXIT_CODES,
    client_settings,
    complain,
    key_options,
    readable_errors,
)
from reliable_pubsub.common.core.batch import Message, messages_in
from reliable_pubsub.common.core.names import exact
from reliable_pubsub.common.core.start import at_offset, newest, parse_start
from reliable_pubsub.common.signals import stop_on_signals
from reliable_pubsub.common.surroundings import retry_policy
from reliable_pubsub.common.terminal import say

from .output import Shown, message_line
from .reader import LogReader


@click.command(epilog=EXIT_CODES, context_settings=CONTEXT_SETTINGS)
@click.argument("topic")
@click.option(
    "--from",
    "start",
    default="earliest",
    show_default=True,
    help="The first message: earliest, 'newest N', 'age 1h', 'time ISO-8601' or 'offset N'.",
)
@click.option("--last", is_flag=True, help="Print only the last message: --from 'newest 1'.")
@click.option(
    "-n", "--messages", "messages_max", type=click.IntRange(min=1), help="Stop after this many."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document per line, for programs."
)
@click.option("--endpoint", help="The proxy's subscriber endpoint.")
@click.option("--ack-timeout", help="Seconds to wait for an answer.")
@click.option("--send-retries", help="How often to ask again.  [default here: 1]")
@click.option("--allow-plaintext", is_flag=True, help="Accept an endpoint on another machine.")
@key_options(server=False, client=True)
def main(
    topic: str,
    start: str,
    last: bool,
    messages_max: int | None,
    as_json: bool,
    allow_plaintext: bool,
    **said: str | None,
) -> None:
    """Print the stored messages of TOPIC, up to its end; no subscription is needed or changed.

    \b
    reliable-pubsub history news --from 'age 1h'
    reliable-pubsub history news --last --json
    """
    with readable_errors(), stop_on_signals(exit_code=0):
        at = newest(1) if last else parse_start(start)
        said["send_retries"] = said["send_retries"] or "1"
        settings, where = client_settings(
            "subscriber", "history", said, allow_plaintext=allow_plaintext
        )
        left = sys.maxsize if messages_max is None else messages_max
        printed = 0
        with LogReader(where, retry=retry_policy(settings)) as reader:
            while left and (batches := reader.read(exact(topic), at)):
                messages = messages_in(topic, batches)[:left]
                _print(messages, as_json=as_json)
                printed, left = printed + len(messages), left - len(messages)
                at = at_offset(batches[-1].end)
        if not printed:
            complain(f"no message of {topic!r} is stored from that start on")


def _print(messages: list[Message], *, as_json: bool) -> None:
    if as_json:
        click.echo(b"".join(map(message_line, messages)), nl=False)
    else:
        Shown(say, 0).append(messages)


if __name__ == "__main__":
    main(prog_name="reliable-pubsub history")
