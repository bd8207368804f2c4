"""The audit log: a JSON line for each refused request and each action of an operator.

It is in files of bounded size and number.

Refusals are written by a thread of their own (`logging.handlers`), so that a slow disk delays no
request. What is more than it can take is counted, and the next line says how many are missing.

An action is written at once, before its answer leaves, and no flood of refusals leaves it out. A
proxy that was killed between the commit and the line writes the line at its next start.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from pathlib import Path
from queue import Full, Queue
from typing import Any, Final

import msgspec

from .. import threads
from ..core.errors import ConfigurationError
from .core.authorisation import Denial
from .core.line_rate import LineRate

FILE_BYTES_MAX: Final = 8 * 1024 * 1024
FILES_MAX: Final = 4  # audit.jsonl, and three older ones
LINES_S_MAX: Final = 100
WAITING_MAX: Final = 1_000  # lines that the disk has not taken
_LOG = logging.getLogger("reliable_pubsub.audit")


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _record(event: str, fields: Mapping[str, Any], at_ns: int) -> logging.LogRecord:
    moment = datetime.fromtimestamp(at_ns / 1e9, UTC)
    facts = {"time": moment.isoformat(timespec="milliseconds"), "event": event, **fields}
    return _LOG.makeRecord(
        _LOG.name, logging.WARNING, "", 0, json.dumps(facts), (), None, extra={"audit": facts}
    )


class _File(RotatingFileHandler):
    """Warns once that it cannot write, instead of a traceback for each line."""

    has_failed = False
    warn: Callable[[str], None]

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=_for_its_owner)

    def handleError(self, record: logging.LogRecord) -> None:
        if not self.has_failed:
            self.has_failed = True
            self.warn(f"warning: the audit log {self.baseFilename} cannot be written")


class _Waiting(QueueHandler):
    """Counts what the queue does not take."""

    lost = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except Full:
            self.lost += 1


class _Writer(QueueListener):
    """Writes lines in a thread whose death is noticed."""

    def start(self) -> None:
        self._thread = threads.start(self._monitor, name="audit")  # type: ignore[attr-defined]


class AuditLog:
    """Writes refusals and actions; used by the loop thread only."""

    def __init__(
        self,
        path: Path | None,
        warn: Callable[[str], None],
        *,
        file_bytes_max: int = FILE_BYTES_MAX,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open it.

        Args:
            warn: called once, by another thread, if the file cannot be written.
            path: of the newest file; None: lines go to the logger `reliable_pubsub.audit` alone.

        Raises:
            ConfigurationError: the file cannot be opened.
        """
        self._now_s = now_s
        self._lines = LineRate(LINES_S_MAX)
        self._path = path
        self._waiting: _Waiting | None = None
        if path is None:
            return
        try:
            file = _File(path, maxBytes=file_bytes_max, backupCount=FILES_MAX - 1)
        except OSError as error:
            raise ConfigurationError(
                f"the audit log {path} cannot be opened: {error.strerror}"
            ) from error
        file.warn = warn
        queue: Queue[Any] = Queue(WAITING_MAX)
        self._waiting = _Waiting(queue)
        self._listener = _Writer(queue, file)
        self._file = file
        self._listener.start()

    def refused(self, denial: Denial) -> None:
        """Write one refusal; more than LINES_S_MAX in a second are counted only."""
        if not self._lines.admits(self._now_s()):
            return
        lost = self._waiting.lost if self._waiting else 0
        left_out = self._lines.take_left_out() + lost
        more = {"lines_left_out": left_out} if left_out else {}
        record = _record("denied", {**msgspec.structs.asdict(denial), **more}, time.time_ns())
        if self._waiting is not None:
            self._waiting.lost = 0
            self._waiting.handle(record)
        self._log(record)

    def knocked(self, key: str, left_out: int) -> None:
        """Write that a connection with an unknown key was refused; called by the thread of ZAP.

        Args:
            left_out: refusals since the last line that have none.
        """
        more = {"lines_left_out": left_out} if left_out else {}
        record = _record("unknown_key", {"key": key, **more}, time.time_ns())
        if self._waiting is not None:
            self._waiting.handle(record)
        self._log(record)

    def done(self, action: Mapping[str, Any], at_ns: int) -> None:
        """Write one action of an operator.

        Args:
            action: its `number` and other fields.
            at_ns: when it was done, by the wall clock.
        """
        record = _record("administered", action, at_ns)
        if self._waiting is not None:
            self._file.handle(record)
        self._log(record)

    def _log(self, record: logging.LogRecord) -> None:
        """Pass a line to the program's own handlers, also where there is no file."""
        if self._waiting is None or _LOG.hasHandlers():
            _LOG.handle(record)

    def numbers(self) -> set[int]:
        """The numbers of the actions in the files."""
        if self._path is None:
            return set()
        found: set[int] = set()
        for file in self._path.parent.glob(f"{self._path.name}*"):
            with file.open("rb") as lines:
                for line in lines:
                    with suppress(ValueError):  # cut short by a crash
                        fields = json.loads(line) if b'"administered"' in line else {}
                        if fields.get("event") == "administered":
                            found.add(fields["number"])
        return found

    def close(self) -> None:
        """Write what waits, and close the file."""
        if self._waiting is not None:
            try:
                self._listener.stop()
            except Full:
                return  # the disk hangs, and its thread ends with the process
            with suppress(OSError):  # full: the lines that were not written were reported
                self._file.close()
