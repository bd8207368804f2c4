"""Translates failures of Spark for the user of a job. Pure: texts in, PubSubErrors out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from reliable_pubsub.common.core.errors import (
    ConfigurationError,
    DamagedError,
    InDoubtError,
    PubSubError,
    RefusedError,
)

NOT_STARTED: Final = "Python worker failed to connect back"
RECIPES: Final = (
    'Install it there, or send it along: docs/how-to/pipeline.md, "The package on a cluster"'
)
_MISSING: Final = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_NO_PYTHON: Final = re.compile(r'Cannot run program "([^"]+)"')
_VERSIONS: Final = re.compile(r"PYTHON_VERSION_MISMATCH[^\n]*")
_UNREADABLE: Final = re.compile(
    r"\[(?:MALFORMED_RECORD_IN_PARSING|FAILED_READ_FILE|MALFORMED_CSV_RECORD|DATA_SOURCE_NOT_FOUND|"
    r"PATH_NOT_FOUND|UNABLE_TO_INFER_SCHEMA)[^\n]*"
)
_ABORTED: Final = re.compile(r"Job aborted due to stage failure: ([^\n]+)")
# The last line of a traceback of a task of the source.
_OURS: Final = re.compile(r"^reliable_pubsub\.[\w.]*\.(\w+): (.+)$", re.MULTILINE)
_BY_EXIT_CODE: Final[dict[int, type[PubSubError]]] = {
    kind.exit_code: kind for kind in (ConfigurationError, InDoubtError, RefusedError, DamagedError)
}
_NO_MASTER: Final = re.compile(
    r"All masters are unresponsive|SparkContext was shut down|has been stopped|"
    r"StatusCode\.UNAVAILABLE|Master removed our application"
)


class SparkGoneError(InDoubtError):
    """The Java process of Spark has ended while it had work to do."""

    code = "SPARK_GONE"


class SparkFailedError(InDoubtError):
    """Spark has given up a job."""

    code = "SPARK_FAILED"


def error_of_task(code: str, exit_code: int, text: str) -> PubSubError:
    """A PubSubError that has come from a task, where it may have been of a closer type."""
    error = _BY_EXIT_CODE.get(exit_code, PubSubError)(text)
    error.code = code
    return error


def _error_in(text: str) -> PubSubError | None:
    """The PubSubError that ended a task, if that is in its traceback."""
    for found in _OURS.finditer(text):
        for kind in _kinds(PubSubError):
            if kind.__name__ == found[1]:
                return error_of_task(kind.code, kind.exit_code, found[2])
    return None


def _kinds(kind: type[PubSubError]) -> Iterator[type[PubSubError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _kinds(one)


def failure_of(text: str) -> PubSubError | None:
    """The error that a text of Spark means; None if it is none of those that are known.

    Args:
        text: type and message of an exception, with the traceback of a task if there is one.
    """
    missing = _MISSING.search(text)
    if missing and missing[1].split(".")[0] in _SHIPPED:
        return ConfigurationError(
            f"{missing[1]} is not there where Spark runs the tasks. {RECIPES}"
        )
    if told := _error_in(text):
        return told
    if found := _NO_PYTHON.search(text):
        return ConfigurationError(
            f"the workers have no Python at {found[1]}: set PYSPARK_PYTHON to where theirs is (and "
            "PYSPARK_DRIVER_PYTHON to the one of this machine)"
        )
    if found := _VERSIONS.search(text):
        return ConfigurationError(
            f"the workers have another Python than this machine: {found[0]:.300}. Set "
            "PYSPARK_PYTHON to one of the same minor version"
        )
    if found := _UNREADABLE.search(text):
        return ConfigurationError(f"Spark cannot read the files: {found[0]:.400}")
    if _NO_MASTER.search(text):
        return SparkGoneError(
            f"Spark does not answer, or has ended: {first_line(text)}. What was finished stays: "
            "run the same command again to resume"
        )
    if found := _ABORTED.search(text):
        if "Traceback (most recent call last)" in text:
            return None  # of a task: our own defect, shown whole
        return SparkFailedError(
            f"Spark has given up: {found[1]:.300}. What was finished stays: run the same command "
            "again to resume"
        )
    return None


_SHIPPED: Final = ("reliable_pubsub", "zmq", "msgspec", "yaml", "click", "rich", "pyarrow")


def first_line(text: str) -> str:
    """What an error says first, without what Java adds."""
    return (text.strip().splitlines() or [""])[0][:300]
