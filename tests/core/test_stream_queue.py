"""The batches of a stream: which is sent next, and what happens to those that are not stored."""

from __future__ import annotations

from collections import deque

import pytest

from reliable_pubsub.common.core.errors import InDoubtError
from reliable_pubsub.publisher.streams.core.stream_queue import (
    FULL_BATCHES_MAX,
    StreamBatch,
    StreamQueue,
)


def a_batch(due_at_s: float = 1.0) -> StreamBatch:
    return StreamBatch("t", None, due_at_s)


def test_the_batch_that_grows_is_sent_when_it_is_due_or_asked_for() -> None:
    for now_s, at_once, is_taken in ((0.9, False, False), (1.0, False, True), (0.0, True, True)):
        queue: StreamQueue[StreamBatch] = StreamQueue()
        batch = queue.begin(a_batch(1.0))

        assert queue.take(now_s, at_once=at_once) is (batch if is_taken else None)
        assert not queue.is_idle


def test_full_batches_are_sent_in_order_before_they_are_due_and_only_so_many_wait() -> None:
    queue: StreamQueue[StreamBatch] = StreamQueue()
    batches = [queue.begin(a_batch()) for _ in range(FULL_BATCHES_MAX + 1)]

    assert not queue.has_room
    assert [queue.take(0.0, at_once=False) for _ in batches] == [*batches[:-1], None]
    assert queue.has_room


class Interrupted(deque[StreamBatch]):
    """An exception of a signal handler comes right after a batch is added."""

    def append(self, batch: StreamBatch) -> None:
        super().append(batch)
        raise KeyboardInterrupt


@pytest.mark.parametrize("continues", [False, True])
def test_a_batch_that_was_full_when_a_put_was_interrupted_is_sent_once(continues: bool) -> None:
    queue: StreamQueue[StreamBatch] = StreamQueue()
    batch = queue.begin(a_batch())
    queue._full = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        queue.begin(a_batch())
    queue._full = deque(queue._full)
    if continues:
        queue.begin(a_batch())

    sent = [queue.take(2.0, at_once=True) for _ in range(4)]

    assert sent.count(batch) == 1
    assert len(set(map(id, filter(None, sent)))) == 1 + continues


def test_at_most_what_was_being_sent_is_kept_when_a_stream_ends() -> None:
    queue: StreamQueue[StreamBatch] = StreamQueue()
    batches = [queue.begin(a_batch()) for _ in range(3)]
    queue.take(0.0, at_once=False)
    error = InDoubtError("no answer")
    error.kept = True

    left = queue.end(error)

    assert [batch for batch, _ in left] == batches
    assert [getattr(why, "kept", None) for _, why in left] == [True, False, False]
    assert queue.is_idle
