"""What the proxy knows, as rows."""

from __future__ import annotations

from typing import Any

import pytest

from reliable_pubsub.common.core.errors import LimitError
from reliable_pubsub.common.core.message_base import Terms
from reliable_pubsub.common.core.status import (
    PublisherStatus,
    StatusReport,
    SubscriptionStatus,
    TopicStatus,
)
from reliable_pubsub.pipeline.core.tables import TABLES, status_rows


def everything(topic: str) -> bool:
    return True


def a_report(**more: Any) -> StatusReport:
    subscription = SubscriptionStatus(
        subscriber="s",
        generation=2,
        terms=Terms(),
        state="active",
        silent_s=0.5,
        cursor=5,
        lag_messages=4,
        lag_s=1.5,
    )
    counts = {"subscriptions_left_out": 0, "publishers_left_out": 0} | more
    topic = TopicStatus(
        topic="t",
        log="x.1",
        start=1,
        end=9,
        stored_bytes=80,
        subscriptions=(subscription,),
        publishers=(PublisherStatus(publisher="p", qos=2, last_sequence=9, last_offset=8),),
        **counts,
    )
    return StatusReport(
        client="c",
        epoch=0,
        request=1,
        topics=(topic,),
        topics_count=1,
        sessions_count=2,
        dropped_requests=0,
    )


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("topics", ("t", "x.1", 1, 9, 80, 1, 1)),
        ("subscriptions", ("t", "s", 2, 5, 9, 4, 1.5)),
        ("publishers", ("t", "p", 9, 8)),
    ],
)
def test_a_table_of_the_proxy_has_these_columns(table: str, row: tuple[object, ...]) -> None:
    assert list(status_rows(table, a_report(), everything)) == [row]
    assert len(TABLES[table]) == len(row)


def test_topics_that_are_not_wanted_are_left_out() -> None:
    assert list(status_rows("topics", a_report(), lambda topic: False)) == []


def test_a_table_that_would_not_be_whole_is_refused() -> None:
    report = a_report(subscriptions_left_out=3)

    with pytest.raises(LimitError, match="'t' has 3 subscriptions more"):
        list(status_rows("subscriptions", report, everything))
    assert list(status_rows("publishers", report, everything))
    assert next(status_rows("topics", report, everything))[5] == 4
