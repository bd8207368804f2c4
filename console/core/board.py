"""One look at a proxy, as the rows of the page: topics, publishers, subscribers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, Literal

from msgspec import Struct

from reliable_pubsub.common.core.dead_letter import DEAD_SUFFIX, dead_topic, is_dead
from reliable_pubsub.common.core.status import (
    CommitterStatus,
    GroupStatus,
    StatusReport,
    SubscriptionStatus,
    TopicStatus,
)
from reliable_pubsub.common.core.tree_messages import NodeReport
from reliable_pubsub.common.core.wording import counted
from reliable_pubsub.relay.core.tree import TreeSnapshot

from .rates import Rates, counter_of_publisher, counter_of_reader, counter_of_topic
from .reasons import Reason, reason_of_group, reason_of_subscription

PAGE_ROWS_MAX: Final = 200
SLOW_ROWS_MAX: Final = 100

Order = Literal["name", "rate", "lag", "size"]
ReaderKind = Literal["subscriber", "group"]


class PublisherRow(Struct, frozen=True, kw_only=True):
    """One publisher of a topic."""

    publisher: str
    qos: int
    last_sequence: int
    last_offset: int
    rate_per_s: float | None  # None: not known yet


class ReaderRow(Struct, frozen=True, kw_only=True):
    """One subscription of a topic, or one group."""

    topic: str
    reader: str
    kind: ReaderKind
    state: str
    about: str  # what it asked for, in words
    cursor: int
    lag_messages: int
    lag_s: float
    rate_per_s: float | None  # acknowledged
    lease_left_s: float | None = None  # None: it has none
    via: str = ""  # the node that pushes to it; "": it asks
    reason: Reason | None = None  # None: it is not slow


class TopicRow(Struct, frozen=True, kw_only=True):
    """One topic."""

    topic: str
    start: int
    end: int
    stored_bytes: int
    rate_per_s: float | None  # put
    lag_messages: int  # of the reader with the oldest message that is not acknowledged
    lag_s: float
    slow: int  # readers
    readers: int
    publishers: int
    dead_letters: int | None  # None: it can have none, or has none
    ring: int | None  # messages at QoS 0, so far; None: none


class TopicDetail(Struct, frozen=True, kw_only=True):
    """One topic with those who put and read."""

    row: TopicRow
    publishers: tuple[PublisherRow, ...]
    readers: tuple[ReaderRow, ...]
    left_out: int  # publishers and readers that one page of STATUS has no room for


class TopicPage(Struct, frozen=True, kw_only=True):
    """Some of the topics that were searched for."""

    rows: tuple[TopicRow, ...]
    first: int  # place of the first row among all that were found
    found: int
    opened: dict[str, TopicDetail]


class NodeRow(Struct, frozen=True, kw_only=True):
    """The proxy, a relay, or what is below one of them."""

    name: str
    kind: Literal["proxy", "relay", "link"]
    level: int  # 1: at the top
    text: str
    rate_per_s: float | None = None  # batches received


class Head(Struct, frozen=True, kw_only=True):
    """What is shown on every page."""

    store: str
    durability: str
    boot: str
    topics: int
    clients: int
    subscriptions: int
    slow: int
    dead_letters: int
    put_per_s: float | None
    acknowledged_per_s: float | None
    stored_bytes: int
    paused: str | None  # the reason; None: puts are not paused
    warnings: tuple[str, ...]


class Board:
    """The rows of one look."""

    def __init__(self, now: TreeSnapshot, earlier: TreeSnapshot | None = None) -> None:
        """Draw them up.

        Args:
            earlier: an earlier look, for the rates.
        """
        assert now.status is not None
        self.status: StatusReport = now.status
        self.rates = Rates(now, earlier)
        self._look = now
        self._before = earlier
        self._via = _paths(now.nodes.values())
        self._by_name = {one.topic: one for one in self.status.topics}
        self._readers = {one.topic: tuple(self._readers_of(one)) for one in self.status.topics}
        self._rows = {one.topic: self._topic_row(one) for one in self.status.topics}
        self.slow = self._slow()

    # Topics.

    def topics(
        self,
        search: str = "",
        order: Order = "name",
        *,
        first: int = 0,
        rows_max: int = 50,
        opened: Collection[str] = (),
    ) -> TopicPage:
        """The topics whose name contains a text, whatever its case; without those of dead letters.

        Args:
            first: place of the first row; beyond the end the last page is given.
            opened: topics whose publishers and readers are given too, if their rows are.
        """
        wanted = search.casefold()
        found = [
            row
            for row in self._rows.values()
            if wanted in row.topic.casefold() and not is_dead(row.topic)
        ]
        found.sort(key=_SORTING[order])
        rows_max = max(1, min(rows_max, PAGE_ROWS_MAX))
        last_page = max(len(found) - 1, 0) // rows_max * rows_max
        first = max(0, min(first, last_page))
        rows = tuple(found[first : first + rows_max])
        details = {
            row.topic: detail
            for row in rows
            if row.topic in opened and (detail := self.topic(row.topic)) is not None
        }
        return TopicPage(rows=rows, first=first, found=len(found), opened=details)

    def topic(self, name: str) -> TopicDetail | None:
        """One topic; None: there is none, or the key may not see it."""
        known = self._by_name.get(name)
        if known is None:
            return None
        publishers = tuple(
            PublisherRow(
                publisher=one.publisher,
                qos=one.qos,
                last_sequence=one.last_sequence,
                last_offset=one.last_offset,
                rate_per_s=self.rates.of(
                    counter_of_publisher(name, one.publisher, one.qos), one.last_sequence
                ),
            )
            for one in known.publishers
        )
        return TopicDetail(
            row=self._rows[name],
            publishers=publishers,
            readers=self._readers[name],
            left_out=known.subscriptions_left_out
            + known.publishers_left_out
            + (known.groups_left_out or 0),
        )

    def rows(self) -> Collection[TopicRow]:
        """Every topic, those of dead letters too."""
        return self._rows.values()

    def status_of(self, name: str) -> TopicStatus | None:
        """What the proxy said of a topic."""
        return self._by_name.get(name)

    def dead_letter_topics(self) -> tuple[TopicRow, ...]:
        """The topics of dead letters that hold some, those with the most first."""
        rows = [row for row in self._rows.values() if is_dead(row.topic) and row.end > row.start]
        return tuple(sorted(rows, key=lambda row: (row.start - row.end, row.topic)))

    # Everything.

    def head(self) -> Head:
        """What is shown on every page."""
        readers = [one for rows in self._readers.values() for one in rows]
        return Head(
            store=self.status.store_path,
            durability=self.status.durability,
            boot=self.status.boot,
            topics=sum(not is_dead(name) for name in self._rows),
            clients=self.status.sessions_count,
            subscriptions=len(readers),
            slow=sum(row.slow for row in self._rows.values()),
            dead_letters=sum(row.end - row.start for row in self.dead_letter_topics()),
            put_per_s=_sum(row.rate_per_s for row in self._rows.values()),
            acknowledged_per_s=_sum(one.rate_per_s for one in readers),
            stored_bytes=sum(row.stored_bytes for row in self._rows.values()),
            paused=self.status.paused if isinstance(self.status.paused, str) else None,
            warnings=tuple(_warnings(self.status)),
        )

    def nodes(self) -> tuple[NodeRow, ...]:
        """The proxy and the relays, from the top; each with its links below."""
        nodes = {one.node: one for one in self._look.nodes.values()}
        below = {link.client for one in nodes.values() for link in one.below}
        rows: list[NodeRow] = []
        for name, one in nodes.items():
            if name not in below and not one.above:
                self._add_node(rows, nodes, one, 1)
        shown = {row.name for row in rows}
        for name, one in nodes.items():  # those whose node above was not asked
            if name not in shown:
                self._add_node(rows, nodes, one, 1)
        rows += [
            NodeRow(name=endpoint, kind="relay", level=1, text="no answer, or no node")
            for endpoint in self._look.silent
        ]
        return tuple(rows)

    # Rows.

    def _topic_row(self, topic: TopicStatus) -> TopicRow:
        readers = self._readers[topic.topic]
        live = [one for one in readers if one.state != "expired"]
        worst = max(live, key=lambda one: (one.lag_s, one.lag_messages), default=None)
        letters = self._by_name.get(dead_topic(topic.topic) or "")
        held = letters.end - letters.start if letters else 0
        ring = getattr(topic.ring, "end", None)
        return TopicRow(
            topic=topic.topic,
            start=topic.start,
            end=topic.end,
            stored_bytes=topic.stored_bytes,
            rate_per_s=self.rates.of(counter_of_topic(topic.topic, topic.log), topic.end),
            lag_messages=worst.lag_messages if worst else 0,
            lag_s=worst.lag_s if worst else 0.0,
            slow=sum(one.reason is not None for one in live),
            readers=len(readers) + topic.subscriptions_left_out,
            publishers=len(topic.publishers) + topic.publishers_left_out,
            dead_letters=held or None,
            ring=ring,
        )

    def _readers_of(self, topic: TopicStatus) -> Iterator[ReaderRow]:
        put_rate = self.rates.of(counter_of_topic(topic.topic, topic.log), topic.end)
        for one in topic.subscriptions:
            yield self._subscription_row(topic, one, put_rate)
        for group in topic.groups if isinstance(topic.groups, tuple) else ():
            yield self._group_row(topic, group, put_rate)

    def _subscription_row(
        self, topic: TopicStatus, one: SubscriptionStatus, put_rate: float | None
    ) -> ReaderRow:
        counter = counter_of_reader(topic.topic, one.subscriber, one.generation)
        rate = self.rates.of(counter, one.cursor)
        clean = ", clean" if one.terms.session == "clean" else ""
        return ReaderRow(
            topic=topic.topic,
            reader=one.subscriber,
            kind="subscriber",
            state=one.state,
            about=f"QoS {one.terms.qos}{clean}",
            cursor=one.cursor,
            lag_messages=one.lag_messages,
            lag_s=one.lag_s,
            rate_per_s=rate,
            lease_left_s=one.lease_left_s,
            via=self._via.get(one.subscriber, ""),
            reason=reason_of_subscription(one, rate, put_rate),
        )

    def _group_row(self, topic: TopicStatus, one: GroupStatus, put_rate: float | None) -> ReaderRow:
        counter = counter_of_reader(topic.topic, f"group {one.group}", one.generation)
        rate = self.rates.of(counter, one.cursor)
        lag = one.held + one.waiting
        members = counted(one.members, "member")
        return ReaderRow(
            topic=topic.topic,
            reader=one.group,
            kind="group",
            state=one.state,
            about=f"group, {members}, {one.held:,} in hand",
            cursor=one.cursor,
            lag_messages=lag,
            lag_s=one.lag_s,
            rate_per_s=rate,
            reason=reason_of_group(one, rate, put_rate, lag),
        )

    def _slow(self) -> tuple[ReaderRow, ...]:
        """Those that hold messages first, the oldest message first; then those that expired."""
        found = [one for rows in self._readers.values() for one in rows if one.reason]
        found.sort(key=lambda one: (one.state == "expired", -one.lag_s, one.topic, one.reader))
        return tuple(found[:SLOW_ROWS_MAX])

    def _add_node(
        self, rows: list[NodeRow], nodes: dict[str, NodeReport], one: NodeReport, level: int
    ) -> None:
        if any(row.name == one.node and row.kind != "link" for row in rows):
            return  # it has two nodes above
        is_proxy = not one.strategy
        asks = "everything" if one.is_full else counted(one.patterns, "pattern")
        text = counted(len(one.below) + one.below_left_out, "link") + " below"
        if not is_proxy:
            text = f"asks for {asks}, {text}; requests: {one.passed:,} passed on, "
            text += f"{one.from_cache:,} from its cache"
        text += "".join(f"; refused above: {above.refused}" for above in one.above if above.refused)
        rows.append(
            NodeRow(
                name=one.node,
                kind="proxy" if is_proxy else "relay",
                level=level,
                text=text,
                rate_per_s=None if is_proxy else self._received(one),
            )
        )
        for link in one.below:
            if link.client in nodes:
                self._add_node(rows, nodes, nodes[link.client], level + 1)
            else:
                wants = "everything" if link.is_full else ", ".join(link.wants) or "nothing yet"
                kind: Literal["relay", "link"] = "relay" if link.is_relay else "link"
                more = "; not asked: give its endpoint with --relay" if link.is_relay else ""
                text = f"wants {wants}{more}"
                rows.append(NodeRow(name=link.client, kind=kind, level=level + 1, text=text))

    def _received(self, one: NodeReport) -> float | None:
        before = {node.node: node for node in self._before.nodes.values()} if self._before else {}
        earlier = before.get(one.node)
        if earlier is None or earlier.boot != one.boot or self.rates.between_s is None:
            return None
        return max(one.received - earlier.received, 0) / self.rates.between_s


_SORTING: Final[dict[Order, Callable[[TopicRow], Any]]] = {
    "name": lambda row: row.topic,
    "rate": lambda row: (-(row.rate_per_s or 0.0), row.topic),
    "lag": lambda row: (-row.lag_s, row.topic),
    "size": lambda row: (-row.stored_bytes, row.topic),
}


def source_topic(letters: str) -> str:
    """The topic whose messages became the dead letters of this one."""
    return letters.removesuffix(DEAD_SUFFIX)


def _paths(nodes: Collection[NodeReport]) -> dict[str, str]:
    """The node that pushes to each subscriber."""
    return {link.client: one.node for one in nodes for link in one.below if not link.is_relay}


def _sum(rates: Iterator[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _warnings(status: StatusReport) -> Iterator[str]:
    committer = status.committer
    if isinstance(committer, CommitterStatus):
        if committer.storage_full:
            yield "The disk of the proxy is full: puts are refused until there is space."
        if isinstance(committer.log_held_bytes, int):
            yield (
                "Another program reads the store, so its write-ahead log cannot be emptied; end "
                "that program."
            )
