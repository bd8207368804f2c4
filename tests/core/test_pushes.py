"""What is pushed: a bounded queue that leaves in parts."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.limits import MIB
from reliable_pubsub.common.core.patterns.matching import EVERYTHING, Kinds
from reliable_pubsub.proxy.push.pushes import TURN_MAX, WAITING_BYTES_MAX, Pushes
from reliable_pubsub.relay.core.interest_table import InterestTable
from reliable_pubsub.relay.core.push import decode_push
from tests.fakes import an_append


@pytest.fixture
def pushes() -> Pushes:
    """Everything is wanted below."""
    table: InterestTable[bytes] = InterestTable(strategy="dedup", kinds=Kinds())
    table.replace(b"below", [EVERYTHING])
    return Pushes(boot="b", table=table)


class TestTheQueue:
    def test_is_bounded_and_counts_what_it_drops(self, pushes: Pushes) -> None:
        count = WAITING_BYTES_MAX // MIB + 3
        for base in range(count):
            pushes.take("t", "log", an_append(base, body=b"x" * MIB))

        kept = pushes.status().queued
        assert 0 < kept < count
        assert pushes.status().dropped == count - kept
        oldest, *_ = pushes.turn()
        assert decode_push(oldest.frames).pushed.batch.base == count - kept
        assert (pushes.status().sent, pushes.status().queued) == (kept, 0)

    def test_leaves_in_parts_so_that_requests_come_between(self, pushes: Pushes) -> None:
        for base in range(TURN_MAX + 1):
            pushes.take("t", "log", an_append(base))

        assert len(list(pushes.turn())) == TURN_MAX
        assert pushes.status().queued == 1
        assert len(list(pushes.turn())) == 1
        assert not list(pushes.turn())

    def test_takes_nothing_that_is_not_wanted(self) -> None:
        pushes = Pushes(boot="b")
        pushes.take("t", "log", an_append(0))

        assert not list(pushes.turn())
        assert pushes.status().dropped == 0
