"""Interest between two nodes: both sides agree in the end, whatever the link does."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import msgspec
import pytest

from reliable_pubsub.common.core.answers import Limit, Malformed
from reliable_pubsub.common.core.limits import (
    CONSUMERS_MAX,
    HEADER_BYTES_MAX,
    REASON_CHARS_MAX,
    RELAYS_BELOW_MAX,
    STATUS_ROWS_MAX,
)
from reliable_pubsub.common.core.message_base import Reply
from reliable_pubsub.common.core.patterns.matching import EVERYTHING, KINDS_SHOWN, Pattern
from reliable_pubsub.common.core.tree_messages import InterestAck, InterestRequest, Loop
from reliable_pubsub.relay.core import interest_link
from reliable_pubsub.relay.core.interest_link import LEASE_S, WANT_CHARS, WANTS_SHOWN, Links, Wish
from reliable_pubsub.relay.core.interest_table import InterestTable
from tests.relay.wishes import KINDS

LINK = b"link-of-a-test--"
ABOVE = "root"


def exact(*topics: str) -> frozenset[Pattern]:
    return frozenset(Pattern("exact", topic) for topic in topics)


def a_node(*, cap: int = 32, boot: str = "boot-1") -> Links:
    table: InterestTable[bytes] = InterestTable(cap=cap, kinds=KINDS)
    return Links(table, node=ABOVE, kinds=KINDS, push_endpoint="tcp://push", boot=boot)


def a_wish(link: bytes = LINK, client: str = "leaf") -> Wish:
    return Wish(client=client, link=link)


def say(wish: Wish, node: Links, now_s: float | None = None) -> Reply:
    """One exchange that nothing disturbs, as soon as it is due."""
    now_s = wish.due_in_s(0.0) if now_s is None else now_s
    message = wish.message(now_s)
    assert message is not None
    reply = node.take(message, now_s)
    wish.answered(reply, now_s)
    return reply


def settle(wish: Wish, node: Links, now_s: float = 0.0) -> None:
    """Exchange until there is nothing to say, with the data socket saying its name."""
    say(wish, node, now_s)
    node.applied(wish.link)
    wish.ask_soon(now_s)
    say(wish, node, now_s + 0.1)
    assert wish.settled


def given(node: Links, link: bytes = LINK) -> frozenset[Pattern]:
    """What data is sent to a link, as its data socket learns it."""
    return node.applied(link)


class TestAWish:
    def test_is_said_whole_and_then_as_a_digest(self) -> None:
        wish, node = a_wish(), a_node()
        wish.want(exact("a"))
        first = wish.message(0.0)
        assert first is not None
        wish.answered(node.take(first, 0.0), 0.0)
        node.applied(LINK)
        second = wish.message(1.0)
        assert second is not None

        assert first.patterns == (Pattern("exact", "a"),)
        assert (second.patterns, second.version, second.digest) == (
            None,
            first.version,
            first.digest,
        )

    def test_that_does_not_change_makes_no_new_version(self) -> None:
        wish, node = a_wish(), a_node()
        wish.want(exact("a"))
        settle(wish, node)

        wish.want(exact("a"))

        assert wish.settled

    def test_is_silent_for_a_third_of_the_lease_when_it_is_settled(self) -> None:
        wish, node = a_wish(), a_node()
        settle(wish, node)

        assert wish.message(0.2) is None
        assert wish.due_in_s(0.1) == pytest.approx(LEASE_S / 3)

    def test_that_changes_a_thousand_times_meanwhile_is_said_once(self) -> None:
        """R22: what is under way is one message, and the newest set takes the place of others."""
        wish, node = a_wish(), a_node()
        wish.want(exact("channel-0"))
        under_way = wish.message(0.0)
        assert under_way is not None
        for number in range(1, 1001):
            wish.want(exact(f"channel-{number}"))
            assert wish.message(0.1) is None
        wish.answered(node.take(under_way, 0.2), 0.2)
        say(wish, node, 0.2)

        assert given(node) == exact("channel-1000")
        assert wish.sent_count == 2

    def test_that_changes_again_at_once_waits_a_moment_for_what_else_changes(self) -> None:
        """Row 4.14: viewers that change channels all the time make a set every 10 ms at most."""
        wish, node = a_wish(), a_node()
        now_s = 0.0
        for number in range(1000):
            wish.want(exact(f"channel-{number}"))
            message = wish.message(now_s)
            if message is not None:
                wish.answered(node.take(message, now_s), now_s)
                node.applied(LINK)
            now_s += 0.001

        say(wish, node)

        assert given(node) == exact("channel-999")
        assert wish.sent_count <= 100 + 2  # of the 1,000 within a second

    def test_that_is_not_answered_is_said_again_with_growing_pauses(self) -> None:
        wish = a_wish()
        times, now_s = [], 0.0
        for _ in range(8):
            assert wish.message(now_s) is not None
            times.append(now_s)
            now_s += wish.due_in_s(now_s)

        pauses = [later - now for now, later in itertools.pairwise(times)]
        assert pauses == sorted(pauses)
        assert pauses[-1] == interest_link.RESEND_S_MAX

    def test_learns_where_data_comes_from_and_what_is_not_understood(self) -> None:
        wish, node = a_wish(), a_node(cap=2)
        wish.want(exact("a", "b") | {Pattern("sql", "x")})
        say(wish, node)

        assert wish.push_endpoint == "tcp://push"
        assert wish.is_full
        assert given(node) == {EVERYTHING}
        wish.want(frozenset({Pattern("sql", "x")}))
        say(wish, node)
        assert wish.unknown_kinds == ("sql",)
        assert not wish.is_full

    def test_keeps_the_beginning_of_a_long_refusal(self) -> None:
        wish, node = a_wish(), a_node()
        message = wish.message(wish.due_in_s(0.0))
        assert message is not None

        refused = Loop(client="leaf", epoch=0, request=message.request, boot="b", text="x" * 10**6)
        wish.answered(refused, 0.0)

        assert wish.refused == "x" * REASON_CHARS_MAX
        assert node.report() == ()


def test_a_report_of_many_links_with_unknown_kinds_fits_in_a_header() -> None:
    table: InterestTable[bytes] = InterestTable(kinds=KINDS)
    node = Links(table, node=ABOVE, kinds=KINDS, push_endpoint="tcp://push", boot="boot")
    for number in range(STATUS_ROWS_MAX):
        wish = a_wish(f"{number:016}".encode(), f"{number:064}")
        kinds = (f"{number:03}{one:03}" + "\U0001f511" * 26 for one in range(WANTS_SHOWN))
        wish.want(frozenset(Pattern(kind, "\U0001f511" * WANT_CHARS) for kind in kinds))
        say(wish, node)

    rows = node.report()

    assert len(rows) == STATUS_ROWS_MAX
    assert len(table.unknown_kinds) == KINDS_SHOWN
    report = msgspec.msgpack.encode((rows, table.unknown_kinds))
    assert len(report) < HEADER_BYTES_MAX - 10_000  # for what is left


class TestALateCopy:
    def test_of_an_older_set_has_no_effect(self) -> None:
        wish, node = a_wish(), a_node()
        wish.want(exact("old"))
        old = wish.message(0.0)
        assert old is not None
        wish.answered(node.take(old, 0.0), 0.0)
        wish.want(exact("new"))
        say(wish, node)

        node.take(old, 1.0)

        assert given(node) == exact("new")

    def test_of_an_answer_has_no_effect(self) -> None:
        wish, node = a_wish(), a_node()
        wish.want(exact("old"))
        first = wish.message(0.0)
        assert first is not None
        late = node.take(first, 0.0)
        wish.want(exact("new"))
        again = wish.message(10.0)
        assert again is not None
        wish.answered(late, 10.0)
        assert not wish.settled
        wish.answered(node.take(again, 10.0), 10.0)

        assert wish.acknowledged == again.version

    def test_to_a_node_that_has_forgotten_the_link_is_mended_by_the_next_digest(self) -> None:
        wish, node = a_wish(), a_node()
        wish.want(exact("old"))
        old = wish.message(0.0)
        assert old is not None
        wish.answered(node.take(old, 0.0), 0.0)
        wish.want(exact("new"))
        say(wish, node)
        node.applied(LINK)
        say(wish, node, 1.0)
        restarted = a_node(boot="boot-2")
        restarted.take(old, 2.0)

        reply = say(wish, restarted, 2.0 + LEASE_S / 3)
        assert isinstance(reply, InterestAck)
        assert reply.wanted
        say(wish, restarted, 2.0 + LEASE_S / 3)

        assert given(restarted) == exact("new")


class TestALease:
    def test_ends_interest_and_a_digest_keeps_it(self) -> None:
        wish, node = a_wish(), a_node()
        wish.want(exact("a"))
        settle(wish, node)

        say(wish, node, LEASE_S / 2)

        assert node.expire(LEASE_S + 1) == []
        assert node.expire(LEASE_S * 2) == [LINK]
        assert given(node) == frozenset()

    def test_that_is_over_is_taken_up_again_by_the_next_digest(self) -> None:
        wish, node = a_wish(), a_node()
        wish.want(exact("a"))
        settle(wish, node)
        node.expire(LEASE_S * 2)

        say(wish, node, LEASE_S * 2)
        say(wish, node, LEASE_S * 2)

        assert given(node) == exact("a")


class TestARefusal:
    def test_of_a_loop_names_the_relay_and_changes_nothing(self) -> None:
        wish, node = a_wish(client="relay-2"), a_node()
        wish.want(exact("a"), frozenset({"relay-2", ABOVE}))

        reply = say(wish, node)

        assert isinstance(reply, Loop)
        assert ABOVE in reply.text
        assert wish.refused == reply.text
        assert given(node) == frozenset()

    def test_in_a_ring_of_three_comes_to_at_least_one_of_them(self) -> None:
        names = ("one", "two", "three")
        nodes, wishes = {}, {}
        for name in names:
            table: InterestTable[bytes] = InterestTable(kinds=KINDS)
            nodes[name] = Links(table, node=name, kinds=KINDS, push_endpoint="", boot=name)
            wishes[name] = a_wish(name.encode().ljust(16), name)
        for turn in range(3):
            for name, above in zip(names, (*names[1:], names[0]), strict=True):
                wishes[name].want(exact("a"), nodes[name].below)
                message = wishes[name].message(turn * 10.0)
                if message:
                    wishes[name].answered(nodes[above].take(message, 0.0), turn * 10.0)

        assert any(wish.refused for wish in wishes.values())
        assert all(name not in nodes[name].below - {name} for name in names)

    def test_of_a_pattern_that_cannot_be_read_leaves_the_set_before_it(self) -> None:
        wish, node = a_wish(), a_node()
        wish.want(exact("a"))
        say(wish, node)

        wish.want(frozenset({Pattern("regex", "(")}))

        assert isinstance(say(wish, node), Malformed)
        assert given(node) == exact("a")
        wish.want(exact("b"))
        say(wish, node)
        assert given(node) == exact("b")

    def test_comes_at_the_bound_of_links_and_of_relays(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert CONSUMERS_MAX > 1
        monkeypatch.setattr(interest_link, "CONSUMERS_MAX", 1)
        node = a_node()
        settle(a_wish(), node)

        assert isinstance(say(a_wish(b"another-link----"), node), Limit)
        crowd = a_wish()
        crowd.want(frozenset(), frozenset(f"relay-{n}" for n in range(RELAYS_BELOW_MAX)))
        assert isinstance(say(crowd, node, 100.0), Limit)


class LossyLink:
    """Loses, doubles, holds back and reorders what goes both ways, until it is healed."""

    def __init__(self, chance: random.Random, link: bytes) -> None:
        self.chance = chance
        self.up: list[InterestRequest] = []
        self.down: list[Reply] = []
        self.wish = Wish(client="leaf", link=link)

    def step(self, node: Links, now_s: float, *, healed: bool) -> None:
        message = self.wish.message(now_s)
        if message is not None:
            self.up.append(message)
        for said in self._arriving(self.up, healed):
            self.down.append(node.take(said, now_s))
        for reply in self._arriving(self.down, healed):
            self.wish.answered(reply, now_s)
            if self.wish.acknowledged != self.wish.applied and (
                healed or self.chance.random() < 0.5
            ):
                node.applied(self.wish.link)
                self.wish.ask_soon(now_s)

    def _arriving(self, waiting: list, healed: bool) -> list:  # type: ignore[type-arg]
        if healed:
            arrived, waiting[:] = list(waiting), []
            return arrived
        arrived = []
        self.chance.shuffle(waiting)
        for one in list(waiting):
            fate = self.chance.random()
            if fate < 0.3:
                waiting.remove(one)  # lost
            elif fate < 0.6:
                waiting.remove(one)
                arrived.append(one)
            elif fate < 0.7:
                arrived.append(one)  # and once more, later
        return arrived


def converge(seed: int, steps: int = 150) -> tuple[Sequence[LossyLink], Links]:
    """Change the interest of three links over a bad network; heal it; return all of them."""
    chance = random.Random(seed)
    node = a_node(boot="0")
    links = [LossyLink(chance, bytes([number]) * 16) for number in range(3)]
    now_s = 0.0
    for step in range(steps):
        now_s += chance.random()
        for one in links:
            if chance.random() < 0.3:
                topics = chance.sample("abcdef", chance.randrange(6))
                one.wish.want(exact(*topics))
            one.step(node, now_s, healed=False)
        if chance.random() < 0.03:
            node = a_node(boot=str(step))
        if chance.random() < 0.05:
            now_s += LEASE_S * 1.5
        node.expire(now_s)
    for _ in range(100):
        now_s += 1.0
        for one in links:
            one.step(node, now_s, healed=True)
        node.expire(now_s)
    return links, node


def test_both_sides_agree_whatever_was_lost_doubled_or_reordered() -> None:
    for seed in range(200):
        links, node = converge(seed)

        for one in links:
            assert one.wish.settled, f"seed {seed}"
            assert given(node, one.wish.link) == one.wish.patterns, f"seed {seed}"
