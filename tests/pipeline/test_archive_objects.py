"""An archive in an object store: what a folder keeps by rename and fsync, it keeps by its own."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession

from reliable_pubsub.common.core.errors import DamagedError, UsageError
from reliable_pubsub.common.core.places import check_archive, delta_options
from reliable_pubsub.pipeline import archive as table
from reliable_pubsub.pipeline.__main__ import main
from reliable_pubsub.pipeline.archive import Archive, archived_files, read_manifests
from reliable_pubsub.pipeline.archive_files import ArchivePlace
from reliable_pubsub.pipeline.auditing import judge_log, kept_files
from reliable_pubsub.pipeline.tasks import SparkTasks
from tests.integration.harness import Service

from .jobs import Jobs, end_of, run_here
from .object_store import ObjectStore
from .test_archive import (
    Died,
    archived_payloads,
    catch_up,
    compact,
    everything,
    options,
    two_topics,
)
from .test_spark_source import patiently
from .test_spark_source import put as put_rows
from .test_stream import a_log, put

Rows = list[tuple[str, int, bytes]]
NAMES = ["topic", "offset", "value"]


def strangers_table(address: str) -> DeltaTable:
    """The table, opened as by any program that has the variables AWS_*."""
    return DeltaTable(address, storage_options={"allow_http": "true"})


def by_pandas(address: str) -> Rows:
    rows = strangers_table(address).to_pandas(columns=NAMES)
    return sorted(rows.itertuples(index=False, name=None))


def by_duckdb(address: str) -> Rows:
    duckdb = pytest.importorskip("duckdb", reason="pip install 'reliable-pubsub[dev]'")
    messages = strangers_table(address).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("messages", messages)
        rows: Rows = connection.sql('SELECT topic, "offset", value FROM messages').fetchall()
        return sorted(rows)


def by_spark(address: str, spark: SparkSession) -> Rows:
    messages = spark.read.format("reliable_pubsub").options(subscribePattern=".*", archive=address)
    rows = patiently(lambda: messages.load().select(*NAMES).collect())
    return sorted((row.topic, row.offset, bytes(row.value)) for row in rows)


class TestAnArchiveInAnObjectStore:
    def test_has_each_message_once_for_all_who_read_it_while_it_grows_and_is_compacted(
        self, bucket: str, spark: SparkSession
    ) -> None:
        proxy = two_topics()
        assert catch_up(proxy, bucket) == 14
        assert by_pandas(bucket) == by_duckdb(bucket) == everything(("t", 10), ("u", 4))
        put(proxy, 5)

        assert catch_up(proxy, bucket) == 5
        compact(bucket)

        rows = everything(("t", 15), ("u", 4))
        assert by_pandas(bucket) == by_duckdb(bucket) == by_spark(bucket, spark) == rows
        assert len(read_manifests(bucket)) < 9

    def test_continues_after_a_death_before_and_after_each_commit(
        self, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proxy = two_topics()
        commit = table.commit
        for moment in range(4):

            def dying(*arguments: object, after: bool = moment % 2 == 1) -> None:
                if after:
                    commit(*arguments)  # type: ignore[arg-type]
                raise Died

            with monkeypatch.context() as patch:
                patch.setattr(table, "commit", dying)
                with pytest.raises(Died):
                    catch_up(proxy, bucket)

        assert 0 < catch_up(proxy, bucket) < 14
        assert by_pandas(bucket) == everything(("t", 10), ("u", 4))

    def test_takes_one_of_two_commits_that_are_put_at_the_same_moment(self, bucket: str) -> None:
        """Both drivers have looked before; only the store can tell them apart."""
        place = ArchivePlace(bucket.replace("bucket/", "bucket/race/"))
        table.make_table(place)
        tables = [table.open_table(place) for _ in range(2)]

        def is_taken(known: DeltaTable) -> bool:
            try:
                table.commit(known, [], [Transaction("archive/t/x", 1)])
            except CommitFailedError:
                return False
            return True

        with ThreadPoolExecutor() as pool:
            assert sorted(pool.map(is_taken, tables)) == [False, True]

    def test_is_replayed_as_one_in_a_folder(self, bucket: str) -> None:
        catch_up(two_topics(), bucket)

        assert archived_payloads(bucket, "t", 2, 9) == [b"m%d" % n for n in range(3, 10)]

    def test_says_which_messages_an_object_had_that_is_gone_or_was_changed(
        self, object_store: ObjectStore, bucket: str
    ) -> None:
        catch_up(a_log(3), bucket)
        ((_, address),) = archived_files(bucket)
        with object_store.system().open_output_stream(address.removeprefix("s3://")) as file:
            file.write(b"PAR1")
        with pytest.raises(DamagedError, match="offsets are 0 to 2 of 't'"):
            archived_payloads(bucket, "t")
        object_store.remove(address)

        with pytest.raises(DamagedError, match="No such file"):
            archived_payloads(bucket, "t")

    def test_is_not_made_where_something_else_is(
        self, object_store: ObjectStore, bucket: str
    ) -> None:
        with object_store.system().open_output_stream(f"{bucket[5:]}/thesis.tex") as file:
            file.write(b"x")

        with pytest.raises(UsageError, match=r"holds 'thesis\.tex'"):
            Archive(bucket)


@pytest.mark.long  # `test_kills` has more moments of an archive
def test_an_archive_whose_driver_is_killed_continues_and_is_audited(
    jobs_in_this_spark: SparkTasks,
    service: Service,
    object_store: ObjectStore,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = 5_000
    service.start_proxy()
    put_rows(service, "t", rows, batch=250)
    jobs = Jobs(service, monkeypatch)
    words = (
        *("archive", "--topic", "t", "--folder", bucket, "--available-now", "--quiet"),
        *("--rows-per-file", "250"),
    )

    killed = jobs.start_dying(
        "reliable_pubsub.pipeline.archive:commit", 3, *words, "--master", "local[2]"
    )
    assert end_of(killed) == -signal.SIGKILL
    before = by_pandas(bucket)
    files = [key for key in object_store.keys(bucket) if key.endswith(".parquet")]
    assert 0 < len(before) < rows
    assert len(files) > len(read_manifests(bucket))
    run_here(service, *words)

    assert by_pandas(bucket) == [("t", n, b"%d" % n) for n in range(rows)]
    assert by_pandas(bucket)[: len(before)] == before
    _, verdict = judge_log(jobs_in_this_spark, options(), {}, kept_files(bucket, options()))
    assert verdict.holds
    run_here(service, "replay", "--topic", "t", "--to", "again", "--archive", bucket)
    assert service.payloads("again") == [b"%d" % n for n in range(rows)]


def refused(*words: str) -> str:
    """The error of a job that is refused before it starts a Spark: one paragraph, on one line."""
    result = CliRunner().invoke(main, [*words])
    assert result.exit_code in (2, 5), result.output
    assert result.stderr.startswith("error [")
    assert not {"\n\n", "\x1b", "↳"} & {*result.stderr}
    return " ".join(result.stderr.split())


class TestAStoreThatCannotBeUsed:
    """Reading and writing begin with the table, so one job stands for all."""

    def replay(self, address: str) -> str:
        return refused("replay", "--topic", "t", "--to", "u", "--archive", address)

    def test_is_distinguished_from_a_bucket_that_is_not_there(self, bucket: str) -> None:
        assert "there is no such bucket" in self.replay("s3://nowhere/archive")

    def test_is_distinguished_from_credentials_that_it_refuses(
        self, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "stranger")

        assert "Set AWS_ACCESS_KEY_ID" in self.replay(bucket)

    def test_is_distinguished_from_credentials_that_are_not_set(
        self, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")  # of a machine at Amazon
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)

        assert "Set AWS_ACCESS_KEY_ID" in self.replay(bucket)

    def test_is_distinguished_from_one_that_does_not_answer(
        self, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")

        assert "the store does not answer" in self.replay(bucket)

    def test_is_not_talked_to_without_encryption_on_another_machine(
        self, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store.example:9000")

        assert "AWS_ALLOW_HTTP=true" in self.replay(bucket)

    def test_is_one_paragraph_also_where_a_task_cannot_put(
        self, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = ArchivePlace(bucket)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "stranger")

        with (
            pytest.raises(UsageError, match="for Spark's workers"),
            place.new_file("x") as (file, _),
        ):
            file.write(b"x")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("s3a://bucket/archive", "write s3://bucket/archive"),
        ("hdfs://node:9000/archive", "hdfs: is not written or read here"),
        ("gs://bucket/archive", "only archives and backups can be in an object store"),
        ("abfss://c@account.dfs.core.windows.net/a", "abfss: is not"),
        ("s3://", "expected s3://BUCKET/PREFIX"),
        ("s3://bucket/a b", "expected s3://BUCKET/PREFIX"),
        ("s3://bucket/../other", "expected s3://BUCKET/PREFIX"),
    ],
)
def test_a_place_that_was_not_tried_is_refused_before_the_work(address: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_archive(address)


@pytest.mark.parametrize("address", ["s3://bucket", "s3://bucket/a/b-1/", "archive", "/a/b"])
def test_a_prefix_or_a_folder_is_a_place(address: str) -> None:
    assert check_archive(address) == address.rstrip("/")


def test_http_is_allowed_by_default_on_this_machine_only() -> None:
    def is_allowed(endpoint: str) -> bool:
        return "aws_allow_http" in delta_options({"AWS_ENDPOINT_URL": endpoint})

    assert is_allowed("http://127.0.0.1:9000")
    assert is_allowed("http://localhost:9000")
    assert not is_allowed("http://store.example:9000")
    assert not is_allowed("https://127.0.0.1:9000")
