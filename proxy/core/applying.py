"""Records change the state: `apply` when they are decided, `committed` when they are durable.

No other file changes what is or will be durable. The records are the same live, in the simulator
and in the store. Between the two steps the state has the change, but no client sees it.
"""

from __future__ import annotations

from collections.abc import Sequence

from .batches import LogBatch
from .state import Record, State


def apply(state: State, records: Sequence[Record]) -> None:
    """Change the state by records, which get the next numbers."""
    for record in records:
        state.lsn += 1
        record.apply(state)
        state.undurable.append((state.lsn, record))


def committed(state: State, lsn: int) -> list[LogBatch]:
    """The store has every record up to number `lsn`; return the batches that become readable."""
    assert state.durable_lsn <= lsn <= state.lsn, (state.durable_lsn, lsn, state.lsn)
    state.durable_lsn = lsn
    batches: list[LogBatch] = []
    topics = state.topic_by_id
    while state.undurable and state.undurable[0][0] <= lsn:
        _, record = state.undurable.popleft()
        if (batch := record.batch) is not None:
            batches.append(batch)
        record.has_become_durable(state)
    for batch in batches:
        topics[batch.topic_id].durable_end = batch.base + batch.count
        state.touched_topics.add(batch.topic_id)
    return batches
