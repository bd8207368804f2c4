"""When a standby takes over, and how long the one that serves may answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliable_pubsub.proxy.core.serving import TIMING, ServingRow, SilenceWatch, Term
from reliable_pubsub.proxy.core.storage import NotServingError

ROW = ServingRow(term=1, beat=7, holder="a:1")


def test_a_standby_takes_over_when_it_has_seen_one_beat_for_the_whole_silence() -> None:
    silence = SilenceWatch()

    assert not silence.is_over(ROW, 100.0)
    assert not silence.is_over(ROW, 100.0 + TIMING.silence_s - 0.001)
    assert silence.is_over(ROW, 100.0 + TIMING.silence_s)


@pytest.mark.parametrize("other", [ServingRow(1, 8, "a:1"), ServingRow(2, 7, "b:1")])
def test_each_beat_and_each_term_begins_the_silence_again(other: ServingRow) -> None:
    silence = SilenceWatch()
    silence.is_over(ROW, 100.0)

    assert not silence.is_over(other, 100.0 + TIMING.silence_s)
    assert silence.is_over(other, 100.0 + 2 * TIMING.silence_s)


def test_a_term_that_was_given_back_needs_no_silence() -> None:
    assert SilenceWatch().is_over(ServingRow(3, 0, ""), 100.0)


def test_answers_count_from_the_sending_of_the_last_confirmed_beat() -> None:
    term = Term(1, since_s=100.0)
    term.renewed(101.0)
    term.renewed(100.5)  # confirmed later, sent earlier

    term.confirm(101.0 + TIMING.answers_s - 0.001)
    with pytest.raises(NotServingError, match=r"term 1 .* may be over: lost"):
        term.confirm(101.0 + TIMING.answers_s, "lost")


def test_a_term_ends_with_its_beats_whatever_commits_are_confirmed() -> None:
    term = Term(1, since_s=100.0)
    term.renewed(101.0)

    with pytest.raises(NotServingError, match="lost"):
        term.confirm(101.0, "lost")


def test_a_term_is_not_kept_for_a_loop_that_hangs() -> None:
    term = Term(1, since_s=100.0)
    assert term.may_beat(200.0), "it has not begun: it reads the log"

    term.confirm(100.0)

    assert term.may_beat(100.0 + TIMING.answers_s)
    assert not term.may_beat(100.1 + TIMING.answers_s)


def test_a_takeover_takes_less_than_five_seconds() -> None:
    assert TIMING.beat_s < TIMING.answers_s < TIMING.silence_s < 5 - TIMING.look_s


seconds = st.floats(0.0, 10.0)


@given(sent_s=seconds, to_store_s=seconds, to_standby_s=seconds, skew_s=st.floats(-1e6, 1e6))
def test_no_answer_leaves_after_a_takeover_however_long_anything_took(
    sent_s: float, to_store_s: float, to_standby_s: float, skew_s: float
) -> None:
    """The standby has another clock, and sees a beat after it was sent."""
    silence, term = SilenceWatch(), Term(1, since_s=0.0)
    term.renewed(sent_s)
    seen_s = sent_s + to_store_s + to_standby_s
    silence.is_over(ROW, seen_s + skew_s)

    over_s = seen_s + TIMING.answers_s  # not yet for the standby, and no longer ours
    assert not term.is_ours(over_s + 1e-6)
    assert not silence.is_over(ROW, over_s + skew_s)
