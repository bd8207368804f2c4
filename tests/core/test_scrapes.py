"""What scrapes are given, who makes it, and when a process counts as alive and ready."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.scrapes import BEAT_S_MAX, FRESH_S, Scrapes
from tests.fakes import FakeClock


class Loop:
    """Gives the next number whenever it is woken."""

    def __init__(self, *, made_in_s: float = 0.0) -> None:
        self.clock = FakeClock()
        self.made = 0
        self._made_in_s = made_in_s
        self.scrapes: Scrapes[int] = Scrapes(self._turn, clock=lambda: self.clock.time_s)

    def _turn(self) -> None:
        assert self.scrapes.asked
        self.made += 1
        self.scrapes.give(self.made, made_in_s=self._made_in_s)


class TestAScrape:
    def test_is_given_what_the_loop_makes_for_it(self) -> None:
        loop = Loop()

        assert loop.scrapes.figures() == 1
        assert not loop.scrapes.asked

    def test_does_not_ask_the_loop_while_there_are_fresh_figures(self) -> None:
        loop = Loop()

        assert [loop.scrapes.figures() for _ in range(100)] == [1] * 100
        loop.clock.time_s += FRESH_S
        assert loop.scrapes.figures() == 2

    def test_asks_less_often_where_figures_take_long(self) -> None:
        loop = Loop(made_in_s=2.0)
        loop.scrapes.figures()

        loop.clock.time_s += 17.9
        assert loop.scrapes.figures() == 1
        loop.clock.time_s += 0.2
        assert loop.scrapes.figures() == 2

    def test_gets_the_figures_before_if_the_loop_does_not_answer(self) -> None:
        clock = FakeClock()
        scrapes: Scrapes[int] = Scrapes(lambda: None, clock=lambda: clock.time_s, patience_s=0.0)
        assert scrapes.figures() is None
        scrapes.give(1)
        clock.time_s += FRESH_S

        assert scrapes.figures() == 1
        assert scrapes.asked
        assert not scrapes.is_fresh


class TestAProcess:
    def test_is_not_ready_before_its_first_turn_and_says_why_later(self) -> None:
        scrapes = Loop().scrapes

        assert scrapes.why_not_ready() == "it has not begun to serve"
        scrapes.beat()
        assert scrapes.why_not_ready() == ""
        scrapes.beat("puts are refused")
        assert scrapes.why_not_ready() == "puts are refused"
        assert scrapes.why_dead() == ""

    def test_is_dead_when_its_loop_has_not_turned_for_long(self) -> None:
        loop = Loop()
        loop.scrapes.beat()

        loop.clock.time_s += BEAT_S_MAX
        assert loop.scrapes.why_dead() == ""
        loop.clock.time_s += 1.0

        assert loop.scrapes.why_dead() == "the loop has been stuck for 11 s"
        assert loop.scrapes.why_not_ready() == loop.scrapes.why_dead()
        loop.scrapes.beat()
        assert loop.scrapes.why_dead() == ""

    @pytest.mark.parametrize("role", ["starting", "standby"])
    def test_that_waits_to_serve_is_alive_however_long_a_database_hangs(self, role: str) -> None:
        """A liveness probe ended healthy standbys."""
        loop = Loop()
        loop.scrapes.role = role
        loop.scrapes.beat("standby: it waits")

        loop.clock.time_s += 10 * BEAT_S_MAX

        assert loop.scrapes.why_dead() == ""
        assert loop.scrapes.why_not_ready() == "standby: it waits"
        loop.scrapes.wakes(lambda: None)
        assert loop.scrapes.why_dead() == ""
