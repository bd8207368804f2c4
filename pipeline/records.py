"""Files as records, in their order there: CSV, JSON lines, Parquet, text."""

from __future__ import annotations

import csv
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, TextIO

import msgspec
import pyarrow.parquet as pq
from msgspec import Struct

from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.schemas import json_decoder

from .core.columns import ROWS_MAX
from .numbered import SourceRecord

Format = Literal["csv", "jsonl", "parquet", "text"]
FORMATS: Final[tuple[Format, ...]] = ("csv", "jsonl", "parquet", "text")
_BY_SUFFIX: Final[Mapping[str, Format]] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}

SAMPLE_ROWS: Final = 1_000

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


def records_of(
    path: Path, form: Format, columns: Columns, first: int = 0, at: int = 0
) -> Iterator[SourceRecord]:
    """The records of a file.

    Args:
        first: so many are left out at its beginning.
        at: byte at which the record `first` begins, by `places_of`; 0: they are counted.

    Raises:
        ConfigurationError: it cannot be read as that, or lacks a column.
    """
    try:
        if form == "text":
            yield from _lines(path, columns, first, at)
            return
        rows_of = {"csv": _csv_rows, "jsonl": _json_rows, "parquet": _parquet_rows}[form]
        rows = rows_of(path, 0 if at else first, at)
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


def places_of(path: Path, form: Format, every: int) -> list[int]:
    """The byte at which each record of number 0, every, 2 * every, ... begins; of Parquet zeros.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        if form == "parquet":
            return [0] * -(-int(pq.read_metadata(path).num_rows) // every)
        spans = _csv_spans(path) if form == "csv" else _line_spans(path, form)
        return list(islice(spans, None, None, every))
    except (OSError, ValueError, csv.Error) as error:
        raise ConfigurationError(f"{path}: cannot be read as {form}: {error}") from error


def _line_spans(path: Path, form: Format) -> Iterator[int]:
    """Where each line that is a record begins."""
    at = 0
    with path.open("rb") as file:
        for line in file:
            if form == "text" or line.strip():
                yield at
            at += len(line)


def _csv_spans(path: Path) -> Iterator[int]:
    """Where each row after the first one begins; a row may have several lines."""
    with path.open("rb") as raw:
        end = len(BOM_UTF8) if raw.read(len(BOM_UTF8)) == BOM_UTF8 else 0

    def lines(file: TextIO) -> Iterator[str]:
        nonlocal end
        for line in file:
            end += len(line.encode())
            yield line

    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(lines(file))
        next(rows, None)
        at = end
        for row in rows:
            if row:
                yield at
            at = end


def estimated_size(path: Path, form: Format, columns: Columns) -> tuple[float, float]:
    """About how many records a file has, and their bytes, by the first `SAMPLE_ROWS` of it.

    Raises:
        ConfigurationError: it cannot be read as that, or lacks a column.
    """
    some = [one.content_bytes for one in islice(records_of(path, form, columns), SAMPLE_ROWS)]
    if len(some) < SAMPLE_ROWS:
        return len(some), sum(some)
    if form == "parquet":
        count: float = pq.read_metadata(path).num_rows
    else:
        with path.open("rb") as file:
            lines = sum(len(line) for line in islice(file, SAMPLE_ROWS))
        count = path.stat().st_size / max(lines, 1) * SAMPLE_ROWS
    return count, count * sum(some) / SAMPLE_ROWS


def _record(row: Row, columns: Columns) -> SourceRecord:
    whole = msgspec.json.encode(row) if not columns.value else _bytes(row[columns.value])
    key = row[columns.key] if columns.key else None
    headers = {n: _bytes(row[n]).decode() for n in columns.headers if row[n] is not None}
    return SourceRecord(whole or b"", None if key is None else _bytes(key), headers or None)


def _bytes(value: Any) -> bytes:
    """Text and bytes as they are, everything else as JSON."""
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


def _lines(path: Path, columns: Columns, first: int, at: int) -> Iterator[SourceRecord]:
    if columns.names:
        raise ConfigurationError(f"{path}: is read as text, which has no columns; see --format")
    with path.open("rb") as file:
        file.seek(at)
        for line in islice(file, 0 if at else first, None):
            yield SourceRecord(line.rstrip(b"\r\n"))


def _csv_rows(path: Path, first: int, at: int) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        names = next(csv.reader(file, strict=True), None)
    with path.open("rb") as raw, TextIOWrapper(raw, "utf-8-sig", newline="") as file:
        raw.seek(at)
        rows = csv.DictReader(file, names if at else None, strict=True)
        for row in islice(rows, first, None):
            if None in row or None in row.values():
                raise csv.Error(f"a row has another number of cells than the first line: {row}")
            yield row


def _json_rows(path: Path, first: int, at: int) -> Iterator[Row]:
    decode = json_decoder(dict[str, Any]).decode
    with path.open("rb") as file:
        file.seek(at)
        for line in islice((line for line in file if line.strip()), first, None):
            yield decode(line)


def _parquet_rows(path: Path, first: int, at: int) -> Iterator[Row]:
    """Row groups before the first row are not read."""
    with pq.ParquetFile(path) as file:
        group, groups = 0, file.metadata.num_row_groups
        while group < groups and first >= file.metadata.row_group(group).num_rows:
            first -= file.metadata.row_group(group).num_rows
            group += 1
        for batch in file.iter_batches(ROWS_MAX, row_groups=range(group, groups)):
            yield from batch.slice(min(first, batch.num_rows)).to_pylist()
            first = max(first - batch.num_rows, 0)
