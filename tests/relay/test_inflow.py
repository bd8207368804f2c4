"""Whether more connections may come in: so many at all, so many a second, and from where."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reliable_pubsub.common.core.limits import CONNECTIONS_MAX
from reliable_pubsub.relay.core.inflow import (
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
    source_of,
)

PER_S, MOST = 100, 2_000
BURST = BURST_S * PER_S
BOUNDS = ConnectionBounds(connections_max=MOST, per_s_max=PER_S)
FLOOD, OTHER = "192.0.2.1", "192.0.2.2"
EVERYONE = Closed("connections_per_s_max")


def an_inflow() -> Inflow:
    return Inflow(BOUNDS, 0.0)


def from_many(count: int) -> list[str]:
    """A number of connections, each from an address of its own."""
    return [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(count)]


class TestHowManyThereAre:
    @pytest.mark.parametrize("came", [[], [FLOOD]])
    def test_at_the_bound_everyone_is_kept_out_until_one_has_ended(
        self, came: Sequence[str]
    ) -> None:
        inflow = an_inflow()

        assert inflow.look(came, MOST - 1, 0.0) is None
        assert inflow.look([], MOST, 0.1) == Closed("connections_max")
        assert inflow.look([], MOST - 1, 0.2) is None

    def test_the_default_lets_ten_thousand_clients_have_two_each(self) -> None:
        assert ConnectionBounds().connections_max == CONNECTIONS_MAX == 20_000

    def test_descriptors_bound_them_too(self) -> None:
        bounds = ConnectionBounds(connections_max=5_000)

        few = bounds.with_means(has_keys=False, descriptors=900)
        many = bounds.with_means(has_keys=False, descriptors=60_000)
        assert (few.connections_max, many.connections_max) == (900, 5_000)


class TestHowFastTheyCome:
    def test_a_fleet_comes_in_at_once(self) -> None:
        assert an_inflow().look([FLOOD] * BURST, BURST, 0.0) is None

    def test_beyond_that_they_wait_until_the_debt_is_paid(self) -> None:
        inflow = an_inflow()
        inflow.look(from_many(BURST + PER_S), 0, 0.0)

        assert inflow.closed == EVERYONE
        assert inflow.look([], 0, 0.99) == EVERYONE
        assert inflow.look([], 0, 1.0) is None

    def test_at_that_rate_they_come_in_forever(self) -> None:
        inflow = an_inflow()
        for second in range(10 * BURST_S):
            assert inflow.look([FLOOD] * PER_S, 0, float(second)) is None

    def test_those_that_have_ended_meanwhile_count_also_without_an_address(self) -> None:
        inflow = an_inflow()

        assert inflow.look([""] * (BURST + 1), 0, 0.0) == EVERYONE

    def test_in_a_flood_no_more_come_in_than_the_bound_and_one_look(self) -> None:
        """A thousand a second; what comes while it is open comes in."""
        inflow, came, look_s = an_inflow(), 0, 0.05
        closed: Closed | None = None
        for number in range(1_200):
            now = from_many(50) if closed is None else []
            came += len(now)
            closed = inflow.look(now, 0, number * look_s)

        assert came <= BURST + PER_S * 60 + 50
        assert came >= PER_S * 60

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
        inflow.look(from_many(2 * BURST), MOST, 0.0)
        wider = ConnectionBounds(connections_max=2 * MOST, per_s_max=2 * PER_S)
        inflow.change(wider, 0.1)

        assert inflow.look([], MOST, 0.1) is None

    def test_that_are_the_same_forget_nothing(self) -> None:
        inflow = an_inflow()
        inflow.look(from_many(2 * BURST), 0, 0.0)
        inflow.change(BOUNDS, 0.1)

        assert inflow.look([], 0, 0.1) == EVERYONE


class TestFromWhere:
    def test_the_address_that_has_taken_the_burst_is_kept_out_alone(self) -> None:
        inflow = an_inflow()

        closed = inflow.look([FLOOD] * BURST + [OTHER] * 10, 0, 0.0)
        assert closed == Closed("connections_per_s_max", frozenset({FLOOD}))

    def test_others_come_in_beside_it_until_they_make_the_debt_themselves(self) -> None:
        inflow = an_inflow()
        inflow.look([FLOOD] * (BURST + 1), 0, 0.0)
        others = int(OTHERS_SHARE * BURST) - 1

        assert inflow.look(from_many(others), 0, 0.0) == Closed(
            "connections_per_s_max", frozenset({FLOOD})
        )
        assert inflow.look([OTHER], 0, 0.0) == EVERYONE

    def test_an_address_may_take_its_share_before_it_is_one_of_those(self) -> None:
        inflow, share = an_inflow(), int(PER_S * ADDRESS_SHARE) * BURST_S
        inflow.look([FLOOD] * BURST + [OTHER] * share, 0, 0.0)

        assert inflow.closed is not None
        assert inflow.closed.addresses == {FLOOD}
        inflow.look([OTHER], 0, 0.0)
        assert inflow.closed.addresses == {FLOOD, OTHER}

    def test_of_more_addresses_than_are_counted_the_others_are_not_named(self) -> None:
        inflow = an_inflow()
        inflow.look(from_many(ADDRESSES_MAX), 0, 0.0)
        inflow.look([FLOOD] * BURST, 0, 0.0)
        later_s = 1_000.0  # what they took is forgotten

        assert inflow.look([], 0, later_s) is None
        assert inflow.look([FLOOD] * (BURST + 1), 0, later_s) == Closed(
            "connections_per_s_max", frozenset({FLOOD})
        )


class TestWhatIsSeen:
    def test_a_flood_is_one_episode_until_nothing_was_kept_out_for_a_while(self) -> None:
        inflow = an_inflow()
        inflow.look([FLOOD] * (BURST + PER_S), 0, 5.0)
        first = inflow.episode

        assert first is not None
        assert first.since_s == 5.0
        assert inflow.look([], 0, 6.0) is None
        inflow.look([FLOOD] * PER_S, 0, 6.5)
        assert inflow.look([], 0, 7.0) is None
        inflow.look([], 0, 6.5 + CALM_S - 0.1)
        assert inflow.episode is first
        inflow.look([], 0, 6.5 + CALM_S)
        assert inflow.episode is None

    def test_the_time_is_counted_in_which_some_were_kept_out(self) -> None:
        inflow = an_inflow()
        inflow.look([FLOOD] * (BURST + PER_S), 0, 5.0)
        inflow.look([], 0, 5.5)
        inflow.look([], 0, 6.0)
        inflow.look([], 0, 60.0)

        assert (inflow.closed_s, inflow.came_count) == (1.0, BURST + PER_S)

    def test_the_log_says_why_from_where_and_what_to_do(self) -> None:
        inflow = an_inflow()
        inflow.look([FLOOD] * (BURST + 1), 0, 0.0)
        assert inflow.episode is not None

        text = begun_text(inflow.episode, BOUNDS)
        for part in (FLOOD, "connections_per_s_max", "100 a second", "docs/operating.md"):
            assert part in text

    def test_the_log_says_when_it_is_over(self) -> None:
        inflow = an_inflow()
        inflow.look([], MOST, 0.0)
        episode = inflow.episode
        assert episode is not None
        inflow.look([], 0, 4.0)

        assert "4.0 of 14 s" in over_text(episode, inflow.closed_s, 14.0)
        assert "connections_max" in begun_text(episode, BOUNDS)


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_an_ipv6_address_counts_as_its_network_and_a_mapped_one_as_ipv4(
    address: str, source: str
) -> None:
    assert source_of(address) == source
