"""Push frames: bytes that stay what they are, and what ZeroMQ filters by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliable_pubsub.common.core.batch import Batch, crc32
from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.limits import LINK_BYTES, PUSH_BODY_BYTES_MAX
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.patterns.matching import EVERYTHING, Pattern
from reliable_pubsub.common.core.wire import encode_batch
from reliable_pubsub.relay.core.push import (
    FIRST_BYTES,
    Pushed,
    decode_push,
    encode_push,
    pattern_of_plain,
    prefix_of,
    shared_topic_frame,
    single_topic_frame,
)
from tests.relay.wishes import KINDS, patterns, topics

LINK = bytes(range(LINK_BYTES))


def a_push(body: bytes) -> Pushed:
    header = BatchHeader(7, 2, "sensor-1", 5, 1_790_000_000_000_000_000, crc32(body), len(body))
    return Pushed(boot="6f1d2c3b4a596877", log="9b1c7e22d04f5a36.1", batch=header)


BODY = encode_batch(Batch([b"hello_1", b"hello_2"]))
GOLDEN = [
    b"topic1\0",
    b"RPS1",
    bytes.fromhex(
        "84 a470757368 a54241544348 a4626f6f74 b036663164326333623461353936383737"
        "a36c6f67 b2396231633765323264303466356133362e31"
        "a56261746368 98 07 02 a873656e736f722d31 05 cf18d75b8423f30000 ce9c06b0c9 17 02"
    ),
    BODY,
]


def test_a_push_is_these_bytes() -> None:
    assert encode_push("topic1", a_push(BODY), BODY) == GOLDEN
    push = decode_push(GOLDEN)

    assert (push.topic, push.pushed, push.body) == ("topic1", a_push(BODY), BODY)


def test_a_long_body_is_left_out_and_its_place_is_sent() -> None:
    body = b"x" * (PUSH_BODY_BYTES_MAX + 1)

    push = decode_push(encode_push("t", a_push(body), body))

    assert push.body is None
    assert push.pushed.batch.body_bytes == len(body)
    assert len(encode_push("t", a_push(body[1:]), body[1:])) == 4


def test_a_copy_for_one_link_is_read_as_any_other() -> None:
    frames = encode_push("topic1", a_push(BODY), BODY)
    single = [single_topic_frame(LINK, frames[0]), *frames[1:]]

    assert decode_push(single) == decode_push(frames)
    assert shared_topic_frame(single[0]) == frames[0]


@pytest.mark.parametrize(
    "frames",
    [
        [],
        GOLDEN[:2],
        [*GOLDEN, b""],
        [b"topic1", *GOLDEN[1:]],
        [b"\0", *GOLDEN[1:]],
        [b"\n\0", *GOLDEN[1:]],
        [b"\xff\0", *GOLDEN[1:]],
        [b"x" * 256 + b"\0", *GOLDEN[1:]],
        [GOLDEN[0], b"RPS2", *GOLDEN[2:]],
        [*GOLDEN[:2], b"\x80", BODY],
        [*GOLDEN[:3], BODY + b"x"],
        [*GOLDEN[:3], BODY[:-1] + b"\xc1"],
    ],
)
def test_what_is_no_push_frame_is_refused(frames: list[bytes]) -> None:
    with pytest.raises(MalformedError):
        decode_push(frames)


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_any_bytes_are_a_push_frame_or_refused(frames: list[bytes]) -> None:
    with pytest.raises(MalformedError):
        decode_push([*frames[:1], b"RPS1", *frames[1:]])


@given(patterns, topics)
def test_a_plain_publisher_lets_pass_at_least_what_a_pattern_matches(
    pattern: Pattern, topic: str
) -> None:
    if KINDS.test(pattern)(topic):
        assert topic.encode().startswith(prefix_of(pattern, KINDS))


@given(
    st.text(min_size=1, max_size=3).filter(lambda text: ord(text[0]) not in (*range(0x20), 0x7F))
)
def test_every_topic_begins_with_one_of_the_first_bytes_and_no_single_copy_does(text: str) -> None:
    assert text.encode()[:1] in FIRST_BYTES
    assert single_topic_frame(LINK, text.encode())[:1] not in FIRST_BYTES


@pytest.mark.parametrize(
    ("prefix", "pattern"),
    [
        (b"", EVERYTHING),
        (b"a", Pattern("prefix", "a")),
        (b"a\0", Pattern("exact", "a")),
        ("aé".encode()[:-1], Pattern("prefix", "a")),
        ("a😀".encode()[:-1], Pattern("prefix", "a")),
        (b"\xff\xff\xff\xff\xff", EVERYTHING),
        (b"x" * 300, EVERYTHING),
    ],
)
def test_what_a_plain_subscriber_wants_is_taken_as_wide_as_needed(
    prefix: bytes, pattern: Pattern
) -> None:
    assert pattern_of_plain(prefix) == pattern
