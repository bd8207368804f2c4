"""Lines of a flood that are left out are counted, and no second pays for the one before."""

from __future__ import annotations

from reliable_pubsub.common.access.core.line_rate import LineRate


def test_the_first_lines_of_each_second_are_written_and_the_others_counted_once() -> None:
    rate = LineRate(2)

    assert [rate.admits(now_s) for now_s in (5.0, 5.1, 5.2, 5.9)] == [True, True, False, False]
    assert rate.admits(6.0)
    assert rate.take_left_out() == 2
    assert rate.take_left_out() == 0
