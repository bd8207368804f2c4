"""The figures of a proxy as Prometheus metrics; configs/operating has a dashboard and alerts.

Source of the names: prometheus.io/docs/practices/naming.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from reliable_pubsub.relay.metrics import connection_metrics

from .backup_mark import LAST_BACKUP_NAME
from .status.figures import Figures, Histogram
from .status.survey import STATES, Survey

Rows = Mapping[tuple[str, ...], float]
PREFIX = "reliable_pubsub_"


def gauge(name: str, text: str, value: float) -> Metric:
    """One number that goes up and down."""
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def gauges(name: str, text: str, labels: Sequence[str], rows: Rows) -> Metric:
    """The same for each combination of labels."""
    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for values, number in rows.items():
        family.add_metric(values, number)
    return family


def counter(name: str, text: str, value: float) -> Metric:
    """One number that only grows, and begins again with the process."""
    return CounterMetricFamily(PREFIX + name, text, value=value)


def counters(name: str, text: str, labels: Sequence[str], rows: Rows) -> Metric:
    """The same for each combination of labels."""
    family = CounterMetricFamily(PREFIX + name, text, labels=labels)
    for values, number in rows.items():
        family.add_metric(values, number)
    return family


def by_one(rows: Mapping[str, float]) -> Rows:
    """Rows with one label."""
    return {(name,): value for name, value in rows.items()}


def exposition(figures: Figures | None, data_dir: Path) -> Iterator[Metric]:
    """All metrics but those of the process.

    Args:
        figures: None: the loop has not given any yet; only the disk is shown.
    """
    if figures is not None:
        yield from _traffic(figures)
        yield from _waiting(figures)
        yield from _held(figures.survey)
        yield from _keys(figures.survey)
        yield from _links(figures)
        yield from connection_metrics(PREFIX, figures.connections)
        if figures.standbys is not None:
            yield gauge("standbys", "Standby proxies on this store.", figures.standbys)
    yield from _disk(data_dir)


def _traffic(figures: Figures) -> Iterator[Metric]:
    survey = figures.survey
    yield gauges("info", "What runs.", ["durability"], {(figures.durability,): 1})
    yield counter(
        "messages_stored",
        "Messages ever stored, in all topics; grows on across restarts.",
        survey.messages,
    )
    yield counter(
        "messages_sent",
        "Messages in answers to subscribers, repeats included.",
        figures.sent_messages,
    )
    yield counter("received_bytes", "Bodies of requests.", figures.received_bytes)
    yield counter("sent_bytes", "Bodies of answers.", figures.sent_bytes)
    yield counters("requests", "Well-formed requests, by verb.", ["verb"], by_one(figures.requests))
    yield counters(
        "refusals",
        "Requests that were refused, by the code of the answer.",
        ["code"],
        by_one(figures.refusals),
    )
    yield counter("malformed", "Requests that could not be read.", figures.malformed)


def _waiting(figures: Figures) -> Iterator[Metric]:
    yield _histogram(
        "commit_duration_seconds",
        "Commits of the store, with their fsync where durability is sync.",
        figures.commits,
    )
    yield counter("committed_records", "Records in these commits.", figures.committed_records)
    yield gauge("held_answers", "Answers that wait for the disk.", figures.held_answers)
    yield gauge(
        "oldest_held_answer_seconds",
        "How long the first of them has waited.",
        figures.oldest_answer_s,
    )
    yield gauge("queued_records", "Records that are not durable yet.", figures.queued_records)
    yield gauge("unwritten_bytes", "Memory of these records.", figures.unwritten_bytes)
    yield gauge("waiting_gets", "Gets that wait for messages.", figures.waiting_gets)
    yield gauge("staged_bytes", "Transactions that are not committed.", figures.staged_bytes)
    yield gauge(
        "storage_full", "1 while puts are refused because the disk is full.", figures.storage_full
    )
    yield counter(
        "clock_steps", "Number of times that the system's clock was set.", figures.clock_steps
    )
    yield gauge(
        "timestamps_ahead_seconds",
        "Seconds by which the newest timestamp is ahead of the system's clock.",
        figures.timestamps_ahead_s,
    )
    yield gauge(
        "store_log_held_bytes",
        "Log of the store that another program keeps from being emptied.",
        figures.wal_held_bytes,
    )
    yield gauges(
        "bound_used_ratio",
        "Share of each bound that is used, 1 at the bound; of bounds by topic "
        "or subscription that of the fullest.",
        ["bound"],
        by_one(figures.bounds),
    )


def _held(survey: Survey) -> Iterator[Metric]:
    yield gauge("topics", "Topics.", survey.topics)
    yield gauge("stored_bytes", "Bodies in all topics.", survey.stored_bytes)
    yield gauges(
        "subscriptions",
        "Subscriptions that have not ended, by state.",
        ["state"],
        {(state,): survey.subscriptions.get(state, 0) for state in STATES},
    )
    yield gauge(
        "lag_messages",
        "Messages not acknowledged, summed over all subscriptions.",
        survey.lag_messages,
    )
    which = ["topic", "subscriber"]
    yield gauges(
        "subscription_lag_messages",
        "Messages not acknowledged; the subscriptions that have most.",
        which,
        {(one.topic, one.subscriber): one.lag_messages for one in survey.slowest},
    )
    yield gauges(
        "subscription_lag_seconds",
        "Age of the oldest of them; the same subscriptions.",
        which,
        {(one.topic, one.subscriber): one.lag_s for one in survey.slowest},
    )
    yield counters(
        "topic_messages",
        "Messages ever stored in a topic; the topics with the most bytes.",
        ["topic"],
        {(one.topic,): one.end for one in survey.largest},
    )
    yield gauges(
        "topic_stored_bytes",
        "Bodies in a topic; the topics with the most bytes.",
        ["topic"],
        {(one.topic,): one.stored_bytes for one in survey.largest},
    )
    yield counters(
        "dead_letters",
        "Dead letters ever stored, by the topic of their messages; the topics with the most.",
        ["topic"],
        by_one(survey.dead_letters),
    )
    yield gauges(
        "topic_subscriptions",
        "Subscriptions of a topic; the same topics.",
        ["topic"],
        {(one.topic,): one.subscriptions for one in survey.largest},
    )


def _keys(survey: Survey) -> Iterator[Metric]:
    which = ["key", "quota"]
    yield gauges(
        "key_used",
        "What is charged to a key, by quota of rights.yaml; of the keys nearest to a bound.",
        which,
        {(one.key, use.quota): use.used for one in survey.keys for use in one.uses},
    )
    yield gauges(
        "key_bound_used_ratio",
        "Share of each bound of a key that is used, 1 at the bound; the same keys.",
        which,
        {(one.key, quota): share for one in survey.keys for quota, share in one.shares},
    )


def _links(figures: Figures) -> Iterator[Metric]:
    push, ingress = figures.push, figures.ingress
    yield gauge("clients", "Client ids that the proxy remembers.", figures.clients)
    yield gauge("push_links", "Relays and subscribers that are pushed to.", push.links)
    yield gauge("push_queued_batches", "Batches that wait to be pushed.", push.queued)
    yield counter("pushed_batches", "Batches pushed.", push.sent)
    yield counter("push_dropped_batches", "Batches that did not fit in the queue.", push.dropped)
    yield counters(
        "qos0_batches",
        "Batches at QoS 0, by outcome.",
        ["outcome"],
        by_one(
            {
                "taken": ingress.taken,
                "unwanted": ingress.unwanted,
                "refused": ingress.refused,
            }
        ),
    )


def _disk(data_dir: Path) -> Iterator[Metric]:
    """Asked of the system by the thread that serves: a hanging disk delays only the scrape."""
    with suppress(OSError):  # then these are missing, and an alert on their absence fires
        disk = os.statvfs(data_dir)
        yield gauge(
            "disk_free_bytes",
            "Free on the disk of the data directory.",
            disk.f_bavail * disk.f_frsize,
        )
        yield gauge("disk_size_bytes", "Size of that disk.", disk.f_blocks * disk.f_frsize)
        backup = data_dir / LAST_BACKUP_NAME
        if backup.exists():
            yield gauge(
                "last_backup_timestamp_seconds",
                "When the last good backup was made by `reliable-pubsub backup`.",
                backup.stat().st_mtime,
            )
        files = [one.stat().st_size for one in data_dir.iterdir()]
        yield gauge("data_dir_bytes", "Files in the data directory.", sum(files))


def _histogram(name: str, text: str, of: Histogram) -> Metric:
    bounds = [*map(str, of.bounds_s), "+Inf"]
    buckets = list(zip(bounds, accumulate(of.counts), strict=True))
    return HistogramMetricFamily(PREFIX + name, text, buckets=buckets, sum_value=of.sum_s)
