"""The language of step files, and the plans that are made of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.limits import BATCH_MESSAGES_MAX, BODY_BYTES_MAX
from reliable_pubsub.common.core.message_base import Start
from reliable_pubsub.common.core.patterns.pattern import glob
from reliable_pubsub.common.core.plan_mark import PlanMark, begin_plan
from reliable_pubsub.common.core.start import Earliest, ago, at_offset, start_in_words
from reliable_pubsub.common.core.step_file import parse_publisher_steps, parse_subscriber_steps
from reliable_pubsub.common.core.steps import (
    PlanPosition,
    PublisherStep,
    PutChunk,
    SubscriberStep,
    describe,
    message_lines,
    payload_of,
    plan_digest,
    publisher_chunks,
    subscriber_after,
)
from reliable_pubsub.common.core.wire import encode_batch
from reliable_pubsub.common.yaml_file import load_yaml, parse_yaml, parse_yaml_bytes

CONFIGS = Path(__file__).parents[2] / "configs"


def publisher_steps(text: str) -> tuple[PublisherStep, ...]:
    return parse_publisher_steps(parse_yaml(text, "x.yaml"))


def subscriber_steps(text: str) -> tuple[SubscriberStep, ...]:
    return parse_subscriber_steps(parse_yaml(text, "x.yaml"))


def refusal_of_put(lines: str) -> str:
    """Say why a publisher step, its keys one on a line, is refused."""
    with pytest.raises(ConfigurationError) as caught:
        publisher_steps("steps:\n- topic: t\n" + indented(lines))
    return str(caught.value)


def refusal_of_action(lines: str) -> str:
    """Say why a subscriber step, its keys one on a line, is refused."""
    with pytest.raises(ConfigurationError) as caught:
        subscriber_steps("steps:\n- topic: t\n" + indented(lines))
    return str(caught.value)


def indented(lines: str) -> str:
    return "".join(f"  {line}\n" for line in lines.splitlines())


def no_file(step: int) -> int:
    raise AssertionError(f"step {step} has no message file")


class TestAPublisherFile:
    def test_a_step_may_wait_for_its_subscribers(self) -> None:
        (step,) = publisher_steps(
            "steps: [{topic: t, message: m, wait: delivered, acknowledged_by: 2, timeout: 5}]"
        )

        assert (step.wait, step.acknowledged_by, step.timeout_s) == ("delivered", 2, 5.0)
        assert describe([step])[0].detail == "m_<sequence>, delivered to 2 within 5 s"

    @pytest.mark.parametrize(
        ("lines", "expected"),
        [
            ("wait: read", "expected one of stored, delivered"),
            ("wait: delivered\nacknowledged_by: 0", "all, or a whole number from 1 to 2,000"),
            ("wait: delivered\nacknowledged_by: most", "all, or a whole number from 1 to 2,000"),
            ("wait: delivered\ntimeout: 0", "a number above 0 to 86,400 (s)"),
            ("wait: delivered\nqos: 1", "expected QoS 2"),
            ("acknowledged_by: 1", "expected only with it"),
            ("timeout: 1", "expected only with it"),
        ],
    )
    def test_a_wait_that_cannot_be_names_what_can(self, lines: str, expected: str) -> None:
        assert expected in refusal_of_put(f"message: m\n{lines}")

    def test_a_step_needs_a_topic_and_a_message_and_has_defaults_for_the_rest(self) -> None:
        (step,) = publisher_steps("steps:\n- topic: t\n  message: hello\n")

        assert step == PublisherStep(
            topic="t",
            message="hello",
            message_file=None,
            number_of_times=1,
            sleep_between_messages_s=0.0,
            sleep_after_s=0.0,
            batch=1,
            numbered=True,
        )

    def test_a_step_may_give_every_key(self) -> None:
        (step,) = publisher_steps("""\
steps:
  - topic: t
    message: hello
    number_of_times: 3
    sleep_between_messages: 0.5
    sleep_after: 2
    batch: 100
    numbered: false
""")

        assert step == PublisherStep(
            topic="t",
            message="hello",
            number_of_times=3,
            sleep_between_messages_s=0.5,
            sleep_after_s=2.0,
            batch=100,
            numbered=False,
        )

    def test_the_lines_of_a_message_file_are_never_numbered(self) -> None:
        (step,) = publisher_steps("steps:\n- topic: t\n  message_file: a.txt\n")

        assert (step.message_file, step.numbered) == ("a.txt", False)
        assert "expected false or nothing with message_file" in refusal_of_put(
            "message_file: a.txt\nnumbered: true"
        )
        assert publisher_steps("steps: [{topic: t, message_file: a.txt, numbered: false}]") == (
            step,
        )

    @pytest.mark.parametrize(
        ("lines", "told"),
        [
            (
                "message: m\nnumber_of_times: three",
                "x.yaml, line 4, steps[0].number_of_times: found 'three', expected a whole number "
                "from 1 to 1,000,000,000",
            ),
            ("message: m\nnumber_of_times: 0", "found 0, expected a whole number from 1"),
            ("message: m\nnumber_of_times: 2.0", "found 2.0, expected a whole number"),
            ("message: m\nsleep_after: -1", "found -1, expected a number from 0 to 86,400 (s)"),
            ("message: m\nsleep_after: .nan", "found nan, expected a number from 0"),
            ("message: m\nsleep_between_messages:", "found nothing, expected a number from 0"),
            ("message: m\nnumbered: 1", "found 1, expected true or false"),
            ("message: 5", 'found 5, expected text; if it is meant as text, quote it: message: "5'),
            ("message: no", "found false, expected text; if it is meant as text, quote it"),
            ("message:", 'found nothing, expected text; if it is meant as text, quote it: message: '
             '""'),
            ("message: 2024-01-01", 'quote it: message: "2024-01-01"'),
            ("message: [a, b]", "steps[0].message: found a list of 2, expected text"),
            ("message_file: ''", "found '', expected the path of a file"),
            ("", "line 2, steps[0]: found neither, expected one of message and message_file"),
            ("message: m\nmessage_file: f", "found both, expected one of message and message_file"),
            ("mesage: m", "line 3, steps[0].mesage: found an unknown key, expected one of topic, "
             "message, message_file, number_of_times, sleep_between_messages, sleep_after, batch, "
             "numbered, qos, wait, acknowledged_by, timeout; did you mean 'message'?"),
            ("message: m\nsleep-after: 1", "steps[0]['sleep-after']: found an unknown key"),
            ("message: m\nNumber_Of_Times: 1", "did you mean 'number_of_times'?"),
        ],
    )  # fmt: skip
    def test_a_wrong_value_is_reported_with_file_line_key_found_and_expected(
        self, lines: str, told: str
    ) -> None:
        assert told in refusal_of_put(lines)

    @pytest.mark.parametrize(
        ("topic", "told"),
        [
            ("topic: ''", "steps[0].topic: found '', expected the name of a topic, 1 to 255 bytes"),
            ('topic: "a\\nb"', "found 'a\\nb', expected 1 to 255 bytes"),
            (f"topic: {'é' * 128}", "expected 1 to 255 bytes of UTF-8 without control characters"),
            ("topic: 2024", '; if it is meant as text, quote it: topic: "2024"'),
            ("message: m", "line 2, steps[0].topic: found nothing, expected the name of a topic"),
        ],
    )  # fmt: skip
    def test_a_wrong_topic_is_reported(self, topic: str, told: str) -> None:
        text = f"steps:\n- {topic}\n" + ("" if "message" in topic else "  message: m\n")

        with pytest.raises(ConfigurationError, match=re.escape(told)):
            publisher_steps(text)

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("", "x.yaml, line 1: found nothing, expected a mapping with the key steps"),
            ("- topic: t", "x.yaml, line 1: found a list of 1, expected a mapping"),
            ("{}", "steps: found nothing, expected a list of steps"),
            ("steps:", "line 1, steps: found nothing, expected a list of steps"),
            ("steps: []", "steps: found an empty list, expected a list of steps"),
            ("steps: {topic: t}", "steps: found a mapping, expected a list of steps"),
            ("step: []", "step: found an unknown key, expected only steps; did you mean 'steps'?"),
            ("steps: [{topic: t, message: m}]\nname: x", "line 2, name: found an unknown key"),
            ("steps:\n- put", "line 2, steps[0]: found 'put', expected a mapping with the keys"),
        ],
    )
    def test_a_file_is_a_mapping_with_a_list_of_steps_and_nothing_else(
        self, text: str, told: str
    ) -> None:
        with pytest.raises(ConfigurationError, match=re.escape(told)):
            publisher_steps(text)

    def test_all_problems_of_a_file_are_reported_in_the_order_of_its_lines(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            publisher_steps("steps:\n- topic: t\n  batch: 0\n  message: 1\n- message: m\nx: 1\n")

        told = [line.split(":")[0] for line in str(caught.value).splitlines()]
        assert told == [
            "x.yaml, line 3, steps[0].batch",
            "x.yaml, line 4, steps[0].message",
            "x.yaml, line 5, steps[1].topic",
            "x.yaml, line 6, x",
        ]

    def test_of_very_many_problems_the_first_are_reported_and_the_rest_counted(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            publisher_steps("steps:\n" + "- 1\n" * 50)

        told = str(caught.value).splitlines()
        assert len(told) == 21
        assert told[-1] == "... and 30 more"

    def test_the_file_of_a_subscriber_is_refused_in_one_line(self) -> None:
        with pytest.raises(ConfigurationError) as told:
            parse_publisher_steps(load_yaml(CONFIGS / "figure4_subscriber.yaml"))

        assert str(told.value).endswith(
            "line 5: found a step of a subscriber; run this file with `reliable-pubsub "
            "subscriber`, or name another one"
        )

    def test_a_batch_that_no_request_can_hold_is_refused_before_the_run(self) -> None:
        message = "m" * 10_000

        assert "steps[0].batch: found 105, expected at most 104 messages" in refusal_of_put(
            f"message: {message}\nbatch: 105"
        )
        assert "steps[0].message: found 1,048,5" in refusal_of_put("message: " + "m" * 1_048_550)

    @settings(deadline=None)
    @given(st.sampled_from("mé€😀"), st.integers(0, 3000), st.booleans())
    @example("m", 1, True)
    @example("m", 1_048_400, False)
    def test_a_batch_that_is_accepted_fits_in_a_request(
        self, letter: str, size: int, numbered: bool
    ) -> None:
        message = letter * size
        lines = f'message: "{message}"\nnumbered: {str(numbered).lower()}'
        refused = re.search(r"at most ([\d,]+) messages", try_put(f"{lines}\nbatch: 65536"))
        batch = int(refused[1].replace(",", "")) if refused else BATCH_MESSAGES_MAX

        (step,) = publisher_steps("steps:\n- topic: t\n" + indented(f"{lines}\nbatch: {batch}"))

        largest = payload_of(step, 0, 10**10 - 1)
        assert len(encode_batch(Batch([largest] * batch))) <= BODY_BYTES_MAX

    @settings(deadline=None)
    @given(st.binary() | st.text().map(str.encode))
    @example(b"steps:\n- topic: [x]\n  message: {a: b}\n  ? 'x'\n")
    def test_any_bytes_give_steps_or_a_configuration_error(self, content: bytes) -> None:
        for parse in (parse_publisher_steps, parse_subscriber_steps):
            try:
                document = parse_yaml_bytes(content, "x.yaml")
                assert parse(document)
            except ConfigurationError:
                continue


def try_put(lines: str) -> str:
    """Say why a publisher step is refused; nothing, if it is not."""
    try:
        publisher_steps("steps:\n- topic: t\n" + indented(lines))
    except ConfigurationError as error:
        return str(error)
    return ""


class TestASubscriberFile:
    def test_a_get_has_defaults(self) -> None:
        (step,) = subscriber_steps("steps:\n- action: get\n  topic: t\n")

        assert step == SubscriberStep(
            action="get",
            topic="t",
            number_of_times=1,
            sleep_between_s=0.0,
            sleep_after_s=0.0,
            batch=1,
            on_empty="wait",
            timeout_s=None,
        )

    @pytest.mark.parametrize(
        ("text", "start"),
        [("earliest", Earliest), ("offset 5", at_offset(5)), ("age 1h", ago(timedelta(hours=1)))],
    )
    def test_a_subscribe_may_say_where_it_begins(self, text: str, start: Start) -> None:
        (step,) = subscriber_steps(f"steps:\n- action: subscribe\n  topic: t\n  from: {text}\n")

        assert step == SubscriberStep(action="subscribe", topic="t", start=start)
        assert describe([step])[0].detail == f"from {start_in_words(start)}"

    def test_a_subscribe_may_bound_its_deliveries(self) -> None:
        (step,) = subscriber_steps("steps: [{action: subscribe, topic: t, max_deliveries: 5}]")

        assert step == SubscriberStep(action="subscribe", topic="t", max_deliveries=5)
        assert describe([step])[0].detail == "max_deliveries 5"

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("max_deliveries: 0", "expected a whole number from 1 to 1,000"),
        ],
    )
    def test_a_bound_of_deliveries_has_a_range(self, line: str, expected: str) -> None:
        assert expected in refusal_of_action(f"action: subscribe\n{line}")

    def test_a_get_may_give_every_key(self) -> None:
        (step,) = subscriber_steps("""\
steps:
  - action: get
    topic: t
    number_of_times: 4
    sleep_between: 0.25
    sleep_after: 1
    batch: 10
    on_empty: skip
    timeout: 30
""")

        assert step == SubscriberStep(
            action="get",
            topic="t",
            number_of_times=4,
            sleep_between_s=0.25,
            sleep_after_s=1.0,
            batch=10,
            on_empty="skip",
            timeout_s=30.0,
        )

    def test_sleep_between_messages_means_sleep_between(self) -> None:
        one = subscriber_steps("steps: [{action: get, topic: t, sleep_between: 2}]")
        other = subscriber_steps("steps: [{action: get, topic: t, sleep_between_messages: 2}]")

        assert one == other
        assert "found beside sleep_between, expected one of the two" in refusal_of_action(
            "action: get\nsleep_between: 1\nsleep_between_messages: 1"
        )

    @pytest.mark.parametrize("action", ["subscribe", "unsubscribe"])
    def test_other_actions_have_a_topic_and_a_sleep_after(self, action: str) -> None:
        (step,) = subscriber_steps(f"steps: [{{action: {action}, topic: t, sleep_after: 3}}]")

        assert (step.action, step.topic, step.sleep_after_s) == (action, "t", 3.0)

    @pytest.mark.parametrize("action", ["subscribe", "unsubscribe"])
    @pytest.mark.parametrize(
        "line",
        [
            "number_of_times: 1",
            "sleep_between: 0",
            "sleep_between_messages: 0",
            "batch: 1",
            "on_empty: wait",
            "timeout: 1",
        ],
    )
    def test_what_belongs_to_get_is_refused_elsewhere(self, action: str, line: str) -> None:
        key = line.split(":")[0]

        assert refusal_of_action(f"action: {action}\n{line}") == (
            f"x.yaml, line 4, steps[0].{key}: found with action {action}, "
            "expected only with action get"
        )

    @pytest.mark.parametrize("action", ["get", "unsubscribe"])
    def test_what_belongs_to_subscribe_is_refused_elsewhere(self, action: str) -> None:
        assert refusal_of_action(f"action: {action}\nfrom: earliest") == (
            f"x.yaml, line 4, steps[0].from: found with action {action}, "
            "expected only with action subscribe or seek"
        )

    @pytest.mark.parametrize("start", ["tomorrow", "offset -1", "age 0.5 moons", "time 25:00"])
    def test_a_start_that_cannot_be_read_is_reported_with_its_place(self, start: str) -> None:
        text = refusal_of_action(f"action: subscribe\nfrom: {start}")

        assert text.startswith("x.yaml, line 4, steps[0].from: ")

    @pytest.mark.parametrize(
        ("lines", "told"),
        [
            ("", "steps[0].action: found nothing, expected one of subscribe, get, seek, "
             "unsubscribe"),
            ("action: subscibe", "found 'subscibe', expected one of subscribe, get, seek, "
             "unsubscribe; did you mean 'subscribe'?"),
            ("action: [get]", "found a list of 1, expected one of"),
            ("Action: get", "found an unknown key"),
            ("action: get\non_empty: Skip", "did you mean 'skip'?"),
            ("action: get\non_empty:", "found nothing, expected one of wait, skip"),
            ("action: get\ntimeout: 0", "found 0, expected seconds above 0"),
            ("action: get\ntimeout: none", "found 'none', expected seconds above 0, at most 86,400;"
             " leave it out to wait forever"),
            ("action: get\nmessage: m", "steps[0].message: found an unknown key"),
        ],
    )  # fmt: skip
    def test_a_wrong_value_is_reported(self, lines: str, told: str) -> None:
        assert told in refusal_of_action(lines)


class TestTheFiguresOfTheReport:
    def test_figure_2_is_one_run_of_puts(self) -> None:
        (step,) = parse_publisher_steps(load_yaml(CONFIGS / "figure2_publisher.yaml"))

        assert step.number_of_times > 1

    def test_figure_3_is_three_messages_of_one_topic_and_five_of_another(self) -> None:
        assert parse_publisher_steps(load_yaml(CONFIGS / "figure3_publisher.yaml")) == (
            PublisherStep(
                topic="topic1",
                message="Topic1 Msg",
                number_of_times=3,
                sleep_between_messages_s=1.0,
                sleep_after_s=5.0,
            ),
            PublisherStep(
                topic="topic2",
                message="Topic2 Msg",
                number_of_times=5,
                sleep_between_messages_s=1.0,
                sleep_after_s=1.0,
            ),
        )

    def test_the_file_of_a_publisher_is_refused_in_one_line(self) -> None:
        with pytest.raises(ConfigurationError) as told:
            parse_subscriber_steps(load_yaml(CONFIGS / "figure2_publisher.yaml"))

        assert "line 5: found a step of a publisher; run" in str(told.value)

    def test_figure_4_gets_what_figure_2_puts(self) -> None:
        puts = parse_publisher_steps(load_yaml(CONFIGS / "figure2_publisher.yaml"))
        steps = parse_subscriber_steps(load_yaml(CONFIGS / "figure4_subscriber.yaml"))

        assert [step.action for step in steps] == ["subscribe", "get", "unsubscribe"]
        assert steps[1].number_of_times == puts[0].number_of_times
        assert {step.topic for step in steps} == {puts[0].topic}

    def test_figure_5_takes_two_topics_in_turn(self) -> None:
        steps = parse_subscriber_steps(load_yaml(CONFIGS / "figure5_subscriber.yaml"))

        assert [
            (s.action, s.topic, s.number_of_times, s.sleep_between_s, s.sleep_after_s)
            for s in steps
        ] == [
            ("subscribe", "topic1", 1, 0.0, 1.0),
            ("get", "topic1", 3, 3.0, 2.0),
            ("unsubscribe", "topic1", 1, 0.0, 2.0),
            ("subscribe", "topic2", 1, 0.0, 1.0),
            ("get", "topic2", 5, 0.0, 0.0),
            ("unsubscribe", "topic2", 1, 0.0, 2.0),
        ]

    @pytest.mark.parametrize(
        "path", sorted(CONFIGS.glob("figure*.yaml")), ids=lambda path: path.name
    )
    def test_each_names_the_command_that_runs_it(self, path: Path) -> None:
        room = path.stem.partition("_")[2]
        about = [line for line in path.read_text().splitlines() if line.startswith("# ")]

        assert len(about) >= 2
        assert about[-1] == f"# Run: reliable-pubsub {room} -f configs/{path.name} -i {room}-1"


class TestPayloads:
    def test_a_message_carries_the_number_it_is_given(self) -> None:
        step = PublisherStep(topic="t", message="Größe")

        assert payload_of(step, index=0, sequence=41) == "Größe_41".encode()

    def test_a_message_without_number_is_sent_as_it_stands(self) -> None:
        assert payload_of(PublisherStep(topic="t", message="m", numbered=False), 3, 4) == b"m"

    def test_lines_of_a_file_are_sent_as_they_stand_and_the_file_repeats(self) -> None:
        step = PublisherStep(topic="t", message_file="f", number_of_times=2, numbered=False)
        lines = message_lines(b"a_\n\xff\r\n\nlast")

        assert lines == (b"a_", b"\xff\r", b"", b"last")
        assert [payload_of(step, index, 9, lines) for index in range(8)] == [*lines, *lines]

    @settings(deadline=None)
    @given(st.lists(st.binary().filter(lambda line: b"\n" not in line)))
    def test_every_line_that_was_written_is_a_message(self, lines: list[bytes]) -> None:
        assert list(message_lines(b"".join(line + b"\n" for line in lines))) == lines


def a_step(from_file: bool, number_of_times: int, batch: int) -> PublisherStep:
    return PublisherStep(
        topic="t",
        message=None if from_file else "m",
        message_file="f" if from_file else None,
        number_of_times=number_of_times,
        batch=batch,
        sleep_between_messages_s=1.0,
        sleep_after_s=2.0,
    )


STEP_LISTS = st.lists(
    st.builds(a_step, st.booleans(), st.integers(1, 9), st.integers(1, 5)), max_size=4
)
LINES_PER_FILE = 3


def three_lines(_step: int) -> int:
    return LINES_PER_FILE


def messages_of(chunks: list[PutChunk]) -> list[tuple[int, int]]:
    return [
        (chunk.step, chunk.first_message + place)
        for chunk in chunks
        for place in range(chunk.count)
    ]


def all_messages(steps: list[PublisherStep]) -> list[tuple[int, int]]:
    """Each message of a plan, as (step, number within the step)."""
    lines = [1 if step.message else LINES_PER_FILE for step in steps]
    return [
        (index, message)
        for index, step in enumerate(steps)
        for message in range(step.number_of_times * lines[index])
    ]


class TestAPublisherPlan:
    def test_requests_pause_between_each_other_and_longer_after_the_step(self) -> None:
        steps = [
            PublisherStep(
                topic="t",
                message="m",
                number_of_times=5,
                batch=2,
                sleep_between_messages_s=1.0,
                sleep_after_s=9.0,
            ),
            PublisherStep(topic="u", message="n"),
        ]

        chunks = list(publisher_chunks(steps, PlanPosition(), no_file))

        assert [(c.step, c.first_message, c.count, c.sleep_s) for c in chunks] == [
            (0, 0, 2, 1.0),
            (0, 2, 2, 1.0),
            (0, 4, 1, 9.0),
            (1, 0, 1, 0.0),
        ]
        assert [c.position_after for c in chunks] == [
            PlanPosition(0, 2),
            PlanPosition(0, 4),
            PlanPosition(1, 0),
            PlanPosition(2, 0),
        ]

    def test_a_message_file_gives_its_lines_as_often_as_asked(self) -> None:
        steps = [PublisherStep(topic="t", message_file="f", number_of_times=3, batch=4)]

        chunks = list(publisher_chunks(steps, PlanPosition(), lambda step: 2))

        assert [(c.first_message, c.count) for c in chunks] == [(0, 4), (4, 2)]

    @settings(deadline=None)
    @given(STEP_LISTS)
    def test_a_whole_run_has_every_message_once_in_order(self, steps: list[PublisherStep]) -> None:
        chunks = list(publisher_chunks(steps, PlanPosition(), three_lines))

        assert messages_of(chunks) == all_messages(steps)
        assert all(1 <= chunk.count <= steps[chunk.step].batch for chunk in chunks)

    @settings(deadline=None)
    @given(STEP_LISTS, st.data())
    def test_any_position_continues_with_exactly_the_messages_that_are_left(
        self, steps: list[PublisherStep], data: st.DataObject
    ) -> None:
        messages = all_messages(steps)
        done = data.draw(st.integers(0, len(messages)))
        position = PlanPosition(*[*messages, (len(steps), 0)][done])

        chunks = list(publisher_chunks(steps, position, three_lines))

        assert messages_of(chunks) == messages[done:]

    @settings(deadline=None)
    @given(STEP_LISTS, st.data())
    def test_a_run_that_is_stopped_after_any_request_continues_as_if_it_was_not(
        self, steps: list[PublisherStep], data: st.DataObject
    ) -> None:
        whole = list(publisher_chunks(steps, PlanPosition(), three_lines))
        done = data.draw(st.integers(0, len(whole)))
        position = whole[done - 1].position_after if done else PlanPosition()

        assert list(publisher_chunks(steps, position, three_lines)) == whole[done:]

    @settings(deadline=None)
    @given(STEP_LISTS)
    def test_the_last_request_of_a_step_alone_has_the_long_pause(
        self, steps: list[PublisherStep]
    ) -> None:
        for chunk in publisher_chunks(steps, PlanPosition(), three_lines):
            last = chunk.position_after.step > chunk.step
            assert chunk.sleep_s == (2.0 if last else 1.0)

    @pytest.mark.parametrize("position", [(0, 3), (0, -1), (-1, 0), (1, 1), (1, 2), (2, 0), (7, 7)])
    def test_a_position_outside_the_plan_is_refused(self, position: tuple[int, int]) -> None:
        steps = [PublisherStep(topic="t", message="m", number_of_times=3)]

        with pytest.raises(ConfigurationError, match="the plan of another run"):
            publisher_chunks(steps, PlanPosition(*position), no_file)

    def test_a_message_file_without_lines_is_refused_before_the_first_request(self) -> None:
        steps = [
            PublisherStep(topic="t", message="m"),
            PublisherStep(topic="t", message_file="empty.txt"),
        ]

        with pytest.raises(
            ConfigurationError, match=r"steps\[1\].message_file: found empty.txt wi"
        ):
            publisher_chunks(steps, PlanPosition(), lambda step: 0)


class TestASubscriberPlan:
    STEPS = (
        SubscriberStep(action="subscribe", topic="t", sleep_after_s=1.0),
        SubscriberStep(
            action="get", topic="t", number_of_times=3, sleep_between_s=2.0, sleep_after_s=4.0
        ),
    )

    def test_a_step_ends_after_its_last_message(self) -> None:
        assert subscriber_after(self.STEPS, PlanPosition(0, 0), 1) == (PlanPosition(1, 0), 1.0)
        assert subscriber_after(self.STEPS, PlanPosition(1, 0), 2) == (PlanPosition(1, 2), 2.0)
        assert subscriber_after(self.STEPS, PlanPosition(1, 2), 1) == (PlanPosition(2, 0), 4.0)

    @pytest.mark.parametrize("count", [0, -1, 2])
    def test_no_more_messages_are_counted_than_were_left(self, count: int) -> None:
        with pytest.raises(ValueError, match="of a step of 3"):
            subscriber_after(self.STEPS, PlanPosition(1, 2), count)

    def test_nothing_follows_the_end_of_the_plan(self) -> None:
        with pytest.raises(ValueError, match="at the end of the plan"):
            subscriber_after(self.STEPS, PlanPosition(2, 0), 1)

    def test_a_position_outside_the_plan_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="the plan of another run"):
            subscriber_after(self.STEPS, PlanPosition(1, 3), 1)


class TestThePlanDigest:
    PUTS = "steps:\n- {topic: t, message: m, number_of_times: 3}\n- {topic: t, message_file: f}\n"
    FILES: Mapping[str, str] = MappingProxyType({"f": "00ff"})

    def test_it_is_the_same_in_every_version(self) -> None:
        canonical = (
            b'{"files":{"f":"00ff"},"plan":1,"steps":['
            b'{"message":"m","number_of_times":3,"topic":"t"},'
            b'{"message_file":"f","numbered":false,"topic":"t"}]}'
        )

        digest = plan_digest(publisher_steps(self.PUTS), self.FILES)

        assert digest == hashlib.sha256(canonical).hexdigest()

    @pytest.mark.parametrize(
        ("written", "instead"),
        [
            ("message: m", "message: M"),
            ("number_of_times: 3", "number_of_times: 4"),
            ("number_of_times: 3", "number_of_times: 3, sleep_after: 1"),
            ("number_of_times: 3", "number_of_times: 3, numbered: false"),
            ("topic: t, message: m", "topic: u, message: m"),
            ("message_file: f", "message: f"),
            ("steps:\n", "steps:\n- {topic: t, message: m}\n"),
        ],
    )
    def test_another_plan_has_another_digest(self, written: str, instead: str) -> None:
        assert written in self.PUTS
        other = publisher_steps(self.PUTS.replace(written, instead))

        assert plan_digest(other, self.FILES) != plan_digest(publisher_steps(self.PUTS), self.FILES)

    def test_another_content_of_a_message_file_has_another_digest(self) -> None:
        steps = publisher_steps(self.PUTS)

        assert plan_digest(steps, {"f": "00fe"}) != plan_digest(steps, self.FILES)
        assert plan_digest(steps, {**self.FILES, "g": "11"}) == plan_digest(steps, self.FILES)
        with pytest.raises(KeyError):
            plan_digest(steps, {})

    def test_layout_comments_and_written_defaults_do_not_matter(self) -> None:
        other = "# edited\nsteps:\n- message: m\n  number_of_times: 3\n  batch: 1\n  topic: t\n"
        other += "- topic: t\n  message_file: f\n  sleep_after: 0\n  numbered: false\n"

        assert plan_digest(publisher_steps(other), self.FILES) == plan_digest(
            publisher_steps(self.PUTS), self.FILES
        )

    def test_the_order_of_steps_matters(self) -> None:
        steps = publisher_steps(self.PUTS)

        assert plan_digest(steps[::-1], self.FILES) != plan_digest(steps, self.FILES)

    def test_a_put_and_a_get_of_the_same_topic_differ(self) -> None:
        put = PublisherStep(topic="t")
        get = SubscriberStep(action="get", topic="t")
        subscribe = SubscriberStep(action="subscribe", topic="t")

        assert len({plan_digest([step], {}) for step in (put, get, subscribe)}) == 3


class TestTheTableOfAPlan:
    @staticmethod
    def rows_of(
        text: str, line_count_of: Callable[[int], int] | None = None
    ) -> list[tuple[object, ...]]:
        steps = parse_publisher_steps(parse_yaml(text, "x.yaml"))
        return [
            (r.step, r.action, r.topic, r.messages, r.batch, r.sleep_after_s, r.detail)
            for r in describe(steps, line_count_of)
        ]

    def test_it_has_a_row_for_each_put(self) -> None:
        text = "steps:\n- {topic: t, message: m, number_of_times: 3, batch: 2, sleep_after: 1}\n"
        text += "- {topic: u, message: n, numbered: false}\n"

        assert self.rows_of(text) == [
            (1, "put", "t", 3, 2, 1.0, "m_<sequence>"),
            (2, "put", "u", 1, 1, 0.0, "n"),
        ]

    def test_lines_are_counted_if_someone_can_count_them(self) -> None:
        text = "steps: [{topic: t, message_file: f, number_of_times: 3}]"

        assert self.rows_of(text) == [(1, "put", "t", None, 1, 0.0, "lines of f")]
        assert self.rows_of(text, lambda step: 7) == [(1, "put", "t", 21, 1, 0.0, "lines of f")]

    def test_it_has_a_row_for_each_action(self) -> None:
        steps = subscriber_steps("""\
steps:
  - {action: subscribe, topic: t, sleep_after: 1}
  - {action: get, topic: t, number_of_times: 5, sleep_between: 2, timeout: 1.5}
  - {action: unsubscribe, topic: t}
""")

        assert [(r.action, r.messages, r.sleep_between_s, r.detail) for r in describe(steps)] == [
            ("subscribe", 0, 0.0, ""),
            ("get", 5, 2.0, "wait 1.5 s"),
            ("unsubscribe", 0, 0.0, ""),
        ]


@pytest.mark.parametrize(("step", "told"), [(1, "at step 2 of 2"), (2, "has finished another")])
def test_a_refused_plan_says_how_far_the_other_one_is(step: int, told: str) -> None:
    mark = PlanMark("first", 2, step=step)

    with pytest.raises(ConfigurationError, match=told):
        begin_plan(mark, "second", steps=3, again=False, file="second.yaml")
    following = begin_plan(mark, "second", steps=3, again=True, file="second.yaml")

    assert (following.position, following.run) == (PlanPosition(), 2)


class TestStepsWithAPattern:
    def test_name_a_glob_in_place_of_a_topic(self) -> None:
        subscribe, get, unsubscribe = subscriber_steps("""\
steps:
- {action: subscribe, match: "sensor/*/heat", where: 'region = "eu"', from: earliest}
- {action: get, match: "sensor/*/heat", number_of_times: 5}
- {action: unsubscribe, match: "sensor/*/heat"}
""")

        assert {one.topics for one in (subscribe, get, unsubscribe)} == {glob("sensor/*/heat")}
        assert subscribe.where == 'region = "eu"'

    @pytest.mark.parametrize(
        ("keys", "problem"),
        [
            ("match: 't*', topic: t", "match: found beside topic, expected one of the two"),
            ("number_of_times: 1", "topic: found nothing, expected the name of a topic, or match"),
        ],
    )
    def test_name_one_of_the_two(self, keys: str, problem: str) -> None:
        with pytest.raises(ConfigurationError, match=problem):
            subscriber_steps(f"steps: [{{action: get, {keys}}}]")

    @pytest.mark.parametrize(
        ("keys", "problem"),
        [
            ("topic: t, where: 'has(a)'", "where: found without match"),
            ("match: 't*', group: g", "group: found beside match"),
        ],
    )
    def test_have_no_keys_that_are_for_one_topic(self, keys: str, problem: str) -> None:
        with pytest.raises(ConfigurationError, match=problem):
            subscriber_steps(f"steps: [{{action: subscribe, {keys}}}]")
