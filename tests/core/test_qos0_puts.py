"""What a publisher does at QoS 0: nothing without a listener, else one attempt; it says which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.patterns.matching import Kinds, Pattern
from reliable_pubsub.common.transport import Shell
from reliable_pubsub.publisher.core.receipt import OfferCounts
from reliable_pubsub.publisher.qos0.core.qos0_puts import (
    ASK_AGAIN_S,
    LOOK_AGAIN_S,
    Interest,
    QoS0Puts,
    Where,
)
from reliable_pubsub.relay.core.push import END
from reliable_pubsub.relay.core.unstored import (
    LINKED,
    Offer,
    decode_offer,
    encode_offer,
    is_wanted,
    marks_of,
    offer_prefixes,
)
from tests.fakes import FakeTransport, put_body

T = TypeVar("T")
PATIENCE_S = 2.0
KINDS = Kinds()


class JumpingClock:
    def __init__(self) -> None:
        self.at_s = 100.0

    def now_s(self) -> float:
        return self.at_s

    def sleep(self, seconds: float) -> None:
        self.at_s += seconds


class FakeLink:
    """A link whose far side says what a test says. Implements `OfferLink`."""

    def __init__(self, clock: JumpingClock) -> None:
        self.clock = clock
        self.wanted: set[bytes] = {LINKED}
        self.arriving: set[bytes] = set()  # said while the publisher waits
        self.known_at_s = float("inf")  # when the link comes up, and "t" is wanted
        self.has_room = True
        self.sent: list[Sequence[bytes]] = []
        self.is_closed = False

    def prefixes(self) -> frozenset[bytes]:
        return frozenset(self.wanted)

    def send(self, frames: Sequence[bytes]) -> bool:
        if self.has_room:
            self.sent.append(frames)
        return self.has_room

    def wait(self, seconds: float) -> None:
        if self.arriving:
            self.wanted |= self.arriving
            self.arriving = set()
        else:
            self.clock.at_s += seconds
        if self.clock.at_s >= self.known_at_s:
            self.wanted |= {LINKED, b"t" + END}

    def close(self) -> None:
        self.is_closed = True


class Asked:
    """An `QoS0Puts` with what is around it."""

    def __init__(self, *, is_wanted: bool = True) -> None:
        self.clock = JumpingClock()
        self.link = FakeLink(self.clock)
        self.where = Where("e", Interest(int(is_wanted), False))
        self.asked: list[str] = []
        self.connected: list[str] = []
        self.qos0 = QoS0Puts(
            self._ask, self._connect, now_s=self.clock.now_s, patience_s=PATIENCE_S
        )

    def _ask(self, topic: str) -> Conversation[Where]:
        self.asked.append(topic)
        return self.where
        yield

    def run(self, conversation: Conversation[T]) -> T:
        """It asks nothing of a socket or a state."""
        return Shell(FakeTransport(lambda _: None), self.clock).run(conversation)

    def _connect(self, endpoint: str) -> FakeLink:
        self.connected.append(endpoint)
        return self.link

    def offer(self, topic: str = "t") -> str:
        return self.run(self.qos0.offer(topic, 2, lambda: [b"frames"]))


class TestAnOffer:
    def test_is_sent_once_if_it_is_wanted(self) -> None:
        asked = Asked()
        asked.link.wanted.add(b"t" + END)

        assert asked.offer() == "sent"

        assert asked.link.sent == [[b"frames"]]
        assert asked.qos0.counts == OfferCounts(sent=2)

    def test_that_is_not_wanted_is_not_even_encoded(self) -> None:
        asked = Asked(is_wanted=False)

        unwanted = asked.qos0.offer("t", 1, lambda: pytest.fail("encoded"))
        assert asked.run(unwanted) == "unwanted"

        assert asked.qos0.counts == OfferCounts(unwanted=1)

    def test_for_which_there_is_no_room_is_dropped_and_not_kept(self) -> None:
        asked = Asked()
        asked.link.wanted.add(b"t" + END)
        asked.link.has_room = False
        assert asked.offer() == "dropped"
        asked.link.has_room = True

        assert asked.offer() == "sent"

        assert (len(asked.link.sent), asked.qos0.counts.dropped) == (1, 2)

    def test_asks_once_for_each_topic(self) -> None:
        asked = Asked(is_wanted=False)
        for topic in ("t", "t", "u", "t"):
            asked.offer(topic)

        assert (asked.asked, asked.connected) == (["t", "u"], ["e"])

    def test_that_is_the_first_of_its_topic_waits_until_the_link_knows_what_is_wanted(self) -> None:
        asked = Asked()
        asked.link.wanted.clear()
        asked.link.arriving = {LINKED, b"t" + END}

        assert asked.offer() == "sent"

        assert asked.clock.at_s == 100.0

    def test_waits_for_the_link_no_longer_than_its_patience(self) -> None:
        asked = Asked()
        asked.link.wanted.clear()

        assert asked.offer() == "dropped"

        assert asked.clock.at_s == 100.0 + PATIENCE_S

    def test_on_a_link_that_is_down_asks_again_where_the_proxy_is_after_a_while(self) -> None:
        asked = Asked()
        asked.link.wanted.add(b"t" + END)
        asked.offer()
        asked.link.wanted.clear()
        assert (asked.offer(), asked.asked) == ("dropped", ["t"])
        asked.where = Where("elsewhere", Interest(1, False))
        asked.clock.at_s += LOOK_AGAIN_S

        asked.offer()

        assert (asked.asked, asked.connected) == (["t", "t"], ["e", "elsewhere"])
        assert asked.link.is_closed


class TestWaitingForInterest:
    def test_asks_again_when_the_link_says_something_and_else_once_a_second(self) -> None:
        asked = Asked(is_wanted=False)

        assert not asked.run(asked.qos0.wait_for_interest("t", 3 * ASK_AGAIN_S))

        assert len(asked.asked) == 4
        assert asked.clock.at_s == 100.0 + 3 * ASK_AGAIN_S

    def test_ends_with_the_answer_that_says_so(self) -> None:
        asked = Asked(is_wanted=False)
        asked.link.arriving = {b"t" + END}
        answers = iter([Where("e", Interest(0, False)), Where("e", Interest(2, True))])

        def ask(_: str) -> Conversation[Where]:
            return next(answers)
            yield

        asked.qos0._ask = ask

        assert asked.run(asked.qos0.wait_for_interest("t", 60)) == Interest(2, True)

        assert asked.clock.at_s == 100.0

    def test_continues_until_the_link_knows_it_too_so_that_the_next_message_is_sent(self) -> None:
        asked = Asked()
        asked.link.wanted.clear()
        asked.link.known_at_s = 100.0 + 5 * PATIENCE_S

        assert asked.run(asked.qos0.wait_for_interest("t", 60))

        assert asked.offer() == "sent"

    def test_ends_in_time_on_a_link_that_stays_down(self) -> None:
        asked = Asked()
        asked.link.wanted.clear()

        asked.run(asked.qos0.wait_for_interest("t", PATIENCE_S / 4))

        assert asked.clock.at_s == 100.0 + PATIENCE_S / 4


@pytest.mark.parametrize(
    ("kind", "text", "prefix"),
    [
        ("exact", "ab", b"ab\0"),
        ("prefix", "ab", b"ab"),
        ("prefix", "", b""),
        ("glob", "ab*c", b"ab"),
        ("regex", "a(b|c)", b"a"),
        ("unknown", "ab", b""),
    ],
)
def test_a_pattern_is_asked_for_as_narrow_as_a_prefix_can_be(
    kind: str, text: str, prefix: bytes
) -> None:
    found = offer_prefixes([Pattern(kind, text)], KINDS)
    assert found - marks_of(found) == {prefix, LINKED}
    assert bool(marks_of(found)) == (kind != "exact")


def test_another_pattern_with_the_same_prefix_has_another_mark() -> None:
    one, other = Pattern("glob", "site/*/heat"), Pattern("glob", "site/*/cold")
    marks = {marks_of(offer_prefixes(some, KINDS)) for some in ([one], [other], [one, other])}
    assert len(marks) == 3


@pytest.mark.parametrize(
    ("topic", "prefixes", "wanted"),
    [
        ("ab", {b"ab\0"}, True),
        ("abc", {b"ab\0"}, False),
        ("abc", {b"ab"}, True),
        ("abc", {b""}, True),
        ("abc", {LINKED, b"b"}, False),
        ("é", {"é".encode()[:1]}, True),
    ],
)
def test_a_topic_is_wanted_if_its_frame_begins_with_a_prefix(
    topic: str, prefixes: set[bytes], wanted: bool
) -> None:
    assert is_wanted(topic, prefixes) is wanted


OFFER = Offer(publisher="p", epoch=1, first_sequence=1, count=1, crc=0xF1F2F3F4)


class TestTheFramesOfAnOffer:
    def test_are_read_as_they_were_written(self) -> None:
        body = put_body(1)
        offer = Offer(publisher="p", epoch=1, first_sequence=7, count=1, crc=crc32(body))

        read = decode_offer(encode_offer("t", offer, body))

        assert (read.topic, read.offer, read.body) == ("t", offer, body)

    @pytest.mark.parametrize(
        "frames",
        [
            [],
            [b"t\0", b"RPS1", b"\x80"],
            [b"t", b"RPS1", b"\x80", b""],
            [b"\0", b"RPS1", b"\x80", b""],
            [b"t\0", b"RPS2", b"\x80", b""],
            [b"t\0", b"RPS1", b"\x80", b""],
            [b"t\0", b"RPS1", b"\xc1", b""],
            [b"\xff\0", b"RPS1", b"\x80", b""],
            encode_offer("t", OFFER, b"another body"),
            encode_offer("t", OFFER, bytes((1 << 20) + 1)),
        ],
    )
    def test_that_are_none_are_refused(self, frames: list[bytes]) -> None:
        with pytest.raises(MalformedError):
            decode_offer(frames)
