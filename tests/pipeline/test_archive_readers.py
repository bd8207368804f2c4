"""pandas, Polars, DuckDB and Spark read an archive while it grows: they see whole commits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Transaction
from pyspark.sql import SparkSession

from reliable_pubsub.pipeline import archive as disk

from .test_archive import catch_up, everything, two_topics

Rows = list[tuple[str, int, bytes]]
NAMES = ["topic", "offset", "value"]


def by_pandas(folder: Path, spark: SparkSession) -> Rows:
    table = DeltaTable(folder).to_pandas(columns=NAMES)
    return list(table.itertuples(index=False, name=None))


def by_polars(folder: Path, spark: SparkSession) -> Rows:
    polars = pytest.importorskip("polars", reason="pip install polars")
    return list(polars.read_delta(str(folder), columns=NAMES).iter_rows())


def by_duckdb(folder: Path, spark: SparkSession) -> Rows:
    """Over Arrow: the extension with `delta_scan` is downloaded when it is first used."""
    duckdb = pytest.importorskip("duckdb", reason="pip install 'reliable-pubsub[dev]'")
    messages = DeltaTable(folder).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("messages", messages)
        found: Rows = connection.sql('SELECT topic, "offset", value FROM messages').fetchall()
        return found


def by_spark_over_parquet(folder: Path, spark: SparkSession) -> Rows:
    """Without the jar of Delta: the files that the log names."""
    paths = DeltaTable(folder).file_uris()
    if not paths:
        return []
    rows = spark.read.parquet(*paths).select(*NAMES).collect()
    return [(row.topic, row.offset, bytes(row.value)) for row in rows]


@pytest.mark.parametrize("read", [by_pandas, by_polars, by_duckdb, by_spark_over_parquet])
def test_a_reader_sees_whole_commits_while_an_archive_is_written(
    read: Callable[[Path, SparkSession], Rows],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It looks before each commit, when tasks have written its files, and after it."""
    commit = disk.commit
    ends: dict[str, int] = {}
    moments = 0

    def look() -> None:
        nonlocal moments
        moments += 1
        assert sorted(read(tmp_path, spark)) == everything(*sorted(ends.items()))

    def watched(table: DeltaTable, actions: list[Any], noted: list[Transaction]) -> None:
        look()
        commit(table, actions, noted)
        ends.update({one.app_id.split("/")[1]: one.version for one in noted})
        look()

    monkeypatch.setattr(disk, "commit", watched)

    catch_up(two_topics(), tmp_path)

    assert moments == 6  # three rounds
    assert ends == {"t": 10, "u": 4}
