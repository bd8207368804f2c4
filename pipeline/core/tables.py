"""What the proxy knows, as rows: topics, subscriptions, publishers.

Pure: a report comes in, tuples in the order of the columns go out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from reliable_pubsub.common.core.errors import LimitError
from reliable_pubsub.common.core.status import StatusReport

Row = tuple[object, ...]

TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "topics": {
        "topic": "string",
        "log": "string",
        "start": "bigint",
        "end": "bigint",
        "stored_bytes": "bigint",
        "subscriptions": "bigint",
        "publishers": "bigint",
    },
    "subscriptions": {
        "topic": "string",
        "subscriber": "string",
        "generation": "bigint",
        "cursor": "bigint",
        "end": "bigint",
        "lag_messages": "bigint",
        "lag_s": "double",
    },
    "publishers": {
        "topic": "string",
        "publisher": "string",
        "last_sequence": "bigint",
        "last_offset": "bigint",
    },
}


def status_rows(table: str, report: StatusReport, wants: Callable[[str], bool]) -> Iterator[Row]:
    """The rows of a table of the proxy.

    Args:
        table: topics, subscriptions or publishers.
        wants: which topics.

    Raises:
        LimitError: a topic has more rows than STATUS shows; a part of a table would be a lie.
    """
    for topic in report.topics:
        if not wants(topic.topic):
            continue
        left_out = {
            "subscriptions": topic.subscriptions_left_out,
            "publishers": topic.publishers_left_out,
        }.get(table, 0)
        if left_out:
            raise LimitError(
                f"topic {topic.topic!r} has {left_out} {table} more than STATUS shows of one topic "
                "(STATUS_ROWS_MAX); the table would not be whole. Leave the topic out, by subscribe"
            )
        if table == "topics":
            subscriptions = len(topic.subscriptions) + topic.subscriptions_left_out
            publishers = len(topic.publishers) + topic.publishers_left_out
            extent = (topic.start, topic.end, topic.stored_bytes)
            yield (topic.topic, topic.log, *extent, subscriptions, publishers)
        elif table == "subscriptions":
            for one in topic.subscriptions:
                lag = (one.lag_messages, one.lag_s)
                yield (topic.topic, one.subscriber, one.generation, one.cursor, topic.end, *lag)
        else:
            for publisher in topic.publishers:
                last = (publisher.last_sequence, publisher.last_offset)
                yield (topic.topic, publisher.publisher, *last)
