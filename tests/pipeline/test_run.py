"""`pipeline run`: queries of SQL over topics on a real Spark, counted from the topic they make."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.transaction_messages import CommitAck
from reliable_pubsub.pipeline import running
from reliable_pubsub.pipeline.computing import (
    claim,
    follow,
    job_format,
    run_once,
    start_stream,
)
from reliable_pubsub.pipeline.core.planning import TopicExtent
from reliable_pubsub.pipeline.core.queries import OutputMode, Query
from reliable_pubsub.pipeline.job import Access
from reliable_pubsub.pipeline.tasks import SparkTasks
from tests.integration.harness import Service, eventually, losing_link

from .jobs import BUSY_S, JAVA_SAYS, Jobs, kill_with_its_java
from .test_spark_source import patiently

CONFIGS = Path(__file__).parents[2] / "configs" / "pipeline"
WORDS = (CONFIGS / "words.sql").read_text()
MINUTE_NS = 60_000_000_000
FIRST_NS = 1_800_000_000 * 1_000_000_000  # 2027-01-15T08:00:00Z
RETRY = RetryPolicy(timeout_s=0.3, retries_max=1_000)


def put_minutes(service: Service, minutes: Sequence[int], *, topic: str = "changes") -> None:
    """Ten messages a minute, one of which has two words."""
    payloads = [b"ever Again"] + [b"ever"] * 9
    for minute in minutes:
        times_ns = [FIRST_NS + minute * MINUTE_NS + n for n in range(len(payloads))]
        with service.open_publisher(f"p{minute}") as publisher:
            publisher.put_many(topic, payloads, event_times_ns=times_ns)


def put_json(service: Service, topic: str, *values: dict[str, Any]) -> None:
    with service.open_publisher("p") as publisher:
        publisher.put_many(topic, values, codec="json", keys=[b"k"] * len(values))


def counted(service: Service, topic: str) -> list[tuple[str, str, int]]:
    """Minute, word and count of each message of a topic."""
    found = [json.loads(one) for one in service.payloads(topic)]
    return [(one["minute"][11:16], one["word"], one["count"]) for one in found]


def expected(minutes: Sequence[int]) -> list[tuple[str, str, int]]:
    return [
        (f"08:{minute:02}", word, count)
        for minute in minutes
        for word, count in (("again", 1), ("ever", 10))
    ]


class Runs:
    """Queries in the Spark of all tests."""

    def __init__(self, spark: SparkSession, service: Service) -> None:
        service.start_proxy()
        self.spark = spark
        self.service = service
        access = Access(service.subscriber_endpoint, service.publisher_endpoint, RETRY)
        spark.dataSource.register(job_format(access))

    def once(self, query: Query, writer: str) -> None:
        extents = {
            one.topic: TopicExtent(one.log, one.start, one.end)
            for one in self.service.status().topics
        }
        patiently(lambda: run_once(self.spark, query, extents, writer))

    def stream(self, query: Query, checkpoint: Path) -> None:
        """Until all is read that is stored now."""
        claim(checkpoint, query)

        def stream() -> None:
            follow(start_stream(self.spark, query, checkpoint, None, {}), query, lambda text: None)

        patiently(stream)


@pytest.fixture
def runs(spark: SparkSession, service: Service) -> Runs:
    return Runs(spark, service)


class TestOverWhatIsStored:
    def test_the_words_of_each_minute_are_counted_once(self, runs: Runs) -> None:
        put_minutes(runs.service, [0, 1])
        query = Query(sql=WORDS, topics=("changes",), target="words")

        runs.once(query, "run.a")
        runs.once(query, "run.a")

        assert sorted(counted(runs.service, "words")) == expected([0, 1])
        with runs.service.open_subscriber("s") as reader:
            one = reader.history("words", 0)[0]
        assert one.value["word"].encode() == one.key

    def test_topics_are_tables_that_can_be_joined_and_their_json_has_columns(
        self, runs: Runs
    ) -> None:
        put_json(runs.service, "orders/new", {"customer": 1, "n": 3}, {"customer": 2, "n": 5})
        put_json(runs.service, "customers", {"id": 1, "name": "Ada"}, {"id": 2})
        query = Query(
            sql="SELECT c.value.name, o.value.n FROM `orders/new` o "
            "JOIN customers c ON c.value.id = o.value.customer ORDER BY n",
            topics=("orders/new", "customers"),
            target="joined",
            fields={"orders/new": "customer int, n int", "customers": "id int, name string"},
        )

        runs.once(query, "run.b")

        found = [json.loads(one) for one in runs.service.payloads("joined")]
        assert found == [{"name": "Ada", "n": 3}, {"name": None, "n": 5}]

    def test_a_message_that_is_not_the_json_that_was_said_ends_it_with_advice(
        self, runs: Runs
    ) -> None:
        put_json(runs.service, "orders", {"n": "three"})
        query = Query(
            sql="SELECT value.n FROM orders",
            topics=("orders",),
            target="n",
            fields={"orders": "n int"},
        )

        with pytest.raises(UsageError, match=r"leave --json out and write from_json\(value"):
            runs.once(query, "run.c")

        assert [one.topic for one in runs.service.status().topics] == ["orders"]

    def test_the_command_says_how_many_it_has_put_and_how_many_were_there(
        self,
        runs: Runs,
        jobs_in_this_spark: SparkTasks,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("words.sql").write_text(WORDS)
        put_minutes(runs.service, [0])
        words = [
            *("words.sql", "--from", "changes", "--to", "words", "--endpoint"),
            *(runs.service.publisher_endpoint, "--subscriber-endpoint"),
            runs.service.subscriber_endpoint,
        ]

        said = [CliRunner().invoke(running.main, words) for _ in range(2)]
        Path("words.sql").write_text("SELECT nothing FROM changes")
        refused = CliRunner().invoke(running.main, words)

        assert [one.stdout for one in said] == [
            "done: 2 messages put on words, 0 were there\n",
            "done: 0 messages put on words, 2 were there\n",
        ]
        assert sorted(counted(runs.service, "words")) == sorted(expected([0]))
        assert refused.exit_code == 2
        assert refused.stderr.startswith("error [USAGE]: Spark refuses the query: A column")

    @pytest.mark.parametrize(
        ("words", "text"),
        [
            (["--continuous"], "give --checkpoint DIR"),
            (["--output-mode", "update"], "are of a run with --checkpoint"),
            (["--checkpoint", "c", "--run-id", "one"], "give one of the two"),
            (["--from", "b"], "would read its own results"),
        ],
    )
    def test_options_that_do_not_go_together_are_refused(
        self, tmp_path: Path, words: list[str], text: str
    ) -> None:
        (tmp_path / "q.sql").write_text("SELECT value FROM a")
        given = [str(tmp_path / "q.sql"), "--from", "a", "--to", "b", *words]

        refused = CliRunner().invoke(running.main, given)

        assert refused.exit_code == 2
        assert re.search(text, refused.stderr)


def test_temporary_views_are_read_and_inserted_into(runs: Runs) -> None:
    put_minutes(runs.service, [0], topic="a")
    reads = f"endpoint '{runs.service.subscriber_endpoint}', subscribe 'a'"
    puts = f"endpoint '{runs.service.publisher_endpoint}', topic 'b'"
    using = "USING reliable_pubsub OPTIONS"

    def act() -> None:
        runs.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW one {using} ({reads})")
        runs.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW two (value string) {using} ({puts})")
        runs.spark.sql("INSERT INTO two SELECT string(value) FROM one WHERE value != 'ever'")

    patiently(act)

    assert runs.service.payloads("b") == [b"ever Again"]


class TestOverWhatComes:
    def test_each_change_of_a_count_is_a_message_in_mode_update(
        self, runs: Runs, tmp_path: Path
    ) -> None:
        query = Query(
            sql=WORDS,
            topics=("changes",),
            target="words",
            watermark=("event_time", "1 minute"),
            output_mode="update",
        )
        put_minutes(runs.service, [0])
        runs.stream(query, tmp_path / "checkpoint")
        put_minutes(runs.service, [0, 1])
        runs.stream(query, tmp_path / "checkpoint")
        runs.stream(query, tmp_path / "checkpoint")

        first, later = expected([0]), [("08:00", "again", 2), ("08:00", "ever", 20), *expected([1])]
        found = counted(runs.service, "words")
        assert sorted(found[:2]) == first
        assert sorted(found[2:]) == sorted(later)

    def test_a_count_is_one_message_when_its_window_is_over_in_mode_append(
        self, runs: Runs, tmp_path: Path
    ) -> None:
        """The query itself says how late a message may come."""
        put_minutes(runs.service, [0, 1, 3])
        late = "FROM changes WATERMARK event_time DELAY OF INTERVAL 1 MINUTE"
        query = Query(sql=WORDS.replace("FROM changes", late), topics=("changes",), target="words")

        runs.stream(query, tmp_path / "checkpoint")

        assert sorted(counted(runs.service, "words")) == expected([0, 1])

    @pytest.mark.parametrize(
        ("sql", "mode", "text"),
        [
            ("SELECT key, count(*) FROM a GROUP BY key", "append", "--watermark 'timestamp 1 min"),
            ("SELECT value FROM a ORDER BY offset", "append", "leave ORDER BY out"),
            (
                "SELECT string(rank() OVER (ORDER BY offset)) AS value FROM a",
                "append",
                r"Group by window\(timestamp",
            ),
            (
                "SELECT l.value FROM a l LEFT JOIN a r ON l.key = r.key",
                "append",
                "Say how late a message may come",
            ),
            ("SELECT 1 AS n", "append", "reads none of the views `a`"),
            ("SELECT valu FROM a", "update", "A view has topic, offset, timestamp"),
            ("SELECT value FROM b", "update", "Views are the topics of --from: `a`"),
            ("SELEC value FROM a", "append", "PARSE_SYNTAX_ERROR"),
        ],
    )
    def test_what_spark_refuses_is_said_with_a_way_out(
        self, spark: SparkSession, tmp_path: Path, sql: str, mode: OutputMode, text: str
    ) -> None:
        nowhere = Access("tcp://127.0.0.1:9", "tcp://127.0.0.1:9", RETRY)
        spark.dataSource.register(job_format(nowhere))
        query = Query(sql=sql, topics=("a",), target="t", output_mode=mode)

        with pytest.raises(
            UsageError, match=f"(?s)(Spark refuses the query: .*|^the query ){text}"
        ):
            start_stream(spark, query, tmp_path / "c", None, {})


@pytest.mark.long
def test_counts_of_minutes_are_in_their_topic_once_when_driver_and_java_are_killed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a commit and Spark's note of it; by the file of the page, in mode append."""
    service.start_proxy()
    jobs = Jobs(service, monkeypatch)
    (service.directory / "configs").symlink_to(CONFIGS.parent)
    words = (
        *("run", "-f", "configs/pipeline/words.yaml", "--output-mode", "append", "--every", "0.1"),
        *("--checkpoint", service.directory / "checkpoint", "--master", "local[2]"),
        *("--conf", "spark.sql.shuffle.partitions=2"),
    )
    put_minutes(service, range(4))

    # The first commit is of the batch that reads, the second of the one that ends two minutes.
    with losing_link(service.publisher_endpoint, answers=1, kind=CommitAck) as link:
        jobs.endpoints(publisher=link.endpoint)
        query = jobs.start(*words)
        eventually(lambda: link.is_losing or query.exit_code, "second commit", timeout_s=BUSY_S)
        assert query.exit_code is None, query.stderr
        kill_with_its_java(query)
    stored = counted(service, "words")
    assert sorted(stored) == expected([0, 1])

    jobs.endpoints()
    query = jobs.start(*words)
    put_minutes(service, [4, 9])
    eventually(lambda: len(counted(service, "words")) >= 10, "later minutes", timeout_s=BUSY_S)
    assert query.terminate() == 0, query.stderr
    assert query.stderr.replace(JAVA_SAYS, "") == (
        "stopped: what is left is kept; run the same command again to continue\n"
    )

    assert counted(service, "words")[: len(stored)] == stored
    assert Counter(counted(service, "words")) == Counter(expected(range(5)))
