"""The tree of nodes as it was seen, as boxes and edges: who sends what to whom, and how fast. Pure.

Every figure is from a report (STATUS, NODE_REPORT), or the difference of two of them over the time
between. What is not counted is not shown.

    publishers | the proxy and its topics | relays, level by level | subscribers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.status import StatusReport, SubscriptionStatus
from reliable_pubsub.common.core.tree_messages import BelowStatus, NodeReport

TOPICS_MAX: Final = 30
PUBLISHERS_MAX: Final = 40
BELOW_MAX: Final = 40  # of one node
ROWS_MAX: Final = 6  # of one publisher or subscriber

BoxKind = Literal["publisher", "proxy", "relay", "subscriber", "source"]
EdgeKind = Literal["put", "push", "pull"]


class TreeSnapshot(Struct, frozen=True):
    """What the nodes reported at one moment."""

    at_s: float
    nodes: Mapping[str, NodeReport]  # by the endpoint that was asked
    silent: Sequence[str]  # endpoints above that did not answer, or are not our nodes
    status: StatusReport | None  # of the proxy at the top; None: there is none


class TreeRow(Struct, frozen=True):
    """A line of a box, at which edges may end."""

    key: str
    text: str


class Box(Struct, frozen=True, kw_only=True):
    """A participant."""

    key: str
    kind: BoxKind
    name: str
    level: int  # 0: publishers; 1: the proxy; 2, 3, ...: below
    rows: tuple[TreeRow, ...] = ()


class Edge(Struct, frozen=True, kw_only=True):
    """What goes from one box to another."""

    kind: EdgeKind
    source: str
    target: str
    source_row: str = ""
    target_row: str = ""
    interest: tuple[str, ...] = ()  # what is wanted there, some of it
    rate: str = ""


class Tree(Struct, frozen=True):
    """All of it, from left to right."""

    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    left_out: tuple[str, ...]  # what there was no room for, in words


def tree_of(now: TreeSnapshot, earlier: TreeSnapshot | None = None) -> Tree:
    """Draw up the tree.

    Args:
        earlier: an earlier look, for the rates; without it there are none.
    """
    return _Drawn(now, earlier).tree()


def rate_in_words(rate: float, unit: str) -> str:
    """`12.5 messages/s`."""
    digits = 0 if rate >= 100 or rate == 0 else 1
    return f"{rate:,.{digits}f} {unit}/s"


def interest_in_words(below: BelowStatus) -> tuple[str, ...]:
    """What a link wants: its first patterns, and how many more."""
    if below.is_full:
        return ("everything",)
    more = below.patterns - len(below.wants)
    return (*below.wants, *((f"and {more} more",) if more else ())) or ("nothing",)


class _Drawn:
    def __init__(self, now: TreeSnapshot, earlier: TreeSnapshot | None) -> None:
        self._now = now
        self._earlier = earlier
        self._boxes: dict[str, Box] = {}
        self._edges: list[Edge] = []
        self._left_out: list[str] = []
        self._nodes = {report.node: report for report in now.nodes.values()}
        self._before = {report.node: report for report in earlier.nodes.values()} if earlier else {}
        tops = [one.node for one in self._nodes.values() if not one.strategy]  # a proxy joins none
        self._top = tops[0] if tops else None

    def tree(self) -> Tree:
        if self._now.status is not None:
            self._publishers(self._now.status)
            self._proxy(self._now.status)
        roots = [self._top] if self._top else []
        roots += [one.node for one in self._nodes.values() if self._is_root(one)]
        for root in roots:
            self._add_node(root, 1)
        if self._now.status is not None:
            self._those_who_poll(self._now.status)
        deepest = max((box.level for box in self._boxes.values()), default=0)
        boxes = tuple(
            replace(box, level=deepest) if box.kind == "subscriber" else box
            for box in self._boxes.values()
        )
        return Tree(boxes, tuple(self._edges), tuple(self._left_out))

    # The left side.

    def _publishers(self, status: StatusReport) -> None:
        rows: dict[str, dict[str, int]] = {}
        for log in status.topics[:TOPICS_MAX]:
            for one in log.publishers:
                of = rows.setdefault(one.publisher, {})
                of[log.topic] = of.get(log.topic, 0) + one.last_sequence
        for name in list(rows)[:PUBLISHERS_MAX]:
            topics = list(rows[name])[:ROWS_MAX]
            key = f"publisher {name}"
            self._boxes[key] = Box(
                key=key,
                kind="publisher",
                name=name,
                level=0,
                rows=tuple(
                    TreeRow(topic, f"{topic}: {rows[name][topic]:,} put") for topic in topics
                ),
            )
            for topic in topics:
                self._edges.append(
                    Edge(
                        kind="put",
                        source=key,
                        source_row=topic,
                        target=self._top or "proxy",
                        target_row=topic,
                        rate=self._rate_of_puts(name, topic, rows[name][topic]),
                    )
                )
        if len(rows) > PUBLISHERS_MAX:
            self._left_out.append(f"{len(rows) - PUBLISHERS_MAX:,} more publishers")

    def _rate_of_puts(self, publisher: str, topic: str, now: int) -> str:
        status = self._earlier.status if self._earlier else None
        if status is None:
            return ""
        before = sum(
            one.last_sequence
            for log in status.topics
            if log.topic == topic
            for one in log.publishers
            if one.publisher == publisher
        )
        return self._rate(now - before, "messages")

    def _proxy(self, status: StatusReport) -> None:
        name = self._top or "proxy"
        rows = []
        for topic in status.topics[:TOPICS_MAX]:
            rows.append(TreeRow(topic.topic, f"{topic.topic}: {topic.end:,} messages"))
        self._boxes[name] = Box(key=name, kind="proxy", name="proxy", level=1, rows=tuple(rows))
        if status.topics_count > TOPICS_MAX:
            self._left_out.append(f"{status.topics_count - TOPICS_MAX:,} more topics")

    # The right side.

    def _is_root(self, report: NodeReport) -> bool:
        """Whether no node that was asked is above it."""
        return report.node != self._top and not any(
            one.client == report.node for other in self._nodes.values() for one in other.below
        )

    def _add_node(self, name: str, level: int) -> None:
        report = self._nodes[name]
        if name not in self._boxes:
            self._boxes[name] = _relay_box(report, level)
            for above in report.above:
                if above.endpoint in self._now.silent:
                    self._source(above.endpoint, name)
        for below in report.below[:BELOW_MAX]:
            self._add_link(name, below, level + 1)
        left_out = report.below_left_out + max(len(report.below) - BELOW_MAX, 0)
        if left_out:
            self._left_out.append(f"{left_out:,} more below {self._boxes[name].name}")
        if report.plain:
            self._left_out.append(
                f"plain subscribers below {self._boxes[name].name}, with {report.plain:,} prefixes"
            )

    def _source(self, endpoint: str, below: str) -> None:
        key = f"source {endpoint}"
        self._boxes.setdefault(key, Box(key=key, kind="source", name=endpoint, level=0))
        rate = self._rate_received(self._nodes[below])
        self._edges.append(Edge(kind="push", source=key, target=below, rate=rate))

    def _add_link(self, source: str, below: BelowStatus, level: int) -> None:
        known = self._nodes.get(below.client)
        key = below.client if known or below.is_relay else f"subscriber {below.client}"
        rate = ""
        if known is not None:
            rate = self._rate_received(known)
        elif not below.is_relay:
            rate = self._rate_of_cursors(below.client)
        self._edges.append(
            Edge(
                kind="push",
                source=source,
                target=key,
                interest=interest_in_words(below),
                rate=rate,
            )
        )
        if key in self._boxes:
            return
        if known is not None:
            self._add_node(below.client, level)
        elif below.is_relay:
            rows = (TreeRow("", "not asked: give its --endpoint too"),)
            self._boxes[key] = Box(key=key, kind="relay", name=below.client, level=level, rows=rows)
        else:
            self._boxes[key] = self._subscriber_box(below.client, level)

    def _subscriptions(self, status: StatusReport | None, client: str) -> dict[str, int]:
        """The cursors of a subscriber, by topic."""
        return {topic: one.cursor for topic, one in _all_of(status).get(client, {}).items()}

    def _subscriber_box(self, client: str, level: int) -> Box:
        mine = _all_of(self._now.status).get(client, {})
        rows = [
            TreeRow(topic, f"{topic}: at {one.cursor:,}, lag {one.lag_messages:,}")
            for topic, one in mine.items()
        ]
        if len(rows) > ROWS_MAX:
            rows = [
                *rows[: ROWS_MAX - 1],
                TreeRow("", f"and {len(rows) - ROWS_MAX + 1:,} more topics"),
            ]
        key = f"subscriber {client}"
        return Box(key=key, kind="subscriber", name=client, level=level, rows=tuple(rows))

    def _those_who_poll(self, status: StatusReport) -> None:
        """Subscriptions to which no link leads: their clients ask, the proxy or through a relay."""
        clients = [one for one in _all_of(status) if f"subscriber {one}" not in self._boxes]
        for client in clients[:BELOW_MAX]:
            box = self._subscriber_box(client, 2)
            self._boxes[box.key] = box
            self._edges.append(
                Edge(
                    kind="pull",
                    source=self._top or "proxy",
                    target=box.key,
                    interest=("asks",),
                    rate=self._rate_of_cursors(client),
                )
            )
        if len(clients) > BELOW_MAX:
            self._left_out.append(f"{len(clients) - BELOW_MAX:,} more subscribers that ask")

    # Rates.

    def _rate_received(self, report: NodeReport) -> str:
        """What comes to a node from above; of several above it is not counted separately."""
        before = self._before.get(report.node)
        if before is None or before.boot != report.boot or len(report.above) != 1:
            return ""
        return self._rate(report.received - before.received, "batches")

    def _rate_of_cursors(self, client: str) -> str:
        """What a subscriber has acknowledged, over all its topics."""
        if self._earlier is None:
            return ""
        before = self._subscriptions(self._earlier.status, client)
        now = self._subscriptions(self._now.status, client)
        if not before.keys() & now.keys():
            return ""
        moved = sum(max(now[topic] - before[topic], 0) for topic in before.keys() & now.keys())
        return self._rate(moved, "acknowledged")

    def _rate(self, count: int, unit: str) -> str:
        assert self._earlier is not None
        return rate_in_words(max(count, 0) / (self._now.at_s - self._earlier.at_s), unit)


def _relay_box(report: NodeReport, level: int) -> Box:
    asks = "everything" if report.is_full else f"{report.patterns:,} patterns"
    rows = [
        TreeRow("", f"{report.strategy}: asks for {asks}"),
        TreeRow("", f"requests: {report.passed:,} passed on"),
        TreeRow("", f"{report.from_cache:,} from the cache, {report.shared:,} shared"),
    ]
    rows += [TreeRow("", f"refused: {above.refused}") for above in report.above if above.refused]
    rows += [TreeRow("", f"unknown kind: {kind}") for kind in report.unknown_kinds]
    return Box(
        key=report.node, kind="relay", name=report.node, level=max(level, 2), rows=tuple(rows)
    )


def _all_of(status: StatusReport | None) -> dict[str, dict[str, SubscriptionStatus]]:
    """Subscriptions that are there, by subscriber and topic."""
    found: dict[str, dict[str, SubscriptionStatus]] = {}
    for topic in status.topics if status else ():
        for one in topic.subscriptions:
            if one.state != "expired":
                found.setdefault(one.subscriber, {})[topic.topic] = one
    return found
