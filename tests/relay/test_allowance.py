"""What connections may make an endpoint hold, and which of them are cut."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.access.core.allowance import (
    HELD_PER_BYTE,
    HELD_PER_READ,
    READ_BYTES_MIN,
    SETTLE_S,
    STALLED_S_MAX,
    STALLED_S_MIN,
    Admission,
    Allowance,
    Growth,
    Tally,
    TcpCounters,
)
from reliable_pubsub.common.core.limits import (
    CALM_BYTES_MAX,
    CONNECTION_BYTES,
    GROWTH_BYTES_MAX,
    HELD_BYTES_MAX,
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

NO_GROWTH, MUCH_GROWTH = 0, GROWTH_BYTES_MAX + 1


def having(*looks: TcpCounters, now_s: float = 0.0) -> Allowance:
    """An allowance of connections 0, 1, 2, ..., each looked at once."""
    allowance = Allowance()
    for number, look in enumerate(looks):
        allowance.accepted(number, Tally())
        allowance.look(number, look, now_s)
    return allowance


def sent(size_bytes: int, *, segments: int = 0) -> TcpCounters:
    return TcpCounters(size_bytes, 0, False, segments)


def test_a_message_without_end_is_cut_at_its_bound() -> None:
    allowance = having(sent(UNHEARD_BYTES_MAX), sent(UNHEARD_BYTES_MAX + 1))

    assert allowance.to_be_cut(NO_GROWTH, 0.0) == [1]
    assert allowance.to_be_cut(NO_GROWTH, 0.0) == []


def test_a_peer_whose_messages_are_taken_may_send_forever() -> None:
    one, allowance = Tally(), Allowance()
    allowance.accepted(1, one)
    for turn in range(1, 100):
        one.take(UNHEARD_BYTES_MAX, drains=0)
        allowance.look(1, sent(turn * UNHEARD_BYTES_MAX), float(turn))

        assert allowance.to_be_cut(MUCH_GROWTH, float(turn)) == []


def test_a_peer_that_sends_more_messages_than_are_taken_is_cut_at_the_same_bound() -> None:
    one, allowance = Tally(), Allowance()
    allowance.accepted(1, one)
    one.take(KIB, drains=0)  # the first of many
    allowance.look(1, sent(KIB + UNHEARD_BYTES_MAX), 0.0)
    assert allowance.to_be_cut(NO_GROWTH, 0.0) == []
    one.take(KIB, drains=0)
    allowance.look(1, sent(2 * KIB + UNHEARD_BYTES_MAX + 1), 0.1)

    assert allowance.to_be_cut(NO_GROWTH, 0.1) == [1]


def test_what_is_no_message_counts_until_all_messages_were_taken() -> None:
    """Handshakes and heartbeats are not taken, and add up."""
    one, allowance = Tally(), Allowance()
    allowance.accepted(1, one)
    one.take(KIB, drains=3)
    allowance.look(1, sent(3 * KIB), 0.0, drains=3)
    before = one.unheard_bytes
    allowance.look(1, sent(3 * KIB), 0.0, drains=4)

    assert (before, one.unheard_bytes) == (2 * KIB, 0)


def test_what_is_sent_to_a_peer_does_not_make_up_for_what_it_says() -> None:
    """Its PINGs are answered in the middle of a message too."""
    allowance = having(TcpCounters(UNHEARD_BYTES_MAX // 2, 0, False))
    allowance.look(0, TcpCounters(UNHEARD_BYTES_MAX + 1, MIB, False), 0.1)

    assert allowance.to_be_cut(NO_GROWTH, 0.1) == [0]


def test_where_all_hold_too_much_together_the_largest_go() -> None:
    small = UNHEARD_BYTES_MAX_TOGETHER // 16
    allowance = having(*[sent(small)] * 15, sent(2 * small))

    assert allowance.to_be_cut(NO_GROWTH, 0.0) == [15]


def test_a_connection_that_has_ended_holds_nothing() -> None:
    small = UNHEARD_BYTES_MAX_TOGETHER // 16
    allowance = having(*[sent(small, segments=5)] * 17)
    allowance.ended(3)

    assert allowance.to_be_cut(NO_GROWTH, 0.0) == []
    for number in range(17):
        allowance.ended(number)
    assert allowance.held_bytes_max == 0


EMPTY_FRAMES = sent(HELD_BYTES_MAX // HELD_PER_BYTE * 2 // 3)
READS = HELD_BYTES_MAX // HELD_PER_READ
SMALL_READS = sent(READS * READ_BYTES_MIN, segments=READS)


@pytest.mark.parametrize("worst", [EMPTY_FRAMES, SMALL_READS], ids=["frames", "reads"])
def test_the_connections_that_may_hold_most_are_cut_when_the_process_has_grown(
    worst: TcpCounters,
) -> None:
    ordinary = sent(MIB // 4)
    allowance = having(ordinary, worst, worst, ordinary)

    assert allowance.to_be_cut(NO_GROWTH, 0.0) == []
    cut = allowance.to_be_cut(MUCH_GROWTH, 0.0)
    assert set(cut) <= {1, 2}
    assert cut
    assert allowance.held_bytes_max <= HELD_BYTES_MAX


def test_heartbeats_without_end_hold_nothing() -> None:
    allowance = having(*[sent(200, segments=4)] * 100)
    for turn in range(1, 1000):
        for number in range(100):
            allowance.look(number, sent(200 + turn * 18, segments=4 + turn), turn * 5.0)

    assert allowance.held_bytes_max < CALM_BYTES_MAX
    assert allowance.to_be_cut(MUCH_GROWTH, 5000.0) == []


BUSY_BYTES = CALM_BYTES_MAX + 1


def test_growth_counts_from_the_last_calm() -> None:
    growth = Growth(30 * MIB)

    assert growth.look(50 * MIB, CALM_BYTES_MAX, 0.0) == 20 * MIB
    assert growth.is_settled(0.0)
    growth.settle(50 * MIB, CALM_BYTES_MAX)
    assert growth.look(60 * MIB, BUSY_BYTES, 1.0) == 10 * MIB
    assert not growth.is_settled(1.0)
    growth.look(60 * MIB, 0, 1.0 + SETTLE_S / 2)
    assert not growth.is_settled(1.0 + SETTLE_S / 2)
    growth.look(60 * MIB, 0, 1.0 + SETTLE_S)
    assert growth.is_settled(1.0 + SETTLE_S)


def test_growth_that_connections_do_not_account_for_is_no_reason_to_cut_them_forever() -> None:
    """Large puts without a pause, while a cache or a transaction grows."""
    growth = Growth(30 * MIB)
    growth.look(30 * MIB, BUSY_BYTES, 0.0)

    assert growth.look(500 * MIB, BUSY_BYTES, 1.0) > GROWTH_BYTES_MAX
    growth.look(500 * MIB, BUSY_BYTES, 1.0 + SETTLE_S / 2)
    assert growth.is_settled(1.0 + SETTLE_S / 2)
    growth.settle(500 * MIB, BUSY_BYTES)
    assert growth.look(500 * MIB, BUSY_BYTES, 2.0) == BUSY_BYTES


def test_a_peer_that_reads_nothing_for_too_long_is_cut_and_a_slow_one_is_not() -> None:
    allowance = having(sent(0), sent(0))
    for turn in range(4):
        now_s = turn * STALLED_S_MAX / 2
        allowance.look(0, TcpCounters(100, 1000, True), now_s)
        allowance.look(1, TcpCounters(100, 1000 + turn, True), now_s)

    assert allowance.to_be_cut(NO_GROWTH, 1.5 * STALLED_S_MAX) == []
    assert allowance.to_be_cut(NO_GROWTH, 2.0 * STALLED_S_MAX) == [0]


@pytest.mark.parametrize(
    ("grown_bytes", "left"), [(NO_GROWTH, STALLED_CONNECTIONS_MAX), (MUCH_GROWTH, 0)]
)
def test_of_many_that_read_nothing_those_that_began_first_are_cut_at_once(
    grown_bytes: int, left: int
) -> None:
    """What they hold is answers, which are not counted: when the process has grown, all go."""
    count = STALLED_CONNECTIONS_MAX + 2
    allowance = having(*[TcpCounters(100, 100, True)] * count)
    for number in range(count):
        allowance.look(number, TcpCounters(100, 100, True), 0.01 * (100 - number))

    cut = allowance.to_be_cut(grown_bytes, 1.0 + STALLED_S_MIN)
    assert len(cut) == count - left
    assert set(cut) >= {count - 1, count - 2}


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


def test_links_whose_heartbeats_continue_without_end_are_never_cut() -> None:
    admission = Admission(0.0)
    links = [admission.accepted(0.0) for _ in range(100)]
    for turn in range(1, 1000):
        now_s = turn * 5.0
        assert all(admission.hears(link, turn * 2 * 9, now_s) for link in links)
    assert admission.closed_for_s(now_s) == 0


def test_while_all_together_have_said_too_much_no_connection_comes_in() -> None:
    admission = Admission(0.0)
    speakers = [admission.accepted(0.0) for _ in range(64)]
    for speaker in speakers:
        admission.hears(speaker, 4 * KIB, 0.0)
    debt = 64 * (4 * KIB + CONNECTION_BYTES) - SAID_BYTES_MAX_TOGETHER
    closed_s = debt / SAID_BYTES_PER_S_TOGETHER

    assert admission.closed_for_s(0.0) == closed_s
    assert admission.closed_for_s(closed_s) == 0


def test_while_no_connection_comes_in_one_may_say_less() -> None:
    debt = in_debt(0.0)
    quiet, loud = debt.accepted(0.0), debt.accepted(0.0)

    assert debt.hears(quiet, SAID_BYTES_MAX_IN_DEBT, 0.0)
    assert not debt.hears(loud, SAID_BYTES_MAX_IN_DEBT + 1, 0.0)
