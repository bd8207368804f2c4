"""`reliable-pubsub put`: put a message, or each line of stdin."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import click
from msgspec.structs import replace

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, complain
from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.message_lines import PutRow, row_of_line
from reliable_pubsub.common.core.plan_mark import mark_of
from reliable_pubsub.common.pipes import (
    PIPE_EXIT_CODES,
    client_from,
    ends_as_in_a_pipe,
    lines_of_stdin,
    pipe_options,
    topic_argument,
)
from reliable_pubsub.common.terminal import say

from .client import Publisher
from .core.put_rows import PutRows

_ID_HELP = (
    "Put each row once, even if the command is killed and run again with the same id and input. "
    "A file that has grown resumes. Use an id for each input."
)


@click.command(epilog=PIPE_EXIT_CODES, context_settings=CONTEXT_SETTINGS)
@topic_argument()
@click.argument("message", default="-")
@click.option("-k", "--key", help="Key of each message.")
@click.option("-H", "--header", "headers", multiple=True, help="NAME=VALUE; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="A row is an object, as `get --json` prints.")
@click.option("--again", is_flag=True, help="With --id: put all rows, whatever was put before.")
@pipe_options("publisher", _ID_HELP)
def main(
    topic: str,
    message: str,
    key: str | None,
    headers: tuple[str, ...],
    as_json: bool,
    again: bool,
    client: str | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Put MESSAGE on TOPIC, or each line of stdin (-, the default): row n is message n.

    \b
    reliable-pubsub put orders 'one book' --key customer-7 --header region=eu
    reliable-pubsub put orders - --id import-1 < orders.txt    # once, across kill -9
    reliable-pubsub get orders --json | reliable-pubsub put copy --json
    """
    with ends_as_in_a_pipe():
        only = None if message == "-" else message.encode(errors="surrogateescape")
        read = partial(_row, key=key, headers=_headers(headers), as_json=as_json)
        arguments = client_from("publisher", client=client, quiet=quiet, **options)
        with Publisher(**arguments) as publisher:
            publisher.resume()
            seed = f"{topic}\n{key!r}\n{sorted(headers)}\n{as_json}"
            rows = PutRows(seed, None if again else mark_of(publisher.note), only)
            if client and not rows.skipped:
                publisher.begin_run(rows.mark.note, [topic])
            lines = lines_of_stdin() if only is None else [[only]]
            put = _put(publisher, topic, rows, rows.batches(lines, read), is_named=bool(client))
        if not quiet:
            earlier = f"; {rows.skipped:,} were put before" if rows.skipped else ""
            say(f"put {put:,} on {topic}{earlier}")


def _put(
    publisher: Publisher, topic: str, rows: PutRows, batches: Iterator[Batch], *, is_named: bool
) -> int:
    """Put what was not put before; return the number of rows."""
    put = 0
    try:
        for batch in batches:
            publisher.put_batch(topic, batch, rows.mark.note if is_named else None)
            put += len(batch.payloads)
    except BaseException:
        if put:
            more = "; run the same command again to continue" if is_named else ""
            complain(f"stopped: {put:,} rows were put on {topic}{more}")
        raise
    return put


def _row(
    raw: bytes, number: int, *, key: str | None, headers: dict[str, str], as_json: bool
) -> PutRow:
    """Make a message of a row; its own key and headers win over the options."""
    row = row_of_line(raw, number) if as_json else PutRow(payload=raw)
    own_key = row.key if row.key is not None or key is None else key.encode()
    return replace(row, key=own_key, headers={**headers, **row.headers})


def _headers(options: tuple[str, ...]) -> dict[str, str]:
    pairs = [option.partition("=") for option in options]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise UsageError(f"--header {name!r:.80}: expected NAME=VALUE")
    return {name: value for name, _, value in pairs}
