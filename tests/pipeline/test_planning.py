"""Planning: which messages a batch reads, and what is reported of messages that are gone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from reliable_pubsub.common.core.errors import RefusedError, UsageError
from reliable_pubsub.pipeline.core.loss import DataLossError
from reliable_pubsub.pipeline.core.offsets import TopicOffset, from_json, to_json
from reliable_pubsub.pipeline.core.options import Positions, SourceOptions, parse_options
from reliable_pubsub.pipeline.core.planning import (
    MessageRange,
    TopicExtent,
    admitted,
    ending_offsets,
    ranges_between,
    refuse_unknown,
    resumed_offsets,
    starting_offsets,
    unknown,
)

OPTIONS = parse_options({"subscribePattern": ".*"})
TOLERANT = replace(OPTIONS, fail_on_data_loss=False)


def extent(end: int, *, start: int = 0, log: str = "x.1") -> TopicExtent:
    return TopicExtent(log, start, end)


def at(offset: int, *, log: str = "x.1", first: int | None = None) -> TopicOffset:
    return TopicOffset(log, offset, first=first)


def no_time(topic: str, extent: TopicExtent, time_ns: int) -> int:
    raise AssertionError("no time was asked for")


def silent(loss: DataLossError) -> None:
    raise AssertionError(loss)


def starts(
    positions: Positions, extents: Mapping[str, TopicExtent], options: SourceOptions = OPTIONS
) -> dict[str, int]:
    options = replace(options, starting=positions)
    begun = starting_offsets(options, extents, no_time, lambda text: None)
    return {topic: place.offset for topic, place in begun.items()}


class TestATopicThatIsNotThere:
    def test_is_reported_with_the_closest_one(self) -> None:
        options = parse_options({"subscribe": "ordrs,b"})

        refuse_unknown(options, {"ordrs": extent(1), "b": extent(1)})
        with pytest.raises(UsageError, match="no topic 'ordrs'; did you mean 'orders'"):
            refuse_unknown(options, {"orders": extent(1), "b": extent(1)})

    def test_is_one_with_a_position_too_where_a_pattern_says_what_is_read(self) -> None:
        for name in ("startingOffsets", "endingOffsets"):
            given = {"subscribePattern": ".*", name: '{"a": 5}'}
            options = parse_options(given)

            with pytest.raises(UsageError, match="no topic 'a'"):
                refuse_unknown(options, {"b": extent(1)})

    def test_is_no_error_where_a_pattern_says_what_is_read(self) -> None:
        assert unknown(OPTIONS, {}) == []
        refuse_unknown(OPTIONS, {})


class TestABeginning:
    def test_is_the_first_stored_message_or_the_end_or_an_offset(self) -> None:
        topics = dict.fromkeys("abc", extent(30, start=10))

        assert starts(Positions("earliest", {"b": "latest", "c": 20}), topics) == {
            "a": 10,
            "b": 30,
            "c": 20,
        }

    def test_after_the_end_is_a_mistake(self) -> None:
        with pytest.raises(UsageError, match="ends at offset 30, 31 is above"):
            starts(Positions("earliest", {"a": 31}), {"a": extent(30)})

    def test_that_is_no_longer_stored_is_reported_with_what_is_left(self) -> None:
        positions = Positions("earliest", {"a": 3})

        with pytest.raises(DataLossError, match=r"offsets 3 to 9 .* that is left is 10") as error:
            starts(positions, {"a": extent(30, start=10)})

        assert (error.value.topic, error.value.first, error.value.end) == ("a", 3, 10)
        assert starts(positions, {"a": extent(30, start=10)}, TOLERANT) == {"a": 10}

    def test_by_time_is_looked_up(self) -> None:
        options = replace(OPTIONS, starting=Positions("earliest", timestamp_ns=5))

        begun = starting_offsets(options, {"a": extent(30)}, lambda *_: 7, silent)

        assert begun["a"].offset == 7

    def test_has_an_end_that_is_never_below_what_is_stored(self) -> None:
        positions = Positions("latest", {"a": 12, "b": 99})

        ends = ending_offsets(positions, dict.fromkeys("abc", extent(30)), no_time)

        assert ends == {"a": 12, "b": 30, "c": 30}


class TestAQueryThatGoesOn:
    def test_continues_where_it_was(self) -> None:
        start = {"a": at(5)}

        assert resumed_offsets(start, {"a": extent(9)}, OPTIONS, silent) == start

    def test_begins_a_topic_that_appears_at_its_start(self) -> None:
        resumed = resumed_offsets({}, {"a": extent(9, start=4)}, OPTIONS, silent)

        assert resumed == {"a": at(4, first=4)}

    def test_keeps_the_place_of_topics_that_it_no_longer_wants(self) -> None:
        options = parse_options({"subscribe": "a"})
        start = {"a": at(5), "b": at(7)}

        assert resumed_offsets(start, {"a": extent(9)}, options, silent) == start

    @pytest.mark.parametrize(
        ("extents", "why", "continues_at"),
        [
            ({"a": extent(9, start=7)}, "first that is left is 7", at(7, first=7)),
            ({"a": extent(9, log="y.1")}, "another topic", at(0, log="y.1", first=0)),
            ({"a": extent(3)}, "set back to an older copy", at(3, first=3)),
            ({}, "no longer has this topic", at(5)),
        ],
        ids=["trimmed", "made again", "set back", "gone"],
    )
    def test_stops_where_messages_are_gone_or_continues_if_it_may(
        self, extents: dict[str, TopicExtent], why: str, continues_at: TopicOffset
    ) -> None:
        losses: list[DataLossError] = []

        with pytest.raises(DataLossError, match=why) as error:
            resumed_offsets({"a": at(5)}, extents, OPTIONS, silent)
        resumed = resumed_offsets({"a": at(5)}, extents, TOLERANT, losses.append)

        assert error.value.code == "DATA_LOSS"
        assert resumed == {"a": continues_at}
        assert why in losses[0].skipped


class TestAdmission:
    def test_without_a_bound_takes_everything(self) -> None:
        start = {"a": at(5), "b": at(0)}

        assert admitted(start, start, {"a": 9, "b": 1}, None) == {"a": at(9), "b": at(1)}

    def test_shares_the_rows_by_backlog(self) -> None:
        start = {"a": at(0), "b": at(0), "c": at(0)}

        reached = admitted(start, start, {"a": 600, "b": 300, "c": 100}, 10)

        assert {topic: place.offset for topic, place in reached.items()} == {"a": 6, "b": 3, "c": 1}

    def test_lets_every_topic_with_a_backlog_advance(self) -> None:
        start = {"a": at(0), "b": at(0)}

        assert admitted(start, start, {"a": 1_000_000, "b": 1}, 10)["b"].offset == 1

    def test_gives_back_the_same_value_where_nothing_is_new(self) -> None:
        start = {"a": TopicOffset("x.1", 5, witness_ns=7, first=2)}

        assert admitted(start, {"a": start["a"]}, {"a": 5}, 10) == start

    def test_never_goes_back(self) -> None:
        start = {"a": at(5)}

        assert admitted(start, start, {"a": 3}, 10) == start

    def test_writes_down_where_it_met_a_topic(self) -> None:
        assert admitted({}, {"a": at(4, first=4)}, {"a": 9}, None) == {"a": at(9, first=4)}

    @given(
        backlogs=st.lists(st.integers(0, 10**12), min_size=1, max_size=8),
        rows_max=st.integers(1, 10**6),
    )
    def test_ends_in_so_many_batches_and_passes_the_bound_by_no_more_than_topics(
        self, backlogs: list[int], rows_max: int
    ) -> None:
        topics = {f"t{number}": count for number, count in enumerate(backlogs)}
        start = dict.fromkeys(topics, at(0))

        reached = admitted(start, start, topics, rows_max)

        counts = {topic: place.offset for topic, place in reached.items()}
        assert all((counts[topic] > 0) == (topics[topic] > 0) for topic in topics)
        assert all(counts[topic] <= topics[topic] for topic in topics)
        assert sum(counts.values()) <= max(rows_max, 0) + len(topics)


def ranges(
    start: dict[str, TopicOffset],
    end: dict[str, TopicOffset],
    *,
    rows_max: int = 1_000,
    ranges_min: int = 1,
) -> list[tuple[str, int, int]]:
    found = ranges_between(start, end, rows_max=rows_max, ranges_min=ranges_min)
    return [(one.topic, one.first, one.end) for one in found]


class TestTheTasksOfABatch:
    def test_are_one_for_each_topic_with_something_new(self) -> None:
        start = {"a": at(1), "b": at(2)}

        assert ranges(start, {"b": at(5), "a": at(1)}) == [("b", 2, 5)]

    def test_are_cut_where_one_would_read_too_much(self) -> None:
        assert ranges({"a": at(0)}, {"a": at(10)}, rows_max=4) == [
            ("a", 0, 3),
            ("a", 3, 6),
            ("a", 6, 10),
        ]

    def test_are_as_many_as_were_asked_for_by_size_of_the_topics(self) -> None:
        start, end = {"a": at(0), "b": at(0)}, {"a": at(90), "b": at(10)}

        assert len(ranges(start, end, ranges_min=10)) == 10
        assert len(ranges({"a": at(0)}, {"a": at(3)}, ranges_min=10)) == 3

    def test_bear_witness_of_where_the_topic_was_left(self) -> None:
        start = {"a": TopicOffset("x.1", 4, witness_ns=7)}

        first, second = ranges_between(start, {"a": at(8)}, rows_max=2, ranges_min=1)

        assert first == MessageRange("a", "x.1", 4, 6, witness_ns=7)
        assert second == MessageRange("a", "x.1", 6, 8)

    def test_begin_where_the_batch_has_met_a_topic(self) -> None:
        assert ranges({}, {"a": at(9, first=4)}) == [("a", 4, 9)]

    def test_begin_again_in_another_log(self) -> None:
        end = {"a": at(3, log="y.1", first=0)}

        assert ranges({"a": at(9)}, end) == [("a", 0, 3)]

    def test_begin_after_what_is_gone(self) -> None:
        assert ranges({"a": at(3)}, {"a": at(9, first=5)}) == [("a", 5, 9)]

    def test_do_not_repeat_what_a_topic_began_with(self) -> None:
        start = {"a": at(9, first=4)}

        assert ranges(start, {"a": at(9, first=4)}) == []
        assert ranges(start, {"a": at(12)}) == [("a", 9, 12)]

    def test_are_none_where_a_first_batch_ended_before_the_latest_offset(self) -> None:
        """A query at "latest" failed in batch 0, and the log has grown meanwhile."""
        assert ranges({"a": at(20)}, {"a": at(10)}) == []

    @given(st.integers(0, 10**9), st.integers(0, 10**6), st.integers(1, 10**5), st.integers(1, 99))
    def test_hold_each_message_once(
        self, first: int, count: int, rows_max: int, ranges_min: int
    ) -> None:
        end = {"a": at(first + count)}
        found = ranges({"a": at(first)}, end, rows_max=rows_max, ranges_min=ranges_min)

        borders = [first, *(end for _, _, end in found)]
        assert [begin for _, begin, _ in found] == borders[:-1]
        assert borders[-1] == first + count
        assert all(0 < end - begin <= rows_max for _, begin, end in found)


class TestTheJsonOfOffsets:
    def test_is_the_same_text_for_the_same_offsets(self) -> None:
        one = str(to_json({"b": at(1), "a": at(2)}))

        assert one == str(to_json({"a": at(2), "b": at(1)}))
        assert one == (
            "{'topics': {'a': {'log': 'x.1', 'offset': 2}, 'b': {'log': 'x.1', 'offset': 1}}, "
            "'v': 1}"
        )

    def test_is_read_back_as_it_was(self) -> None:
        offsets = {"a": TopicOffset("x.1", 2, 7, 1), "b": at(0)}

        assert from_json(to_json(offsets)) == offsets

    @pytest.mark.parametrize("value", [{}, {"v": 1}, {"v": 1, "topics": {"a": 3}}, {"a": {"0": 3}}])
    def test_of_another_source_is_refused(self, value: dict[str, object]) -> None:
        with pytest.raises(RefusedError, match="not of this source"):
            from_json(value)

    def test_of_a_later_version_is_refused(self) -> None:
        with pytest.raises(RefusedError, match="version 2"):
            from_json({"v": 2, "topics": {}})
