"""`reliable-pubsub pipeline load`: files into a topic; a repeat puts nothing twice."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
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
from reliable_pubsub.common.progress import progress_bar
from reliable_pubsub.common.terminal import say
from reliable_pubsub.subscriber.external_cursor import ExternalCursor
from reliable_pubsub.subscriber.reader import LogReader

from .core.holding import FileSize, check_still_there, refuse_unheld, status_of_topic
from .job import (
    Access,
    LocalPath,
    SparkWish,
    access_to,
    config_option,
    running_job,
    spark_options,
    spark_tasks,
    subscriber_endpoint_option,
)
from .numbered import SourceOutcome, batches_of, numbered_publisher, put_numbered
from .proxy_topics import status_of
from .records import FORMATS, Columns, Format, estimated_size, format_of, places_of, records_of

ROWS_PER_PART: Final = 250_000  # of a file that is cut; another number would be other publishers


class LoadFile(Struct, frozen=True, kw_only=True):
    """Put the records of this file, or of one part of it."""

    path: str
    name: str  # of the file, in its publisher's id
    topic: str
    form: Format
    columns: Columns
    access: Access
    part: int | None = None  # None: the whole file
    at: int = 0  # byte at which the part begins, if that is known
    rows_per_part: int = ROWS_PER_PART

    @property
    def publisher(self) -> str:
        """The id under which it is put: the same for the same name."""
        return publisher_of_file(self.name, self.part)


def publisher_of_file(name: str, part: int | None = None) -> str:
    """The id under which a file, or a part of it, is put."""
    suffix = "" if part is None else f".{part}"
    return names.client_id(f"load.{sha256(name.encode()).hexdigest()[:24]}{suffix}")


def load_file(work: LoadFile) -> SourceOutcome:
    """In a task: put what of a file is not stored yet.

    Raises:
        As `put_numbered` and `records_of`.
    """
    first, rows, source = 0, None, work.path
    if work.part is not None:
        first, rows = work.part * work.rows_per_part, work.rows_per_part
        source = f"{work.path}, part {work.part} (from row {first + 1} on)"
    with (
        numbered_publisher(work.publisher, work.access.put_at, work.access.retry) as publisher,
        LogReader(work.access.read_at, retry=work.access.retry) as reader,
    ):
        whole = records_of(Path(work.path), work.form, work.columns, first, work.at)
        records = batches_of(islice(whole, rows))
        return put_numbered(publisher, reader, work.topic, records, source=source)


def places(work: LoadFile) -> list[int]:
    """In a task: where the parts of a file begin; see `places_of`."""
    return places_of(Path(work.path), work.form, work.rows_per_part)


def other_parts(first: Sequence[LoadFile], begin: Sequence[Sequence[int]]) -> list[LoadFile]:
    """The parts of files after the first one of each, which is put before its others.

    So a client that finds nothing of a first part knows that there is nothing of any.

    Args:
        begin: the `places` of each file.
    """
    return [
        replace(one, part=part, at=at)
        for one, of_file in zip(first, begin, strict=True)
        for part, at in enumerate(of_file[1:], start=1)
    ]


def refuse_other_cut(work: LoadFile) -> None:
    """A file that was loaded whole is not loaded in parts, nor the other way round.

    Raises:
        ConflictError: it would be.
    """
    before, now = ("whole", "in parts") if work.part is not None else ("in parts", "whole")
    other = replace(work, part=None if work.part is not None else 0)
    with numbered_publisher(other.publisher, work.access.put_at, work.access.retry) as client:
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
    type=LocalPath(exists=True),
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
    type=LocalPath(file_okay=False),
    help="Files count under their path below this folder, so that it may be moved.",
)
@click.option(
    "--parallel",
    is_flag=True,
    help=f"Cut files into parts of {ROWS_PER_PART:,} rows, which are put side by side; rows keep "
    "their order within a part only.",
)
@click.option(
    "--subscriber",
    default="",
    help="Begin a subscription of this id before anything is put, so that the proxy keeps all of "
    "it until that reader has it. No process may run under this id yet.",
)
@spark_options()
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
    subscriber: str,
    spark: SparkWish,
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
        access = access_to(subscriber_endpoint, **asked)
        work = [
            LoadFile(
                path=str(path),
                name=name,
                topic=names.exact(topic),
                form=cast(Format, form) if form else format_of(path),
                columns=Columns(value, key, header),
                access=access,
            )
            for name, path in named_files(files, base)
        ]
        hold(work, subscriber)
        first = [replace(one, part=0) for one in work] if parallel else work
        for one in first:
            refuse_other_cut(one)
        with spark_tasks("load", spark, access.put_at, access.read_at) as tasks:
            others = other_parts(first, tasks.run(places, work)) if parallel else []
            what = "parts" if parallel else "files"
            with progress_bar(len(first) + len(others), 0, quiet=quiet) as advance:
                outcomes = [
                    outcome
                    for group in (first, others)
                    for outcome in tasks.run(load_file, group, lambda more: advance(more, what))
                ]
        check_held(work[0], outcomes)
        put = sum(one.put for one in outcomes)
        before = sum(one.stored_before for one in outcomes)
        say(f"done: {put} messages put on {topic}, {before} were there ({len(work)} files)")


def hold(work: Sequence[LoadFile], subscriber: str) -> None:
    """See that the proxy will keep what is put, before anything is.

    Raises:
        NotHeldError: it would not, and no id is given for which it should.
        ProxyUnreachableError: before Spark is started.
    """
    one = work[0]
    report = status_of(one.access.read_at, one.access.retry)
    known = status_of_topic(one.topic, report)
    if not subscriber:
        sizes = [
            FileSize(each.publisher, *estimated_size(Path(each.path), each.form, each.columns))
            for each in work
        ]
        refuse_unheld(one.topic, sizes, report)
    elif known is None or all(each.subscriber != subscriber for each in known.subscriptions):
        with closing(
            ExternalCursor(subscriber, one.access.read_at, retry=one.access.retry)
        ) as cursor:
            cursor.tell(one.topic)


def check_held(one: LoadFile, outcomes: Sequence[SourceOutcome]) -> None:
    """See that what was put is there.

    Raises:
        NotHeldError: the proxy has removed some of it.
    """
    put = [each for each in outcomes if each.put]
    firsts = [each.first for each in put if each.first is not None]
    lowest = min(firsts) if len(firsts) == len(put) and put else None
    report = status_of(one.access.read_at, one.access.retry)
    check_still_there(one.topic, sum(each.put for each in put), lowest, report)
