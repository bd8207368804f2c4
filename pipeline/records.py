"""Files as records, in their order there: CSV, JSON lines, Parquet, text."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import pyarrow.parquet as pq
from msgspec import Struct

from reliable_pubsub.common.core.errors import ConfigurationError

from .core.columns import ROWS_MAX
from .numbered import Record

Format = Literal["csv", "jsonl", "parquet", "text"]
FORMATS: Final[tuple[Format, ...]] = ("csv", "jsonl", "parquet", "text")
_BY_SUFFIX: Final[Mapping[str, Format]] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}

Row = Mapping[str, Any]


class Columns(Struct, frozen=True):
    """Which columns become what."""

    value: str = ""  # "": the whole row, as JSON (of a text file: the line)
    key: str = ""  # "": none
    headers: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All that are named."""
        return tuple(filter(None, (self.value, self.key, *self.headers)))


def format_of(path: Path) -> Format:
    """By its suffix; what has no other is text."""
    return _BY_SUFFIX.get(path.suffix.lower(), "text")


def records_of(path: Path, form: Format, columns: Columns, first: int = 0) -> Iterator[Record]:
    """The records of a file.

    Args:
        first: so many are left out at its beginning.

    Raises:
        ConfigurationError: it cannot be read as that, or lacks a column.
    """
    try:
        if form == "text":
            yield from _lines(path, columns, first)
            return
        rows = {"csv": _csv_rows, "jsonl": _json_rows, "parquet": _parquet_rows}[form](path, first)
        for number, row in enumerate(rows, start=first + 1):
            for name in columns.names:
                if name not in row:
                    raise ConfigurationError(
                        f"{path}, row {number}: has no column {name!r}; it has {', '.join(row)}"
                    )
            yield _record(row, columns)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error
    except (UnicodeDecodeError, csv.Error, msgspec.DecodeError, ValueError) as error:
        raise ConfigurationError(f"{path}: is not {form}: {error}") from error


def count_records(path: Path, form: Format) -> int:
    """How many records a file has, without looking at what they say.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        if form == "parquet":
            return int(pq.read_metadata(path).num_rows)
        if form == "csv":
            with path.open(encoding="utf-8-sig", newline="") as file:
                return max(sum(1 for row in csv.reader(file) if row) - 1, 0)
        with path.open("rb") as lines:
            return sum(1 for line in lines if form == "text" or line.strip())
    except (OSError, ValueError, csv.Error) as error:
        raise ConfigurationError(f"{path}: cannot be read as {form}: {error}") from error


def _record(row: Row, columns: Columns) -> Record:
    whole = msgspec.json.encode(row) if not columns.value else _bytes(row[columns.value])
    key = row[columns.key] if columns.key else None
    headers = {n: _bytes(row[n]).decode() for n in columns.headers if row[n] is not None}
    return Record(whole or b"", None if key is None else _bytes(key), headers or None)


def _bytes(value: Any) -> bytes:
    """Text and bytes as they are, everything else as JSON."""
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


def _lines(path: Path, columns: Columns, first: int) -> Iterator[Record]:
    if columns.names:
        raise ConfigurationError(f"{path}: is read as text, which has no columns; see --format")
    with path.open("rb") as file:
        for line in islice(file, first, None):
            yield Record(line.rstrip(b"\r\n"))


def _csv_rows(path: Path, first: int) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        for row in islice(csv.DictReader(file, strict=True), first, None):
            if None in row or None in row.values():
                raise csv.Error(f"a row has another number of cells than the first line: {row}")
            yield row


def _json_rows(path: Path, first: int) -> Iterator[Row]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    with path.open("rb") as file:
        for line in islice((line for line in file if line.strip()), first, None):
            yield decode(line)


def _parquet_rows(path: Path, first: int) -> Iterator[Row]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS_MAX):
            yield from batch.slice(min(first, batch.num_rows)).to_pylist()
            first = max(first - batch.num_rows, 0)
