"""`reliable-pubsub pipeline load`: put the rows of files on a topic; a repeat puts nothing twice.

Spark reads each file in splits of at most `SPLIT_BYTES`. Each split has a publisher of its own, and
row n of a split is that publisher's message n. So the proxy knows how much of each split it has
stored, and a run after a crash, or after the file has grown, puts only the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import click
import pyarrow as pa
from msgspec import Struct
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, DataType, StringType

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, EXIT_CODES, asking_options
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.limits import MIB
from reliable_pubsub.common.terminal import say
from reliable_pubsub.subscriber.external_cursor import ExternalCursor
from reliable_pubsub.subscriber.reader import LogReader

from .core.holding import FileSplit, check_still_there, refuse_unheld, status_of_topic
from .core.outgoing import batch_of_rows
from .job import (
    Access,
    LocalPath,
    SparkWish,
    access_to,
    config_option,
    pair,
    running_job,
    spark_options,
    spark_tasks,
    subscriber_endpoint_option,
)
from .numbered import SourceOutcome, cut_again, numbered_publisher, put_numbered
from .proxy_topics import status_of

SPLIT_BYTES: Final = 32 * MIB  # another number would make other publishers, so other messages
# Each of these is set to it: a partition is then one split, whose borders depend on its file alone.
_SPLITTING: Final = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
_BY_SUFFIX: Final[Mapping[str, str]] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".orc": "orc",
    ".parquet": "parquet",
}
# A row that is not what the format says ends the load. By Spark's own default it becomes NULLs.
_READING: Final[Mapping[str, Mapping[str, str]]] = {
    "csv": {"header": "true", "mode": "FAILFAST", "columnPruning": "false"},
    "json": {"mode": "FAILFAST"},
}


class FilesToLoad(Struct, frozen=True, kw_only=True):
    """Files of one format, and how their rows become messages."""

    files: Mapping[str, str]  # by the name that a file counts under: its path
    topic: str
    form: str
    options: Mapping[str, str] = {}  # of Spark's reader
    value: str = ""  # column; "": the whole row as JSON, or the line of a text
    key: str = ""
    headers: Sequence[str] = ()
    access: Access
    split_bytes: int = SPLIT_BYTES

    def publisher(self, name: str, start: int) -> str:
        """Return the id under which a split of a file is put.

        Args:
            name: of the file; the same name is the same file.
            start: byte at which the split begins.
        """
        digest = sha256(name.encode()).hexdigest()[:24]
        return names.client_id(f"load.{digest}.{start // self.split_bytes}")

    def splits(self) -> list[FileSplit]:
        """Return the splits of the files, by their sizes."""
        return [
            FileSplit(self.publisher(name, start), min(size - start, self.split_bytes))
            for name, size in ((n, Path(path).stat().st_size) for n, path in self.files.items())
            for start in range(0, size, self.split_bytes)
        ]


def rows_to_put(spark: SparkSession, work: FilesToLoad) -> DataFrame:
    """Return the rows of files as messages: value, key, headers, and the split each is in.

    Raises:
        ConfigurationError: a named column is missing.
    """
    for setting in _SPLITTING:
        spark.conf.set(setting, str(work.split_bytes))
    reader = spark.read.format(work.form).options(**_READING.get(work.form, {}))
    rows = reader.options(**work.options).load([*work.files.values()])
    kinds = {one.name: one.dataType for one in rows.schema.fields}
    for name in filter(None, (work.value, work.key, *work.headers)):
        if name not in kinds:
            raise ConfigurationError(
                f"the files have no column {name!r}; they have {', '.join(kinds)}"
            )

    def column(name: str) -> Column:
        return _as_bytes(f.col(f"`{name}`"), kinds[name])

    if work.value or work.form == "text":
        value = column(work.value or "value")
    else:
        whole = f.to_json(f.struct("*"), {"ignoreNullFields": "false"})
        value = _as_bytes(whole, StringType())
    headers = f.lit(None).cast("map<string,string>")
    if work.headers:
        named = chain.from_iterable(
            (f.lit(name), column(name).cast("string")) for name in work.headers
        )
        headers = f.map_filter(f.create_map(*named), lambda name, text: text.isNotNull())
    return rows.select(
        value.alias("value"),
        (column(work.key) if work.key else f.lit(None).cast("binary")).alias("key"),
        headers.alias("headers"),
        f.col("_metadata.file_path").alias("file"),
        f.col("_metadata.file_block_start").alias("start"),
    )


def _as_bytes(column: Column, kind: DataType) -> Column:
    """Return text and bytes as they are, and everything else as JSON."""
    if isinstance(kind, StringType | BinaryType):
        return column.cast("binary")
    if kind.typeName() in ("array", "map", "struct", "variant"):
        return f.to_json(column).cast("binary")
    return column.cast("string").cast("binary")


def put_split(work: FilesToLoad, rows: Iterable[pa.RecordBatch]) -> SourceOutcome:
    """In a task: put the rows of one split that are not stored yet.

    Raises:
        As `put_numbered`.
    """
    filled = (batch for batch in rows if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return SourceOutcome("", 0, 0)
    path = unquote(urlsplit(first.column("file")[0].as_py()).path)
    start = first.column("start")[0].as_py()
    (name,) = (name for name, known in work.files.items() if known == path)
    access = work.access
    client = work.publisher(name, start)
    with (
        numbered_publisher(client, access.put_at, access.retry) as publisher,
        LogReader(access.read_at, retry=access.retry) as reader,
    ):
        batches = cut_again(map(batch_of_rows, chain([first], filled)))
        source = f"{path}, from byte {start} on" if start else path
        return put_numbered(publisher, reader, work.topic, batches, source=source)


def named_files(paths: Sequence[Path], base: Path | None) -> dict[str, str]:
    """Return files, and those directly in folders, by the names that they count under.

    Raises:
        ConfigurationError: there is none, or one is not below the base.
    """
    found: dict[str, str] = {}
    for path in paths:
        inside = sorted(one for one in path.iterdir() if one.is_file()) if path.is_dir() else [path]
        for file in inside:
            full = file.resolve()
            if base is not None and not full.is_relative_to(base.resolve()):
                raise ConfigurationError(f"{file}: is not below {base}, the --base of the names")
            name = full.relative_to(base.resolve()).as_posix() if base else full.as_posix()
            found[name] = full.as_posix()
    if not found:
        raise ConfigurationError("there is no file to load; name files or folders with --file")
    return found


def format_of(files: Iterable[str]) -> str:
    """Return the format that the suffix of files says; without a known suffix it is text.

    Raises:
        ConfigurationError: they say several.
    """
    forms = {_BY_SUFFIX.get(Path(one).suffix.lower(), "text") for one in files}
    if len(forms) > 1:
        raise ConfigurationError(
            f"the files are of several formats ({', '.join(sorted(forms))}): load those of one "
            "format at a time, or give --format"
        )
    return forms.pop()


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
@click.option("--topic", required=True, help="Where the rows go.")
@click.option(
    "--format",
    "form",
    help="Format for Spark's reader: text, csv, json, parquet, orc, ...  [default: by the suffix]",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    help="Option of Spark's reader, NAME=VALUE; repeatable.",
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
    options: tuple[str, ...],
    value: str,
    key: str,
    header: tuple[str, ...],
    base: Path | None,
    subscriber: str,
    spark: SparkWish,
    subscriber_endpoint: str | None,
    quiet: bool,
    **asked: Any,
) -> None:
    """Put the rows of files on a topic, each once, even if you run it again.

    Spark reads each file in splits of 32 MiB, which are put side by side. Rows keep their order
    within a split. A file that has grown is continued; a changed one is refused.

    For a small file you need no Spark: any program can put its lines.

    \b
      reliable-pubsub pipeline load --file data/orders.csv --topic orders --key customer
    """
    with running_job():
        access = access_to(subscriber_endpoint, **asked)
        named = named_files(files, base)
        work = FilesToLoad(
            files=named,
            topic=names.exact(topic),
            form=form or format_of(named.values()),
            options=dict(pair("--option", one) for one in options),
            value=value,
            key=key,
            headers=header,
            access=access,
        )
        hold(work, work.splits(), subscriber)
        with spark_tasks("load", spark, quiet=quiet) as tasks:
            outcomes = tasks.run_over(
                lambda: rows_to_put(tasks.spark, work),
                lambda rows: put_split(work, rows),
                SourceOutcome,
            )
        check_held(work, outcomes)
        put = sum(one.put for one in outcomes)
        before = sum(one.stored_before for one in outcomes)
        say(f"done: {put} messages put on {topic}, {before} were there ({len(named)} files)")


def hold(work: FilesToLoad, splits: Sequence[FileSplit], subscriber: str) -> None:
    """Check that the proxy will keep the messages, before any is put.

    Raises:
        NotHeldError: it would not, and no id is given for which it should.
        ProxyUnreachableError: before Spark is started.
    """
    access = work.access
    report = status_of(access.read_at, access.retry)
    known = status_of_topic(work.topic, report)
    if not subscriber:
        refuse_unheld(work.topic, splits, report)
    elif known is None or all(each.subscriber != subscriber for each in known.subscriptions):
        with closing(ExternalCursor(subscriber, access.read_at, retry=access.retry)) as cursor:
            cursor.tell(work.topic)


def check_held(work: FilesToLoad, outcomes: Sequence[SourceOutcome]) -> None:
    """Check that the messages of this run are still there.

    Raises:
        NotHeldError: the proxy has removed some of them.
    """
    firsts = [each.first for each in outcomes if each.put]
    known = [first for first in firsts if first is not None]
    lowest = min(known, default=None) if known == firsts else None
    report = status_of(work.access.read_at, work.access.retry)
    check_still_there(work.topic, sum(each.put for each in outcomes), lowest, report)
