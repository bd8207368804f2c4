"""Every maximum is a promise (P7): what is just allowed works, what is just above is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.answers import HelloAck, MessageBatches, TopicPosition
from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.errors import (
    InvalidNameError,
    MalformedError,
    TooLargeError,
    UsageError,
)
from reliable_pubsub.common.core.limits import (
    BATCH_MESSAGES_MAX,
    BODY_BYTES_MAX,
    CLIENT_ID_CHARS_MAX,
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    HELLO_TOPICS_MAX,
    PAYLOAD_BYTES_MAX,
    REPLY_BATCHES_MAX,
    STATUS_ROWS_MAX,
    STATUS_TOPICS_MAX,
    TOPIC_BYTES_MAX,
)
from reliable_pubsub.common.core.message_base import BatchHeader, Terms
from reliable_pubsub.common.core.requests import Hello
from reliable_pubsub.common.core.status import (
    PublisherStatus,
    StatusReport,
    SubscriptionStatus,
    TopicStatus,
)
from reliable_pubsub.common.core.wire import decode_batch, decode_reply, encode, encode_batch

HUGE = 2**63 - 1
ID = "x" * CLIENT_ID_CHARS_MAX
TOPIC = "ü" * (TOPIC_BYTES_MAX // 2)


class TestAName:
    @pytest.mark.parametrize("name", ["a", "7", "sensor-1", "a.b-c.D", ID])
    def test_of_a_client_may_be(self, name: str) -> None:
        assert names.client_id(name) == name

    @pytest.mark.parametrize(
        "name",
        ["", "a_b", "-a", ".a", "a/b", "a b", "ä", "a\n", "a\x00", "..", ID + "x"],
    )
    def test_of_a_client_may_not_be(self, name: str) -> None:
        """No `_`, which parts a message id, and nothing that means something in a path."""
        with pytest.raises(InvalidNameError, match="_"):
            names.client_id(name)

    @pytest.mark.parametrize("name", ["t", "a/b c_d", "ü" * 127, "x" * 255, "日本"])
    def test_of_a_topic_may_be(self, name: str) -> None:
        assert names.topic(name) == name

    @pytest.mark.parametrize(
        "name", ["", "x" * 256, "ü" * 128, "a\nb", "a\x7fb", "a\x85b", "\ud800"]
    )
    def test_of_a_topic_may_not_be(self, name: str) -> None:
        with pytest.raises(InvalidNameError, match="255 bytes of UTF-8"):
            names.topic(name)

    @given(st.text(max_size=300))
    def test_of_a_topic_is_at_most_so_long_in_utf_8(self, text: str) -> None:
        try:
            accepted = names.topic(text)
        except InvalidNameError:
            return
        assert 1 <= len(accepted.encode()) <= TOPIC_BYTES_MAX

    def test_of_a_message_is_publisher_and_sequence(self) -> None:
        assert names.message_id("sensor-1", 42) == "sensor-1_42"


class TestABatch:
    def test_takes_the_largest_payload(self) -> None:
        body = encode_batch(Batch([b"x" * PAYLOAD_BYTES_MAX]))

        assert len(body) <= BODY_BYTES_MAX

    def test_refuses_a_larger_one_and_says_how_large_it_may_be(self) -> None:
        with pytest.raises(TooLargeError) as caught:
            encode_batch(Batch([b"x" * (BODY_BYTES_MAX + 1)]))

        assert caught.value.size_max == BODY_BYTES_MAX
        assert caught.value.size > BODY_BYTES_MAX

    def test_takes_so_many_messages(self) -> None:
        body = encode_batch(Batch([b""] * BATCH_MESSAGES_MAX))

        assert len(decode_batch(body, BATCH_MESSAGES_MAX).payloads) == BATCH_MESSAGES_MAX

    def test_refuses_too_many(self) -> None:
        with pytest.raises(TooLargeError) as caught:
            encode_batch(Batch([b""] * (BATCH_MESSAGES_MAX + 1)))

        assert caught.value.size == BATCH_MESSAGES_MAX + 1

    def test_refuses_none(self) -> None:
        with pytest.raises(UsageError, match="at least one"):
            encode_batch(Batch([]))


class TestTheLargestHeader:
    """What the limits allow fits into a header frame, so no answer is cut or refused."""

    def test_of_a_hello_fits(self) -> None:
        hello = Hello(
            client=ID,
            epoch=HUGE,
            request=HUGE,
            role="subscriber",
            nonce=b"n" * 32,
            topics=(TOPIC,) * HELLO_TOPICS_MAX,
        )

        assert len(encode(hello)[1]) <= HEADER_BYTES_MAX

    def test_of_the_answer_to_it_fits(self) -> None:
        position = TopicPosition(topic=TOPIC, log="f" * 36, last_sequence=HUGE, offset=HUGE)
        answer = HelloAck(
            client=ID, epoch=HUGE, request=HUGE, positions=(position,) * HELLO_TOPICS_MAX
        )

        assert decode_reply(encode(answer)) == (answer, b"")

    def test_of_a_message_fits(self) -> None:
        header = BatchHeader(HUGE, BATCH_MESSAGES_MAX, ID, HUGE, HUGE, 2**32 - 1, 0)
        answer = MessageBatches(
            client=ID, epoch=HUGE, request=HUGE, batches=(header,) * REPLY_BATCHES_MAX, end=HUGE
        )

        assert decode_reply(encode(answer, b"")) == (answer, b"")

    def test_of_a_page_of_status_fits(self) -> None:
        """The largest page: full topics until the rows of a page are reached, then one more."""
        subscription = SubscriptionStatus(
            subscriber=ID,
            generation=HUGE,
            terms=Terms(),
            state="active",
            silent_s=0.5,
            cursor=HUGE,
            lag_messages=HUGE,
            lag_s=1e300,
        )
        publisher = PublisherStatus(publisher=ID, qos=2, last_sequence=HUGE, last_offset=HUGE)

        def topic(rows: int) -> TopicStatus:
            return TopicStatus(
                topic=TOPIC,
                log="f" * 36,
                start=HUGE,
                end=HUGE,
                stored_bytes=HUGE,
                subscriptions=(subscription,) * rows,
                subscriptions_left_out=HUGE,
                publishers=(publisher,) * rows,
                publishers_left_out=HUGE,
            )

        empty = STATUS_TOPICS_MAX - 3
        answer = StatusReport(
            client=ID,
            epoch=HUGE,
            request=HUGE,
            topics=(topic(0),) * empty + (topic(STATUS_ROWS_MAX - 1), topic(STATUS_ROWS_MAX)),
            next_topic=TOPIC,
            topics_count=HUGE,
            sessions_count=HUGE,
            dropped_requests=HUGE,
            store_path="p" * 4096,
        )

        decode_reply(encode(answer))


def test_a_header_above_its_limit_is_refused() -> None:
    with pytest.raises(MalformedError, match="header of"):
        decode_reply([b"RPS1", b"x" * (HEADER_BYTES_MAX + 1)])


def test_no_frame_that_is_allowed_makes_zeromq_drop_the_peer() -> None:
    assert max(HEADER_BYTES_MAX, BODY_BYTES_MAX) < FRAME_BYTES_MAX
