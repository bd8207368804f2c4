"""`reliable-pubsub pipeline load`: files into a topic; a repeat puts nothing twice."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final, cast

import click
from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, EXIT_CODES, asking_options
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.errors import ConfigurationError, ConflictError
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.plan_view import progress_bar
from reliable_pubsub.common.status_client import StatusClient
from reliable_pubsub.subscriber.reader import LogReader

from .job import (
    config_option,
    proxy_endpoint,
    running_job,
    spark_option,
    spark_tasks,
    subscriber_endpoint_option,
)
from .numbered import Outcome, numbered_publisher, put_numbered
from .records import FORMATS, Columns, Format, count_records, format_of, records_of

ROWS_PER_PART: Final = 250_000  # of a file that is cut; another number would be other publishers


class LoadFile(Struct, frozen=True, kw_only=True):
    """Put the records of this file, or of one part of it."""

    path: str
    name: str  # of the file, in its publisher's id
    topic: str
    form: Format
    columns: Columns
    publisher_endpoint: str
    subscriber_endpoint: str
    retry: RetryPolicy
    part: int | None = None  # None: the whole file

    @property
    def publisher(self) -> str:
        """The id under which it is put: the same for the same name."""
        return publisher_of(self.name, self.part)


def publisher_of(name: str, part: int | None = None) -> str:
    """The id under which a file, or a part of it, is put."""
    suffix = "" if part is None else f".{part}"
    return names.client_id(f"load.{sha256(name.encode()).hexdigest()[:24]}{suffix}")


def load_file(work: LoadFile) -> Outcome:
    """In a task: put what of a file is not stored yet.

    Raises:
        As `put_numbered` and `records_of`.
    """
    first, rows, source = 0, None, work.path
    if work.part is not None:
        first, rows = work.part * ROWS_PER_PART, ROWS_PER_PART
        source = f"{work.path}, part {work.part} (from row {first + 1} on)"
    with (
        numbered_publisher(work.publisher, work.publisher_endpoint, work.retry) as publisher,
        LogReader(work.subscriber_endpoint, retry=work.retry) as reader,
    ):
        records = islice(records_of(Path(work.path), work.form, work.columns, first), rows)
        return put_numbered(publisher, reader, work.topic, records, source=source)


def cut(work: Sequence[LoadFile]) -> tuple[list[LoadFile], list[LoadFile]]:
    """Files in parts: the first one of each, which is put before its others, and the others.

    So a client that finds nothing of a first part knows that there is nothing of any.
    """
    first = [replace(one, part=0) for one in work]
    others = [
        replace(one, part=part)
        for one in work
        for part in range(1, -(-count_records(Path(one.path), one.form) // ROWS_PER_PART))
    ]
    return first, others


def refuse_other_cut(work: LoadFile) -> None:
    """A file that was loaded whole is not loaded in parts, nor the other way round.

    Raises:
        ConflictError: it would be.
    """
    before, now = ("whole", "in parts") if work.part is not None else ("in parts", "whole")
    other = replace(work, part=None if work.part is not None else 0)
    with numbered_publisher(other.publisher, work.publisher_endpoint, work.retry) as client:
        done = client.ready_for(work.topic) - 1
    if done:
        raise ConflictError(
            f"{work.path}: was loaded {before}, and is now to be loaded {now} (--parallel): its "
            f"rows would be on topic {work.topic!r} twice. Nothing was put; load it as before"
        )


def named_files(paths: tuple[Path, ...], base: Path | None) -> list[tuple[str, Path]]:
    """Files, and those directly in folders, with the names that they count under.

    Raises:
        ConfigurationError: there is none, or one is not below the base.
    """
    found: list[tuple[str, Path]] = []
    for path in paths:
        inside = sorted(one for one in path.iterdir() if one.is_file()) if path.is_dir() else [path]
        for file in inside:
            full = file.resolve()
            if base is not None and not full.is_relative_to(base.resolve()):
                raise ConfigurationError(f"{file}: is not below {base}, the --base of the names")
            name = full.relative_to(base.resolve()).as_posix() if base else full.as_posix()
            found.append((name, full))
    if not found:
        raise ConfigurationError("there is no file to load; name files or folders with --file")
    return found


@click.command(context_settings=CONTEXT_SETTINGS, epilog=EXIT_CODES)
@config_option()
@click.option(
    "--file",
    "files",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path, exists=True),
    help="A file, or a folder of files; may be given several times.",
)
@click.option("--topic", required=True, help="Where the records go.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="What the files are.  [default: by the suffix, else text]",
)
@click.option("--value", default="", help="Column of the value.  [default: the whole row, as JSON]")
@click.option("--key", default="", help="Column of the key.")
@click.option("--header", multiple=True, help="A column that becomes a header.")
@click.option(
    "--base",
    type=click.Path(path_type=Path, file_okay=False),
    help="Files count under their path below this folder, so that it may be moved.",
)
@click.option(
    "--parallel",
    is_flag=True,
    help=f"Cut files into parts of {ROWS_PER_PART:,} rows, which are put side by side; rows keep "
    "their order within a part only.",
)
@spark_option()
@subscriber_endpoint_option()
@asking_options("publisher")
def main(
    files: tuple[Path, ...],
    topic: str,
    form: str | None,
    value: str,
    key: str,
    header: tuple[str, ...],
    base: Path | None,
    parallel: bool,
    master: str | None,
    subscriber_endpoint: str | None,
    quiet: bool,
    **asked: Any,
) -> None:
    """Put the rows of files on a topic, each once, also if it is run again.

    Each file has a publisher of its own, whose numbers are the numbers of its rows; the proxy
    knows how far it came. A file that has grown is continued; one that was changed is refused.

    \b
      reliable-pubsub pipeline load --file data/orders.csv --topic orders --key customer
    """
    with running_job():
        put_at, retry = proxy_endpoint("publisher", **asked)
        read_at, _ = proxy_endpoint("subscriber", **{**asked, "endpoint": subscriber_endpoint})
        work = [
            LoadFile(
                path=str(path),
                name=name,
                topic=names.exact(topic),
                form=cast(Format, form) if form else format_of(path),
                columns=Columns(value, key, header),
                publisher_endpoint=put_at,
                subscriber_endpoint=read_at,
                retry=retry,
            )
            for name, path in named_files(files, base)
        ]
        status = StatusClient(read_at, retry)
        status.ask(rows_max=0)  # report an unreachable proxy before Spark is started
        status.close()
        first, others = cut(work) if parallel else (work, [])
        for one in first:
            refuse_other_cut(one)
        outcomes: list[Outcome] = []
        with (
            spark_tasks("load", master) as tasks,
            progress_bar(len(first) + len(others), 0, quiet=quiet) as advance,
        ):
            for group in (first, others):
                for at in range(0, len(group), tasks.parallel):
                    some = group[at : at + tasks.parallel]
                    outcomes += tasks.run(load_file, some)
                    advance(len(some), "parts" if parallel else "files")
        put = sum(one.put for one in outcomes)
        before = sum(one.stored_before for one in outcomes)
        click.echo(f"done: {put} messages put on {topic}, {before} were there ({len(work)} files)")
