"""A query of SQL without Spark: its input, the messages that its rows make, its reports."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reliable_pubsub.common.core.errors import RefusedError, UsageError
from reliable_pubsub.pipeline.computing import claim, follow, run_id_of
from reliable_pubsub.pipeline.core.planning import TopicExtent
from reliable_pubsub.pipeline.core.queries import (
    Query,
    message_columns,
    parse_query,
    query_error,
    quoted,
    view_columns,
)

QUERY = Query(sql="SELECT value FROM a", topics=("a",), target="b")


class TestACommandLine:
    def test_names_topics_fields_and_a_watermark(self) -> None:
        found = parse_query(
            "SELECT 1",
            ["a, b", "c", "a"],
            "d",
            ["b=n int, s string"],
            "timestamp 1 minute",
            "update",
        )

        assert found == Query(
            sql="SELECT 1",
            topics=("a", "b", "c"),
            target="d",
            fields={"b": "n int, s string"},
            watermark=("timestamp", "1 minute"),
            output_mode="update",
        )

    @pytest.mark.parametrize(
        ("sql", "target", "json", "watermark", "text"),
        [
            (" \n", "b", "", "", "the query is empty"),
            ("SELECT 1", "a", "", "", "would read its own results"),
            ("SELECT 1", "b", "a", "", "expected TOPIC=FIELDS"),
            ("SELECT 1", "b", "order=n int", "", "not one of --from; did you mean 'orders'"),
            ("SELECT 1", "b", "", "1 minute", "timestamp or event_time"),
            ("SELECT 1", "b", "", "timestamp", "and a delay"),
        ],
    )
    def test_that_cannot_be_says_why(
        self, sql: str, target: str, json: str, watermark: str, text: str
    ) -> None:
        with pytest.raises(UsageError, match=text):
            parse_query(sql, ["a,orders"], target, [json] if json else [], watermark, "append")


def test_a_topic_of_any_name_can_be_a_view() -> None:
    assert quoted("sensor/1.`heat`") == "`sensor/1.``heat```"


def test_the_fields_of_json_are_given_to_spark_as_one_text() -> None:
    (value,) = (one for one in view_columns("a string COMMENT 'x'") if one.endswith(" AS value"))

    assert value == (
        "from_json(string(value), 'a string COMMENT \\'x\\'', map('mode', 'FAILFAST')) AS value"
    )


class TestARow:
    def test_with_a_value_is_sent_as_it_is(self) -> None:
        assert message_columns([("value", "binary"), ("key", "binary")]) == [
            "value AS value",
            "cast(map() as map<string,string>) AS headers",
            "key AS key",
        ]

    def test_has_the_event_time_of_a_column_of_that_name(self) -> None:
        columns = [("value", "string"), ("event_time", "timestamp")]

        assert message_columns(columns)[-1] == "event_time"
        with pytest.raises(UsageError, match="is bigint, and not timestamp: convert it"):
            message_columns([("value", "string"), ("event_time", "bigint")])

    def test_without_one_is_a_json_object_and_says_so_in_a_header(self) -> None:
        payload, headers, key = message_columns(
            [("word", "string"), ("n", "bigint"), ("key", "int"), ("headers", "map<string,string>")]
        )

        assert payload.startswith("to_json(struct(`word`, `n`), map('ignoreNullFields', 'false'))")
        assert "map('content-type', 'application/json')" in headers
        assert "lower(name) != 'content-type'" in headers
        assert key == "string(key) AS key"

    @pytest.mark.parametrize(
        ("columns", "text"),
        [
            ([], "no column for the payload"),
            ([("key", "string")], "no column for the payload"),
            ([("value", "string"), ("n", "int")], "'n' beside it"),
            ([("value", "bigint")], "is bigint, and not binary or string"),
            ([("n", "int"), ("n", "int")], "two columns 'n'"),
            ([("n", "int"), ("headers", "string")], "not map<string,string>"),
        ],
    )
    def test_that_is_no_message_is_refused(self, columns: list[tuple[str, str]], text: str) -> None:
        with pytest.raises(UsageError, match=text):
            message_columns(columns)


class TestWhatSparkSays:
    @pytest.mark.parametrize(
        ("said", "advice"),
        [
            (
                "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: "
                "append. This output mode is not supported for streaming aggregations without "
                "watermark on streaming DataFrames/DataSets. SQLSTATE: 42KDE",
                "--watermark 'timestamp 1 minute'.*--output-mode update",
            ),
            (
                "[TABLE_OR_VIEW_NOT_FOUND] The table or view `x` cannot be found. SQLSTATE: 42P01",
                "Views are the topics of --from: `a`",
            ),
            (
                "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `valu` cannot be resolved. "
                "Did you mean [`value`]. SQLSTATE: 42703; line 1 pos 7;\n'Project ['valu]",
                "A view has topic, offset, timestamp, event_time, key, value",
            ),
            (
                "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to "
                "stage failure: Task 0: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012",
                r"Division by zero. \[DIVIDE_BY_ZERO\]",
            ),
        ],
    )
    def test_of_the_query_itself_names_what_to_do(self, said: str, advice: str) -> None:
        error = query_error(said, QUERY, analysed=False)

        assert error is not None
        assert error.exit_code == 2
        assert "SQLSTATE" not in str(error)
        with pytest.raises(UsageError, match=f"Spark refuses the query: .*{advice}"):
            raise error

    def test_without_a_code_is_its_first_line(self) -> None:
        said = "Sorting is not supported on streaming DataFrames;\n~Sort [value#8 ASC], true"

        error = query_error(said, QUERY, analysed=True)

        assert "leave ORDER BY out" in str(error)
        assert "~Sort" not in str(error)

    def test_of_something_else_is_no_matter_of_the_query(self) -> None:
        said = "[STREAM_FAILED] Query terminated: Connection refused SQLSTATE: XXKST"

        assert query_error(said, QUERY, analysed=False) is None


class TestACheckpoint:
    def test_is_that_of_the_query_that_began_it(self, tmp_path: Path) -> None:
        folder = tmp_path / "run" / "checkpoint"
        claim(folder, QUERY)

        claim(folder, QUERY)
        with pytest.raises(RefusedError, match="with another target: found 'c', begun with 'b'"):
            claim(folder, Query(sql=QUERY.sql, topics=QUERY.topics, target="c"))

    def test_is_no_folder_of_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "offsets").mkdir()

        with pytest.raises(RefusedError, match="not a checkpoint of this command"):
            claim(tmp_path, QUERY)


def test_messages_read_are_counted_batch_by_batch() -> None:
    reported = {"batchId": 0, "numInputRows": 500, "sources": []}
    query: Any = SimpleNamespace(recentProgress=[reported], awaitTermination=lambda _: True)
    told: list[str] = []

    assert follow(query, QUERY, told.append) == 500
    assert told == ["batch 0: 500 messages read, 0 left"]


def test_the_id_of_a_run_is_of_the_query_the_logs_and_the_ranges() -> None:
    extents = {"a": TopicExtent("log", 0, 5)}
    same = run_id_of(QUERY, extents)

    assert run_id_of(QUERY, extents) == same
    assert run_id_of(QUERY, {"a": TopicExtent("log", 0, 6)}) != same
    assert run_id_of(QUERY, {"a": TopicExtent("other", 0, 5)}) != same
    assert run_id_of(Query(sql="SELECT 1", topics=("a",), target="b"), extents) != same
