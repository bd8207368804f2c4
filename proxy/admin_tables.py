"""What `reliable-pubsub admin list` shows: topics, subscriptions and clients as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from reliable_pubsub.common.core.names import GROUP_PREFIX
from reliable_pubsub.common.core.status import ClientStatus, SubscriptionStatus, TopicStatus
from reliable_pubsub.common.terminal import cell


def list_view(topics: Sequence[TopicStatus], clients: Sequence[ClientStatus]) -> Group:
    """The tables of `admin list`."""
    return Group(
        _table(
            "topics",
            ("topic", "first", "end", "bytes", "subscriptions", "publishers"),
            [
                (
                    one.topic,
                    f"{one.start:,}",
                    f"{one.end:,}",
                    f"{one.stored_bytes:,}",
                    f"{_subscriptions(one):,}",
                    f"{len(one.publishers) + one.publishers_left_out:,}",
                )
                for one in topics
            ],
        ),
        _table(
            "subscriptions",
            ("topic", "subscriber", "generation", "cursor", "lag", "lag s", "lease left", "state"),
            [
                (
                    topic.topic,
                    one.subscriber,
                    str(one.generation),
                    f"{one.cursor:,}",
                    f"{one.lag_messages:,}",
                    f"{one.lag_s:.1f}",
                    _lease_left(one),
                    one.state,
                )
                for topic in topics
                for one in topic.subscriptions
            ]
            + [
                (
                    topic.topic,
                    GROUP_PREFIX + one.group,
                    str(one.generation),
                    f"{one.cursor:,}",
                    f"{one.held + one.waiting:,}",
                    f"{one.lag_s:.1f}",
                    "",
                    one.state,
                )
                for topic in topics
                for one in topic.groups or ()
            ],
        ),
        _table(
            "clients",
            ("client", "role", "epoch", "subscriptions", "numbers compared"),
            [
                (
                    one.client,
                    one.role,
                    str(one.epoch),
                    str(one.subscriptions) if one.role == "subscriber" else "",
                    ("yes" if one.numbered else "no") if one.role == "publisher" else "",
                )
                for one in clients
            ],
        ),
    )


def _subscriptions(topic: TopicStatus) -> int:
    """How many are subscribed; a group is one."""
    groups = len(topic.groups or ()) + (topic.groups_left_out or 0)
    return len(topic.subscriptions) + topic.subscriptions_left_out + groups


def _lease_left(one: SubscriptionStatus) -> str:
    left_s = one.lease_left_s
    return "" if left_s is None else f"{left_s:.0f} s"


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table | Text:
    if not rows:
        return Text(f"{title}: none")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in columns:
        is_name = name in ("topic", "subscriber", "client")
        table.add_column(name, overflow="fold", no_wrap=not is_name)
    for row in rows:
        table.add_row(*map(cell, row))  # names are not markup
    return table
