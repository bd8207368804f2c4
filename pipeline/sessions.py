"""A Spark session: the user's own where one is configured, else one that needs only pip.

Settings come, the first wins, from the call, from spark-submit, `spark-defaults.conf` and
`PYSPARK_SUBMIT_ARGS`, and from us (`core/spark_settings.py`).
"""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

import pyspark
from pyspark import SparkConf, SparkContext, SparkFiles
from pyspark.sql import SparkSession

from reliable_pubsub.common.core.errors import UsageError

from .core.spark_settings import DEFAULT_MASTER, runs_here, settings_of
from .data_source import ReliablePubSubSource
from .java import java_home

_LOG: Final = Path(__file__).with_name("log4j2.properties")


def open_session(
    name: str = "reliable-pubsub",
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The running session as it is, or a new one; the format `reliable_pubsub` is registered.

    Args:
        name: of the application, unless spark-submit has given it one.
        master: `local[4]`, `spark://host:7077`, `yarn`, ...; None: as Spark's own settings say,
            else all cores of this machine.
        conf: more settings of Spark; they win.

    Raises:
        ConfigurationError: there is no Java.
        UsageError: a session runs, and its master is another one; or Spark Connect is asked for.
    """
    said = _said(master, conf)
    running = SparkSession._instantiatedSession
    if running is not None and SparkContext._active_spark_context is not None:
        spark = _as_it_is(running, said)
    else:
        start_java(master, conf)
        submitted = "PYSPARK_GATEWAY_PORT" in os.environ
        found = dict(set(SparkConf().getAll()) - _AT_LAUNCH.items())
        builder = SparkSession.builder
        for key, value in settings_of(found, said, name=name, submitted=submitted).items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    register_format(spark)
    return spark


def register_format(spark: SparkSession) -> None:
    """Teach a session the format.

    The process in which the driver of a stream runs its source does not get what `--py-files` has
    sent to all others (Spark 4.3), so it is told by the environment.
    """
    context = getattr(spark, "sparkContext", None)  # a session of Spark Connect has none
    if context is not None:
        sent = [SparkFiles.get(name) for name in getattr(context, "_python_includes", None) or ()]
        known = context.environment.get("PYTHONPATH", "").split(os.pathsep)
        paths = [*filter(None, known), *(path for path in sent if path not in known)]
        if sent:
            context.environment["PYTHONPATH"] = os.pathsep.join(paths)
        if not sent and _finds_by_itself():
            return  # Spark would warn that this replaces a format that it knows
    spark.dataSource.register(ReliablePubSubSource)


def _finds_by_itself() -> bool:
    """Return whether Spark finds `pyspark_reliable_pubsub`, as it looks for such modules."""
    same_python = os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable
    found = (one.name for one in pkgutil.iter_modules())
    return same_python and "pyspark_reliable_pubsub" in found


def start_java(master: str | None, conf: Mapping[str, str] | None, *, quiet: bool = False) -> None:
    """Start the Java of a classic session, unless it runs.

    Args:
        quiet: it says errors only, unless a log4j2 configuration of the user's says more.

    Raises:
        ConfigurationError: there is none.
        UsageError: Spark Connect is asked for.
    """
    said = _said(master, conf)
    if SparkContext._gateway is not None:
        return
    home = java_home(os.environ)
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    # Spark starts the workers with `python3` of the PATH, which need not be this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    _local_ip(said)
    _AT_LAUNCH.update(said)
    with _quiet_java() if quiet else nullcontext():
        # Some settings take effect only when Java starts: memory, packages, options of Java.
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll([*said.items()]))


def _said(master: str | None, conf: Mapping[str, str] | None) -> dict[str, str]:
    """What is said here.

    Raises:
        UsageError: Spark Connect is asked for.
    """
    said = dict(conf or {}) | ({"spark.master": master} if master else {})
    remote = said.get("spark.remote", os.environ.get("SPARK_REMOTE", ""))
    if remote or said.get("spark.master", "").startswith("sc://"):
        raise UsageError(
            f"{remote or said['spark.master']} is a server of Spark Connect, and the jobs and "
            "session() need a Spark of their own: give another master, and unset SPARK_REMOTE. To "
            "read and write topics over Spark Connect, make the session by "
            "SparkSession.builder.remote(...) and call register(spark)"
        )
    return said


def _as_it_is(spark: SparkSession, said: Mapping[str, str]) -> SparkSession:
    """A session that runs: its own settings stay, but for those that are said now."""
    master = said.get("spark.master")
    if master and spark.sparkContext.master != master:
        raise UsageError(
            f"a Spark session with master {spark.sparkContext.master} runs in this process, and "
            f"{master} is asked for: stop that one first, or leave the master out"
        )
    for key, value in said.items():
        if key != "spark.master":
            spark.conf.set(key, value)
    return spark


_AT_LAUNCH: Final[dict[str, str]] = {}  # what Java was started with by us: no word of the user's


def _configured(name: str) -> bool:
    """Whether Spark has such a file of the user's."""
    home = os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent)
    return Path(os.environ.get("SPARK_CONF_DIR", Path(home, "conf")), name).is_file()


def _local_ip(said: Mapping[str, str]) -> None:
    """Let a Spark of this machine alone ignore what the name of the machine resolves to."""
    elsewhere = _configured("spark-defaults.conf") or "PYSPARK_SUBMIT_ARGS" in os.environ
    if runs_here(said.get("spark.master", "" if elsewhere else DEFAULT_MASTER)):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


@contextmanager
def _quiet_java() -> Iterator[None]:
    """Start Java with our log settings, unless the user has some."""
    before = os.environ.get("SPARK_SUBMIT_OPTS", "")
    if "log4j" in before or _configured("log4j2.properties"):
        yield
        return
    os.environ["SPARK_SUBMIT_OPTS"] = f"{before} -Dlog4j2.configurationFile={_LOG.as_uri()}".strip()
    try:
        yield
    finally:
        os.environ["SPARK_SUBMIT_OPTS"] = before
