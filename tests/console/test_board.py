"""What the page shows of two looks: topics, rates, who is slow and why."""

from __future__ import annotations

from typing import Any

import pytest

from reliable_pubsub.common.core.message_base import GroupTerms, Terms
from reliable_pubsub.common.core.status import (
    GroupStatus,
    PublisherStatus,
    StatusReport,
    SubscriptionStatus,
    TopicStatus,
)
from reliable_pubsub.common.core.tree_messages import AboveStatus, BelowStatus, NodeReport
from reliable_pubsub.console.core.board import Board, Order
from reliable_pubsub.console.core.reasons import (
    reason_of_group,
    reason_of_subscription,
    roughly,
)
from reliable_pubsub.relay.core.tree import TreeSnapshot


def a_subscription(name: str = "s", **more: Any) -> SubscriptionStatus:
    usual = {"generation": 1, "terms": Terms(), "state": "active", "silent_s": 0.1, "cursor": 0}
    return SubscriptionStatus(subscriber=name, **{**usual, "lag_messages": 0, "lag_s": 0.0, **more})


def a_group(**more: Any) -> GroupStatus:
    usual = {"generation": 1, "terms": GroupTerms(), "state": "active", "members": 2, "cursor": 0}
    usual |= {"held": 0, "held_by": 0, "waiting": 0, "redelivering": 0, "lag_s": 9.0}
    return GroupStatus(group="g", **{**usual, **more})


def a_topic(name: str, end: int = 0, **more: Any) -> TopicStatus:
    usual: dict[str, Any] = {"log": f"log of {name}", "start": 0, "stored_bytes": 10 * end}
    usual |= {"subscriptions": (), "subscriptions_left_out": 0, "publishers": ()}
    return TopicStatus(topic=name, end=end, **{**usual, "publishers_left_out": 0, **more})


def a_look(at_s: float, *topics: TopicStatus, **more: Any) -> TreeSnapshot:
    report = StatusReport(
        client="c",
        epoch=0,
        request=1,
        topics=topics,
        topics_count=len(topics),
        sessions_count=3,
        dropped_requests=0,
        **more,
    )
    return TreeSnapshot(at_s, {}, [], report)


class TestRates:
    def test_are_what_has_grown_over_the_time_between_two_looks(self) -> None:
        def look(at_s: float, put: int, read: int) -> TreeSnapshot:
            publisher = PublisherStatus(publisher="p", qos=2, last_sequence=put, last_offset=put)
            reader = a_subscription(cursor=read)
            return a_look(at_s, a_topic("t", put, subscriptions=(reader,), publishers=(publisher,)))

        detail = Board(look(12.0, 30, 24), look(10.0, 10, 20)).topic("t")

        assert detail is not None
        assert detail.row.rate_per_s == detail.publishers[0].rate_per_s == 10.0
        assert detail.readers[0].rate_per_s == 2.0

    def test_are_not_known_from_one_look_or_two_that_are_far_apart(self) -> None:
        for earlier in (None, a_look(0.0, a_topic("t", 1))):
            assert Board(a_look(100.0, a_topic("t", 9)), earlier).head().put_per_s is None

    def test_are_not_known_of_a_log_that_began_again(self) -> None:
        board = Board(a_look(2.0, a_topic("t", 3, log="b")), a_look(1.0, a_topic("t", 1, log="a")))

        assert board.topics().rows[0].rate_per_s is None


class TestTopics:
    BOARD = Board(
        a_look(1.0, *(a_topic(f"Topic {n:05}", n) for n in range(10_000)), a_topic("other.dead", 2))
    )

    def test_are_given_page_by_page(self) -> None:
        page = self.BOARD.topics(first=9_990, rows_max=50)

        assert page.found == 10_000
        assert page.first == 9_950
        assert [row.topic for row in page.rows][-1] == "Topic 09999"

    def test_are_found_by_a_part_of_their_name_whatever_its_case(self) -> None:
        assert [row.topic for row in self.BOARD.topics("TOPIC 0123").rows] == [
            f"Topic 0123{n}" for n in range(10)
        ]

    @pytest.mark.parametrize(("order", "first"), [("name", "Topic 00000"), ("size", "Topic 09999")])
    def test_are_sorted_as_asked_for(self, order: Order, first: str) -> None:
        assert self.BOARD.topics(order=order).rows[0].topic == first

    def test_of_dead_letters_are_listed_apart(self) -> None:
        assert self.BOARD.topics("other").found == 0
        assert [row.topic for row in self.BOARD.dead_letter_topics()] == ["other.dead"]

    def test_say_what_is_needed_of_those_that_are_open_and_shown(self) -> None:
        page = self.BOARD.topics(rows_max=1, opened={"Topic 00000", "Topic 00001"})

        assert page.opened.keys() == {"Topic 00000"}


class TestAReader:
    @pytest.mark.parametrize(
        ("facts", "rate", "kind", "words"),
        [
            ({"silent_s": 60.0}, 0.0, "silent", "no lease, so its messages stay stored"),
            (
                {"silent_s": 60.0, "terms": Terms(lease_ms=60_000)},
                0.0,
                "silent",
                "Its lease ends in 60 s.",
            ),
            ({}, 0.0, "stuck", "the message at offset 7"),
            ({}, 5.0, "too slow", "Acknowledges 5.0/s while 10.0/s are put"),
            ({}, 20.0, "catching up", "done in about 10 s"),
            ({}, None, "new", "after the next look"),
            ({"state": "expired"}, 0.0, "expired", "holds nothing"),
        ],
    )
    def test_that_is_slow_shows_why(
        self, facts: dict[str, Any], rate: float | None, kind: str, words: str
    ) -> None:
        one = a_subscription(**({"cursor": 7, "lag_messages": 100, "lag_s": 9.0} | facts))

        reason = reason_of_subscription(one, rate, 10.0)

        assert reason is not None
        assert reason.kind == kind
        assert words in reason.text

    @pytest.mark.parametrize(
        "facts", [{}, {"lag_messages": 5, "lag_s": 0.5}, {"terms": Terms(qos=0), "lag_s": 9.0}]
    )
    def test_that_is_not_slow_has_no_reason(self, facts: dict[str, Any]) -> None:
        assert reason_of_subscription(a_subscription(**facts), 0.0, 10.0) is None

    def test_has_what_is_left_of_two_leases(self) -> None:
        one = a_subscription(terms=Terms(lease_ms=30_000), silent_s=10.0)

        assert one.lease_left_s == 50.0
        assert a_subscription().lease_left_s is None

    def test_that_waits_longest_comes_first_and_one_that_expired_last(self) -> None:
        readers = (
            a_subscription("gone", state="expired", lag_messages=1, lag_s=99.0),
            a_subscription("b", lag_messages=1, lag_s=5.0),
            a_subscription("a", lag_messages=1, lag_s=50.0),
        )
        board = Board(a_look(1.0, a_topic("t", 1, subscriptions=readers)))

        assert [one.reader for one in board.slow] == ["a", "b", "gone"]


class TestAGroup:
    @pytest.mark.parametrize(
        ("facts", "kind"),
        [
            ({"members": 0, "waiting": 3}, "unmanned"),
            ({"held": 3, "held_by": 1}, "stuck"),
            ({"waiting": 3}, "silent"),
            ({"held": 1, "held_by": 1, "waiting": 3, "redelivering": 2}, "stuck"),
        ],
    )
    def test_that_is_slow_shows_why(self, facts: dict[str, Any], kind: str) -> None:
        group = a_group(**facts)

        reason = reason_of_group(group, 0.0, 0.0, group.held + group.waiting)

        assert reason is not None
        assert reason.kind == kind


def a_node(name: str, strategy: str, above: tuple[str, ...], *below: BelowStatus) -> NodeReport:
    return NodeReport(
        client="c",
        epoch=0,
        request=1,
        boot="b",
        node=name,
        push_endpoint="",
        strategy=strategy,
        below=below,
        below_left_out=0,
        above=tuple(AboveStatus(endpoint=one, settled=True) for one in above),
        plain=0,
        patterns=1,
        is_full=False,
        unknown_kinds=(),
        received=8,
        sent_singly=0,
        malformed=0,
        from_cache=0,
        shared=0,
        passed=0,
        dropped=0,
    )


def test_relays_are_shown_below_the_proxy_and_readers_below_their_relay() -> None:
    link = BelowStatus(client="relay-1", patterns=1, is_full=False, is_relay=True)
    reader = BelowStatus(client="s", patterns=1, is_full=False, wants=("t",))
    nodes = {
        "tcp://relay": a_node("relay-1", "merged", ("tcp://proxy",), reader),
        "tcp://proxy": a_node("proxy", "", (), link),
    }
    status = a_look(1.0, a_topic("t", 1, subscriptions=(a_subscription("s"),))).status
    board = Board(TreeSnapshot(1.0, nodes, ["tcp://gone"], status))

    assert [(one.name, one.level) for one in board.nodes()] == [
        ("proxy", 1),
        ("relay-1", 2),
        ("s", 3),
        ("tcp://gone", 1),
    ]
    detail = board.topic("t")
    assert detail is not None
    assert detail.readers[0].via == "relay-1"


def test_a_pause_and_a_full_disk_are_said_on_every_page() -> None:
    assert Board(a_look(1.0, paused="a new disk")).head().paused == "a new disk"
    assert Board(a_look(1.0)).head().paused is None


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.04, "0.0 s"), (12, "12 s"), (150, "2 min"), (90_000, "25 h")]
)
def test_a_duration_has_the_largest_unit_that_says_something(seconds: float, words: str) -> None:
    assert roughly(seconds) == words
