"""Files into topics and the past of a topic into another one: each record once, at every repeat."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import ConfigurationError, ConflictError
from reliable_pubsub.pipeline.core.loss import DataLossError
from reliable_pubsub.pipeline.core.planning import MessageRange
from reliable_pubsub.pipeline.job import Access
from reliable_pubsub.pipeline.loading import (
    FilesToLoad,
    format_of,
    named_files,
    put_split,
    rows_to_put,
)
from reliable_pubsub.pipeline.numbered import SourceOutcome
from reliable_pubsub.pipeline.replaying import replay_client
from reliable_pubsub.pipeline.tasks import SparkTasks
from tests.integration.harness import NOWHERE, STUBBORN, Service

from .test_archive import archived_payloads, catch_up
from .test_stream import a_log

HERE = Access(NOWHERE, NOWHERE, STUBBORN)


def files(path: Path, form: str, *, access: Access = HERE, **more: Any) -> FilesToLoad:
    return FilesToLoad(files={path.name: str(path)}, topic="t", form=form, access=access, **more)


def messages_of(spark: SparkSession, work: FilesToLoad) -> list[tuple[Any, Any, Any]]:
    """Value, key and headers of what would be put."""
    rows = SparkTasks(spark).carry_out(lambda: rows_to_put(spark, work).collect())
    return [(bytes(row.value), row.key and bytes(row.key), row.headers) for row in rows]


class TestTheRowsOf:
    def test_a_text_are_its_lines_as_they_are(self, spark: SparkSession, tmp_path: Path) -> None:
        path = tmp_path / "a.log"
        path.write_bytes(b" one \r\n\n\xfftwo")

        rows = messages_of(spark, files(path, "text"))

        assert rows == [(b" one ", None, None), (b"", None, None), (b"\xfftwo", None, None)]

    def test_a_csv_are_its_rows_as_json_or_the_named_columns(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        path = tmp_path / "a.csv"
        path.write_text('id,name,place\n1,"A, B",\n')

        ((whole, _, _),) = messages_of(spark, files(path, "csv"))
        (named,) = messages_of(spark, files(path, "csv", value="name", key="id", headers=("name",)))

        assert json.loads(whole) == {"id": "1", "name": "A, B", "place": None}
        assert named == (b"A, B", b"1", {"name": "A, B"})

    def test_json_lines_are_numbers_text_and_json(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        path = tmp_path / "a.jsonl"
        path.write_text('{"id": 7, "v": {"a": 1}, "h": null}\n{"id": 8, "v": {"a": 2}, "h": "y"}\n')

        rows = messages_of(spark, files(path, "json", value="v", key="id", headers=("h",)))

        assert rows == [(b'{"a":1}', b"7", {}), (b'{"a":2}', b"8", {"h": "y"})]

    def test_parquet_are_its_rows(self, spark: SparkSession, tmp_path: Path) -> None:
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"id": [1, 2], "raw": [b"\x00", b""]}), path)

        rows = messages_of(spark, files(path, "parquet", value="raw", key="id"))

        assert rows == [(b"\x00", b"1", None), (b"", b"2", None)]

    @pytest.mark.parametrize(
        ("form", "content", "column", "message"),
        [
            ("csv", "a,b\n1,2,3\n", "a", "cannot read the files: .*FAILED_READ_FILE"),
            ("csv", "a,b\n1,2\n", "c", "no column 'c'; they have a, b"),
            ("json", '{"a": 1}\n{\n', "a", "MALFORMED_RECORD_IN_PARSING"),
            ("parquet", "hello", "a", "cannot read the files: .*FAILED_READ_FILE"),
            ("nonsense", "hello", "a", "cannot read the files: .*nonsense"),
        ],
    )
    def test_a_file_of_another_form_are_refused(
        self,
        spark: SparkSession,
        tmp_path: Path,
        form: str,
        content: str,
        column: str,
        message: str,
    ) -> None:
        path = tmp_path / "a"
        path.write_text(content)

        with pytest.raises(ConfigurationError, match=message):
            messages_of(spark, files(path, form, value=column))


def test_a_file_counts_under_its_path_below_the_base(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "data").mkdir(parents=True)
        (tmp_path / name / "data" / "a.csv").touch()

    assert [*named_files([tmp_path / "one" / "data"], tmp_path / "one")] == ["data/a.csv"]
    assert [*named_files([tmp_path / "two" / "data"], tmp_path / "two")] == ["data/a.csv"]
    assert format_of(["x.NDJSON", "y.json"]) == "json"
    with pytest.raises(ConfigurationError, match="several formats"):
        format_of(["x.csv", "y.json"])
    with pytest.raises(ConfigurationError, match="is not below"):
        named_files([tmp_path / "one" / "data"], tmp_path / "two")


@pytest.fixture
def load(service: Service, spark: SparkSession) -> Callable[..., list[SourceOutcome]]:
    """Load a text file into topic t of a running proxy."""
    service.start_proxy()
    access = Access(service.subscriber_endpoint, service.publisher_endpoint, STUBBORN)

    def act(path: Path, **more: Any) -> list[SourceOutcome]:
        work = files(path, "text", access=access, **more)
        return SparkTasks(spark).run_over(
            lambda: rows_to_put(spark, work), lambda rows: put_split(work, rows), SourceOutcome
        )

    return act


def lines(path: Path, count: int) -> list[bytes]:
    content = [b"line %d" % n for n in range(count)]
    path.write_bytes(b"".join(b"%s\n" % one for one in content))
    return content


class TestLoading:
    def test_again_puts_nothing_and_continues_where_a_file_has_grown(
        self, service: Service, load: Callable[..., list[SourceOutcome]]
    ) -> None:
        path = service.directory / "a.txt"
        lines(path, 1500)

        first, again = load(path), load(path)
        content = lines(path, 1600)
        grown = load(path)

        assert [[one.put for one in run] for run in (first, again, grown)] == [[1500], [0], [100]]
        assert grown[0].stored_before == 1500
        assert service.payloads("t") == content

    def test_in_splits_puts_each_row_once_and_continues_where_a_file_has_grown(
        self, service: Service, load: Callable[..., list[SourceOutcome]]
    ) -> None:
        path = service.directory / "a.txt"
        lines(path, 1000)
        runs = [load(path, split_bytes=4_000), load(path, split_bytes=4_000)]
        content = lines(path, 2000)
        runs.append(load(path, split_bytes=4_000))

        assert [sum(one.put for one in run) for run in runs] == [1000, 0, 1000]
        assert len(runs[0]) > 2
        assert sorted(service.payloads("t")) == sorted(content)
        assert len(service.topic("t").publishers) == len(runs[2])

    def test_a_file_that_was_changed_is_refused(
        self, service: Service, load: Callable[..., list[SourceOutcome]]
    ) -> None:
        path = service.directory / "a.txt"
        content = lines(path, 20)
        load(path)

        path.write_bytes(b"\n".join([b"new", *content]))
        with pytest.raises(Exception, match="record 20 is another one") as refused:
            load(path)
        assert getattr(refused.value, "code", "") == ConflictError.code
        lines(path, 19)
        with pytest.raises(Exception, match="it has fewer now"):
            load(path)
        assert service.payloads("t") == content


class TestAnArchivedPast:
    def test_is_a_range_of_it_across_its_files(self, tmp_path: Path) -> None:
        catch_up(a_log(4, 1, 5), tmp_path)

        assert archived_payloads(tmp_path, "t", 2, 9) == [b"m%d" % n for n in range(3, 10)]

    def test_that_is_not_all_there_is_refused(self, tmp_path: Path) -> None:
        catch_up(a_log(4), tmp_path)

        with pytest.raises(DataLossError, match="offsets 4 to 5 "):
            archived_payloads(tmp_path, "t", 0, 6)


def test_a_replay_has_the_same_id_for_the_same_range_and_target() -> None:
    wanted = MessageRange("t", "x.1", 2, 9)

    assert replay_client(wanted, "u") == replay_client(MessageRange("t", "x.1", 2, 9), "u")
    assert replay_client(wanted, "u") != replay_client(wanted, "v")


class Replay:
    """`pipeline replay` of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def run(self, *arguments: str) -> str:
        """To its end; returns what it says."""
        service = self._service
        process = service.run(
            "pipeline",
            *("replay", "--endpoint", service.publisher_endpoint, "--subscriber-endpoint"),
            *(service.subscriber_endpoint, "--quiet", *arguments),
        )
        process.done()
        return process.stdout


def test_a_replay_keeps_keys_headers_and_times_and_puts_each_once(service: Service) -> None:
    service.start_proxy()
    with service.open_publisher("p") as publisher:
        for n in range(6):
            publisher.put("t", b"%d" % n, key=b"k", headers={"n": str(n)}, event_time_ns=n)
    replay = Replay(service)
    some = ("--topic", "t", "--to", "u", "--from-offset", "2")

    said = [replay.run(*some), replay.run(*some)]
    said.append(replay.run("--topic", "t", "--to", "u", "--replay-id", "again"))

    counts = [text.split(" messages")[0] for text in said]
    assert counts == ["done: 4", "done: 0", "done: 6"]
    messages = list(all_of(service, "u"))
    assert [int(one.payload) for one in messages] == [2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
    assert messages[0].headers == {"n": "2"}
    assert (messages[0].key, messages[0].event_time_ns) == (b"k", 2)


def test_a_replay_of_a_topic_that_has_grown_continues_and_puts_each_once(service: Service) -> None:
    service.start_proxy()
    replay = Replay(service)
    said = []
    for ids in (range(3), range(3, 5)):
        with service.open_publisher("p") as publisher:
            publisher.put_many("t", [b"%d" % n for n in ids])
        said.append(replay.run("--topic", "t", "--to", "u"))

    assert said[-1] == "done: 2 messages put on u, 3 were there\n"
    assert [int(one.payload) for one in all_of(service, "u")] == [0, 1, 2, 3, 4]


def all_of(service: Service, topic: str) -> Iterator[Message]:
    with service.open_subscriber("reader") as reader:
        yield from reader.history(topic, 0, max_messages=1000)
