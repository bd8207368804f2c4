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
from typing import Any, Final

import pyspark
from pyspark import SparkConf, SparkContext, SparkFiles
from pyspark.sql import SparkSession

from reliable_pubsub.common.core.errors import ConfigurationError, UsageError

from .core.spark_settings import CONNECT, DEFAULT_MASTER, runs_here, settings_of
from .data_source import ReliablePubSubSource
from .java import java_home

NAME: Final = "reliable-pubsub"
_LOG: Final = Path(__file__).with_name("log4j2.properties")
_PY_FILES: Final = "spark.submit.pyFiles"
_EXTRA: Final = "pip install 'reliable-pubsub[connect]'"


def open_session(
    name: str = NAME,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The running session as it is, or a new one; the format `reliable_pubsub` is registered.

    Args:
        name: of the application, unless spark-submit has given it one.
        master: `local[4]`, `spark://host:7077`, `yarn`, `sc://host`, ...; None: as Spark's own
            settings say, else all cores of this machine.
        conf: more settings of Spark; they win.

    Raises:
        ConfigurationError: there is no Java, or no client for Spark Connect.
        UsageError: a session runs, and its master is another one.
    """
    said, remote = _said(master, conf)
    running = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if running is not None and _lives(running):
        spark = _as_it_is(running, said)
    elif remote:
        spark = _connected(remote, said)
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
    if not is_connect(spark):
        context = spark.sparkContext
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
    """
    said, remote = _said(master, conf)
    if remote or SparkContext._gateway is not None:
        return
    _prepare()
    _local_ip(said)
    _AT_LAUNCH.update(said)
    with _quiet_java() if quiet else nullcontext():
        # Some settings take effect only when Java starts: memory, packages, options of Java.
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll([*said.items()]))


def _prepare() -> None:
    """Say where Java and Python are, unless that is said."""
    home = java_home(os.environ)
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    # Spark starts the workers with `python3` of the PATH, which need not be this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _said(master: str | None, conf: Mapping[str, str] | None) -> tuple[dict[str, str], str]:
    """What is said here, and the server of Spark Connect, or ""."""
    said = dict(conf or {}) | ({"spark.master": master} if master else {})
    remote = said.pop("spark.remote", os.environ.get("SPARK_REMOTE", ""))
    if said.get("spark.master", "").startswith(CONNECT):
        remote = said.pop("spark.master")
    return said, remote


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _lives(spark: SparkSession) -> bool:
    if is_connect(spark):
        return not getattr(spark, "is_stopped", False)
    context: Any = spark.sparkContext._jsc
    return context is not None and not context.sc().isStopped()


def _as_it_is(spark: SparkSession, said: Mapping[str, str]) -> SparkSession:
    """A session that runs: its own settings stay, but for those that are said now."""
    master = said.get("spark.master")
    if master and (is_connect(spark) or spark.sparkContext.master != master):
        its = "Spark Connect" if is_connect(spark) else spark.sparkContext.master
        raise UsageError(
            f"a Spark session with master {its} runs in this process, and {master} is asked for: "
            "stop that one first, or leave the master out"
        )
    for key, value in said.items():
        if key != "spark.master":
            spark.conf.set(key, value)
    return spark


def _connected(remote: str, said: Mapping[str, str]) -> SparkSession:
    """A session of Spark Connect. Its Java is the server's, unless `remote` is local.

    Raises:
        ConfigurationError: its client is not installed.
        UsageError: another master is named, too.
    """
    if "spark.master" in said:
        raise UsageError(
            f"master {said['spark.master']} is asked for, and SPARK_REMOTE says {remote}: Spark "
            "Connect has no master; unset one of the two"
        )
    if runs_here(remote):
        _prepare()
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        builder = SparkSession.builder.remote(remote)
        for key, value in said.items():
            if key != _PY_FILES:
                builder = builder.config(key, value)
        spark = builder.getOrCreate()
        if said.get(_PY_FILES):
            spark.addArtifacts(*said[_PY_FILES].split(","), pyfile=True)
        return spark
    except ImportError as error:
        raise ConfigurationError(f"Spark Connect needs more packages: {_EXTRA}") from error


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
