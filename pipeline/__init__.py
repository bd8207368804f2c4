"""The pipeline: topics as Spark tables and streams, and the jobs that use them.

    from reliable_pubsub.pipeline import register

    register(spark)
    spark.readStream.format("reliable_pubsub").option("subscribe", "topic1").load()

Needs the extra `spark`: `pip install reliable-pubsub[spark]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from reliable_pubsub.common.core.arguments import checked
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.parameters import shown

from .core.progress import lag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["lag", "register", "session"]


def register(spark: SparkSession) -> None:
    """Teach a Spark session the format `reliable_pubsub`; doing it again is harmless."""
    if not hasattr(spark, "dataSource"):
        raise UsageError(
            f"register takes a Spark session, of Spark 4 or newer; this is {shown(spark)}"
        )
    from .sessions import register_format

    register_format(spark)


@checked
def session(
    name: str = "reliable-pubsub",
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A Spark session that knows the format: the running one, or a new one.

    What the call says counts first, then spark-submit and `spark-defaults.conf`, then our defaults:
    all cores of this machine, without Spark's web pages. See `sessions.open_session`.
    """
    from .sessions import open_session

    return open_session(name, master=master, conf=conf)
