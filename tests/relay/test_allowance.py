"""What connections may make an endpoint hold, and which of them are cut."""

from __future__ import annotations

from reliable_pubsub.common.core.limits import (
    CONNECTION_BYTES,
    KIB,
    MIB,
    SAID_BYTES_MAX,
    SAID_BYTES_MAX_IN_DEBT,
    SAID_BYTES_MAX_TOGETHER,
    SAID_BYTES_PER_S,
    SAID_BYTES_PER_S_TOGETHER,
    STALLED_CONNECTIONS_MAX,
    UNHEARD_BYTES_MAX,
    UNHEARD_BYTES_MAX_TOGETHER,
)
from reliable_pubsub.relay.core.allowance import STALLED_S_MAX, Admission, Look, Tally, to_be_cut

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


# What is said on a push endpoint.

HONEST_BYTES = 150  # a handshake and where the link is


def in_debt(now_s: float) -> Admission:
    admission = Admission(now_s)
    for _ in range(SAID_BYTES_MAX_TOGETHER // CONNECTION_BYTES + 1):
        admission.accepted(now_s)
    return admission


def test_a_connection_may_say_so_much_at_once_and_so_much_a_second() -> None:
    admission = Admission(0.0)
    within, above = admission.accepted(0.0), admission.accepted(0.0)

    assert admission.hears(within, SAID_BYTES_MAX, 0.0)
    assert not admission.hears(above, SAID_BYTES_MAX + 1, 0.0)
    assert admission.hears(within, SAID_BYTES_MAX + 9 * SAID_BYTES_PER_S, 9.0)
    assert not admission.hears(within, SAID_BYTES_MAX + 9 * SAID_BYTES_PER_S + 1, 9.0)


def test_a_hundred_honest_links_come_in_at_once() -> None:
    admission = Admission(0.0)
    links = [admission.accepted(0.0) for _ in range(100)]

    assert all(admission.hears(link, HONEST_BYTES, 0.0) for link in links)
    assert admission.closed_for_s(0.0) == 0


def test_links_whose_heartbeats_go_on_without_end_are_never_cut() -> None:
    admission = Admission(0.0)
    links = [admission.accepted(0.0) for _ in range(100)]
    for turn in range(1, 1000):
        now_s = turn * 5.0
        assert all(admission.hears(link, turn * 2 * 9, now_s) for link in links)
    assert admission.closed_for_s(now_s) == 0


def test_while_all_together_have_said_too_much_nobody_comes_in() -> None:
    admission = Admission(0.0)
    speakers = [admission.accepted(0.0) for _ in range(64)]
    for speaker in speakers:
        admission.hears(speaker, 4 * KIB, 0.0)
    debt = 64 * (4 * KIB + CONNECTION_BYTES) - SAID_BYTES_MAX_TOGETHER
    closed_s = debt / SAID_BYTES_PER_S_TOGETHER

    assert admission.closed_for_s(0.0) == closed_s
    assert admission.closed_for_s(closed_s) == 0


def test_while_nobody_comes_in_a_connection_may_say_less() -> None:
    debt = in_debt(0.0)
    quiet, loud = debt.accepted(0.0), debt.accepted(0.0)

    assert debt.hears(quiet, SAID_BYTES_MAX_IN_DEBT, 0.0)
    assert not debt.hears(loud, SAID_BYTES_MAX_IN_DEBT + 1, 0.0)
