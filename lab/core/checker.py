"""The judge of every run: simulation, torture runs, labs, any directory of journals. Pure.

Offsets give the order of versions, so no search for an order is needed: each of the thirteen rules
is one pass, O(n log n). What a run has no evidence for is not judged, and says why. Source: the
queue and Kafka workloads of Jepsen (jepsen-io/jepsen, "tests/kafka").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from . import log_faults
from .indexing import index_run
from .received import ReceivedMessages
from .rules_of_delivery import delivered_once, end_for, subscriber_losses
from .rules_of_durability import visible_when_durable
from .rules_of_fencing import fenced_are_silent
from .rules_of_groups import one_holder
from .rules_of_order import nothing_goes_back, one_value
from .rules_of_puts import (
    durable_acknowledgement,
    no_duplicate,
    publisher_order,
    real_time_order,
    unknown_outcomes,
)
from .rules_of_subscribers import (
    everything_ends,
    nothing_while_away,
    subscription_points,
)
from .run import LabRun
from .run_index import RunIndex
from .verdict import Verdict


def check(run: LabRun) -> Verdict:
    """Check a run against rules V1 to V13."""
    index = index_run(run)
    stored, losses = durable_acknowledgement(index)
    visible_when_durable(index, stored)
    delivered, all_received = delivered_once(index)
    findings = (
        stored,
        no_duplicate(index),
        one_value(index),
        publisher_order(index),
        real_time_order(index),
        delivered,
        nothing_goes_back(index),
        subscription_points(index),
        nothing_while_away(index, all_received),
        fenced_are_silent(index),
        unknown_outcomes(index),
        everything_ends(index, all_received),
        one_holder(index),
    )
    for received in all_received:
        of_subscriber = subscriber_losses(index, received)
        if of_subscriber is not None:
            losses.append(of_subscriber)
    return Verdict(
        rules=[finding.verdict() for finding in findings],
        losses=losses,
        warnings=[*run.warnings, *_warnings(index)],
        tails=list(_tails(index, all_received)),
    )


def _tails(index: RunIndex, all_received: Sequence[ReceivedMessages]) -> Iterator[str]:
    """Subscribers whose journal stops in the middle: the rest is lost, or was never written.

    V12 judges those of which the lab wrote how they ended.
    """
    last = {life.process: life for life in index.lives.values()}
    for received in all_received:
        who, topic = received.stream.subscriber, received.stream.topic
        end, position = end_for(index, received), received.position
        has_ended = who in last and last[who].code is not None
        if has_ended or who in index.finished or end is None or position is None:
            continue
        if position < end:
            yield (
                f"{who} has {topic!r} up to offset {position}, of {end}, and its journal has no "
                "end: it died and was not started again, or its last lines are missing"
            )


def _warnings(index: RunIndex) -> Iterator[str]:
    """What could only be judged in part."""
    for topic, log in index.logs.items():
        if not log.audited:
            yield (
                f"no process read {topic!r} to the end: the log is what the proxy wrote of "
                "itself, and may be partial"
            )
        if log.unlogged:
            yield (
                f"{topic!r}: {log.unlogged} messages are known from others only, because the proxy "
                "was killed before it could write that it has them"
            )
        if log.start and not index.has_proxy:
            yield (
                f"{topic!r} begins at {log.start}, and no proxy wrote why: what was below counts "
                "as removed rightly"
            )
    for topic, log in index.logs.items():
        yield from log_faults.unknown_writers(topic, log.by_publisher.keys() - index.writers)
    yield from _stream_warnings(index)
    missing = {
        life.process: life.output
        for life in index.lives.values()
        if life.output and life.process not in index.outputs
    }
    for subscriber, output in missing.items():
        yield f"{subscriber}: its output {output} is not here; judged by its journal"
    for topic, count in index.unmatched.items():
        yield f"{topic!r}: {count} answers to puts have no invoke with their number"


def _stream_warnings(index: RunIndex) -> Iterator[str]:
    for stream in index.streams.values():
        who = f"{stream.subscriber} on {stream.topic!r}"
        if stream.ignored:
            yield f"{who}: {stream.ignored} gets of replaced processes prove nothing, left out"
        if any(subscription.opened is None for subscription in stream.subscriptions):
            yield f"{who}: the journal begins after its subscribe; its first offset is not judged"
        if any(subscription.moved for subscription in stream.subscriptions):
            yield f"{who}: chose another place itself (rewind or adopt), so it may repeat or miss"
