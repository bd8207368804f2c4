"""Several nodes above a relay have to lead to one proxy."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.errors import TwoProxiesError
from reliable_pubsub.relay.core.one_proxy import ROUND_S, OneProxy

FIRST, SECOND = "tcp://one:1", "tcp://two:2"


def asked(one: OneProxy, turn: int, **boots: str) -> None:
    assert one.is_due(turn * ROUND_S)
    for name, boot in boots.items():
        one.answered({"first": FIRST, "second": SECOND}[name], boot, one.round)


def test_two_proxies_are_refused_by_name() -> None:
    one = OneProxy((FIRST, SECOND))
    asked(one, 0, first="a", second="b")

    with pytest.raises(TwoProxiesError, match=f"{FIRST} and {SECOND} lead to different"):
        asked(one, 1, first="a", second="b")


def test_a_second_one_that_appears_later_is_refused_too() -> None:
    one = OneProxy((FIRST, SECOND))
    for turn in range(5):
        asked(one, turn, first="a")
    asked(one, 5, first="a", second="b")

    with pytest.raises(TwoProxiesError):
        asked(one, 6, first="a", second="b")


def test_two_ways_to_one_proxy_are_fine_also_when_it_is_restarted() -> None:
    one = OneProxy((FIRST, SECOND))
    asked(one, 0, first="a", second="a")
    asked(one, 1, first="a", second="b")  # it was restarted between the two answers
    asked(one, 2, first="b", second="b")
    asked(one, 3, first="b", second="b")


def test_late_answers_do_not_count() -> None:
    one = OneProxy((FIRST, SECOND))
    asked(one, 0, first="a", second="b")
    late = one.round
    asked(one, 1, second="b")

    one.answered(FIRST, "a", late)


def test_one_node_above_is_never_asked() -> None:
    assert not OneProxy((FIRST,)).is_due(0.0)
