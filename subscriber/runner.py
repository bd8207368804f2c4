"""Runs a subscriber's step file: each message once in the output, whatever dies in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import (
    DeadLetterRefusedError,
    LeaseLostError,
    LostError,
    RefusedError,
    TimedOutError,
)
from reliable_pubsub.common.core.patterns.pattern import Pattern, Topics, glob
from reliable_pubsub.common.core.plan_mark import PlanMark
from reliable_pubsub.common.core.steps import SubscriberStep, subscriber_after
from reliable_pubsub.common.progress import Advance

from .client import Subscriber
from .output import OutputFile, Shown

SILENT_S: Final = 5.0  # without a message, after which a get says what it waits for


class SubscriberRun:
    """One run over a plan."""

    def __init__(
        self,
        subscriber: Subscriber,
        steps: Sequence[SubscriberStep],
        output: OutputFile | Shown,
        *,
        sleep: Callable[[float], None],
        advance: Advance,
        warn: Callable[[RefusedError], None],
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Create a run.

        Args:
            tell: called with the wait of a get, after SILENT_S without a message.
            warn: called for lost messages, and for dead letters that the proxy refuses; the run
                continues.
        """
        self._subscriber = subscriber
        self._steps = steps
        self._output = output
        self._sleep = sleep
        self._advance = advance
        self._warn = warn
        self._tell = tell
        self.received: dict[str, int] = {}

    def run(self, mark: PlanMark) -> Mapping[str, int]:
        """Run the remaining steps; a step ends only on a definite outcome (rule R16).

        Returns:
            Messages received in this run, by topic.
        """
        if not mark.finished:
            self._resume(self._steps[: mark.step])
        while mark.step < len(self._steps):
            step = self._steps[mark.step]
            match step.action:
                case "subscribe":
                    self._subscribe(step)
                    mark = self._finish(mark, step, 1)
                case "seek":
                    assert step.start is not None
                    self._subscriber.seek(step.topics, step.start)
                    mark = self._finish(mark, step, 1)
                case "unsubscribe":
                    self._subscriber.unsubscribe(step.topics, ends_group=step.ends_group)
                    mark = self._finish(mark, step, 1)
                case "get":
                    mark = self._get(mark, step)
        return self.received

    def _resume(self, done: Sequence[SubscriberStep]) -> None:
        """Take up what steps of an earlier process began and this one does not have."""
        groups: dict[str, SubscriberStep] = {}
        pushed: dict[Topics, bool] = {}
        for step in done:
            if step.action == "subscribe":
                if step.group is not None:
                    groups[step.topic] = step
                else:
                    pushed[step.topics] = step.push
            elif step.action == "unsubscribe":
                groups.pop(step.topic, None)
                pushed.pop(step.topics, None)
        for step in groups.values():
            self._subscribe(step)
        for topics, push in pushed.items():
            ended = isinstance(topics, Pattern) and topics not in self._subscriber.inbox.patterns
            if not ended:  # by a step that the earlier process did not write down
                self._subscriber.use_push(topics, push)

    def _subscribe(self, step: SubscriberStep) -> None:
        if step.match:
            self._subscriber.subscribe(
                match=glob(step.topic),
                where=step.where,
                start=step.start,
                qos=step.qos,
                session=step.session,
                lease_s=step.lease_s,
                push=step.push,
                max_deliveries=step.max_deliveries,
            )
            return
        self._subscriber.subscribe(
            step.topic,
            start=step.start,
            qos=step.qos,
            session=step.session,
            lease_s=step.lease_s,
            push=step.push,
            max_deliveries=step.max_deliveries,
            group=step.group,
            ordered_by=step.ordered_by,
        )

    def _get(self, mark: PlanMark, step: SubscriberStep) -> PlanMark:
        """One get of a step; it counts messages, not attempts."""
        wanted = min(step.batch, step.number_of_times - mark.message)
        wait_s = 0.0 if step.on_empty == "skip" else float("inf")
        if step.timeout_s is not None:
            wait_s = step.timeout_s
        try:
            messages = self._wait(mark, step, wanted, wait_s)
        except (LostError, DeadLetterRefusedError) as error:
            self._warn(error)
            return mark
        if messages:
            self._process(step, messages)
            self.received[step.topic] = self.received.get(step.topic, 0) + len(messages)
            return self._finish(mark, step, len(messages))
        if step.on_empty == "skip":
            return self._finish(mark, step, 1)
        raise TimedOutError(
            f"steps[{mark.step}]: no message on topic {step.topic!r} within its `timeout` of "
            f"{wait_s:g} s; {mark.message} of {step.number_of_times} were received. Run the same "
            "command again to continue, or use on_empty: skip"
        )

    def _wait(
        self, mark: PlanMark, step: SubscriberStep, wanted: int, wait_s: float
    ) -> Sequence[Message]:
        """Get messages; if none come soon, report once what it waits for."""
        get = self._subscriber._get_by_retries
        messages = get(step.topics, wanted, min(wait_s, SILENT_S))
        if messages or wait_s <= SILENT_S:
            return messages
        self._tell(
            f"waiting: steps[{mark.step}] waits for message {mark.message + 1} of "
            f"{step.number_of_times} of topic {step.topic!r} (on_empty: {step.on_empty}); messages "
            "put before a topic's first `subscribe` come only with `from: earliest`"
        )
        return get(step.topics, wanted, wait_s - SILENT_S)

    def _process(self, step: SubscriberStep, messages: Sequence[Message]) -> None:
        """Write messages, before they are acknowledged; or settle them otherwise, unwritten."""
        if step.settle == "ack":
            self._output.append(messages)
            return
        for message in messages:
            try:
                if step.settle == "nack":
                    self._subscriber.nack(message, delay_s=step.delay_s)
                else:
                    self._subscriber.reject(message, "a step of the plan rejects it")
            except LeaseLostError as error:
                self._warn(error)

    def _finish(self, mark: PlanMark, step: SubscriberStep, count: int) -> PlanMark:
        """Record cursor, output length and the plan's position as one; then pause."""
        after, sleep_s = subscriber_after(self._steps, mark.position, count)
        mark = mark.at(after, self._output.length)
        self._subscriber.record(step.topics, mark.note)
        self._advance(count, f"{step.action} {step.topic}")
        if sleep_s:
            self._sleep(sleep_s)
        return mark
