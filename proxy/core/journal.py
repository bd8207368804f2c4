"""The proxy's lines of a journal: each record, as soon as it is known to be durable.

They are written before the replies that depend on them leave, so that a journal never contains an
acknowledgement without its record. After a `kill -9` in between, the last commits may be missing,
which is why the checker also reads the final log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from reliable_pubsub.common.core.recorder import Recorder

from .lines import Lines
from .state import Record


class ProxyJournal:
    """Keeps records until they are durable, then writes them. Used by the loop thread."""

    def __init__(self, recorder: Recorder, topics: Iterable[tuple[int, str]]) -> None:
        """Create the journal of one proxy process.

        Args:
            topics: number and name of the topics that the store already holds.
        """
        self._lines = Lines(recorder.line, dict(topics))
        self._waiting: deque[tuple[int, Sequence[Record]]] = deque()

    def submitted(self, records: Sequence[Record], lsn: int) -> None:
        """Records were submitted to the committer; the last has number `lsn`."""
        self._waiting.append((lsn, records))

    def durable(self, lsn: int) -> None:
        """The store has everything up to number `lsn`.

        Raises:
            StorageFailedError: the journal cannot be written.
        """
        while self._waiting and self._waiting[0][0] <= lsn:
            for record in self._waiting.popleft()[1]:
                record.describe(self._lines)

    def forgotten(self) -> None:
        """A commit failed: drop the records that wait, they will not become durable."""
        self._waiting.clear()
