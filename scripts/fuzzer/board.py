"""The board: numbers that the processes of a siege share, each written by one of them."""

from __future__ import annotations

import multiprocessing
from typing import Any

# Forked from a process that has imported everything and made no client: an import is most of what a
# client costs that works for a few seconds.
forked = multiprocessing.get_context("forkserver")
forked.set_forkserver_preload(["scripts.fuzzer.siege"])

SLOTS = (
    "puts",  # acknowledged to the honest publisher
    "deliveries",  # handed over to the honest subscriber
    "pushed_deliveries",  # to the one that is pushed to
    "put_us",  # the longest that a put of the honest publisher took
    "deliveries_us",  # the longest that an honest subscriber had nothing
    "pushed_deliveries_us",
    "attacks",  # connections begun without a key
    "intrusions",  # connections begun with a key
    "denials",  # answers DENIED to them
    "answers_beyond_rights",  # all other answers to them
    "flood",  # 1: the hostile attack
    "publishing_ends",
    "delivering_ends",
    "all_end",
)


class Board:
    """Named numbers in shared memory."""

    def __init__(self) -> None:
        self._array: Any = forked.RawArray("q", len(SLOTS))

    def __getitem__(self, slot: str) -> int:
        return int(self._array[SLOTS.index(slot)])

    def __setitem__(self, slot: str, value: int) -> None:
        self._array[SLOTS.index(slot)] = value

    def add(self, slot: str) -> None:
        """One more; from one process only."""
        self[slot] += 1

    def longest(self, slot: str, duration_s: float) -> None:
        """Keep the longest; from one process only."""
        self[slot] = max(self[slot], int(duration_s * 1e6))
