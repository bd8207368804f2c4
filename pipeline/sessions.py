"""A Spark session that needs nothing but pip: Java, Python workers, the format, quiet logs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from .data_source import ReliablePubSubSource
from .java import java_home

DEFAULT_MASTER: Final = "local[*,4]"  # all cores; a task is tried four times, as on a cluster


def open_session(
    name: str = "reliable-pubsub",
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The running session, or a new one; the format `reliable_pubsub` is registered.

    Args:
        master: `local[4]`, `spark://host:7077`, `yarn`, ...; all cores of this machine if None.
        conf: more settings of Spark; they win.

    Raises:
        ConfigurationError: there is no Java.
    """
    home = java_home(os.environ)
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    # Spark starts the workers with `python3` of the PATH, which need not be this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    where = master or DEFAULT_MASTER
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "8",
        "spark.python.authenticate.socketTimeout": "120s",  # 15 are too few on a busy machine
    }
    if where.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    builder = SparkSession.builder.appName(name).master(where)
    for key, value in (settings | dict(conf or {})).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(ReliablePubSubSource)
    return spark
