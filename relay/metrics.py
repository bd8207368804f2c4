"""The figures of a relay, and the same as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from reliable_pubsub.common.core.status import ConnectionsStatus

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
    connections: ConnectionsStatus | UnsetType = UNSET
    ways_up: dict[str, bool]  # whether each works, by endpoint


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
    ways = GaugeMetricFamily(
        PREFIX + "way_up", "1: the node or publisher above answers.", labels=["endpoint"]
    )
    for endpoint, is_up in figures.ways_up.items():
        ways.add_metric([endpoint], is_up)
    yield ways
    if isinstance(figures.connections, ConnectionsStatus):
        used = GaugeMetricFamily(
            PREFIX + "bound_used_ratio", "Share of a bound that is used.", labels=["bound"]
        )
        used.add_metric(["connections"], figures.connections.used)
        yield used
    yield from connection_metrics(PREFIX, figures.connections)


def connection_metrics(prefix: str, status: ConnectionsStatus | UnsetType) -> Iterator[Metric]:
    """What comes to the endpoints of a proxy or relay; nothing where that is not counted."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    if not isinstance(status, ConnectionsStatus):
        return
    yield GaugeMetricFamily(
        prefix + "connections", "Connections of all endpoints.", value=status.connections
    )
    counters = {
        "connections_came": ("Connections accepted.", status.came),
        "connections_kept_out": (
            "Connections closed on arrival or not answered, including repeated ones.",
            status.kept_out,
        ),
        "entrance_closed_seconds": ("Time in which connections were kept out.", status.closed_s),
    }
    for name, (text, value) in counters.items():
        yield CounterMetricFamily(prefix + name, text, value=value)
    failed = CounterMetricFamily(
        prefix + "failed_handshakes",
        "Handshakes refused. unknown_key: the key is not known; protocol: no key, or no ZMTP 3.",
        labels=["reason"],
    )
    failed.add_metric(["unknown_key"], status.unknown_keys)
    failed.add_metric(["protocol"], status.failed_handshakes)
    yield failed
    bounded = GaugeMetricFamily(
        prefix + "bounded", "1: this system lets the process enforce the limit.", labels=["bound"]
    )
    bounded.add_metric(["connections"], 1)
    bounded.add_metric(["connection_memory"], status.is_memory_bounded)
    yield bounded
