"""Any bytes give a value or `MalformedError`, and frames keep their bounds (rules R2, R20)."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reliable_pubsub.common.core.answers import MessageBatches, PutAck
from reliable_pubsub.common.core.batch import Batch, crc32
from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.limits import (
    BATCH_MESSAGES_MAX,
    BODY_BYTES_MAX,
    HEADER_BYTES_MAX,
    HELLO_TOPICS_MAX,
    NONCE_BYTES_MAX,
    NUMBER_MAX,
    STATUS_ROWS_MAX,
    STATUS_TOPICS_MAX,
    TOPIC_BYTES_MAX,
)
from reliable_pubsub.common.core.message_base import BatchHeader, Start
from reliable_pubsub.common.core.requests import Dead, Put, Sub
from reliable_pubsub.common.core.transaction_messages import Stage
from reliable_pubsub.common.core.wire import (
    decode_batch,
    decode_reply,
    decode_request,
    encode,
)
from tests.fakes import NONCE, a_get, a_hello, a_put, a_sub, put_body

from .vectors import ANSWERS, BODY, REQUESTS

PUT_FRAMES = encode(a_put(1), put_body(1))


def header(**fields: object) -> list[bytes]:
    """A request with these fields, without any check."""
    return [b"RPS1", msgspec.msgpack.encode(fields)]


def a_header(verb: str, **more: object) -> list[bytes]:
    return header(verb=verb, client="c", epoch=1, request=1, **more)


def refusal(frames: Sequence[bytes]) -> str:
    with pytest.raises(MalformedError) as caught:
        decode_request(frames)
    return str(caught.value)


class TestAnyBytes:
    """H19: whatever comes in, the proxy has something to answer."""

    @given(st.lists(st.binary(max_size=200), max_size=5))
    @example([])
    @example([b"RPS1"])
    @example([b"RPS1", b""])
    @example([b"RPS1", b"\x91" * 100_000])
    @example([b"RPS1", b"\x81\xa4verb\xa4\xff\xff\xff\xff"])
    def test_are_a_request_or_malformed(self, frames: list[bytes]) -> None:
        request_or_malformed(frames)

    @given(st.binary(max_size=200), st.binary(max_size=50) | st.none())
    def test_after_the_right_first_frame_too(self, head: bytes, body: bytes | None) -> None:
        frames = [b"RPS1", head, *([] if body is None else [body])]

        request_or_malformed(frames)
        reply_or_malformed(frames)

    @given(
        golden=st.sampled_from([one.frames[1] for one in REQUESTS.values()]),
        place=st.integers(0, 400),
        value=st.integers(0, 255),
        cut=st.integers(0, 400) | st.none(),
    )
    def test_that_were_a_request_before_one_was_changed(
        self, golden: bytes, place: int, value: int, cut: int | None
    ) -> None:
        head = bytearray(golden)
        head[place % len(head)] = value

        request_or_malformed([b"RPS1", bytes(head[:cut]), BODY])
        request_or_malformed([b"RPS1", bytes(head[:cut])])

    @given(
        golden=st.sampled_from([one.frames[1] for one in ANSWERS.values()]),
        place=st.integers(0, 600),
        value=st.integers(0, 255),
        cut=st.integers(0, 600) | st.none(),
    )
    def test_that_were_an_answer_before_one_was_changed(
        self, golden: bytes, place: int, value: int, cut: int | None
    ) -> None:
        head = bytearray(golden)
        head[place % len(head)] = value

        reply_or_malformed([b"RPS1", bytes(head[:cut]), BODY])
        reply_or_malformed([b"RPS1", bytes(head[:cut])])

    @given(st.binary(max_size=100), st.integers(0, 5))
    @example(b"\x94" * 1000, 1)
    @example(BODY[:-1] + b"\x91\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 1)
    def test_are_a_batch_or_malformed(self, body: bytes, count: int) -> None:
        with suppress(MalformedError):
            assert isinstance(decode_batch(body, count), Batch)

    @given(place=st.integers(0, 20), value=st.integers(0, 255))
    def test_that_were_a_batch_before_one_was_changed(self, place: int, value: int) -> None:
        body = bytearray(BODY)
        body[place % len(body)] = value

        with suppress(MalformedError):
            assert isinstance(decode_batch(bytes(body), 1), Batch)


def request_or_malformed(frames: Sequence[bytes]) -> None:
    with suppress(MalformedError):
        request, body = decode_request(frames)
        has_body = isinstance(request, Put | Stage | Dead)
        again = encode(request, body if has_body else None)
        assert decode_request(again) == (request, body)


def reply_or_malformed(frames: Sequence[bytes]) -> None:
    with suppress(MalformedError):
        reply, body = decode_reply(frames)
        again = encode(reply, body if isinstance(reply, MessageBatches) else None)
        assert type(decode_reply(again)[0]) is type(reply)


class TestFrames:
    @pytest.mark.parametrize(
        "frames",
        [[], [b""], [b"RPS2", PUT_FRAMES[1]], [b"rps1", PUT_FRAMES[1]], [PUT_FRAMES[1]]],
        ids=["none", "empty", "another version", "another protocol", "no protocol"],
    )
    def test_begin_with_the_protocol(self, frames: list[bytes]) -> None:
        assert "RPS1" in refusal(frames)

    @pytest.mark.parametrize("count", [1, 4, 9])
    def test_are_two_or_three(self, count: int) -> None:
        assert f"{count} frames" in refusal([b"RPS1", *[b"x"] * (count - 1)])

    def test_have_a_bounded_header(self) -> None:
        assert "header of" in refusal([b"RPS1", b"x" * (HEADER_BYTES_MAX + 1)])

    def test_have_a_bounded_body(self) -> None:
        body = b"x" * (BODY_BYTES_MAX + 1)

        assert "body of" in refusal(encode(a_put(1, body=body), body))

    def test_take_a_body_of_the_largest_size(self) -> None:
        body = b"x" * BODY_BYTES_MAX

        assert decode_request(encode(a_put(1, body=body), body))[1] == body


class TestARequest:
    def test_has_a_verb_that_exists(self) -> None:
        assert "PUBLISH" in refusal(a_header("PUBLISH"))

    def test_has_no_field_that_this_proxy_does_not_know(self) -> None:
        """What a proxy does not know it cannot honour, so it does not take it."""
        assert "colour" in refusal(a_header("STATUS", colour="red"))

    def test_lacks_no_field(self) -> None:
        assert "nonce" in refusal(a_header("HELLO", role="publisher"))

    @pytest.mark.parametrize(
        ("verb", "fields"),
        [
            ("STATUS", {"client": "a_b"}),
            ("STATUS", {"client": "../x"}),
            ("STATUS", {"client": "x" * 65}),
            ("STATUS", {"client": ""}),
            ("STATUS", {"epoch": -1}),
            ("STATUS", {"request": NUMBER_MAX + 1}),
            ("STATUS", {"topics_max": STATUS_TOPICS_MAX + 1}),
            ("UNSUB", {"control": 1, "topic": ""}),
            ("UNSUB", {"control": 1, "topic": "a\nb"}),
            ("UNSUB", {"control": 1, "topic": "x" * 256}),
            ("UNSUB", {"topic": "t", "control": 0}),
            ("HISTORY", {"topic": "t", "start": ["offset", -1]}),
            ("HISTORY", {"topic": "t", "start": ["offset", 0], "messages_max": 0}),
            ("HISTORY", {"topic": "t", "start": ["offset", 0], "witness_ns": -1}),
            ("STATUS", {"rows_max": STATUS_ROWS_MAX + 1}),
            (
                "HISTORY",
                {"topic": "t", "start": ["offset", 0], "messages_max": BATCH_MESSAGES_MAX + 1},
            ),
            ("HISTORY", {"topic": "t", "start": ["offset", 0], "bytes_max": BODY_BYTES_MAX + 1}),
            ("HISTORY", {"topic": "t", "start": ["tomorrow", 0]}),
            ("SUB", {"topic": "t", "control": 1, "start": ["age", 2**63]}),
            ("HELLO", {"nonce": b"12345678", "role": "proxy"}),
            ("HELLO", {"role": "publisher", "nonce": b"short"}),
            ("HELLO", {"role": "publisher", "nonce": b"x" * (NONCE_BYTES_MAX + 1)}),
        ],
    )
    def test_keeps_its_fields_within_their_bounds(
        self, verb: str, fields: dict[str, object]
    ) -> None:
        """The last field of each example is the wrong one, and the refusal names it."""
        head = {"verb": verb, "client": "c", "epoch": 1, "request": 1}

        text = refusal(header(**{**head, **fields}))

        assert f"$.{list(fields)[-1]}" in text

    @pytest.mark.parametrize("place", range(8))
    def test_says_each_key_once(self, place: int) -> None:
        """One reader takes the first value, another one the last."""
        frames = encode(a_hello("publisher", "p"))
        fields = list(msgspec.msgpack.decode(frames[1]).items())
        again = fields[place % len(fields)]
        head = bytes([0x81 + len(fields)]) + b"".join(
            msgspec.msgpack.encode(one) for pair in (*fields, again) for one in pair
        )

        assert "twice" in refusal([b"RPS1", head])

    def test_says_its_keys_in_any_order(self) -> None:
        frames = encode(a_hello("publisher", "p"))
        fields = reversed(msgspec.msgpack.decode(frames[1]).items())

        assert decode_request([b"RPS1", msgspec.msgpack.encode(dict(fields))]) == decode_request(
            frames
        )

    @pytest.mark.parametrize("size", [b"\xde\x00\x05", b"\xdf\x00\x00\x00\x05"])
    def test_says_each_key_once_whatever_the_form_of_the_map(self, size: bytes) -> None:
        pairs = [*header(verb="STATUS", client="c", epoch=1, request=1)[1][1:]]
        again = bytes(pairs) + msgspec.msgpack.encode("epoch") + b"\x02"

        assert "twice" in refusal([b"RPS1", size + again])

    @pytest.mark.parametrize(
        ("name", "terms", "why"),
        [
            ("terms", b"\x81\xa5color\x01", "color"),
            ("terms", b"\x82\xa3qos\x02\xa3qos\x01", "twice"),
            ("terms", b"\x81\xa3qos\x07", "7"),
            ("group_terms", b"\x81\xa5color\x01", "color"),
            ("group_terms", b"\x82\xa8lease_ms\x02\xa8lease_ms\x01", "twice"),
            ("group_terms", b"\x81\xa8lease_ms\x00", ">= 1"),
        ],
    )
    def test_says_in_its_terms_what_the_proxy_knows_each_once(
        self, name: str, terms: bytes, why: str
    ) -> None:
        head = a_header("SUB", topic="t", control=1)[1]
        head = bytes([head[0] + 1]) + head[1:] + msgspec.msgpack.encode(name) + terms

        assert why in refusal([b"RPS1", head])

    @pytest.mark.parametrize("verb", ["SUB", "HISTORY"])
    @pytest.mark.parametrize(
        "start",
        [
            ["offset"],
            ["newest"],
            ["time"],
            ["age"],
            ["now", 5],
            ["last", 1],
            ["earliest", 2],
            ["offset", 1, 2],
            [],
        ],
        ids=str,
    )
    def test_says_in_a_start_what_it_needs_and_no_more(self, verb: str, start: object) -> None:
        control = {"control": 1} if verb == "SUB" else {}

        assert "start" in refusal(a_header(verb, topic="t", start=start, **control))

    @pytest.mark.parametrize("start", [["now"], ["now", 0], ["offset", 0], ["age", 1]], ids=str)
    def test_may_leave_the_value_out_where_it_says_nothing(self, start: list[Any]) -> None:
        request, _ = decode_request(a_header("SUB", topic="t", control=1, start=start))

        assert isinstance(request, Sub)
        assert request.start == Start(*start)

    @pytest.mark.parametrize(
        "place",
        [
            {"cursor": 0},
            {"cursor": 0, "witness_ns": 1},
            {"log": "x"},
            {"witness_ns": 1},
            {"log": "x", "witness_ns": 1},
            {"start": ["now"], "cursor": 1},
            {"start": ["now"], "witness_ns": 1},
            {"start": ["now"], "log": "x", "witness_ns": 1},
        ],
        ids=str,
    )
    def test_to_subscribe_says_a_place_in_one_of_the_ways_of_the_page(
        self, place: dict[str, object]
    ) -> None:
        """The table of the page; what is not there was taken in some way."""
        assert "SUB" in refusal(a_header("SUB", topic="t", control=1, **place))

    @pytest.mark.parametrize(
        "place",
        [
            {},
            {"log": "x", "cursor": 1},
            {"log": "x", "cursor": 1, "witness_ns": 1},
            {"start": ["now"]},
            {"start": ["now"], "log": "x"},
            {"start": ["now"], "log": "x", "cursor": 1, "witness_ns": 1},
            {"start": ["now"], "cursor": 0},
        ],
        ids=str,
    )
    def test_to_subscribe_may_say_each_of_them(self, place: dict[str, object]) -> None:
        request, _ = decode_request(a_header("SUB", topic="t", control=1, **place))

        assert isinstance(request, Sub)
        assert (request.log, request.cursor) == (place.get("log"), place.get("cursor"))

    @pytest.mark.parametrize("attempts", [(NONCE, NONCE), (NONCE, b"another1")])
    def test_to_commit_names_each_task_once(self, attempts: tuple[bytes, bytes]) -> None:
        """Its messages were stored twice, or those of two tries were."""
        parts = [[0, attempt, 1] for attempt in attempts]

        assert "twice" in refusal(a_header("COMMIT", transaction=1, parts=parts))

    def test_to_commit_has_parts_of_three_values(self) -> None:
        assert "parts" in refusal(a_header("COMMIT", transaction=1, parts=[[0, NONCE, 1, 1]]))

    def test_asks_for_so_many_topics_at_most(self) -> None:
        topics = tuple(f"t{n}" for n in range(HELLO_TOPICS_MAX + 1))

        assert "topics" in refusal(encode(a_hello("publisher", "p", topics=topics)))

    @pytest.mark.parametrize("verb", ["UNSUB", "SUB"])
    def test_counts_the_bytes_of_a_topic_and_not_its_characters(self, verb: str) -> None:
        topic = "ü" * 128

        assert "255 bytes" in refusal(a_header(verb, topic=topic, control=1))

    def test_counts_the_bytes_of_the_topics_of_a_hello_too(self) -> None:
        long = "ü" * TOPIC_BYTES_MAX

        assert "255 bytes" in refusal(encode(a_hello("publisher", "p", topics=(long,))))

    def test_is_not_a_pickle(self) -> None:
        """H15, R20: bytes from the wire never become code."""
        assert "header" in refusal([b"RPS1", pickle.dumps({"verb": "STATUS"})])


class TestAPut:
    def test_has_a_body(self) -> None:
        assert "no body" in refusal(PUT_FRAMES[:2])

    def test_has_the_body_that_its_header_announces(self) -> None:
        spoiled = put_body(1)[:-1] + b"\x00"

        assert "CRC-32" in refusal([*PUT_FRAMES[:2], spoiled])

    @pytest.mark.parametrize("first", [0, -1, NUMBER_MAX])
    def test_has_numbers_that_can_be_stored(self, first: int) -> None:
        refusal(encode(a_put(first), put_body(first or 1)))

    @pytest.mark.parametrize("count", [0, BATCH_MESSAGES_MAX + 1])
    def test_has_as_many_messages_as_a_batch_may_have(self, count: int) -> None:
        put = msgspec.structs.replace(a_put(1), count=count)

        assert "count" in refusal(encode(put, put_body(1)))

    @pytest.mark.parametrize("other", [a_get(0), a_sub(), a_hello("publisher", "p")])
    def test_is_the_only_request_with_a_body(self, other: object) -> None:
        frames = [b"RPS1", msgspec.msgpack.encode(other), b"body"]

        assert "only PUT, STAGE and DEAD" in refusal(frames)


class TestAnAnswer:
    ANSWER = PutAck(client="p", epoch=1, request=1, offset=0)

    def test_may_carry_a_field_that_this_client_does_not_know(self) -> None:
        """A newer proxy may say more than an older client understands."""
        fields = msgspec.msgpack.decode(msgspec.msgpack.encode(self.ANSWER))

        more = msgspec.msgpack.encode({**fields, "colour": "red"})

        assert decode_reply([b"RPS1", more]) == (self.ANSWER, b"")

    @pytest.mark.parametrize(
        "sizes", [(3,), (5,), (2, 3), (8, -4), (), (2**70, -(2**70) + 4)], ids=str
    )
    def test_with_messages_has_as_many_bytes_as_it_says(self, sizes: tuple[int, ...]) -> None:
        headers = [[base, 1, "p", 1, 1, 0, size] for base, size in enumerate(sizes)]
        head = {"answer": "MESSAGE", "client": "s", "epoch": 1, "request": 1, "end": 9}
        try:
            frame = msgspec.msgpack.encode({**head, "batches": headers})
        except OverflowError:  # such a number has no form on the wire
            return

        with pytest.raises(MalformedError):
            decode_reply([b"RPS1", frame, b"four"])

    def test_with_messages_is_taken_when_the_sizes_agree(self) -> None:
        batches = tuple(BatchHeader(base, 1, "p", 1, 1, 0, 2) for base in (0, 1))
        answer = MessageBatches(client="s", epoch=1, request=1, batches=batches, end=2)

        assert decode_reply(encode(answer, b"four")) == (answer, b"four")


class TestABatch:
    @given(
        st.lists(
            st.tuples(
                st.binary(max_size=20),
                st.none() | st.binary(max_size=5),
                st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
                st.none() | st.integers(-(2**63), 2**63 - 1),
            ),
            min_size=1,
            max_size=10,
        )
    )
    def test_is_read_back_as_it_was_written(
        self,
        rows: list[tuple[bytes, bytes | None, dict[str, str] | None, int | None]],
    ) -> None:
        batch = Batch(
            [payload for payload, _, _, _ in rows],
            [key for _, key, _, _ in rows],
            [headers for _, _, headers, _ in rows],
            [time_ns for _, _, _, time_ns in rows],
        )

        body = msgspec.msgpack.encode(batch)

        assert decode_batch(body, len(rows)) == batch

    @pytest.mark.parametrize(
        "columns",
        [
            [[b"a"], None, None, None],
            [[b"a", b"b"], [b"k"], None, None],
            [[b"a", b"b"], None, [None], None],
            [[b"a", b"b"], None, None, [1, 2, 3]],
        ],
        ids=["payloads", "keys", "headers", "event times"],
    )
    def test_has_columns_of_the_length_that_its_header_says(self, columns: list[object]) -> None:
        with pytest.raises(MalformedError, match="header says 2"):
            decode_batch(msgspec.msgpack.encode(columns), 2)

    def test_that_was_cut_short_is_malformed(self) -> None:
        with pytest.raises(MalformedError, match="not a batch"):
            decode_batch(BODY[:-4], 1)


def test_the_checksum_is_that_of_zlib_and_png() -> None:
    assert crc32(b"123456789") == 0xCBF43926
