"""What the console remembers of the last hours: a sample each STEP_S, and gaps."""

from __future__ import annotations

import pytest

from reliable_pubsub.console.core.board import Board
from reliable_pubsub.console.core.history import ALL, GAP_S, SAMPLES_MAX, STEP_S, TopicHistory

from .test_board import a_look, a_subscription, a_topic


def seen(*ends: int, lag_s: float = 0.0, at_s: float = 1000.0) -> TopicHistory:
    """The history of a topic `t` that had these ends, STEP_S apart."""
    history = TopicHistory()
    for number, end in enumerate(ends):
        reader = a_subscription(lag_s=lag_s * number)
        board = Board(a_look(0.0, a_topic("t", end, subscriptions=(reader,))))
        history.add(board.rows(), at_s + number * STEP_S)
    return history


def test_a_rate_is_what_was_put_between_two_samples() -> None:
    found = seen(5, 25, 25, lag_s=1.0).of("t")

    assert found.at_s == (1000.0, 1000.0 + STEP_S, 1000.0 + 2 * STEP_S)
    assert found.put_per_s == (None, 20 / STEP_S, 0.0)
    assert found.lag_s == (0.0, 1.0, 2.0)


def test_all_topics_together_have_the_sum_of_the_rates_and_the_longest_lag() -> None:
    history = TopicHistory()
    for number in range(2):
        topics = [
            a_topic(name, put * number, subscriptions=(a_subscription(lag_s=put),))
            for name, put in (("a", 10), ("b", 30))
        ]
        history.add(Board(a_look(0.0, *topics)).rows(), number * STEP_S)

    assert history.of(ALL).put_per_s == (None, 40 / STEP_S)
    assert history.of(ALL).lag_s == (30.0, 30.0)


def test_a_sample_after_a_gap_has_no_rate_because_the_time_between_is_not_known() -> None:
    history = seen(5, 6)
    history.add(Board(a_look(0.0, a_topic("t", 1000))).rows(), 1000.0 + STEP_S + GAP_S)

    assert history.of("t").put_per_s[-1] is None
    assert history.of("t").at_s[-1] == 1000.0 + STEP_S + GAP_S


def test_a_topic_that_began_again_or_is_new_has_no_rate() -> None:
    assert seen(5, 3).of("t").put_per_s == (None, None)
    history = seen(5, 6)
    board = Board(a_look(0.0, a_topic("t", 6), a_topic("new", 9)))
    history.add(board.rows(), 1000.0 + 2 * STEP_S)

    assert history.of("new").put_per_s == (None,)
    assert history.of("new").at_s == (1000.0 + 2 * STEP_S,)


def test_a_topic_that_is_gone_is_forgotten() -> None:
    history = seen(5, 6)
    history.add(Board(a_look(0.0)).rows(), 1000.0 + 2 * STEP_S)

    assert history.of("t").at_s == ()


def test_only_the_newest_samples_are_kept() -> None:
    found = seen(*range(SAMPLES_MAX + 3)).of("t")

    assert len(found.at_s) == len(found.put_per_s) == len(found.lag_s) == SAMPLES_MAX
    assert found.at_s[0] == 1000.0 + 3 * STEP_S
    assert found.put_per_s[0] == pytest.approx(1 / STEP_S)


def test_a_sample_is_due_after_each_step_and_when_the_clock_was_set_back() -> None:
    history = seen(5, at_s=1000.0)

    assert [history.is_due(at) for at in (1000.0, 1000.0 + STEP_S / 2)] == [False, False]
    assert [history.is_due(at) for at in (1000.0 + STEP_S, 500.0)] == [True, True]
    assert TopicHistory().is_due(0.0)
