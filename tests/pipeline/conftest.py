"""One Spark for all tests; a proxy for each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from reliable_pubsub.pipeline import archiving, auditing, loading, running
from reliable_pubsub.pipeline.sessions import open_session
from reliable_pubsub.pipeline.tasks import SparkTasks
from tests.integration.harness import Service

from .object_store import BUCKET, ObjectStore
from .quick_java import java_options
from .quick_python import quick_python


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let each test take an hour: several starts of Spark, on a machine with other work."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(3_600))


@pytest.fixture(scope="session", autouse=True)
def python_of_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What each Spark of the tests starts for its own Python, here and in processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", str(quick_python(tmp_path_factory.mktemp("python"))))
        yield


@pytest.fixture(scope="session", autouse=True)
def object_store() -> Iterator[ObjectStore]:
    """Not started yet; but each process that a test starts, Java too, knows where it will be."""
    store = ObjectStore()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in store.environment.items():
            patch.setenv(name, value)
        yield store
    store.close()


@pytest.fixture
def bucket(object_store: ObjectStore, tmp_path: Path) -> str:
    """Where a test may put objects: s3://bucket/..."""
    object_store.start()
    return f"s3://{BUCKET}/{tmp_path.name}"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two workers; a task that fails is tried again, as on a cluster."""
    session = open_session(
        "tests",
        master="local[2,4]",
        conf={
            "spark.driver.extraJavaOptions": java_options(),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
        },
    )
    session.sparkContext.setLogLevel("OFF")  # a failing query is a test here, not a story
    yield session
    session.stop()


@pytest.fixture
def jobs_in_this_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkTasks:
    """Commands that are called in this process use the Spark of all tests."""
    tasks = SparkTasks(spark)
    for module in (archiving, auditing, loading, running):
        monkeypatch.setattr(module, "spark_tasks", lambda *_, **__: nullcontext(tasks))
    return tasks


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service in an empty directory; nothing runs yet, and nothing will be left."""
    with Service(tmp_path) as service:
        yield service
