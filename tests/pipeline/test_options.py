"""Options: what they may be, and what is said of one that is wrong."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.settings import SUBSCRIBER_ENDPOINT
from reliable_pubsub.pipeline.core.options import OPTIONS, Positions, SourceOptions, parse_options


def parsed(**given: str) -> SourceOptions:
    return parse_options({"subscribe": "a", **given})


def refusal(given: dict[str, str]) -> str:
    with pytest.raises(UsageError) as error:
        parse_options(given)
    return str(error.value)


class TestOptions:
    def test_begin_at_the_earliest_message_and_stop_at_lost_ones_by_default(self) -> None:
        options = parsed()

        assert options.endpoint == SUBSCRIBER_ENDPOINT
        assert options.starting == Positions("earliest")
        assert options.ending is None
        assert options.fail_on_data_loss
        assert options.trigger_rows_max == 100_000

    def test_are_known_in_any_case_because_spark_lowers_them(self) -> None:
        options = parsed(maxoffsetspertrigger="7", FAILONDATALOSS="false")

        assert (options.trigger_rows_max, options.fail_on_data_loss) == (7, False)

    @pytest.mark.parametrize(
        ("name", "advice"),
        [
            ("kafka.bootstrap.servers", "is unknown here; 'endpoint' says where the proxy is"),
            ("kafka.group.id", "'subscriber' is an id"),
            ("kafka.max.poll.records", "a setting of Kafka's client, and there is none here"),
            ("assign", "name topics by 'subscribe'"),
            ("fetchOffset.retryIntervalMs", "'timeoutMs' is the patience of a request"),
        ],
    )
    def test_of_kafka_are_reported_with_what_takes_their_place(
        self, name: str, advice: str
    ) -> None:
        assert advice in refusal({"subscribe": "a", name: "x"})

    @pytest.mark.parametrize("order", [1, -1])
    def test_of_a_table_of_the_catalog_are_refused_because_a_view_is_meant(
        self, order: int
    ) -> None:
        """The options of Spark for CREATE TABLE three USING reliable_pubsub, in any order."""
        catalog = {"owner": "me", "option.subscribe": "a", "provider": "reliable_pubsub"}
        found = {"subscribe": "a", "path": "file:/warehouse/three", **catalog}

        text = refusal(dict([*found.items()][::order]))

        assert "write CREATE TEMPORARY VIEW name USING reliable_pubsub" in text

    def test_that_a_table_with_columns_has_forgotten_are_asked_for_in_a_view(self) -> None:
        """CREATE TABLE three (value BINARY) is Spark's alone; its SELECT comes without options."""
        text = refusal({})

        assert "DROP TABLE removes it, and no message with it; write CREATE TEMPORARY VIEW" in text

    def test_of_a_far_endpoint_name_the_option_that_allows_it(self) -> None:
        text = refusal({"subscribe": "a", "endpoint": "tcp://192.0.2.1:5556"})

        assert "set option allowPlaintext to true" in text
        assert "--allow" not in text

    def test_that_do_not_exist_are_reported_with_the_closest_name(self) -> None:
        text = refusal({"subscribe": "a", "startingofset": "latest"})

        assert "'startingofset' is unknown; did you mean 'startingOffsets'?" in text

    def test_that_are_like_no_other_are_reported_with_all_names(self) -> None:
        text = refusal({"subscribe": "a", "qqqq": "1"})

        assert all(name in text for name in OPTIONS)

    @pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
    def test_do_not_place_a_topic_that_is_not_read(self, name: str) -> None:
        of_names = refusal({"subscribe": "orders,b", name: '{"ordrs": 5}'})
        of_pattern = refusal({"subscribePattern": "a.*", name: '{"b": 5}'})

        assert f"option {name}: topic 'ordrs' is not read" in of_names
        assert "did you mean 'orders'?" in of_names
        assert "'b' is not read; the query reads subscribePattern=a.*" in of_pattern

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("maxOffsetsPerTrigger", "0"),
            ("maxOffsetsPerTrigger", "many"),
            ("minPartitions", "1.5"),
            ("maxRecordsPerPartition", ""),
            ("failOnDataLoss", "yes"),
            ("includeHeaders", "no"),
            ("startingOffsets", "begin"),
            ("startingOffsets", '{"a": -1}'),
            ("startingOffsets", '{"a": true}'),
            ("endingOffsets", "[1]"),
            ("startingTimestamp", "yesterday"),
            ("startingTimestamp", "1795249800"),  # seconds
            ("maxTriggerDelay", "soon"),
            ("table", "message"),
            ("timeoutMs", "0"),
            ("subscribePattern", "("),
        ],
    )
    def test_with_a_value_that_cannot_be_are_reported_with_name_and_value(
        self, name: str, value: str
    ) -> None:
        topics = {} if name == "subscribePattern" else {"subscribe": "a"}

        text = refusal({**topics, name: value})

        assert text.startswith(f"option {name}: found {value!r}, expected ")

    @pytest.mark.parametrize(
        "given",
        [
            {},
            {"subscribe": "a", "subscribePattern": "b"},
            {"subscribe": "a", "path": "b"},
        ],
    )
    def test_name_topics_in_exactly_one_way(self, given: dict[str, str]) -> None:
        assert "exactly one" in refusal(given)

    def test_take_topics_from_load_too(self) -> None:
        options = parse_options({"path": "a, b"})

        assert [options.wants(topic) for topic in ("a", "b", "c")] == [True, True, False]

    def test_match_a_pattern_against_the_whole_name(self) -> None:
        options = parse_options({"subscribePattern": "sensor-.*"})

        assert [options.wants(topic) for topic in ("sensor-1", "a-sensor-1")] == [True, False]

    def test_refuse_names_that_no_topic_and_no_client_may_have(self) -> None:
        assert "topic" in refusal({"subscribe": "a,,b"})
        assert "id 'a_b'" in refusal({"subscribe": "a", "subscriber": "a_b"})

    def test_give_positions_topic_by_topic_and_the_edge_for_the_others(self) -> None:
        starting = parsed(subscribe="a,b,c", startingOffsets='{"a": 23, "b": "latest"}').starting

        assert [starting.of(topic) for topic in ("a", "b", "c")] == [23, "latest", "earliest"]

    @pytest.mark.parametrize(
        "text",
        ["2026-11-21T08:30:00Z", "2026-11-21T08:30:00", "2026-11-21T09:30+01:00", "1795249800000"],
    )
    def test_give_a_time_in_iso_8601_or_in_milliseconds(self, text: str) -> None:
        assert parsed(startingTimestamp=text).starting.timestamp_ns == 1_795_249_800_000_000_000

    def test_give_a_position_by_offset_or_by_time(self) -> None:
        both = {"subscribe": "a", "endingOffsets": "latest", "endingTimestamp": "0"}

        assert "give one of them" in refusal(both)

    def test_do_not_leave_this_machine_unless_that_is_said(self) -> None:
        away = {"subscribe": "a", "endpoint": "tcp://192.0.2.1:5556"}

        assert "not a loopback address" in refusal(away)
        assert parsed(endpoint=away["endpoint"], allowPlaintext="true").endpoint == away["endpoint"]

    def test_of_a_table_need_no_topics(self) -> None:
        assert parse_options({"table": "topics"}).wants("whatever")

    def test_have_the_retries_of_the_client(self) -> None:
        retry = parsed(timeoutMs="250", retries="3").retry

        assert (retry.timeout_s, retry.retries_max) == (0.25, 3)
