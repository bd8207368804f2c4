"""Work on Spark's tasks: values in, values out, and our errors as they are on the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from msgspec import Struct
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from reliable_pubsub.common.core.errors import (
    ConfigurationError,
    DamagedError,
    InDoubtError,
    PubSubError,
    RefusedError,
)

W = TypeVar("W")
R = TypeVar("R")

GONE: Final = (Py4JError, ConnectionError, EOFError)  # what Python sees when Java has died


class SparkGoneError(InDoubtError):
    """The Java process of Spark has ended while it had work to do."""

    code = "SPARK_GONE"


class Tasks(Protocol):
    """Where work is done."""

    def run(self, act: Callable[[W], R], work: Sequence[W]) -> list[R]:
        """Give the results in the order of the work."""


_ATTEMPTS: Final = 10
_NOT_STARTED: Final = "Python worker failed to connect back"
_BY_EXIT_CODE: Final[dict[int, type[PubSubError]]] = {
    kind.exit_code: kind for kind in (ConfigurationError, InDoubtError, RefusedError, DamagedError)
}


class _Failure(Struct, frozen=True):
    """An error as it travels. An exception would come as a traceback of Java."""

    code: str
    exit_code: int
    text: str

    def error(self) -> PubSubError:
        error = _BY_EXIT_CODE.get(self.exit_code, PubSubError)(self.text)
        error.code = self.code
        return error


class SparkTasks:
    """Runs functions of a module on Spark, one task for each value."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext

    @property
    def parallel(self) -> int:
        """How many run at a time."""
        return int(self._context.defaultParallelism)

    def run(self, act: Callable[[W], R], work: Sequence[W]) -> list[R]:
        """Give the results in the order of the work.

        Every task is done once at least, and may be done again: by Spark, and here when a Python
        worker was not there in the time that Spark gives it, which is a matter of a busy machine.

        Raises:
            PubSubError: the first that a task met, with its code and exit code.
        """
        if not work:
            return []

        def attempt(one: W) -> R | _Failure:
            try:
                return act(one)
            except PubSubError as error:
                return _Failure(error.code, error.exit_code, str(error))

        results: list[R | _Failure] = []
        for number in range(_ATTEMPTS):
            try:
                results = self._context.parallelize(work, len(work)).map(attempt).collect()
                break
            except Py4JJavaError as error:
                if _NOT_STARTED not in str(error) or number == _ATTEMPTS - 1:
                    raise
            except GONE as error:
                raise SparkGoneError(
                    "Spark's Java process has ended in the middle of the work (was it killed, is "
                    "there memory?). What was finished stays: run the same command again to resume"
                ) from error
        if len(results) != len(work):
            raise SparkGoneError("Spark gave back less than it was asked for; run again to resume")
        done: list[R] = []
        for result in results:
            if isinstance(result, _Failure):
                raise result.error()
            done.append(result)
        return done
