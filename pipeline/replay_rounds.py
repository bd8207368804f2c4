"""Ranges of a topic replayed side by side: tasks stage them, the driver commits them in order.

A message has the sequence that it has when one publisher puts the whole topic. So either way goes
on where the other one has stopped, and the proxy refuses a COMMIT that does not follow what is
stored, if two drivers should run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import Final

from reliable_pubsub.common.core.errors import PubSubError, StageLostError
from reliable_pubsub.common.core.limits import TRANSACTION_BYTES_MAX
from reliable_pubsub.common.core.transaction_messages import Part
from reliable_pubsub.publisher.writer import TransactionWriter

from .archive_tasks import seal_holds
from .numbered import SourceOutcome
from .replay_tasks import ReplayTopic, StagedPart, StagePart, stage_part, stored_of
from .tasks import Tasks

PARTS_MAX: Final = 8  # of a round: a proxy is busy with the work of about three cores
PART_BYTES_MAX: Final = TRANSACTION_BYTES_MAX // PARTS_MAX  # a round is staged in its memory
PART_RECORDS_MAX: Final = 100_000


class TopicRounds:
    """A topic: what is stored, and what the next round puts."""

    def __init__(self, work: ReplayTopic) -> None:
        """Ask the proxy how far it is. Raises as `stored_of`."""
        self.work = work
        self.before = self.done = stored_of(work)
        self._records = 0  # of a part; 0: how long they are is not known

    @property
    def is_done(self) -> bool:
        """Whether all of it is stored."""
        return self.done >= self.work.wanted.count

    def next_parts(self, parts_max: int) -> list[StagePart]:
        """The next messages, cut for so many tasks."""
        count = self._records or PART_RECORDS_MAX
        end = self.done + (parts_max * count if self._records else count)
        end = min(end, self.work.wanted.count)
        return [
            StagePart(
                part=self.work.part(first, min(first + count, end)),
                first_sequence=first + 1,
                transaction=self.done + 1,
                task=task,
                bytes_max=PART_BYTES_MAX,
            )
            for task, first in enumerate(range(self.done, end, count))
        ]

    def commit(self, parts: Sequence[StagePart], staged: Sequence[StagedPart]) -> int:
        """Make a round visible, up to the first part that is not whole; how many messages.

        Raises:
            As `TransactionWriter.commit`.
        """
        named: list[Part] = []
        count = size = 0
        for asked, one in zip(parts, staged, strict=True):
            if one.chunks:
                named.append(Part(asked.task, one.attempt, one.chunks))
            count += one.count
            size += one.held_bytes
            if one.count < asked.part.wanted.count:
                break
        access, before = self.work.access, self.done
        with TransactionWriter(
            self.work.client, endpoint=access.put_at, retry=access.retry
        ) as writer:
            reply = writer.commit(self.done + 1, named)
        # Committed before: by a request whose answer was lost, or by another driver.
        self.done = stored_of(self.work) if reply.already else self.done + count
        if count:
            fits = PART_BYTES_MAX * 4 // 5 * count // size
            self._records = max(1, min(fits, PART_RECORDS_MAX))
        return self.done - before

    @property
    def outcome(self) -> SourceOutcome:
        """Its outcome."""
        return SourceOutcome(self.work.source, self.before, self.done - self.before)


def replay_side_by_side(
    work: Sequence[ReplayTopic], tasks: Tasks, on_put: Callable[[int, str], None]
) -> list[SourceOutcome]:
    """Put what is not stored yet of several topics, round by round.

    Args:
        on_put: called with the number of messages that are put, and their topic.

    Raises:
        As `stage_part`, `stored_of` and `TopicRounds.commit`.
    """
    tasks.run(seal_holds, [one for topic in work for one in topic.files or ()])
    topics = [TopicRounds(one) for one in work]
    while going := [one for one in topics if not one.is_done][:PARTS_MAX]:
        parts = [one.next_parts(PARTS_MAX // len(going)) for one in going]
        try:
            staged = iter(tasks.run(stage_part, [*chain(*parts)]))
            for topic, asked in zip(going, parts, strict=True):
                count = topic.commit(asked, [*islice(staged, len(asked))])
                on_put(count, topic.work.target)
        except PubSubError as error:
            if error.code != StageLostError.code:
                raise
            # The proxy was started again, and has lost what was staged in its memory.
    return [one.outcome for one in topics]
