"""The Spark of a session, and the meaning of its failures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reliable_pubsub.common.core.errors import ConfigurationError, PubSubError
from reliable_pubsub.pipeline.core.spark_failure import (
    SparkFailedError,
    SparkGoneError,
    failure_of,
)
from reliable_pubsub.pipeline.core.spark_settings import settings_of
from reliable_pubsub.pipeline.tasks import SparkTasks

# What Spark finds where a person has said nothing: by plain Python, and by spark-submit.
PLAIN = {
    "spark.master": "local[*]",
    "spark.app.name": "pyspark-shell",
    "spark.ui.showConsoleProgress": "true",
}
SUBMITTED = {"spark.master": "local[*]", "spark.app.name": "job.py"}


def settings(
    found: dict[str, str], said: dict[str, str] | None = None, *, submitted: bool = False
) -> dict[str, str]:
    """The settings that the session ends up with."""
    ours = settings_of(found, said or {}, name="ours", submitted=submitted)
    return {**found, **ours}


class TestASession:
    def test_is_all_cores_of_this_machine_without_pages_where_nothing_is_said(self) -> None:
        has = settings(PLAIN)

        assert has["spark.master"] == "local[*,4]"
        assert has["spark.app.name"] == "ours"
        assert has["spark.ui.enabled"] == "false"
        assert has["spark.driver.host"] == "127.0.0.1"
        assert has["spark.sql.shuffle.partitions"] == "8"

    def test_has_the_master_and_the_settings_of_spark_defaults(self) -> None:
        found = {"spark.master": "spark://m:7077", "spark.sql.shuffle.partitions": "64"}

        has = settings({**PLAIN, **found})

        assert {key: has[key] for key in found} == found
        assert not {"spark.ui.enabled", "spark.driver.host"} & has.keys()  # as Spark has them

    def test_of_spark_submit_is_as_it_was_submitted(self) -> None:
        found = {**SUBMITTED, "spark.master": "yarn", "spark.ui.enabled": "true"}

        has = settings(found, submitted=True)

        assert {key: has[key] for key in found} == found
        assert "spark.sql.shuffle.partitions" not in has

    def test_of_spark_submit_without_a_master_has_the_pages_of_spark(self) -> None:
        has = settings(SUBMITTED, submitted=True)

        assert has["spark.master"] == "local[*]"
        assert has["spark.app.name"] == "job.py"
        assert "spark.ui.enabled" not in has

    def test_has_what_the_call_says_before_everything_else(self) -> None:
        said = {"spark.master": "local[3]", "spark.ui.enabled": "true"}

        has = settings({**SUBMITTED, "spark.master": "yarn"}, said, submitted=True)

        assert {key: has[key] for key in said} == said


def length(text: str) -> int:
    return len(text)


def test_work_of_which_spark_gives_back_less_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local"))
    session.range = lambda *args: None
    monkeypatch.setattr(SparkTasks, "run_over", lambda *args: [[(0, 4)]])

    assert SparkTasks(session).run(length, ["four"]) == [4]
    with pytest.raises(SparkGoneError, match="less than it was asked for; run again"):
        SparkTasks(session).run(length, ["four", "three"])


MISSING = """Py4JJavaError: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times
Traceback (most recent call last):
ModuleNotFoundError: No module named 'reliable_pubsub'
"""
LOST = "Py4JJavaError: Job aborted due to stage failure: Task 1 failed 4 times: ExecutorLostFailure"
NO_MASTER = "Py4JJavaError: All masters are unresponsive! Giving up."
NO_PYTHON = 'Py4JJavaError: java.io.IOException: Cannot run program "/opt/py": error=2'
DEFECT = """Py4JJavaError: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times
Traceback (most recent call last):
ZeroDivisionError: division by zero
"""


class TestAFailureOfSpark:
    @pytest.mark.parametrize(
        ("text", "kind", "says"),
        [
            (MISSING, ConfigurationError, "is not there where Spark runs the tasks"),
            (NO_PYTHON, ConfigurationError, "no Python at /opt/py: set PYSPARK_PYTHON"),
            (NO_MASTER, SparkGoneError, "All masters are unresponsive"),
            (LOST, SparkFailedError, "ExecutorLostFailure"),
        ],
    )
    def test_is_one_paragraph_that_says_what_to_do(
        self, text: str, kind: type[PubSubError], says: str
    ) -> None:
        error = failure_of(text)

        assert type(error) is kind
        assert says in str(error)

    def test_that_is_our_own_defect_stays_a_traceback(self) -> None:
        assert failure_of(DEFECT) is None
