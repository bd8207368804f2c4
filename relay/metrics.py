"""The figures of a relay, and the same as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from prometheus_client.core import Metric

PREFIX = "reliable_pubsub_relay_"


class RelayFigures(Struct, frozen=True, kw_only=True):
    """What one relay does and holds."""

    received: int  # messages from above
    sent_singly: int  # frames that went to one link alone
    malformed: int
    passed: int  # requests, to the node above
    shared: int  # requests that had the answer of another one
    from_cache: int  # requests that were answered here
    dropped: int  # requests without an answer in time
    links: int  # below
    plain: int  # prefixes that plain ZeroMQ subscribers want
    patterns: int  # asked for above


def exposition(figures: RelayFigures | None) -> Iterator[Metric]:
    """All metrics but those of the process.

    Args:
        figures: None: the loop has not given any yet.
    """
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    if figures is None:
        return
    counters = {
        "received_messages": ("Messages from above.", figures.received),
        "sent_singly_frames": ("Frames that went to one link alone.", figures.sent_singly),
        "malformed": ("Messages from above that could not be read.", figures.malformed),
        "dropped_requests": ("Requests without an answer in time.", figures.dropped),
    }
    for name, (text, value) in counters.items():
        yield CounterMetricFamily(PREFIX + name, text, value=value)
    answered = CounterMetricFamily(
        PREFIX + "requests", "Requests, by how they were answered.", labels=["how"]
    )
    answered.add_metric(["passed"], figures.passed)
    answered.add_metric(["shared"], figures.shared)
    answered.add_metric(["cache"], figures.from_cache)
    yield answered
    gauges = {
        "links": ("Relays and subscribers below.", figures.links),
        "plain_prefixes": ("Prefixes that plain ZeroMQ subscribers want.", figures.plain),
        "patterns": ("Patterns asked for above.", figures.patterns),
    }
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(PREFIX + name, text, value=value)
