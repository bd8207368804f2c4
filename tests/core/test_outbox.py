"""The outbox: numbered and kept before the first send, given up only on a definite word (R3)."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.answers import TopicPosition
from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.errors import LogChangedError
from reliable_pubsub.publisher.core.outbox import Changes, Encoded, Numbered, Numbering, Outbox
from reliable_pubsub.publisher.core.receipt import Receipt
from tests.fakes import LOG, Kept, put_body


class Written(Kept):
    """What a publisher has written."""

    def reopened(self) -> Outbox:
        """The outbox of the next process."""
        return Outbox(self.values)


def position(last_sequence: int, *, offset: int | None = None, log: str = LOG) -> TopicPosition:
    """What the proxy says of our numbering."""
    if offset is None and last_sequence:
        offset = last_sequence - 1
    return TopicPosition(topic="t", log=log, last_sequence=last_sequence, offset=offset)


def an_outbox(last_sequence: int = 0) -> tuple[Outbox, Written]:
    """An outbox that has met the topic."""
    outbox, written = Outbox({}), Written()
    written.keep(outbox.meet(position(last_sequence), adopt=False))
    return outbox, written


AT = [b"%d" % message for message in range(5)]  # notes


def an_older_outbox_in_a_plan() -> tuple[Outbox, Written]:
    """Its state knows 3 messages, the last of them the first of a plan; the proxy has 5."""
    outbox, written = an_outbox(last_sequence=2)
    written.keep(outbox.begin_run(AT[0]))
    number(outbox, written, note=AT[1])
    written.keep(stored(outbox, 2))
    outbox = written.reopened()
    written.keep(outbox.meet(position(5), adopt=False))
    return outbox, written


def number(outbox: Outbox, written: Written, *, count: int = 1, note: bytes | None = None) -> int:
    """Number a batch and write it; return its first sequence."""
    body = put_body(outbox.next_sequence("t", count, repeats=note is not None), count)
    written.keep(outbox.number([Encoded("t", count, crc32(body), body)], note))
    return in_doubt(outbox).first_sequence


def in_doubt(outbox: Outbox) -> Numbered:
    """The batch that is numbered."""
    assert outbox.pending is not None
    (batch,) = outbox.pending.batches
    return batch


def stored(outbox: Outbox, offset: int | None) -> Changes:
    """The proxy has the batch that is numbered."""
    one = in_doubt(outbox)
    return outbox.settled(
        [Receipt(one.topic, "p", one.first_sequence, one.count, offset, "sync", False)]
    )


class TestNumbering:
    def test_begins_with_one_and_counts_messages(self) -> None:
        outbox, written = an_outbox()

        first = number(outbox, written, count=3)
        written.keep(stored(outbox, 0))
        second = number(outbox, written)

        assert (first, second) == (1, 4)

    def test_continues_where_the_proxy_knows_a_publisher_that_has_no_memory(self) -> None:
        outbox, _ = an_outbox(last_sequence=7)

        assert outbox.next_sequence("t") == 8

    def test_moves_only_when_the_batch_is_stored(self) -> None:
        """H6: a put that was refused or unanswered keeps its number; none is skipped."""
        outbox, written = an_outbox()
        number(outbox, written)

        in_doubt = outbox.topics["t"].last_sequence
        written.keep(stored(outbox, 0))

        assert in_doubt == 0
        assert outbox.topics["t"] == Numbering(LOG, 1, 0)
        assert outbox.pending is None

    def test_is_free_again_when_the_batch_is_definitely_not_stored(self) -> None:
        """H6: a refusal by a limit costs no number either."""
        outbox, written = an_outbox()
        number(outbox, written)

        written.keep(outbox.dropped())

        assert outbox.next_sequence("t") == written.reopened().next_sequence("t") == 1


class TestACrash:
    def test_leaves_the_same_bytes_under_the_same_number(self) -> None:
        """R3: whatever dies between the first send and the answer, the same put is sent again."""
        outbox, written = an_outbox()
        number(outbox, written, count=2)

        again = written.reopened()

        assert again.pending == outbox.pending
        assert in_doubt(again).body == put_body(1, 2)

    def test_leaves_the_place_in_the_plan_with_the_number(self) -> None:
        """H6, R16: plan and number are one record, so no step counts twice or not at all."""
        outbox, written = an_outbox()

        number(outbox, written, note=b"5 of 9")

        again = written.reopened()
        assert again.note == b"5 of 9"
        assert again.pending is not None

    def test_leaves_epoch_and_numbering(self) -> None:
        outbox, written = an_outbox()
        written.keep(outbox.granted(4))
        number(outbox, written)
        written.keep(stored(outbox, 0))

        again = written.reopened()

        assert (again.epoch, again.topics, again.pending) == (4, {"t": Numbering(LOG, 1, 0)}, None)


class TestMeetingTheProxyAgain:
    def test_with_equal_numberings_changes_nothing(self) -> None:
        outbox, _ = an_outbox(last_sequence=3)

        outbox.meet(position(3), adopt=False)

        assert outbox.topics["t"] == Numbering(LOG, 3, 2)

    @pytest.mark.parametrize("proxy_has", [3, 5], ids=["not yet stored", "stored, answer lost"])
    def test_a_batch_in_doubt_keeps_its_number(self, proxy_has: int) -> None:
        """The answer to its own put says whether it is stored: ACK or DUPLICATE."""
        outbox, written = an_outbox(last_sequence=3)
        number(outbox, written, count=2)
        outbox = written.reopened()

        outbox.meet(position(proxy_has), adopt=False)

        assert in_doubt(outbox).first_sequence == 4

    @pytest.mark.parametrize(
        ("theirs", "why"),
        [
            (position(3, log="another.1"), "another data directory"),
            (position(2), "set back to an older copy"),
            (position(3, offset=9), "at offset 2, now 9"),
        ],
        ids=["another log", "proxy is older", "another place"],
    )
    def test_a_difference_stops_it_and_is_named(self, theirs: TopicPosition, why: str) -> None:
        """H13: a side that was restored from an older copy is found out before anything is sent."""
        outbox, _ = an_outbox(last_sequence=3)

        with pytest.raises(LogChangedError, match=why):
            outbox.meet(theirs, adopt=False)

        assert outbox.topics["t"] == Numbering(LOG, 3, 2)

    @pytest.mark.parametrize("adopt", [False, True])
    def test_a_state_older_than_what_was_sent_numbers_what_is_new_above_it(
        self, adopt: bool
    ) -> None:
        """R24: under a number that was used, equal content would be taken for a repeat."""
        outbox, _ = an_outbox(last_sequence=3)

        outbox.meet(position(5), adopt=adopt)

        assert outbox.next_sequence("t") == 6

    def test_a_plan_that_continues_from_an_older_state_repeats_its_numbers(self) -> None:
        """H13: after power loss; the proxy answers DUPLICATE to the same, CONFLICT to others."""
        outbox, written = an_older_outbox_in_a_plan()

        numbers = []
        for message in range(2, 5):
            numbers.append(number(outbox, written, note=AT[message]))
            written.keep(stored(outbox, 0))

        assert numbers == [4, 5, 6]

    def test_a_duplicate_without_an_offset_proves_nothing_to_such_a_state(self) -> None:
        """H8: the proxy has removed the message and cannot compare; only a new number is sure."""
        outbox, written = an_older_outbox_in_a_plan()
        unproven = []

        for message in range(2, 5):
            number(outbox, written, note=AT[message])
            unproven.append(outbox.is_unproven(None))
            proven = outbox.is_unproven(7)
            written.keep(stored(outbox, None))

        assert unproven == [True, True, False]
        assert not proven

    def test_a_difference_is_adopted_if_a_person_says_so(self) -> None:
        outbox, written = an_outbox(last_sequence=3)
        number(outbox, written)

        written.keep(outbox.meet(position(1, log="another.1"), adopt=True))

        assert in_doubt(outbox).first_sequence == 2
        assert written.reopened().pending == outbox.pending
        assert outbox.topics["t"].log == "another.1"

    def test_a_batch_in_doubt_that_the_other_log_may_have_keeps_its_number_when_adopting(
        self,
    ) -> None:
        """P2: with a number of its own the message would stand there twice."""
        outbox, written = an_outbox(last_sequence=3)
        number(outbox, written)

        written.keep(outbox.meet(position(6, log="another.1"), adopt=True))
        tried = in_doubt(outbox).first_sequence
        written.keep(outbox.meet(position(6, log="another.1"), adopt=True, conflict=True))

        assert (tried, in_doubt(outbox).first_sequence) == (4, 7)
        assert outbox.is_unproven(None) is False

    @pytest.mark.parametrize("proxy_has", [4, 5, 6])
    def test_a_batch_in_doubt_of_which_the_proxy_has_some_numbers_gets_others_when_adopting(
        self, proxy_has: int
    ) -> None:
        """The proxy answered GAP again and again, and `adopt` did not help."""
        outbox, written = an_outbox(last_sequence=3)
        number(outbox, written, count=4)

        written.keep(outbox.meet(position(proxy_has), adopt=True))

        assert in_doubt(outbox).first_sequence == proxy_has + 1


def test_a_receipt_names_its_first_message() -> None:
    receipt = Receipt("t", "sensor-1", 42, 3, 100, "sync", False)

    assert receipt.message_id == "sensor-1_42"


def test_to_adopt_takes_no_duplicate_that_cannot_be_compared_for_a_success() -> None:
    """The message would be stored nowhere, and its put would have returned."""
    outbox = Outbox({})
    outbox.meet(position(3), adopt=False)
    outbox.number([Encoded("t", 1, 0, b"new")])

    outbox.meet(position(9), adopt=True)

    assert outbox.is_unproven(None)
    outbox.meet(position(9), adopt=True, conflict=True)
    assert in_doubt(outbox).first_sequence == 10
    assert not outbox.is_unproven(None)


def test_a_topic_that_is_refused_leaves_its_messages_in_the_plan() -> None:
    """R16: LIMIT gave up the batch and left the plan after it; the run then ended with 0."""
    outbox = Outbox({})
    outbox.meet(position(0), adopt=False)
    outbox.begin_run(b"before")
    outbox.number([Encoded("t", 1, 0, b"body")], b"after")

    outbox.dropped()

    assert outbox.note == b"before"
    assert outbox.next_sequence("t") == 1


# The bytes of a put in doubt.

BATCH = (
    b"\x86\xa5topic\xa1t\xaefirst_sequence\x03\xa5count\x01\xa3crc\x07\xa4body\xc4\x04body"
    b"\xabplan_before"
)
NIL = b"\xc0"


@pytest.mark.parametrize("name", ["pending", "transaction"])
def test_a_put_in_doubt_is_stored_as_these_bytes(name: str) -> None:
    transaction = b"\x83\xa6number\x01\xa7batches\x91" + BATCH + NIL
    stored = {"pending": BATCH + NIL, "transaction": transaction + b"\xabplan_before" + NIL}
    outbox, _ = an_outbox(last_sequence=2)
    outbox.meet_transactions(0)

    changes = outbox.number([Encoded("t", 1, 7, b"body")], number=int(name == "transaction"))

    assert changes == {name: stored[name]}
