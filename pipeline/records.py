"""Files as records, in the order in which they stand there: CSV, JSON lines, Parquet, text."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import pyarrow.parquet as pq
from msgspec import Struct

from reliable_pubsub.common.errors import ConfigurationError

from .columns import ROWS_MAX
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


def records_of(path: Path, form: Format, columns: Columns) -> Iterator[Record]:
    """The records of a file.

    Raises:
        ConfigurationError: it cannot be read as that, or lacks a column.
    """
    try:
        if form == "text":
            yield from _lines(path, columns)
            return
        rows = {"csv": _csv_rows, "jsonl": _json_rows, "parquet": _parquet_rows}[form](path)
        for number, row in enumerate(rows, start=1):
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


def _lines(path: Path, columns: Columns) -> Iterator[Record]:
    if columns.names:
        raise ConfigurationError(f"{path}: is read as text, which has no columns; see --format")
    with path.open("rb") as file:
        for line in file:
            yield Record(line.rstrip(b"\r\n"))


def _csv_rows(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        for row in csv.DictReader(file, strict=True):
            if None in row or None in row.values():
                raise csv.Error(f"a row has another number of cells than the first line: {row}")
            yield row


def _json_rows(path: Path) -> Iterator[Row]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    with path.open("rb") as file:
        for line in file:
            if line.strip():
                yield decode(line)


def _parquet_rows(path: Path) -> Iterator[Row]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS_MAX):
            yield from batch.to_pylist()
