"""Work on Spark's tasks: values in, values out, and our errors as they are on the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import chain
from threading import Thread
from typing import Any, Final, TypeVar, get_type_hints

import msgspec
import pyarrow as pa
from msgspec import Struct
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from reliable_pubsub.common.core.errors import PubSubError
from reliable_pubsub.common.core.schemas import msgpack_decoder

from .core.spark_failure import NOT_STARTED, SparkGoneError, error_of_task, failure_of
from .reading import leave_out_of_collections

W = TypeVar("W")
R = TypeVar("R")
T = TypeVar("T")

GONE: Final = (Py4JError, ConnectionError, EOFError)  # what Python sees when Java has died
_ATTEMPTS: Final = 10


class _Failure(Struct, frozen=True):
    """An error as it travels. An exception would come as a traceback of Java."""

    code: str
    exit_code: int
    text: str

    def error(self) -> PubSubError:
        return error_of_task(self.code, self.exit_code, self.text)


def _answer_of(act: Callable[[], object]) -> bytes:
    """Return a result, or the PubSubError that replaced it (in a task)."""
    try:
        return b"+" + msgspec.msgpack.encode(act())
    except PubSubError as error:
        return b"-" + msgspec.msgpack.encode(_Failure(error.code, error.exit_code, str(error)))


def _read_answer(answer: bytes, kind: type[R]) -> R:
    if answer[:1] == b"-":
        raise msgpack_decoder(_Failure).decode(answer[1:]).error()
    return msgpack_decoder(kind).decode(answer[1:])


class SparkTasks:
    """Runs functions of a module on Spark, one task for each value."""

    def __init__(self, spark: SparkSession) -> None:
        """Take a session."""
        self.spark = spark

    def round_size(self) -> int:
        """Twice the cores of this moment: Spark may have more of them next time.

        More tasks than cores are what makes dynamic allocation ask for executors.
        """
        return max(2 * int(self.spark.sparkContext.defaultParallelism), 2)

    def run(self, act: Callable[[W], R], work: Sequence[W]) -> list[R]:
        """Give the results in the order of the work. All of it is one job of Spark.

        Args:
            act: a function of a module; its return annotation says what it gives.

        Every task is done once at least, and may be done again: by Spark, and here when a Python
        worker was not there in the time that Spark gives it, which is a matter of a busy machine.

        Raises:
            PubSubError: the first that a task met, with its code and exit code.
            SparkGoneError, SparkFailedError: Spark could not do it.
        """
        count = len(work)
        if not count:
            return []

        def some(batches: Iterator[pa.RecordBatch]) -> list[tuple[int, R]]:
            numbers = (n for batch in batches for n in batch.column("id").to_pylist())
            return [(n, act(work[n])) for n in numbers]

        result: Any = get_type_hints(act)["return"]
        kind: Any = list[tuple[int, result]]
        rows = partial(self.spark.range, 0, count, 1, count)
        found = dict(chain(*self.run_over(rows, some, kind)))
        if len(found) != count:
            raise SparkGoneError("Spark gave back less than it was asked for; run again to resume")
        return [found[number] for number in range(count)]

    def run_over(
        self,
        rows: Callable[[], DataFrame],
        act: Callable[[Iterator[pa.RecordBatch]], R],
        kind: type[R],
    ) -> list[R]:
        """Give the results of a function over each partition of a frame, in no order.

        Every partition is read once at least, and may be read again. Raises as `run`.
        """

        def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            leave_out_of_collections()
            answered = pa.array([_answer_of(lambda: act(batches))], pa.binary())
            yield pa.RecordBatch.from_arrays([answered], ["answer"])

        def collect() -> list[bytes]:
            return [
                bytes(row.answer) for row in rows().mapInArrow(answer, "answer binary").collect()
            ]

        return [_read_answer(one, kind) for one in self.carry_out(collect)]

    def carry_out(self, act: Callable[[], T]) -> T:
        """Do something with Spark that may be done again, as `run` does. Raises as `run`."""
        for _ in range(_ATTEMPTS):
            try:
                return self._in_a_thread(act)
            except (*GONE, PySparkException) as error:
                if NOT_STARTED in str(error):
                    continue
                raise_known(error)
                if isinstance(error, Py4JJavaError | PySparkException):
                    raise
                raise SparkGoneError(
                    "Spark's Java process has ended in the middle of the work (was it killed, is "
                    "there memory?). What was finished stays: run the same command again to resume"
                ) from error
        raise SparkGoneError("no Python worker was there in time; run again to resume")

    def _in_a_thread(self, act: Callable[[], T]) -> T:
        """Do it in a thread: after a signal in this one, Java's next answer would be an old one."""
        done: Future[T] = Future()

        def do() -> None:
            try:
                # Spark looks for formats in the session of the thread that asks.
                session: Any = self.spark
                java = SparkSession._get_j_spark_session_class(session._jvm)
                java.setActiveSession(session._jsparkSession)
                done.set_result(act())
            except BaseException as error:  # it is raised where the result is asked for
                done.set_exception(error)

        Thread(target=do, daemon=True).start()
        return done.result()


def raise_known(error: BaseException) -> None:
    """Raise what an error of Spark means, if that is known.

    Raises:
        PubSubError.
    """
    known = failure_of(f"{type(error).__name__}: {error}")
    if known is not None:
        raise known from error
