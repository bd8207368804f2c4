"""Our message ends what Python prints of an error, with one frame of this package above it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.pipeline.data_source import ReliablePubSubSource
from reliable_pubsub.pipeline.spark_errors import without_our_frames

VALUES = StructType([StructField("value", BinaryType())])


@without_our_frames
class Failing:
    def read(self, partition: InputPartition) -> Iterator[int]:
        yield 1
        raise UsageError("no")


@pytest.mark.parametrize(
    "act",
    [
        lambda: ReliablePubSubSource({"colour": "red"}).schema(),
        lambda: ReliablePubSubSource({"colour": "red"}).streamWriter(VALUES, overwrite=False),
        lambda: [*Failing().read(InputPartition(0))],
    ],
)
def test_a_traceback_for_spark_is_short_and_ends_with_our_message(
    act: Callable[[], object],
) -> None:
    with pytest.raises(UsageError) as raised:
        act()

    lines = traceback.format_exception(raised.value)
    ours = [line for line in lines if "/pipeline/" in line and "/tests/" not in line]
    assert len(ours) == 1
    assert "spark_errors.py" in ours[0]
    assert lines[-1].startswith("reliable_pubsub.common.core.errors.UsageError: ")
