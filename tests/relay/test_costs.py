"""What patterns of strangers cost, in steps: to read a set, to match a topic."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.answers import Malformed
from reliable_pubsub.common.core.errors import InvalidPatternError
from reliable_pubsub.common.core.limits import (
    INTEREST_STEPS_MAX,
    INTEREST_TURN_STEPS,
    MATCH_STEPS_MAX,
    PATTERN_STATES_MAX,
    PATTERN_STEPS_MAX,
    SINGLY_MAX,
    TABLE_PATTERNS_MAX,
    TABLE_STATES_MAX,
)
from reliable_pubsub.common.core.patterns.expression import regex
from reliable_pubsub.common.core.patterns.matching import EVERYTHING, Kinds, Pattern, automaton_of
from reliable_pubsub.common.core.tree_messages import InterestAck, InterestRequest
from reliable_pubsub.relay.core.interest_link import Links, interest_digest
from reliable_pubsub.relay.core.interest_table import InterestTable

KINDS = Kinds()
LONG_TOPIC = "a" * 255
LEFT_OUT = f"({'a?' * 15})" * 7  # each state is linked to all before it


def wide(number: int) -> Pattern:
    """An expression whose states are all active on a long topic; it costs little to make."""
    return Pattern("regex", f"(a|{'|'.join('a' * 30)})*{number}")


def a_table() -> InterestTable[int]:
    return InterestTable(cap=PATTERN_STATES_MAX, kinds=KINDS)


def test_parts_that_may_be_left_out_link_to_the_next_one_alone() -> None:
    """The issue's pattern: 128 of them took seconds, each state linked to all before it."""
    one = regex("([aX]?){500}")

    assert one.steps < 3 * 500
    assert one.matches("aX" * 250)
    assert one.matches("")
    assert not one.matches("a" * 501)


@pytest.mark.parametrize(
    ("pattern", "fits", "fits_not"),
    [
        ("(ab?){2,4}", ["aa", "aba", "abab", "aaaa", "abababab"], ["a", "", "aaaaa", "b"]),
        ("(a?b?){0,2}c", ["c", "abc", "babac"[1:], "ababc"], ["abababc", "ab"]),
        ("(a*){2,}b", ["b", "aaab"], ["a"]),
        ("a{0,3}", ["", "a", "aaa"], ["aaaa"]),
        ("(a?){3}", ["", "aaa"], ["aaaa"]),
    ],
)
def test_repetitions_mean_what_they_meant(
    pattern: str, fits: list[str], fits_not: list[str]
) -> None:
    one = regex(pattern)

    assert [text for text in fits if not one.matches(text)] == []
    assert [text for text in fits_not if one.matches(text)] == []


def test_a_pattern_of_too_many_links_is_refused() -> None:
    with pytest.raises(InvalidPatternError, match=str(PATTERN_STEPS_MAX)):
        regex(LEFT_OUT * 4)


def test_of_a_set_that_costs_too_much_no_more_is_read_and_everything_is_sent() -> None:
    table: InterestTable[bytes] = InterestTable(cap=128, kinds=KINDS)
    links = Links(table, node="n", kinds=KINDS, push_endpoint="", boot="b")
    patterns = tuple(Pattern("regex", f"{LEFT_OUT}{number}") for number in range(128))
    said = InterestRequest(
        client="c",
        epoch=0,
        request=1,
        link=b"l" * 16,
        version=1,
        digest=interest_digest(patterns, ()),
        patterns=patterns,
    )
    automaton_of.cache_clear()

    reply = links.take(said, 0.0)

    assert isinstance(reply, InterestAck)
    assert reply.is_full
    assert not reply.wanted
    assert table.patterns_of(b"l" * 16) == {EVERYTHING}
    assert automaton_of.cache_info().misses <= INTEREST_STEPS_MAX // regex(LEFT_OUT).steps + 2


def said_by(link: bytes, *patterns: Pattern) -> InterestRequest:
    return InterestRequest(
        client="c",
        epoch=0,
        request=1,
        link=link * 16,
        version=1,
        digest=interest_digest(patterns, ()),
        patterns=patterns,
    )


def is_read(node: Links, said: InterestRequest) -> bool:
    """Send a set; return whether it was read, or must be sent again."""
    reply = node.take(said, 0.0)
    assert isinstance(reply, InterestAck)
    return not reply.wanted


@pytest.fixture
def node() -> Links:
    table: InterestTable[bytes] = InterestTable(cap=128, kinds=KINDS)
    return Links(table, node="n", kinds=KINDS, push_endpoint="", boot="b")


def test_a_costly_set_is_paid_by_the_turns_before_the_next_one_is_read(node: Links) -> None:
    """However many strangers say costly sets, honest requests get the larger part of the time."""
    costly = [Pattern("regex", f"([aX]?){{500}}{number}") for number in range(2)]
    assert is_read(node, said_by(b"1", costly[0]))
    automaton_of.cache_clear()

    turns = 0
    while not is_read(node, said_by(b"2", costly[1])):
        assert automaton_of.cache_info().misses == 0
        node.new_turn()
        turns += 1

    assert turns == regex(costly[0].text).steps // INTEREST_TURN_STEPS


def test_simple_patterns_are_read_in_every_turn(node: Links) -> None:
    assert is_read(node, said_by(b"1", Pattern("regex", "([aX]?){500}")))

    assert not is_read(node, said_by(b"2", Pattern("glob", "a*b")))
    assert is_read(node, said_by(b"3", Pattern("exact", "t"), Pattern("prefix", "p")))


def test_a_set_that_cannot_be_read_is_paid_too(node: Links) -> None:
    refused = node.take(said_by(b"1", Pattern("regex", LEFT_OUT * 4)), 0.0)
    assert isinstance(refused, Malformed)

    assert not is_read(node, said_by(b"2", Pattern("glob", "a*b")))


def test_quiet_turns_are_not_saved_up(node: Links) -> None:
    for _ in range(1000):
        node.new_turn()
    assert is_read(node, said_by(b"1", Pattern("regex", "([aX]?){500}")))

    assert not is_read(node, said_by(b"2", Pattern("glob", "a*b")))


def test_the_first_message_on_a_topic_costs_so_many_steps_in_a_turn_whatever_is_asked_for() -> None:
    table = a_table()
    for consumer in range(60):
        table.replace(consumer, [KINDS.check(wide(consumer * 10 + n)) for n in range(10)])
    table.new_turn()

    assert table.is_wanted(LONG_TOPIC)  # some are not decided: too much rather than too little
    assert len(table.singly(LONG_TOPIC)) > 1
    assert table._effort.left > -2 * PATTERN_STATES_MAX


def test_who_is_not_decided_in_one_turn_is_in_the_next_ones() -> None:
    table = a_table()
    for consumer in range(100):
        table.replace(consumer, [KINDS.check(Pattern("glob", f"*{'?' * 20}x{consumer}"))])
    for _ in range(40):
        table.new_turn()
        table.is_wanted("a" * 100 + "x7")

    assert table.singly("a" * 100 + "x7") == (7,)


def test_a_node_that_costs_a_whole_turn_is_sent_the_message_and_not_asked_again() -> None:
    table = a_table()
    table.replace(1, [KINDS.check(wide(number)) for number in range(40)])
    table.new_turn()
    assert table.singly(LONG_TOPIC) == (1,)

    table.new_turn()
    assert table.singly(LONG_TOPIC) == (1,)
    assert table._effort.left == MATCH_STEPS_MAX


def test_who_asks_for_too_many_states_gets_everything() -> None:
    table = a_table()

    assert table.replace(1, [KINDS.check(wide(number)) for number in range(100)]) == {EVERYTHING}
    assert table.is_full(1)
    assert table.replace(1, [KINDS.check(wide(1))]) != {EVERYTHING}
    assert not table.is_full(1)


def test_where_all_ask_for_too_many_states_the_next_one_gets_everything() -> None:
    table = a_table()
    each = [KINDS.check(wide(number)) for number in range(50)]
    states = sum(KINDS.cost(one)[1] for one in each)
    for consumer in range(TABLE_STATES_MAX // states):
        assert table.replace(consumer, each) != {EVERYTHING}

    assert table.replace(-1, each) == {EVERYTHING}
    table.forget(0)
    assert table.replace(-1, each) != {EVERYTHING}


def test_only_so_many_are_sent_copies_of_their_own() -> None:
    table = a_table()
    glob = [Pattern("glob", "a*b")]
    for consumer in range(SINGLY_MAX):
        assert table.replace(consumer, glob) != {EVERYTHING}

    assert table.replace(-1, glob) == {EVERYTHING}
    assert table.replace(-1, [Pattern("exact", "t")]) == {Pattern("exact", "t")}


def test_where_too_many_patterns_are_asked_for_the_next_one_gets_everything() -> None:
    table = a_table()
    table.replace(0, [])
    for consumer in range(TABLE_PATTERNS_MAX // 500):
        table.replace(consumer, [Pattern("exact", f"{consumer}.{n}") for n in range(500)])

    more = [Pattern("exact", f"more.{n}") for n in range(500)]
    assert table.replace(-1, more) == {EVERYTHING}
