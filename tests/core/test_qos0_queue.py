"""What a subscriber makes of messages at QoS 0: each at most once, and the rest is counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reliable_pubsub.common.core.batch import ENTRY_BYTES, NO_OFFSET, Batch, crc32
from reliable_pubsub.common.core.limits import MIB
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.wire import encode_batch
from reliable_pubsub.proxy.qos0.ring import Rings
from reliable_pubsub.relay.core.push import PushedUnstored, UnstoredFrames
from reliable_pubsub.subscriber.core.qos0_queue import QUEUE_BYTES_MAX, QoS0Queue
from tests.fakes import put_body

BOOT = "boot-1"


def a_header(place: int, count: int = 1) -> BatchHeader:
    body = put_body(place, count)
    return BatchHeader(place, count, "p", place, 9, crc32(body), len(body), 0)


def a_push(place: int, count: int = 1, *, boot: str = BOOT, body: bool = True) -> UnstoredFrames:
    pushed = PushedUnstored(boot=boot, batch=a_header(place, count))
    return UnstoredFrames("t", pushed, put_body(place, count) if body else None)


def a_queue(place: int = 0) -> QoS0Queue:
    queue = QoS0Queue()
    queue.confirmed(BOOT, place, is_new=True)
    return queue


def taken(queue: QoS0Queue) -> list[int]:
    return [int(message.payload[1:]) for message in queue.hand_over(1_000)]


class TestAPush:
    def test_at_the_next_place_is_taken(self) -> None:
        queue = a_queue(3)

        queue.pushed(a_push(3, 2))
        queue.pushed(a_push(5))

        assert (taken(queue), queue.is_missing) == ([3, 4, 5], False)

    def test_that_comes_again_is_dropped(self) -> None:
        queue = a_queue()
        for _ in range(2):
            queue.pushed(a_push(0))

        assert (taken(queue), queue.counts.repeats) == ([0], 1)

    def test_that_overlaps_is_taken_in_part(self) -> None:
        queue = a_queue(1)

        queue.pushed(a_push(0, 3))

        assert taken(queue) == [1, 2]

    def test_above_the_next_place_or_without_body_makes_the_ring_to_be_read(self) -> None:
        for push in (a_push(1), a_push(0, body=False)):
            queue = a_queue()

            queue.pushed(push)

            assert (taken(queue), queue.is_missing) == ([], True)

    def test_of_another_start_of_the_proxy_waits_for_the_subscription(self) -> None:
        queue = a_queue()
        queue.pushed(a_push(0, boot="boot-2"))
        assert taken(queue) == []

        queue.confirmed("boot-2", 2, is_new=False)

        assert (queue.place, queue.is_missing) == (0, True)

    def test_that_does_not_fit_stays_in_the_ring(self) -> None:
        queue = a_queue()
        body = encode_batch(Batch([bytes(MIB - 100)]))
        for place in range(QUEUE_BYTES_MAX // MIB + 3):
            header = BatchHeader(place, 1, "p", place + 1, 9, crc32(body), len(body), 0)
            queue.pushed(UnstoredFrames("t", PushedUnstored(boot=BOOT, batch=header), body))
        fitting = len(queue.messages)
        assert fitting == queue.place < QUEUE_BYTES_MAX // MIB + 3
        assert (queue.is_missing, queue.has_room) == (True, False)  # read when there is room

        queue.hand_over(1)

        assert queue.has_room


class TestReading:
    def test_continues_after_what_was_pushed(self) -> None:
        queue = a_queue()
        queue.pushed(a_push(0))
        queue.pushed(a_push(2))

        queue.read("t", 1, [a_header(1), a_header(2)], put_body(1) + put_body(2))
        queue.emptied()

        assert (taken(queue), queue.counts.lost, queue.is_missing) == ([0, 1, 2], 0, False)

    def test_counts_what_is_gone(self) -> None:
        queue = a_queue()

        queue.read("t", 4, [a_header(4)], put_body(4))

        assert (taken(queue), queue.counts.lost, queue.counts.taken) == ([4], 4, 1)

    def test_of_a_body_that_is_no_batch_counts_it_as_lost(self) -> None:
        queue = a_queue()

        queue.read("t", 0, [a_header(0, 2)], b"x" * len(put_body(0, 2)))

        assert (taken(queue), queue.counts.lost, queue.place) == ([], 2, 2)

    def test_is_due_when_an_answer_tells_of_more(self) -> None:
        queue = a_queue(2)
        queue.hinted(BOOT, 2)
        assert not queue.is_missing

        queue.hinted(BOOT, 3)

        assert queue.is_missing


class TestAMessage:
    def test_is_in_no_log_and_at_level_0(self) -> None:
        queue = a_queue()
        queue.pushed(a_push(0, 2))

        first, second = queue.hand_over(5)

        assert [(m.offset, m.qos, m.delivery_count) for m in (first, second)] == [
            (NO_OFFSET, 0, 1)
        ] * 2
        assert first.message_id != second.message_id

    def test_is_handed_over_when_it_is_asked_for(self) -> None:
        queue = a_queue()
        queue.pushed(a_push(0, 3))

        assert [len(queue.hand_over(2)), len(queue.messages), len(queue.hand_over(2))] == [2, 1, 1]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 3)),
        st.tuples(st.just("push"), st.integers(0, 30)),
        st.tuples(st.just("read"), st.integers(1, 4)),
    ),
    max_size=60,
)


@given(ACTIONS)
def test_whatever_is_pushed_and_read_each_message_comes_once_in_order_or_is_counted_as_lost(
    actions: list[tuple[str, int]],
) -> None:
    """Pushes that are lost, doubled or late; a ring that overruns; reads at any time."""
    rings = Rings(4 * ENTRY_BYTES, 100 * ENTRY_BYTES)
    queue = a_queue()
    pushes: list[UnstoredFrames] = []
    seen: list[int] = []

    def read(messages_max: int) -> None:
        found = rings.read("t", queue.place, messages_max=messages_max, bytes_max=MIB)
        if found.headers:
            queue.read("t", found.first, found.headers, found.body)

    for action, number in actions:
        if action == "put":
            place = rings.ends.get("t", 0)
            body = put_body(place, number)
            header = rings.add(
                "t",
                publisher="p",
                first_sequence=place,
                count=number,
                crc=crc32(body),
                body=body,
                now_ns=9,
            )
            pushes.append(UnstoredFrames("t", PushedUnstored(boot=BOOT, batch=header), body))
        elif action == "push" and pushes:
            queue.pushed(pushes[number % len(pushes)])
        elif action == "read":
            read(number)
        seen += taken(queue)
    read(1_000)
    seen += taken(queue)

    assert seen == sorted(set(seen))
    assert len(seen) + queue.counts.lost == rings.ends.get("t", 0)
    assert queue.counts.taken == len(seen)
