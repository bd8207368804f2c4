"""What happens to a query whose messages were removed."""

from __future__ import annotations

from collections.abc import Callable

from reliable_pubsub.common.core.errors import RefusedError


class DataLossError(RefusedError):
    """Messages that were to be read are not there (option failOnDataLoss)."""

    code = "DATA_LOSS"

    def __init__(self, *, topic: str, first: int, end: int, why: str) -> None:
        """`first` to `end` - 1 were wanted and are missing; `why` says what is there instead."""
        if end > first:
            what = f"offsets {first} to {end - 1} ({end - first} messages) cannot be read"
        else:
            what = f"offset {first} is no place in it"
        super().__init__(
            f"topic {topic!r}: {what}: {why}. Nothing was skipped. With failOnDataLoss=false a "
            "query continues with the messages that are there, and logs a warning"
        )
        self.skipped = f"topic {topic!r}: skipped offsets {first} to {end - 1}: {why}"
        self.topic = topic
        self.first = first
        self.end = end

    def raise_or_tell(self, fails: bool, tell: Callable[[str], object]) -> None:
        """Raise it, or where the options allow it tell what is skipped."""
        if fails:
            raise self
        tell(self.skipped)
