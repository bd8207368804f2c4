"""Runs a subscriber's step file: each message once in the output, whatever dies in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from reliable_pubsub.common.core.errors import (
    DeadLetterRefusedError,
    LostError,
    RefusedError,
    TimedOutError,
)
from reliable_pubsub.common.core.plan_mark import PlanMark
from reliable_pubsub.common.core.steps import SubscriberStep, subscriber_after
from reliable_pubsub.common.plan_view import Advance

from .client import Subscriber
from .output import Output, Shown


class SubscriberRun:
    """One run over a plan."""

    def __init__(
        self,
        subscriber: Subscriber,
        steps: Sequence[SubscriberStep],
        output: Output | Shown,
        *,
        sleep: Callable[[float], None],
        advance: Advance,
        warn: Callable[[RefusedError], None],
    ) -> None:
        """Create a run.

        Args:
            warn: called for lost messages, and for dead letters that the proxy refuses; the run
                continues.
        """
        self._subscriber = subscriber
        self._steps = steps
        self._output = output
        self._sleep = sleep
        self._advance = advance
        self._warn = warn
        self.received: dict[str, int] = {}

    def run(self, mark: PlanMark) -> Mapping[str, int]:
        """Run the remaining steps; a step ends only on a definite outcome (rule R16).

        Returns:
            Messages received in this run, by topic.
        """
        for done in self._steps[: mark.step]:
            if done.action == "subscribe":
                self._subscriber.use_push(done.topic, done.push)
        while mark.step < len(self._steps):
            step = self._steps[mark.step]
            match step.action:
                case "subscribe":
                    self._subscriber.subscribe(
                        step.topic,
                        start=step.start,
                        replay=step.replay,
                        qos=step.qos,
                        session=step.session,
                        lease_s=step.lease_s,
                        push=step.push,
                        max_deliveries=step.max_deliveries,
                    )
                    mark = self._finish(mark, step, 1)
                case "unsubscribe":
                    self._subscriber.unsubscribe(step.topic)
                    mark = self._finish(mark, step, 1)
                case "get":
                    mark = self._get(mark, step)
        return self.received

    def _get(self, mark: PlanMark, step: SubscriberStep) -> PlanMark:
        """One get of a step; it counts messages, not attempts."""
        wanted = min(step.batch, step.number_of_times - mark.message)
        wait_s = 0.0 if step.on_empty == "skip" else float("inf")
        if step.timeout_s is not None:
            wait_s = step.timeout_s
        try:
            messages = self._subscriber.get(step.topic, max_messages=wanted, timeout_s=wait_s)
        except (LostError, DeadLetterRefusedError) as error:
            self._warn(error)
            return mark
        if messages:
            self._output.append(messages)
            self.received[step.topic] = self.received.get(step.topic, 0) + len(messages)
            return self._finish(mark, step, len(messages))
        if step.on_empty == "skip":
            return self._finish(mark, step, 1)
        raise TimedOutError(
            f"steps[{mark.step}]: no message on topic {step.topic!r} within its `timeout` of "
            f"{wait_s:g} s; {mark.message} of {step.number_of_times} were received. Run the same "
            "command again to go on, or use on_empty: skip"
        )

    def _finish(self, mark: PlanMark, step: SubscriberStep, count: int) -> PlanMark:
        """Record cursor, output length and the plan's position as one; then pause."""
        after, sleep_s = subscriber_after(self._steps, mark.position, count)
        mark = mark.at(after, self._output.length)
        self._subscriber.record(step.topic, mark)
        self._advance(count, f"{step.action} {step.topic}")
        if sleep_s:
            self._sleep(sleep_s)
        return mark
