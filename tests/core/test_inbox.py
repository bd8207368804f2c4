"""The inbox: only direct followers, the cursor after what is done, deliveries counted (R8, R9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from reliable_pubsub.common.core.answers import SubAck
from reliable_pubsub.common.core.batch import Message, crc32, messages_in
from reliable_pubsub.common.core.conversation import Save
from reliable_pubsub.common.core.errors import LogChangedError, MalformedError
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.plan_mark import PlanMark, mark_of
from reliable_pubsub.common.core.wire import direct_batches
from reliable_pubsub.subscriber.core.inbox import Inbox
from reliable_pubsub.subscriber.core.place import Place, repositioned
from reliable_pubsub.subscriber.core.subscription import TopicSubscription
from tests.fakes import LOG, NOW_NS, Kept, put_body

Batches = tuple[list[BatchHeader], bytes]
# At step 2 of 2 after 4 messages, with 120 bytes in the output "o".
STORED_MARK = (
    b"\x87\xa6digest\xa6digest\xa5steps\x02\xa4step\x01\xa7message\x04\xa3run\x01"
    b"\xa6output\xa1o\xacoutput_bytesx"
)


class Written(Kept):
    """What a subscriber has written."""

    def move(self, held: TopicSubscription, place: Place) -> None:
        """Move a subscription, and write it."""
        held.move(place)
        self.save(held)

    def save(self, held: TopicSubscription, note: bytes | None = None) -> None:
        """Write the place of a subscription, and a note in the same step."""
        inbox = Inbox({})
        for effect in inbox.save(held, also=inbox.write_note(note) if note else None):
            assert isinstance(effect, Save)
            self.keep(effect.changes)

    def reopened(self) -> TopicSubscription:
        """The subscription in the next process."""
        return Inbox(self.values).of("t")


def a_sub_ack(cursor: int, *, log: str = LOG) -> SubAck:
    return SubAck(
        client="s",
        epoch=1,
        request=1,
        topic="t",
        generation=1,
        log=log,
        cursor=cursor,
        already=True,
    )


def held_at(cursor: int = 0) -> tuple[TopicSubscription, Written]:
    """A subscription that has been confirmed."""
    held, written = TopicSubscription("t"), Written()
    written.move(held, repositioned(a_sub_ack(cursor)))
    return held, written


def count_of(held: TopicSubscription, end: int) -> int:
    """How often the next message was handed over, once it is handed over up to `end`."""
    held.move(held.place.counted(end))
    return held.place.deliveries(held.place.cursor)


def batches(*places: tuple[int, int]) -> Batches:
    """A MESSAGE with these batches, each a base and a count."""
    headers, body = [], b""
    for base, count in places:
        part = put_body(base + 1, count)
        header = BatchHeader(base, count, "p", base + 1, NOW_NS + base, crc32(part), len(part))
        headers.append(header)
        body += part
    return headers, body


def take(cursor: int, message: Batches) -> list[Message]:
    return messages_in("t", direct_batches("t", cursor, *message))


class TestDirectFollowers:
    def test_are_taken_in_order_across_batches(self) -> None:
        messages = take(0, batches((0, 2), (2, 1)))

        assert [m.offset for m in messages] == [0, 1, 2]
        assert [m.payload for m in messages] == [b"m1", b"m2", b"m3"]
        assert [m.message_id for m in messages] == ["p_1", "p_2", "p_3"]

    def test_may_begin_inside_a_batch(self) -> None:
        (message,) = take(2, batches((0, 3)))

        assert (message.offset, message.sequence, message.payload) == (2, 3, b"m3")

    def test_are_not_what_was_taken_before(self) -> None:
        """H3, R8: an older message is dropped by its offset, however old it is."""
        assert take(5, batches((0, 2), (2, 1))) == []

    def test_are_not_what_comes_after_a_gap(self) -> None:
        """R8: a jump is never taken for the next message."""
        with pytest.raises(MalformedError, match="expected offset 1, the proxy sent 2"):
            take(1, batches((2, 1)))

    def test_are_none_at_all_if_there_is_a_gap_between_them(self) -> None:
        with pytest.raises(MalformedError, match="expected offset 1"):
            take(0, batches((0, 1), (2, 1)))

    def test_are_what_their_publisher_encoded(self) -> None:
        headers, body = batches((0, 2))
        spoiled = body[:-1] + bytes([body[-1] ^ 1])

        with pytest.raises(MalformedError, match="CRC-32"):
            take(0, (headers, spoiled))

    def test_are_as_many_as_their_header_says(self) -> None:
        headers, body = batches((0, 2))

        with pytest.raises(MalformedError, match="header says 3"):
            take(0, ([replace(headers[0], count=3)], body))

    @given(cursor=st.integers(0, 12), counts=st.lists(st.integers(1, 3), max_size=4))
    def test_are_once_each_from_the_cursor_on(self, cursor: int, counts: list[int]) -> None:
        """R8: whatever the proxy repeats, offsets follow each other without gap or repeat."""
        places, end = [], 0
        for count in counts:
            places.append((end, count))
            end += count

        messages = take(cursor, batches(*places))

        assert [m.offset for m in messages] == list(range(cursor, end))


class TestTheCursor:
    def test_moves_when_a_message_is_processed_and_not_when_it_is_handed_over(self) -> None:
        """H4, R9: a message that was not done before a crash comes again."""
        held, written = held_at()

        written.move(held, held.place.counted(1))
        in_hand = written.reopened().place.cursor
        written.move(held, held.place.moved(1, NOW_NS))
        done = written.reopened().place.cursor

        assert (in_hand, done) == (0, 1)

    def test_keeps_the_witness_of_what_was_processed_last(self) -> None:
        """R14: the next SUB can show that it speaks of the same log."""
        held, written = held_at()

        written.move(held, held.place.moved(3, NOW_NS))

        assert written.reopened().place == Place(LOG, 3, NOW_NS)

    def test_never_goes_back(self) -> None:
        held, _ = held_at(5)

        with pytest.raises(AssertionError):
            held.place.moved(4, NOW_NS)

    def test_continues_after_what_is_lost(self) -> None:
        held, written = held_at(2)

        written.move(held, held.place.moved(9, None))

        assert written.reopened().place == Place(LOG, 9)

    def test_and_the_note_are_written_together(self) -> None:
        """H6, R16: place and note (a step file's plan and length of output) are one record."""
        held, written = held_at()

        held.move(held.place.moved(1, NOW_NS))
        written.save(held, b"a note")

        again = Inbox(written.values)
        assert (again.places["t"].cursor, again.note) == (1, b"a note")

    def test_has_the_bytes_of_a_step_file_as_they_always_were(self) -> None:
        """A state that an earlier version wrote is read, and the other way round."""
        mark = PlanMark("digest", 2, step=1, message=4, output="o", output_bytes=120)

        assert Inbox({}).write_note(mark.note) == {"plan": STORED_MARK}
        assert mark_of(Inbox({"plan": STORED_MARK}).note) == mark


class TestDeliveries:
    def test_begin_with_one(self) -> None:
        held, _ = held_at()

        assert count_of(held, 1) == 1

    def test_are_counted_across_crashes(self) -> None:
        """H27, R9: what was in hand when the process died comes again, and says how often."""
        held, written = held_at()
        counts = []
        for _ in range(3):
            counts.append(count_of(held, 1))
            written.save(held)
            held = written.reopened()

        assert counts == [1, 2, 3]

    def test_begin_again_after_a_message_that_was_processed(self) -> None:
        held, written = held_at()
        written.move(held, held.place.counted(1))
        held = written.reopened()
        written.move(held, held.place.counted(1))
        written.move(held, held.place.moved(1, NOW_NS))

        assert count_of(held, 2) == 1

    def test_of_many_in_hand_stay_counted_when_they_come_again_one_by_one(self) -> None:
        """H4: a batch of three was in hand; after the crash each of the three is marked."""
        held, written = held_at()
        written.move(held, held.place.counted(3))
        held = written.reopened()
        counts = []
        for end in (1, 2, 3, 4):
            counts.append(count_of(held, end))
            held.move(held.place.moved(end, NOW_NS))

        assert counts == [2, 2, 2, 1]

    def test_of_more_than_was_in_hand_keep_the_mark_of_those_that_were(self) -> None:
        held, written = held_at()
        written.move(held, held.place.counted(2))
        held = written.reopened()

        count = count_of(held, 5)

        assert count == 2
        assert held.place.in_hand[-1][0] == 5

    def test_after_a_loss_stay_counted(self) -> None:
        """H27: the oldest of what was in hand is gone; what is left of it still comes again."""
        held, written = held_at()
        written.move(held, held.place.counted(3))
        held = written.reopened()

        written.move(held, held.place.moved(2, None))

        assert count_of(written.reopened(), 3) == 2


class TestALogThatEndsBelowWhatWasShown:
    """R14: the cursor fits, but what was in hand when the process died is gone."""

    def test_is_another_one(self) -> None:
        held, written = held_at(4)
        written.move(held, held.place.counted(6))

        with pytest.raises(LogChangedError, match="offsets 4 to 5 were delivered"):
            written.reopened().place.compared("t", 5, forget=False)

    def test_is_taken_without_it_if_a_person_says_so(self) -> None:
        held, written = held_at(4)
        written.move(held, held.place.counted(6))
        held = written.reopened()

        written.move(held, held.place.compared("t", 5, forget=True))

        assert written.reopened().place == Place(LOG, 4)

    def test_is_not_one_that_ends_right_after_it(self) -> None:
        held, _ = held_at(4)
        place = held.place.counted(6)

        assert place.compared("t", 6, forget=False) is place


class TestAConfirmedSubscription:
    def test_gives_a_new_subscriber_its_place(self) -> None:
        held, written = held_at(7)

        assert held.place == written.reopened().place == Place(LOG, 7)

    def test_does_not_move_a_subscriber_that_is_further(self) -> None:
        """R13: the own place is the evidence; what a crash of the proxy took back stays done."""
        held, _ = held_at(7)

        place = held.place.confirmed(a_sub_ack(5), adopt=False)

        assert place is held.place
        assert place.cursor == 7

    def test_stops_a_subscriber_whose_state_is_an_older_copy(self) -> None:
        """H13: it would do again what it did before."""
        held, _ = held_at(5)

        with pytest.raises(LogChangedError, match="older copy"):
            held.place.confirmed(a_sub_ack(7), adopt=False)

    def test_moves_such_a_subscriber_if_a_person_says_so(self) -> None:
        held, _ = held_at(5)

        assert held.place.confirmed(a_sub_ack(7), adopt=True).cursor == 7

    def test_that_was_repositioned_counts_in_both_directions(self) -> None:
        held, _ = held_at(5)

        place = repositioned(a_sub_ack(2, log="another.1"), held.place)

        assert place == Place("another.1", 2)

    def test_that_ended_leaves_nothing(self) -> None:
        held, written = held_at(5)

        held.ended()
        written.save(held)

        assert not written.reopened().is_subscribed
