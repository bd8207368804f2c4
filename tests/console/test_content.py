"""Payloads as a person reads them, dead letters, and the story of a message."""

from __future__ import annotations

from typing import Any

import pytest

from reliable_pubsub.common.admin_client import AdminOutcome
from reliable_pubsub.common.core import dead_letter
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import NotPossibleError
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.console.core.actions import AskedAction, action_in_words, as_seen
from reliable_pubsub.console.core.content import (
    SHOWN_BYTES_MAX,
    best_form,
    bytes_in_words,
    content_of,
    parse_bytes,
    row_of,
    view_of,
)
from reliable_pubsub.console.core.letters import (
    again,
    letter_offset_of,
    publisher_of,
    publishers_from,
    row_of_letter,
)
from reliable_pubsub.console.core.story import story_of

from .test_board import a_subscription, a_topic


def a_message(payload: bytes = b"x", topic: str = "t", offset: int = 5, **more: Any) -> Message:
    return Message(topic, offset, "p", offset + 1, 1_700_000_000_123_456_789, payload, **more)


class TestAPayload:
    @pytest.mark.parametrize(
        ("payload", "form"),
        [
            (b'{"a": 1}', "json"),
            (b"[1, 2", "text"),
            (b"12", "text"),
            ("grün".encode(), "text"),
            (b"\x1b[31mred", "text"),
            (b"\xff\x00", "hex"),
            (b"\x00\x01\x02", "hex"),
            (b"", "text"),
            (b"[" * 50_000, "text"),
        ],
    )
    def test_is_shown_in_the_form_that_it_was_written_in(self, payload: bytes, form: str) -> None:
        assert best_form(payload) == form

    def test_is_json_if_its_header_says_so_and_it_is(self) -> None:
        headers = {"Content-Type": "application/json"}

        assert best_form(b"12", headers) == "json"
        assert best_form(b"twelve", headers) == "text"

    def test_as_json_keeps_numbers_and_names_as_they_were_written(self) -> None:
        shown = content_of(b'{"n":1.10000000000000000001,"n":2}').json

        assert shown == '{\n  "n": 1.10000000000000000001,\n  "n": 2\n}'

    def test_as_bytes_has_offset_digits_and_ascii(self) -> None:
        assert content_of(b"ab\x00" * 6).hex.splitlines() == [
            "00000000  61 62 00 61 62 00 61 62  00 61 62 00 61 62 00 61  ab·ab·ab·ab·ab·a",
            "00000010  62 00                                             b·",
        ]

    def test_that_is_long_is_cut_between_characters_and_says_so(self) -> None:
        content = content_of("ü".encode() * SHOWN_BYTES_MAX + b"x")

        assert content.text == "ü" * (SHOWN_BYTES_MAX // 2)
        assert content.left_out == SHOWN_BYTES_MAX + 1

    @pytest.mark.parametrize("key", [b"customer-1", b"\xff\x00", b"0xnot", b"0xff", b""])
    def test_and_a_key_as_words_are_the_same_bytes_when_they_are_typed_in(self, key: bytes) -> None:
        assert parse_bytes(bytes_in_words(key)) == key

    def test_a_time_keeps_its_nanoseconds(self) -> None:
        assert row_of(a_message()).timestamp_ns == "1700000000123456789"
        assert view_of(a_message(event_time_ns=-1)).event_time_ns == "-1"


def a_letter(**more: str) -> Message:
    headers = {"source": "web", dead_letter.OFFSET: "5", dead_letter.SUBSCRIBER: "s", **more}
    headers |= {dead_letter.REASON: "no address", dead_letter.DELIVERIES: "3"}
    return a_message(b"order", "t.dead", 7, headers=headers, key=b"k", event_time_ns=9)


class TestADeadLetter:
    def test_is_put_again_as_the_message_was_on_the_topic_whose_letter_it_is(self) -> None:
        what = again(a_letter(**{dead_letter.TOPIC: "another"}), "log")

        assert what.topic == "t"
        assert (what.payload, what.key, what.event_time_ns) == (b"order", b"k", 9)
        assert what.headers == {"source": "web"}

    def test_has_one_publisher_wherever_it_is_put_again(self) -> None:
        assert publisher_of("log", 7) == publisher_of("log", 7)
        others = {publisher_of("log", 8), publisher_of("another log", 7), publisher_of("log", 7)}
        assert len(others) == 3
        assert len(publisher_of("l" * 200, 2**63 - 1)) <= 64
        assert letter_offset_of(publisher_of("log", 2**63 - 1)) == 2**63 - 1
        assert letter_offset_of("again-and-again") is None

    def test_publishers_stand_in_the_order_of_their_letters(self) -> None:
        names = [publisher_of("log", n) for n in (0, 1, 9, 10, 11, 2**40)]

        assert names == sorted(names)
        assert publishers_from("log", 0) < names[0]
        assert names[2] <= publishers_from("log", 10) < names[3]

    def test_that_was_put_again_says_so(self) -> None:
        assert row_of_letter(a_letter(), "log", {publisher_of("log", 7)}).is_again
        assert not row_of_letter(a_letter(), "log", {publisher_of("log", 8)}).is_again

    def test_without_its_payload_cannot_be_put_again_and_says_where_it_is(self) -> None:
        letter = a_letter(**{dead_letter.LEFT_OUT: "1048000"})

        assert "offset 5 of t" in row_of_letter(letter, "log", ()).why_not
        with pytest.raises(NotPossibleError, match="1048000 bytes did not fit"):
            again(letter, "log")

    def test_is_no_message_that_a_program_has_put_on_such_a_topic(self) -> None:
        with pytest.raises(NotPossibleError, match="no dead letter"):
            again(a_message(topic="t.dead"), "log")


class TestAStory:
    BATCH = BatchHeader(4, 3, "p", 5, 1, 0, 9)

    def told(self, *letters: tuple[Message, bool], **readers: int) -> list[str]:
        subscriptions = tuple(a_subscription(name, cursor=at) for name, at in readers.items())
        status = a_topic("t", 9, subscriptions=subscriptions)
        return [one.text for one in story_of(a_message(), self.BATCH, status, letters)]

    def test_says_who_put_it_and_where_it_stands(self) -> None:
        told = self.told()

        assert told[0] == "p put it as its message 6 of this topic, exactly once."
        assert (
            told[1] == "The proxy stored it at offset 5, in a batch of 3 messages, offsets 4 to 6."
        )
        assert "no subscriptions" in told[2]

    def test_says_who_has_it_and_who_keeps_it_stored(self) -> None:
        told = self.told(a=6, b=5, c=2)

        assert told[2] == "a has acknowledged it, or came later."
        assert told[3].startswith("b is to get it next, or has it in its hands")
        assert told[4] == "c is to get it: 3 messages come before it."
        assert told[5] == "It stays stored until b, c acknowledged it."

    def test_says_that_it_was_rejected_and_put_again(self) -> None:
        told = self.told((a_letter(), True), s=6)

        assert told[2] == (
            "s rejected it after delivery 3, so it became dead letter 7. The reason: no address"
        )
        assert told[3] == "A console put that dead letter again."

    def test_of_one_that_was_put_again_says_which_letter_it_was(self) -> None:
        message = Message("t", 5, publisher_of("log", 7), 1, 1, b"")

        told = story_of(message, self.BATCH, None)

        assert told[0].text == "A console put it again: it was dead letter 7 of t.dead."


class TestAnAction:
    OUTCOME = AdminOutcome(number=1, done=False, already=False, first=2, end=5, subscriptions=1)

    @pytest.mark.parametrize(
        ("asked", "words"),
        [
            (
                AskedAction(action="skip", topic="t", subscriber="s"),
                "skips offsets 2 to 4 of t for s",
            ),
            (AskedAction(action="truncate", topic="t", start="now"), "removes offsets 2 to 4 of t"),
            (AskedAction(action="delete_topic", topic="t"), "deletes t with offsets 2 to 4"),
            (
                AskedAction(action="set_cursor", topic="t", subscriber="s"),
                "moves s on t from offset 2",
            ),
            (
                AskedAction(action="end_subscription", topic="t", subscriber="s"),
                "ends subscription 0",
            ),
            (
                AskedAction(action="forget_client", client="s"),
                "forgets subscriber s and ends 1 sub",
            ),
            (AskedAction(action="pause"), "refuses puts"),
            (AskedAction(action="resume"), "accepts puts again"),
        ],
    )
    def test_is_said_before_it_is_done(self, asked: AskedAction, words: str) -> None:
        assert action_in_words(asked, self.OUTCOME).startswith(words)

    def test_that_is_confirmed_is_the_one_that_was_looked_at(self) -> None:
        assert (
            as_seen(AskedAction(action="truncate", start="age 1h"), self.OUTCOME).start
            == "offset 5"
        )
        assert as_seen(AskedAction(action="skip"), self.OUTCOME).end == 5
