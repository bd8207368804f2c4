"""The rows of one input: row n is message n, and a note says which were put before. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from reliable_pubsub.common.core.batch import Batch, column, fit_in_a_batch, message_bytes
from reliable_pubsub.common.core.errors import PubSubError, UsageError
from reliable_pubsub.common.core.message_lines import PutRow
from reliable_pubsub.common.core.plan_mark import PlanMark

_KIND: Final = "put:"  # begins the digest of a mark that is of an input, not of a step file
ROWS_MAX: Final = 1_000  # in one request


class PutRows:
    """Counts the rows of an input, and compares those that were put before."""

    def __init__(self, seed: str, before: PlanMark | None, only: bytes | None = None) -> None:
        """Begin, or resume after the rows of a mark.

        Args:
            seed: topic and options, which are the same when an input is resumed.
            before: the publisher's last mark; None: put every row.
            only: the row of an input that has just one; another one is a new input.
        """
        if before is not None and only is not None:
            whole = PutRows(seed, None)
            whole.add(only)
            before = before if whole.mark.digest == before.digest else None
        self._digest = hashlib.sha256(seed.encode())
        self._before = before if before and before.digest.startswith(_KIND) else PlanMark("", 1)
        self.count = 0
        self.skipped = self._before.message

    @property
    def mark(self) -> PlanMark:
        """The mark of all rows so far."""
        return replace(self._before, digest=_KIND + self._digest.hexdigest(), message=self.count)

    def add(self, row: bytes) -> None:
        """Count a row.

        Raises:
            UsageError: the rows that were put before are others.
        """
        self._digest.update(b"%d:%b" % (len(row), row))
        self.count += 1
        if self.count == self.skipped and self.mark != self._before:
            raise self._differs()

    def check_end(self) -> None:
        """Raise UsageError: the input has fewer rows than were put before."""
        if self.count < self.skipped:
            raise self._differs()

    def _differs(self) -> UsageError:
        return UsageError(
            f"this id has put {self.skipped:,} rows of another input, topic or options. Nothing "
            "was put, so that no row is put twice. Use another id for another input; --again puts "
            "this one from its first row"
        )

    def batches(
        self, chunks: Iterable[Sequence[bytes]], read: Callable[[bytes, int], PutRow]
    ) -> Iterator[Batch]:
        """Yield the rows that were not put before, as many as fit into one request.

        An input that never pauses makes the same batches each time.

        Args:
            chunks: of rows; an empty one while the input pauses.
            read: makes a message of a row and its number.
        """
        kept: list[PutRow] = []
        size = 0
        for chunk in chunks:
            for raw in chunk:
                if self.count < self.skipped:
                    self.add(raw)
                    continue
                try:
                    row = read(raw, self.count + 1)
                except PubSubError:
                    yield from _batch(kept)
                    raise
                more = message_bytes(row.payload, row.key, row.headers, row.event_time_ns)
                if len(kept) == ROWS_MAX or not fit_in_a_batch(size + more, 1):
                    yield from _batch(kept)
                    kept, size = [], 0
                self.add(raw)
                kept.append(row)
                size += more
            if not chunk:
                yield from _batch(kept)
                kept, size = [], 0
        self.check_end()
        yield from _batch(kept)


def _batch(rows: Sequence[PutRow]) -> Iterator[Batch]:
    if rows:
        yield Batch(
            [row.payload for row in rows],
            column([row.key for row in rows]),
            column([row.headers or None for row in rows]),
            column([row.event_time_ns for row in rows]),
        )
