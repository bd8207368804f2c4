"""Whether more connections may come in: so many at all, so many a second, and from where."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reliable_pubsub.common.access.core.inflow import (
    ADDRESS_SHARE,
    ADDRESSES_MAX,
    BURST_S,
    CALM_S,
    OTHERS_SHARE,
    PER_S_WITH_KEYS,
    PER_S_WITHOUT_KEYS,
    Closed,
    ConnectionBounds,
    Inflow,
    begun_text,
    over_text,
)
from reliable_pubsub.common.core.limits import CONNECTIONS_MAX

PER_S, MOST = 100, 2_000
BURST = BURST_S * PER_S
BOUNDS = ConnectionBounds(connections_max=MOST, per_s_max=PER_S)
FLOOD, OTHER = "192.0.2.1", "192.0.2.2"
EVERYONE = Closed("connections_per_s_max")
OF_FLOOD = Closed("connections_per_s_max", frozenset({FLOOD}))
IN_DEBT = BURST + int(OTHERS_SHARE * BURST) + 1  # come from many addresses before all are kept out


def an_inflow() -> Inflow:
    return Inflow(BOUNDS, 0.0)


def look(inflow: Inflow, came: Sequence[str], present: int, now_s: float) -> Closed | None:
    """Let connections come, each beside this many; return who is kept out after that."""
    for address in came:
        inflow.admits(address, present, now_s)
    inflow.look(present, now_s)
    return inflow.closed


def from_many(count: int) -> list[str]:
    """A number of connections, each from an address of its own."""
    return [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(count)]


class TestHowManyThereAre:
    @pytest.mark.parametrize("came", [[], [FLOOD]])
    def test_at_the_bound_everyone_is_kept_out_until_one_has_ended(
        self, came: Sequence[str]
    ) -> None:
        inflow = an_inflow()

        assert look(inflow, came, MOST - 1, 0.0) is None
        assert not inflow.admits(OTHER, MOST, 0.05)
        assert look(inflow, [], MOST, 0.1) == Closed("connections_max")
        assert look(inflow, [], MOST - 1, 0.2) is None

    def test_the_default_lets_ten_thousand_clients_have_two_each(self) -> None:
        assert ConnectionBounds().connections_max == CONNECTIONS_MAX == 20_000

    def test_descriptors_bound_them_too(self) -> None:
        bounds = ConnectionBounds(connections_max=5_000)

        few = bounds.with_means(has_keys=False, descriptors=900)
        many = bounds.with_means(has_keys=False, descriptors=60_000)
        assert (few.connections_max, many.connections_max) == (900, 5_000)


class TestHowFastTheyCome:
    def test_a_fleet_comes_in_at_once(self) -> None:
        assert look(an_inflow(), [FLOOD] * BURST, BURST, 0.0) is None

    def test_beyond_that_they_wait_until_the_debt_is_paid(self) -> None:
        inflow = an_inflow()
        look(inflow, from_many(IN_DEBT), 0, 0.0)

        assert inflow.closed == EVERYONE
        assert look(inflow, [OTHER], 0, 0.0) == EVERYONE
        assert inflow.came_count == IN_DEBT
        assert look(inflow, [], 0, 2 / PER_S) is None
        assert inflow.admits(OTHER, 0, 2 / PER_S)

    def test_at_that_rate_they_come_in_forever(self) -> None:
        inflow = an_inflow()
        for second in range(10 * BURST_S):
            assert look(inflow, [FLOOD] * PER_S, 0, float(second)) is None

    def test_those_that_have_ended_meanwhile_count_also_without_an_address(self) -> None:
        inflow = an_inflow()

        assert look(inflow, [""] * IN_DEBT, 0, 0.0) == EVERYONE

    def test_in_a_flood_no_more_come_in_than_the_bound_and_one_look(self) -> None:
        """A thousand a second."""
        inflow, look_s = an_inflow(), 0.05
        for number in range(1_200):
            look(inflow, from_many(50), 0, number * look_s)

        assert PER_S * 60 <= inflow.came_count <= IN_DEBT + PER_S * 60
        assert inflow.came_count + inflow.kept_out_count == 1_200 * 50

    def test_without_keys_ten_times_as_many_may_come(self) -> None:
        found = [
            ConnectionBounds().with_means(has_keys=has_keys, descriptors=MOST).per_s_max
            for has_keys in (True, False)
        ]
        assert found == [PER_S_WITH_KEYS, PER_S_WITHOUT_KEYS]

    def test_what_an_operator_says_counts_with_keys_and_without(self) -> None:
        bounds = ConnectionBounds(per_s_max=7)

        assert bounds.with_means(has_keys=True, descriptors=MOST).per_s_max == 7
        assert bounds.with_means(has_keys=False, descriptors=MOST).per_s_max == 7


class TestOtherBounds:
    def test_take_effect_at_once(self) -> None:
        inflow = an_inflow()
        look(inflow, from_many(2 * BURST), MOST, 0.0)
        wider = ConnectionBounds(connections_max=2 * MOST, per_s_max=2 * PER_S)
        inflow.change(wider, 0.1)

        assert look(inflow, [], MOST, 0.1) is None

    def test_that_are_the_same_forget_nothing(self) -> None:
        inflow = an_inflow()
        look(inflow, from_many(2 * BURST), 0, 0.0)
        inflow.change(BOUNDS, 0.0)

        assert look(inflow, [], 0, 0.0) == EVERYONE


class TestFromWhere:
    def test_the_address_that_has_taken_the_burst_is_kept_out_alone(self) -> None:
        inflow = an_inflow()
        look(inflow, from_many(1), 0, 0.0)

        closed = look(inflow, [FLOOD] * BURST, 0, 0.0)
        assert closed is None
        assert look(inflow, [FLOOD], 0, 0.0) == OF_FLOOD
        assert inflow.admits(OTHER, 0, 0.0)

    def test_others_come_in_beside_it_until_they_make_the_debt_themselves(self) -> None:
        inflow = an_inflow()
        look(inflow, [FLOOD] * (BURST + 1), 0, 0.0)
        others = int(OTHERS_SHARE * BURST)

        assert all(inflow.admits(one, 0, 0.0) for one in from_many(others))
        assert look(inflow, [OTHER], 0, 0.0) == EVERYONE

    def test_an_address_may_take_its_share_before_it_is_one_of_those(self) -> None:
        inflow, share = an_inflow(), int(PER_S * ADDRESS_SHARE) * BURST_S
        look(inflow, [FLOOD] * (BURST + 1), 0, 0.0)

        assert not inflow.admits(FLOOD, 0, 0.0)
        assert all(inflow.admits(OTHER, 0, 0.0) for _ in range(share + 1))
        assert not inflow.admits(OTHER, 0, 0.0)

    def test_of_more_addresses_than_are_counted_the_others_are_not_named(self) -> None:
        inflow = an_inflow()
        look(inflow, from_many(ADDRESSES_MAX), 0, 0.0)
        assert inflow.admits(FLOOD, 0, 0.0)
        later_s = 1_000.0  # what they took is forgotten

        assert look(inflow, [], 0, later_s) is None
        assert look(inflow, [FLOOD] * (BURST + 2), 0, later_s) == OF_FLOOD


class TestWhatIsSeen:
    def test_a_flood_is_one_episode_until_nothing_was_kept_out_for_a_while(self) -> None:
        inflow = an_inflow()
        look(inflow, [FLOOD] * (BURST + PER_S), 0, 5.0)
        first = inflow.episode

        assert first is not None
        assert first.since_s == 5.0
        assert look(inflow, [], 0, 6.0) is None
        look(inflow, [FLOOD] * 3 * PER_S, 0, 6.5)
        assert look(inflow, [], 0, 7.0) is None
        look(inflow, [], 0, 6.5 + CALM_S - 0.1)
        assert inflow.episode is first
        look(inflow, [], 0, 6.5 + CALM_S)
        assert inflow.episode is None

    def test_the_time_is_counted_in_which_some_were_kept_out(self) -> None:
        inflow = an_inflow()
        look(inflow, [FLOOD] * (BURST + PER_S), 0, 5.0)
        look(inflow, [], 0, 6.0)
        look(inflow, [], 0, 60.0)

        assert (inflow.closed_s, inflow.came_count) == (1.0, BURST + 1)
        assert inflow.kept_out_count == PER_S - 1

    def test_the_log_says_why_from_where_and_what_to_do(self) -> None:
        inflow = an_inflow()
        look(inflow, [FLOOD] * (BURST + 2), 0, 0.0)
        assert inflow.episode is not None

        text = begun_text(inflow.episode, BOUNDS)
        for part in (FLOOD, "connections_per_s_max", "100 a second", "docs/how-to/operating.md"):
            assert part in text

    def test_the_log_says_when_it_is_over(self) -> None:
        inflow = an_inflow()
        look(inflow, [], MOST, 0.0)
        episode = inflow.episode
        assert episode is not None
        look(inflow, [], 0, 4.0)

        assert "4.0 of 14 s" in over_text(episode, inflow.closed_s, 14.0)
        assert "connections_max" in begun_text(episode, BOUNDS)
