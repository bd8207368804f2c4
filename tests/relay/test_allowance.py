"""What connections may make an endpoint hold, and which of them are cut."""

from __future__ import annotations

from reliable_pubsub.common.limits import (
    MIB,
    STALLED_CONNECTIONS_MAX,
    UNHEARD_BYTES_MAX,
    UNHEARD_BYTES_MAX_TOGETHER,
)
from reliable_pubsub.relay.allowance import STALLED_S_MAX, Look, Tally, to_be_cut

PING_BYTES = 9


def tally(*, sent: int = 0, now_s: float = 0.0, waits: bool = False) -> Tally:
    one = Tally()
    one.look(Look(sent, 0, waits), now_s)
    return one


def test_a_message_without_end_is_cut_at_its_bound() -> None:
    within, above = tally(sent=UNHEARD_BYTES_MAX), tally(sent=UNHEARD_BYTES_MAX + 1)

    assert to_be_cut({1: within, 2: above}, 0.0) == [2]


def test_a_peer_whose_messages_are_taken_may_send_for_ever() -> None:
    one = Tally()
    for turn in range(1, 100):
        one.was_heard = True
        one.look(Look(turn * UNHEARD_BYTES_MAX, 0, False), float(turn))

        assert to_be_cut({1: one}, float(turn)) == []


def test_a_peer_that_reads_its_answers_may_send_for_ever() -> None:
    """At a front door others take the messages; who is answered has been heard."""
    one = Tally()
    for turn in range(1, 100):
        one.look(Look(turn * UNHEARD_BYTES_MAX, turn * 50, False), float(turn))

        assert to_be_cut({1: one}, float(turn)) == []


def test_a_ping_is_no_answer() -> None:
    one = Tally()
    one.look(Look(UNHEARD_BYTES_MAX // 2, PING_BYTES, False), 5.0)
    one.look(Look(UNHEARD_BYTES_MAX + 1, 2 * PING_BYTES, False), 10.0)

    assert to_be_cut({1: one}, 10.0) == [1]


def test_where_all_hold_too_much_together_the_largest_go() -> None:
    small = UNHEARD_BYTES_MAX_TOGETHER // 16
    tallies = {number: tally(sent=small) for number in range(15)}
    tallies[20] = tally(sent=2 * small)

    assert to_be_cut(tallies, 0.0) == [20]


def test_a_peer_that_reads_nothing_for_too_long_is_cut_and_a_slow_one_is_not() -> None:
    deaf, slow = Tally(), Tally()
    for turn in range(4):
        now_s = turn * STALLED_S_MAX / 2
        deaf.look(Look(100, 1000, True), now_s)
        slow.look(Look(100, 1000 + turn, True), now_s)
    both = {1: deaf, 2: slow}

    assert to_be_cut(both, 1.5 * STALLED_S_MAX) == []
    assert to_be_cut(both, 2.0 * STALLED_S_MAX) == [1]


def test_of_many_that_read_nothing_those_that_began_first_are_cut_at_once() -> None:
    tallies = {}
    for number in range(STALLED_CONNECTIONS_MAX + 2):
        tallies[number] = Tally()
        tallies[number].look(Look(100, 100, True), 0.0)
        tallies[number].look(Look(100, 100, True), 0.01 * (100 - number))

    assert to_be_cut(tallies, 1.0) == [STALLED_CONNECTIONS_MAX + 1, STALLED_CONNECTIONS_MAX]


def test_an_ordinary_peer_is_not_notable_and_one_that_holds_much_is() -> None:
    assert not tally(sent=200).is_notable
    assert tally(sent=MIB).is_notable
    one = Tally()
    one.look(Look(100, 1000, True), 0.0)
    one.look(Look(100, 1000, True), 0.1)
    assert one.is_notable
