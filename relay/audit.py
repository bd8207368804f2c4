"""The audit log: a JSON line for each refused request, in files of bounded size and number.

Lines are written by a thread of their own (`logging.handlers`), so that a slow disk delays no
request. What is more than it can take is counted, and the next line says how many are missing.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from pathlib import Path
from queue import Full, Queue
from typing import Any, Final

import msgspec

from reliable_pubsub.common.core.errors import ConfigurationError

from .core.rights import Denial

FILE_BYTES_MAX: Final = 8 * 1024 * 1024
FILES_MAX: Final = 4  # audit.jsonl, and three older ones
LINES_S_MAX: Final = 100
WAITING_MAX: Final = 1_000  # lines that the disk has not taken
_LOG = logging.getLogger("reliable_pubsub.audit")


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


class _File(RotatingFileHandler):
    """Says once that it cannot write, instead of a traceback for each line."""

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


class AuditLog:
    """Writes refusals; used by the loop thread only."""

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
        self._second, self._lines, self._skipped = 0, 0, 0
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
        self._listener = QueueListener(queue, file)
        self._file = file
        self._listener.start()

    def write(self, denial: Denial) -> None:
        """Write one refusal; more than LINES_S_MAX in a second are counted only."""
        second = int(self._now_s())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines > LINES_S_MAX:
            self._skipped += 1
            return
        lost = self._waiting.lost if self._waiting else 0
        facts = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "event": "denied",
            **msgspec.structs.asdict(denial),
            **({"lines_left_out": self._skipped + lost} if self._skipped or lost else {}),
        }
        self._skipped = 0
        record = _LOG.makeRecord(
            _LOG.name, logging.WARNING, "", 0, json.dumps(facts), (), None, extra={"denial": facts}
        )
        if self._waiting is not None:
            self._waiting.lost = 0
            self._waiting.handle(record)
        if self._waiting is None or _LOG.hasHandlers():
            _LOG.handle(record)

    def close(self) -> None:
        """Write what waits, and close the file."""
        if self._waiting is not None:
            try:
                self._listener.stop()
            except Full:
                return  # the disk hangs, and its thread ends with the process
            self._file.close()
