"""Spark finds the format `reliable_pubsub` by this module: it looks for `pyspark_*` by itself.

An error here would hide the other data sources too, so what is not installed whole is
left out; `reliable_pubsub.pipeline.register(spark)` then says what is missing.
"""

from __future__ import annotations

from contextlib import suppress

with suppress(ImportError):
    from reliable_pubsub.pipeline.data_source import ReliablePubSubSource as DefaultSource

__all__ = ["DefaultSource"]
