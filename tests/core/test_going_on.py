"""Where a subscription with a start continues: nothing that was acknowledged comes again.

A start is where a subscription begins (rule R33). A seek moves it, and marks what it repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import (
    ConfigurationError,
    InDoubtError,
    LogChangedError,
    OutOfRangeError,
    TruncatedError,
)
from reliable_pubsub.common.core.message_base import Start
from reliable_pubsub.common.core.patterns.pattern import glob
from reliable_pubsub.common.core.plan_mark import PlanMark, begin_plan, mark_of
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.start import (
    Earliest,
    LastReceived,
    Now,
    ago,
    at_offset,
    at_time,
    newest,
)
from reliable_pubsub.common.core.step_file import parse_subscriber_steps
from reliable_pubsub.common.core.steps import PlanPosition, SubscriberStep, describe
from reliable_pubsub.common.yaml_file import parse_yaml
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.client import Subscriber
from reliable_pubsub.subscriber.output import OutputFile, begin_output, check_repeats
from reliable_pubsub.subscriber.runner import SubscriberRun
from tests.fakes import Disk, FakeClock, FakeTransport, Link, MemoryProxy, a_world

ONCE = RetryPolicy(retries_max=0)
HOUR = timedelta(hours=1)
FAR_BACK: Sequence[Start] = (ago(HOUR), Earliest, at_offset(0), newest(100), at_time(1))


class House:
    """A proxy with five messages, and processes of one subscriber, with a disk or without."""

    def __init__(self, *, remembers: bool = True) -> None:
        self.link = Link(MemoryProxy())
        self.disk: Disk | None = Disk() if remembers else None
        self.publisher = Publisher("p", _world=a_world(self.link))
        self.publisher.put_many("t", [b"0", b"1", b"2", b"3", b"4"])

    def process(self, retry: RetryPolicy = ONCE) -> Subscriber:
        """The next process."""
        clock = FakeClock()
        transport = FakeTransport(self.link, clock)
        return Subscriber("s", _world=a_world(transport, clock, self.disk), retry=retry)

    def first_three(self) -> None:
        """A process that gets three messages, and leaves in good order."""
        with self.process() as process:
            process.subscribe("t", start=Earliest)
            assert offsets(process.get("t", max_messages=3)) == [0, 1, 2]


def offsets(messages: Sequence[Message]) -> list[int]:
    return [message.offset for message in messages]


def marked(messages: Sequence[Message]) -> list[int]:
    return [message.offset for message in messages if message.redelivered]


def starts(start: Start) -> str:
    return start.at


@pytest.mark.parametrize("remembers", [True, False], ids=["with state", "without state"])
class TestAStart:
    @pytest.mark.parametrize("start", FAR_BACK, ids=starts)
    def test_continues_after_what_was_acknowledged(self, start: Start, remembers: bool) -> None:
        house = House(remembers=remembers)
        house.first_three()
        process = house.process()

        assert process.subscribe("t", start=start) == 3

        messages = process.get("t", max_messages=9)
        assert (offsets(messages), marked(messages)) == ([3, 4], [])

    @pytest.mark.parametrize("start", FAR_BACK, ids=starts)
    def test_continues_after_a_subscription_that_has_ended(
        self, start: Start, remembers: bool
    ) -> None:
        house = House(remembers=remembers)
        with house.process() as process:
            process.subscribe("t", start=Earliest)
            process.get("t", max_messages=3)
            process.acknowledge("t")
            process.unsubscribe("t")

        assert house.process().subscribe("t", start=start) == 3

    @pytest.mark.parametrize("start", FAR_BACK, ids=starts)
    def test_continues_after_what_was_acknowledged_before_an_unsubscribe(
        self, start: Start, remembers: bool
    ) -> None:
        house = House(remembers=remembers)
        with house.process() as process:
            process.subscribe("t", start=Earliest)
            process.get("t", max_messages=2)
            process.get("t")  # has acknowledged two, and asked the proxy for nothing
            process.unsubscribe("t")
            process.subscribe("t", start=start)

            messages = process.get("t", max_messages=9)

        assert (messages[0].offset, messages[0].redelivered) == (2, True)

    def test_continues_after_a_subscription_that_an_earlier_process_has_read(
        self, remembers: bool
    ) -> None:
        house = House(remembers=remembers)
        house.first_three()
        with house.process() as process:
            process.unsubscribe("t")

        assert house.process().subscribe("t", start=Earliest) == 3

    @pytest.mark.parametrize("start", [Now, newest(1), ago(timedelta(0))], ids=starts)
    def test_above_the_own_place_does_not_move_an_existing_subscription(
        self, start: Start, remembers: bool
    ) -> None:
        """A service that names a start at each start of its process misses nothing."""
        house = House(remembers=remembers)
        house.first_three()

        process = house.process()
        assert process.subscribe("t", start=start) == 3
        process.get("t")
        assert process.subscribe("t", start=start) in (3, 4)

        assert house.process().subscribe("t", start=start) == 3

    @pytest.mark.parametrize("start", [Now, newest(1)], ids=starts)
    def test_above_the_own_place_is_reached_by_a_seek(self, start: Start, remembers: bool) -> None:
        house = House(remembers=remembers)
        house.first_three()
        process = house.process()
        process.subscribe("t")

        assert process.seek("t", start) == (5 if start == Now else 4)

    @pytest.mark.parametrize("start", [Earliest, newest(100), at_offset(1), ago(HOUR)], ids=starts)
    @pytest.mark.parametrize("skips", ["now", "seek", "pattern"])
    def test_delivers_what_was_put_between_two_subscriptions(
        self, start: Start, skips: str, remembers: bool
    ) -> None:
        """It was never acknowledged, though later messages were."""
        house = House(remembers=remembers)
        house.first_three()
        with house.process() as process:
            process.subscribe("t")
            if skips == "seek":
                process.seek("t", Now)
            else:
                process.unsubscribe("t")
                house.publisher.put_many("t", [b"5", b"6"])
            if skips == "pattern":
                process.subscribe(match=glob("t*"), start=Now)
                house.publisher.put_many("t", [b"7", b"8"])
                process.get(glob("t*"), max_messages=9)
                process.unsubscribe(glob("t*"))
            else:
                process.subscribe("t", start=Now)
                house.publisher.put_many("t", [b"7", b"8"])
                process.get("t", max_messages=9)
                process.unsubscribe("t")
        house.link.proxy = house.link.proxy.restarted()

        process = house.process()
        assert process.subscribe("t", start=LastReceived) >= 5
        process.unsubscribe("t")
        assert process.subscribe("t", start=start) == 3

    def test_marks_what_was_in_hand_and_not_acknowledged(self, remembers: bool) -> None:
        house = House(remembers=remembers)
        process = house.process()
        process.subscribe("t", start=Earliest)
        process.get("t", max_messages=2)
        process.abandon()

        process = house.process()
        process.subscribe("t", start=ago(HOUR))

        assert marked(process.get("t", max_messages=9))[:2] == [0, 1]

    def test_marks_what_was_in_hand_when_the_subscription_ended(self, remembers: bool) -> None:
        house = House(remembers=remembers)
        process = house.process()
        process.subscribe("t", start=Earliest)
        process.get("t", max_messages=2)
        process.unsubscribe("t")

        process.subscribe("t", start=LastReceived)

        assert marked(process.get("t", max_messages=2)) == [0, 1]

    def test_of_which_no_answer_came_loses_nothing_and_repeats_nothing(
        self, remembers: bool
    ) -> None:
        house = House(remembers=remembers)
        house.first_three()
        for lost in (">", "<"):
            process = house.process()
            process.connect()
            house.link.script(lost)
            with pytest.raises(InDoubtError):
                process.subscribe("t", start=ago(HOUR))
            process.abandon()

        process = house.process()
        process.subscribe("t", start=ago(HOUR))

        assert offsets(process.get("t", max_messages=9)) == [3, 4]

    @pytest.mark.parametrize("start", FAR_BACK, ids=starts)
    def test_of_a_seek_counts_as_it_is_and_marks_what_is_redelivered(
        self, start: Start, remembers: bool
    ) -> None:
        house = House(remembers=remembers)
        house.first_three()
        process = house.process()

        assert process.subscribe("t") == 3
        assert process.seek("t", start) == 0

        messages = process.get("t", max_messages=9)
        assert (offsets(messages), marked(messages)) == ([0, 1, 2, 3, 4], [0, 1, 2])

    def test_after_a_seek_that_was_left_marks_what_it_had_before(self, remembers: bool) -> None:
        house = House(remembers=remembers)
        house.first_three()
        with house.process() as process:
            process.subscribe("t")
            process.seek("t", Earliest)
            process.get("t")

        process = house.process()
        process.subscribe("t", start=Earliest)

        messages = process.get("t", max_messages=9)
        assert (offsets(messages), marked(messages)) == ([1, 2, 3, 4], [1, 2])

    def test_that_is_gone_is_no_matter_for_who_had_it(self, remembers: bool) -> None:
        house = House(remembers=remembers)
        house.first_three()
        log = house.link.proxy.state.topics["t"]
        log.start = 2

        assert house.process().subscribe("t", start=at_offset(0)) == 3
        process = house.process()
        process.subscribe("t")
        with pytest.raises(TruncatedError):
            process.seek("t", at_offset(0))


def test_a_seek_of_which_no_answer_came_moves_who_continues_without_asking_again() -> None:
    """The proxy continued elsewhere: the place of the state is not taken for an old copy."""
    house = House()
    house.first_three()
    process = house.process()
    process.subscribe("t")
    house.link.script("<")
    with pytest.raises(InDoubtError):
        process.seek("t", newest(1))
    process.abandon()

    assert offsets(house.process().get("t", max_messages=9)) == [4]


def test_a_seek_that_is_refused_leaves_in_hand_what_is() -> None:
    house = House()
    process = house.process()
    process.subscribe("t", start=Earliest)
    process.get("t", max_messages=2)

    with pytest.raises(OutOfRangeError):
        process.seek("t", at_offset(99))

    messages = process.get("t", max_messages=9)
    assert (offsets(messages), marked(messages)) == ([2, 3, 4], [])


def test_a_seek_that_is_taken_leaves_nothing_in_hand() -> None:
    """Otherwise the next get would acknowledge what lies far above the place that was chosen."""
    house = House()
    process = house.process()
    process.subscribe("t", start=Earliest)
    process.get("t", max_messages=3)

    process.seek("t", Earliest)

    messages = process.get("t", max_messages=9)
    assert (offsets(messages), marked(messages)) == ([0, 1, 2, 3, 4], [0, 1, 2])


def test_a_seek_is_no_delivery_that_is_counted() -> None:
    """Otherwise a bound of deliveries would make dead letters of what was acknowledged."""
    house = House()
    house.first_three()
    process = house.process()

    process.subscribe("t", max_deliveries=1)
    process.seek("t", Earliest)

    assert offsets(process.get("t", max_messages=9)) == [0, 1, 2, 3, 4]


def test_a_start_in_another_log_is_reported_and_a_seek_moves_there() -> None:
    house = House()
    house.first_three()
    other = House()
    house.link.proxy = other.link.proxy
    house.link.proxy.state.topics["t"].log = "another.1"
    process = house.process()

    with pytest.raises(LogChangedError):
        process.subscribe("t", start=Earliest)

    assert process.seek("t", Earliest) == 0


# Step files and their output.

SEEK = SubscriberStep(action="seek", topic="t", start=Earliest)
CLEAN = SubscriberStep(action="subscribe", topic="t", start=Earliest, session="clean")
FROM = SubscriberStep(action="subscribe", topic="t", start=Earliest)
GET = SubscriberStep(action="get", topic="t")


def test_a_step_file_seeks_to_a_start() -> None:
    text = "steps:\n- {action: seek, topic: t, from: age 1h}\n"

    (step,) = parse_subscriber_steps(parse_yaml(text, "steps.yaml"))

    assert step == SubscriberStep(action="seek", topic="t", start=ago(HOUR))
    assert describe([step])[0].detail == "from nanoseconds 3600000000000"


@pytest.mark.parametrize("start", ["", "from: offset 3, match: v.*"])
def test_a_step_file_seeks_only_to_a_start_that_its_topics_have(start: str) -> None:
    topic = "" if "match" in start else "topic: t, "
    text = f"steps:\n- {{action: seek, {topic}{start}}}\n"

    with pytest.raises(ConfigurationError, match="from"):
        parse_subscriber_steps(parse_yaml(text, "steps.yaml"))


@pytest.mark.parametrize("again", [SEEK, CLEAN], ids=["seek", "clean"])
class TestAnOutput:
    """Each message is there once: what may give one again is refused before the run."""

    def test_of_an_earlier_run_takes_no_seek(self, again: SubscriberStep) -> None:
        mark = PlanMark("", output="out.jsonl", output_bytes=100)

        with pytest.raises(ConfigurationError, match="output of its own"):
            check_repeats([again, GET], mark)

    def test_takes_no_second_reading_of_a_topic(self, again: SubscriberStep) -> None:
        with pytest.raises(ConfigurationError, match=r"steps\[2\]"):
            check_repeats([FROM, GET, again], PlanMark("", output="out.jsonl"))

    def test_that_is_new_takes_a_seek_and_continues_with_it(self, again: SubscriberStep) -> None:
        mark = PlanMark("", output="out.jsonl")
        check_repeats([again, GET], mark)

        check_repeats([again, GET], mark.at(PlanPosition(1, 0), 100))

    def test_that_is_none_takes_all(self, again: SubscriberStep) -> None:
        check_repeats([FROM, GET, again], PlanMark(""))


def test_a_step_file_that_is_run_again_writes_each_message_once(tmp_path: Path) -> None:
    """With `from: age 1h`: the second run begins after what the first one has written."""
    house = House()
    path = tmp_path / "out.jsonl"
    steps = [
        SubscriberStep(action="subscribe", topic="t", start=ago(HOUR)),
        SubscriberStep(action="get", topic="t", number_of_times=5, on_empty="skip"),
    ]
    for _ in range(2):
        process = house.process()
        mark = begin_plan(mark_of(process.note), "digest", steps=2, again=True, file="steps.yaml")
        mark = begin_output(mark, path, again=True)
        output = OutputFile(path, mark.output_bytes)
        SubscriberRun(
            process,
            steps,
            output,
            sleep=lambda seconds: None,
            advance=lambda count, what: None,
            warn=lambda error: pytest.fail(str(error)),
        ).run(mark)
        output.close()
        process.close()

    lines = path.read_bytes().splitlines()
    assert [msgspec.json.decode(line)["offset"] for line in lines] == [0, 1, 2, 3, 4]
