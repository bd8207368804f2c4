"""Work on Spark's tasks: values in, values out, and our errors as they are on the driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import chain
from threading import Thread
from typing import Any, Final, Protocol, TypeVar, get_type_hints
from uuid import uuid4

import msgspec
import pyarrow as pa
from msgspec import Struct
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from reliable_pubsub.common.command_line import complain
from reliable_pubsub.common.core.errors import PubSubError
from reliable_pubsub.common.core.schemas import msgpack_decoder

from .core.cores import CoreWait, JobProgress
from .core.spark_failure import NOT_STARTED, SparkGoneError, error_of_task, failure_of
from .core.spark_settings import runs_here
from .reading import leave_out_of_collections
from .sessions import is_connect

W = TypeVar("W")
R = TypeVar("R")
T = TypeVar("T")

GONE: Final = (Py4JError, ConnectionError, EOFError)  # what Python sees when Java has died
LOOK_S: Final = 0.5  # between two looks at a running job
_ATTEMPTS: Final = 10
OnDone = Callable[[int], None]


def unshown(done: object) -> None:
    """Show nothing."""


class Tasks(Protocol):
    """Where work is done."""

    def run(self, act: Callable[[W], R], work: Sequence[W], on_done: OnDone = unshown) -> list[R]:
        """Give the results in the order of the work.

        Args:
            act: a function of a module; its return annotation says what it gives.
            on_done: called with the number of those that are newly done.
        """

    def round_size(self) -> int:
        """How many to give at a time now, so that no core is idle."""


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
        self._is_connect = is_connect(spark)
        self._where = "Spark Connect" if self._is_connect else str(spark.sparkContext.master)
        self._group = ""

    @property
    def elsewhere(self) -> bool:
        """Whether tasks may run on other machines."""
        return not runs_here(self._where)

    def round_size(self) -> int:
        """Twice the cores of this moment: Spark may have more of them next time.

        More tasks than cores are what makes dynamic allocation ask for executors.
        """
        if not self._is_connect:
            return max(2 * int(self.spark.sparkContext.defaultParallelism), 2)
        # As many as Spark cuts a table into by default.
        return max(2 * self.spark.range(0, 1 << 20).mapInArrow(_one_row, "n bigint").count(), 2)

    def run(self, act: Callable[[W], R], work: Sequence[W], on_done: OnDone = unshown) -> list[R]:
        """Give the results in the order of the work. All of it is one job of Spark.

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
        found = dict(chain(*self.run_over(rows, some, kind, on_done, count)))
        if len(found) != count:
            raise SparkGoneError("Spark gave back less than it was asked for; run again to resume")
        return [found[number] for number in range(count)]

    def run_over(
        self,
        rows: Callable[[], DataFrame],
        act: Callable[[Iterator[pa.RecordBatch]], R],
        kind: type[R],
        on_done: OnDone = unshown,
        count: int = 0,
    ) -> list[R]:
        """Give the results of a function over each partition of a frame, in no order.

        Args:
            count: of the partitions, if it is known.

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

        return [_read_answer(one, kind) for one in self._answered(collect, count, on_done)]

    def rows(self, frame: DataFrame) -> list[Row]:
        """Collect the rows of a frame. Raises as `run`."""
        return self._answered(frame.collect, 0, unshown)

    def carry_out(self, act: Callable[[], T]) -> T:
        """Do something with Spark that may be done again, as `run` does. Raises as `run`."""
        (done,) = self._answered(lambda: [act()], 0, unshown)
        return done

    def _answered(self, job: Callable[[], list[T]], count: int, on_done: OnDone) -> list[T]:
        for _ in range(_ATTEMPTS):
            try:
                return self._watched(job, count, on_done)
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

    def _watched(self, job: Callable[[], list[T]], count: int, on_done: OnDone) -> list[T]:
        """Do it in a thread, so that this one sees how far it is, and hears signals."""
        answered: Future[list[T]] = Future()

        def collect() -> None:
            try:
                self._begin()
                answered.set_result(job())
            except BaseException as error:  # it is raised where the job was asked for
                answered.set_exception(error)

        thread = Thread(target=collect, daemon=True)
        thread.start()
        wait = CoreWait(time.monotonic(), self._where)
        told = 0
        while thread.is_alive():
            thread.join(LOOK_S)
            advance = self._progress() if thread.is_alive() else JobProgress(0, count)
            sentence = wait.look(time.monotonic(), advance)
            if sentence and not answered.done():
                complain(sentence)
            if advance.done > told and not (answered.done() and answered.exception()):
                on_done(advance.done - told)
                told = advance.done
        return answered.result()

    def _begin(self) -> None:
        """Begin a job in this thread. Spark Connect has neither active sessions nor job groups."""
        if self._is_connect:
            return
        # Spark looks for formats that were registered in the session of the thread that asks.
        session: Any = self.spark
        java = SparkSession._get_j_spark_session_class(session._jvm)
        java.setActiveSession(session._jsparkSession)
        self._group = group = f"reliable-pubsub-{uuid4()}"
        session.sparkContext.setJobGroup(group, "reliable-pubsub")  # of this thread

    def _progress(self) -> JobProgress:
        """Return how far the job is; asked by another thread. Spark Connect does not say."""
        if self._is_connect:
            return JobProgress(is_planned=False)
        tracker = self.spark.sparkContext.statusTracker()
        running = done = 0
        is_planned = False
        for job in tracker.getJobIdsForGroup(self._group):
            about = tracker.getJobInfo(job)
            is_planned |= about is not None and about.status == "RUNNING"
            for stage in about.stageIds if about else ():
                tasks = tracker.getStageInfo(stage)
                if tasks:
                    running += tasks.numActiveTasks
                    done += tasks.numCompletedTasks
        return JobProgress(running, done, is_planned)


def raise_known(error: BaseException) -> None:
    """Raise what an error of Spark means, if that is known.

    Raises:
        PubSubError.
    """
    known = failure_of(f"{type(error).__name__}: {error}")
    if known is not None:
        raise known from error


def _one_row(batches: Any) -> Any:
    """A row for each task that has rows."""
    if next(iter(batches), None) is not None:
        yield pa.RecordBatch.from_pydict({"n": pa.array([1], pa.int64())})
