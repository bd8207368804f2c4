"""The drawn tree: every figure was reported by a process, and others are not shown."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

from reliable_pubsub.common.core.message_base import Terms
from reliable_pubsub.common.core.status import (
    PublisherStatus,
    StatusReport,
    SubscriptionStatus,
    TopicStatus,
)
from reliable_pubsub.common.core.tree_messages import AboveStatus, BelowStatus, NodeReport
from reliable_pubsub.relay.core.tree import BELOW_MAX, Edge, Tree, TreeSnapshot, tree_of
from reliable_pubsub.relay.core.tree_figure import TreeFigure, page_text, svg_text

PROXY, RELAY = "proxy-1", "relay-1"


def a_subscription(name: str, cursor: int, lag: int = 0) -> SubscriptionStatus:
    return SubscriptionStatus(
        subscriber=name,
        generation=1,
        terms=Terms(),
        state="active",
        silent_s=0.0,
        cursor=cursor,
        lag_messages=lag,
        lag_s=0.0,
    )


def a_status(put: int, *cursors: SubscriptionStatus) -> StatusReport:
    topic = TopicStatus(
        topic="news",
        log="log",
        start=0,
        end=put,
        stored_bytes=0,
        subscriptions=cursors,
        subscriptions_left_out=0,
        publishers=(PublisherStatus(publisher="p", qos=2, last_sequence=put, last_offset=put - 1),),
        publishers_left_out=0,
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


def a_node(name: str, *below: BelowStatus, **facts: Any) -> NodeReport:
    usual: dict[str, Any] = {
        "client": "c",
        "epoch": 0,
        "request": 1,
        "boot": "boot",
        "push_endpoint": "",
        "above": (),
        "below_left_out": 0,
        "plain": 0,
        "patterns": 1,
        "is_full": False,
        "unknown_kinds": (),
        "received": 0,
        "sent_singly": 0,
        "malformed": 0,
        "from_cache": 0,
        "shared": 0,
        "passed": 0,
        "dropped": 0,
    }
    usual["strategy"] = "" if name == PROXY else "subsume"
    return NodeReport(**(usual | {"node": name, "below": below} | facts))


def a_link(client: str, *wants: str, **facts: Any) -> BelowStatus:
    usual: dict[str, Any] = {"patterns": len(wants), "is_full": False, "wants": wants}
    return BelowStatus(client=client, **(usual | facts))


ABOVE = AboveStatus(endpoint="tcp://proxy", settled=True)


def a_look(at_s: float, *nodes: NodeReport, status: StatusReport | None = None) -> TreeSnapshot:
    return TreeSnapshot(at_s, {f"tcp://{one.node}": one for one in nodes}, (), status)


def edges(tree: Tree) -> dict[tuple[str, str], Edge]:
    return {(one.source, one.target): one for one in tree.edges}


def two_looks(**facts: Any) -> Tree:
    """Two seconds, in which 10 messages were put, 8 pushed to the relay, 6 acknowledged."""
    proxy = a_node(PROXY, a_link(RELAY, "news", is_relay=True))
    relay = a_node(RELAY, a_link("s", "news"), above=(ABOVE,), received=100)
    later = a_node(RELAY, a_link("s", "news"), **({"above": (ABOVE,), "received": 108} | facts))
    return tree_of(
        a_look(7.0, later, proxy, status=a_status(30, a_subscription("s", 16, 14))),
        a_look(5.0, relay, proxy, status=a_status(20, a_subscription("s", 10))),
    )


class TestAnEdge:
    def test_tells_the_rate_that_was_counted_between_two_looks(self) -> None:
        found = edges(two_looks())

        assert found["publisher p", PROXY].rate == "5.0 messages/s"
        assert found[PROXY, RELAY].rate == "4.0 batches/s"
        assert found[RELAY, "subscriber s"].rate == "3.0 acknowledged/s"

    def test_tells_what_is_wanted_at_its_end(self) -> None:
        found = edges(two_looks())

        assert found[PROXY, RELAY].interest == ("news",)
        assert found[RELAY, "subscriber s"].interest == ("news",)

    def test_has_no_rate_after_one_look(self) -> None:
        proxy = a_node(PROXY, a_link("s", "news"))

        tree = tree_of(a_look(1.0, proxy, status=a_status(3, a_subscription("s", 1))))

        assert {edge.rate for edge in tree.edges} == {""}

    def test_has_no_rate_that_is_not_counted(self) -> None:
        """A relay counts what comes from all above together; one that restarted, from zero."""
        several = two_looks(above=(ABOVE, AboveStatus(endpoint="tcp://other", settled=True)))
        another = two_looks(boot="another")

        assert edges(several)[PROXY, RELAY].rate == ""
        assert edges(another)[PROXY, RELAY].rate == ""

    def test_names_everything_and_what_it_leaves_out(self) -> None:
        full = a_link("a", "x", is_full=True)
        many = a_link("b", "x", "y", "z", patterns=9)

        found = edges(tree_of(a_look(1.0, a_node(PROXY, full, many), status=a_status(0))))

        assert found[PROXY, "subscriber a"].interest == ("everything",)
        assert found[PROXY, "subscriber b"].interest == ("x", "y", "z", "and 6 more")

    def test_to_a_subscriber_without_a_link_is_one_of_asking(self) -> None:
        tree = tree_of(a_look(1.0, a_node(PROXY), status=a_status(3, a_subscription("s", 1))))

        assert edges(tree)[PROXY, "subscriber s"].kind == "pull"


class TestABox:
    def test_stands_one_level_below_the_one_that_sends_to_it_and_subscribers_last(self) -> None:
        levels = {box.key: box.level for box in two_looks().boxes}

        assert levels == {"publisher p": 0, PROXY: 1, RELAY: 2, "subscriber s": 3}

    def test_of_a_relay_that_was_not_asked_says_so(self) -> None:
        proxy = a_node(PROXY, a_link("far", "news", is_relay=True))

        tree = tree_of(a_look(1.0, proxy, status=a_status(0)))

        (far,) = [box for box in tree.boxes if box.name == "far"]
        assert far.kind == "relay"
        assert far.rows[0].text == "not asked: give its --endpoint too"

    def test_of_a_relay_is_no_proxy_whatever_its_name_is(self) -> None:
        relay = a_node("proxy-of-the-south", a_link("s", "news"), above=(ABOVE,))
        proxy = a_node(PROXY, a_link("proxy-of-the-south", "news", is_relay=True))

        tree = tree_of(a_look(1.0, relay, proxy, status=a_status(0)))

        assert [box.key for box in tree.boxes if box.kind == "proxy"] == [PROXY]

    def test_of_what_did_not_answer_does_not_say_what_it_is(self) -> None:
        relay = a_node(RELAY, above=(ABOVE,))
        look = TreeSnapshot(1.0, {"tcp://relay": relay}, [ABOVE.endpoint], None)

        (source,) = [box for box in tree_of(look).boxes if box.kind == "source"]

        assert source.name == ABOVE.endpoint

    def test_for_which_there_is_no_room_is_counted(self) -> None:
        links = [a_link(f"s{number:03}", "news") for number in range(BELOW_MAX + 5)]

        tree = tree_of(a_look(1.0, a_node(PROXY, *links), status=a_status(0)))

        assert "5 more below proxy" in tree.left_out
        assert len(tree.edges) == BELOW_MAX + 1

    def test_of_a_relay_in_a_ring_is_drawn_once(self) -> None:
        one = a_node("one", a_link("two", "x", is_relay=True), above=(ABOVE,))
        two = a_node("two", a_link("one", "x", is_relay=True), above=(ABOVE,))
        top = a_node(PROXY, a_link("one", "x", is_relay=True))

        tree = tree_of(a_look(1.0, top, one, two, status=a_status(0)))

        assert sorted(box.key for box in tree.boxes) == ["one", "proxy-1", "publisher p", "two"]


class TestTheFigure:
    def figure(self, tree: Tree) -> TreeFigure:
        return TreeFigure(tree, title="t", about="a", style="text { fill: red; }")

    def test_is_svg_that_holds_whatever_a_name_says_as_text(self) -> None:
        evil = "<script>x</script>&\x1b"
        proxy = a_node(PROXY, a_link("s", evil))

        text = svg_text(self.figure(tree_of(a_look(1.0, proxy, status=a_status(0)))))

        root = ElementTree.fromstring(text)
        assert root.tag.endswith("svg")
        assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
        assert "<script>x</scr…" not in text

    def test_has_no_box_upon_another(self) -> None:
        links = [a_link(f"s{number}", "news") for number in range(9)]
        figure = self.figure(tree_of(a_look(1.0, a_node(PROXY, *links), status=a_status(0))))

        boxes = [one for one in figure.svg().iter("rect") if one.get("class") == "box"]

        places = sorted((float(b.get("x", 0)), float(b.get("y", 0))) for b in boxes)
        for (x, y), (other_x, other_y) in pairwise(places):
            assert x != other_x or other_y - y > 40

    def test_asks_nothing_of_the_network(self) -> None:
        text = page_text(self.figure(two_looks()), "t")

        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
