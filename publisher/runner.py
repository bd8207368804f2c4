"""Runs a publisher's step file: each message of the plan once, whatever dies in between."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.errors import ConfigurationError, TooLargeError
from reliable_pubsub.common.core.plan_mark import PlanMark, mark_of
from reliable_pubsub.common.core.steps import (
    PlanPosition,
    PublisherStep,
    PutChunk,
    message_lines,
    payload_of,
    plan_digest,
    publisher_chunks,
)
from reliable_pubsub.common.progress import Advance, message_in_words
from reliable_pubsub.common.system import system_errors

from .client import Publisher
from .core.receipt import Receipt

SENT_LINES_MAX: Final = 200  # of one run, with a message each
SENT_BYTES_MAX: Final = 200  # of its payload that are shown
SENT_EVERY: Final = 10_000  # messages for each line after that


def _content(path: Path, place: str) -> bytes:
    with system_errors(
        lambda error: ConfigurationError(
            f"{place}: {path} cannot be read: {error.strerror} (a relative name begins in the "
            "folder of the step file)"
        )
    ):
        return path.read_bytes()


class PublisherPlan:
    """The steps of a file, with the message files they name."""

    def __init__(self, steps: Sequence[PublisherStep], step_file: Path) -> None:
        """Read the message files; a relative one begins where the step file is.

        Raises:
            ConfigurationError: a message file cannot be read.
        """
        self.steps = steps
        self._lines: dict[str, tuple[bytes, ...]] = {}
        digests: dict[str, str] = {}
        for index, step in enumerate(steps):
            name = step.message_file
            if name is None or name in self._lines:
                continue
            path = step_file.parent / name
            content = _content(path, f"{step_file}, steps[{index}].message_file")
            self._lines[name] = message_lines(content)
            digests[name] = hashlib.sha256(content).hexdigest()
        self.digest = plan_digest(steps, digests)

    @property
    def numbered_topics(self) -> Sequence[str]:
        """The topics of its steps at QoS 2, each once."""
        return list(dict.fromkeys(step.topic for step in self.steps if step.qos == 2))

    def lines_of(self, step: PublisherStep) -> tuple[bytes, ...]:
        """The messages of a step's file; none if it has no file."""
        return self._lines[step.message_file] if step.message_file is not None else ()

    def line_count(self, index: int) -> int:
        """How many messages the file of a step has."""
        return len(self.lines_of(self.steps[index]))

    def chunks(self, position: PlanPosition) -> Iterator[PutChunk]:
        """The remaining requests from a position."""
        return publisher_chunks(self.steps, position, self.line_count)

    def payloads(self, chunk: PutChunk, first_sequence: int) -> list[bytes]:
        """The messages of a request, if its first one gets `first_sequence`."""
        step = self.steps[chunk.step]
        lines = self.lines_of(step)
        return [
            payload_of(step, chunk.first_message + index, first_sequence + index, lines)
            for index in range(chunk.count)
        ]

    def messages_from(self, position: PlanPosition) -> int:
        """How many messages are left from a position."""
        left = 0
        for index, step in enumerate(self.steps[position.step :], start=position.step):
            lines = self.line_count(index) if step.message_file is not None else 1
            left += step.number_of_times * lines
        return left - position.message


class Sent:
    """Prints each of the first messages put on a line, and then their number."""

    def __init__(self, show: Callable[[str], None], total: int, done: int = 0) -> None:
        """Show nothing yet.

        Args:
            total, done: messages of the plan, and those of earlier runs.
        """
        self._show = show
        self._total = total
        self._done = done
        self._lines_left = SENT_LINES_MAX

    def put(self, receipt: Receipt, payloads: Sequence[bytes]) -> None:
        """Print the messages of a stored request, or one offered at QoS 0."""
        word = receipt.fate if receipt.fate in ("unwanted", "dropped") else "sent"
        for index, payload in enumerate(payloads[: self._lines_left]):
            one = receipt.part(index)
            line = message_in_words(one.topic, one.offset, one.message_id, payload[:SENT_BYTES_MAX])
            self._show(f"{word} {line}{'...' * (len(payload) > SENT_BYTES_MAX)}")
        self._lines_left = max(self._lines_left - len(payloads), 0)
        before, self._done = self._done, self._done + len(payloads)
        if not self._lines_left and self._done // SENT_EVERY > before // SENT_EVERY:
            self._show(f"sent {self._done:,} of {self._total:,} messages")


def run_publisher(
    publisher: Publisher,
    plan: PublisherPlan,
    mark: PlanMark,
    *,
    sleep: Callable[[float], None],
    advance: Advance,
    sent: Sent | None = None,
) -> Mapping[str, int]:
    """Put the remaining messages of a plan; a step ends on a definite outcome (rule R16).

    Args:
        sent: shows them, where there is no bar.

    Returns:
        Messages put in this run, by topic.
    """
    put: dict[str, int] = {}
    publisher.resume()
    if not mark.is_same_run(mark_of(publisher.note)):
        publisher.begin_run(mark.note, plan.numbered_topics)
    _wait_again(publisher, plan, mark.position)
    for chunk in plan.chunks(mark.position):
        step = plan.steps[chunk.step]
        after = mark.at(chunk.position_after)
        # At QoS 1 messages are not numbered by topic; they count within their step.
        first = chunk.first_message + 1
        if step.qos == 2:
            first = publisher.ready_for(step.topic, chunk.count, repeats=True)
        batch = Batch(plan.payloads(chunk, first))
        try:
            receipt = publisher.put_batch(step.topic, batch, after.note, qos=step.qos)
        except TooLargeError as error:
            raise ConfigurationError(
                f"steps[{chunk.step}]: messages {chunk.first_message + 1} to "
                f"{chunk.first_message + chunk.count} do not fit into one request: {error}; use a "
                "smaller `batch`"
            ) from error
        if step.wait == "delivered":
            _wait(publisher, step, receipt)
        put[step.topic] = put.get(step.topic, 0) + chunk.count
        advance(chunk.count, f"put {step.topic}")
        if sent is not None:
            sent.put(receipt, batch.payloads)
        if chunk.sleep_s:
            sleep(chunk.sleep_s)
    return put


def _wait(publisher: Publisher, step: PublisherStep, receipt: Receipt) -> None:
    publisher.wait_delivered(
        receipt, acknowledged_by=step.acknowledged_by, timeout_s=step.timeout_s
    )


def _wait_again(publisher: Publisher, plan: PublisherPlan, position: PlanPosition) -> None:
    """Wait first for messages that an earlier process had put but not seen delivered."""
    last = position.step if position.message else position.step - 1
    step = plan.steps[last] if last >= 0 else None
    if step is not None and step.wait == "delivered":
        receipt = publisher.outbox.last_receipt(step.topic, publisher.client)
        if receipt is not None:
            _wait(publisher, step, receipt)
