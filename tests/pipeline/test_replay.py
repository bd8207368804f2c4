"""`pipeline replay` by tasks of Spark: of several topics, and of ranges of a topic."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from pyspark import TaskContext
from pyspark.sql import SparkSession

from reliable_pubsub.common.core.errors import (
    ConflictError,
    DamagedError,
    PubSubError,
    UsageError,
)
from reliable_pubsub.common.core.transaction_messages import CommitAck
from reliable_pubsub.pipeline import numbered, replay_rounds, replaying
from reliable_pubsub.pipeline.archive_tasks import rows_of
from reliable_pubsub.pipeline.core.planning import MessageRange
from reliable_pubsub.pipeline.job import Access
from reliable_pubsub.pipeline.numbered import BATCH_RECORDS, SourceOutcome
from reliable_pubsub.pipeline.replay_rounds import TopicRounds, replay_side_by_side
from reliable_pubsub.pipeline.replay_tasks import (
    ReplayTopic,
    StagedPart,
    StagePart,
    archived_past,
    replay_topic,
    stage_part,
)
from reliable_pubsub.pipeline.replaying import targets_of
from reliable_pubsub.pipeline.tasks import OnDone, SparkTasks, unshown
from tests.integration.harness import STUBBORN, Service, eventually, losing_link

from .test_archive import catch_up
from .test_spark_source import put
from .test_stream import a_log

W = TypeVar("W")
R = TypeVar("R")

ROWS = 3 * BATCH_RECORDS


def test_each_topic_is_put_in_its_order_once_by_the_command(
    jobs_in_this_spark: SparkTasks, service: Service
) -> None:
    service.start_proxy()
    put(service, "a", 5)
    put(service, "b", 7)
    words = [
        *("--topic", "a", "--topic", "b", "--to", "{topic}-again", "--endpoint"),
        *(service.publisher_endpoint, "--subscriber-endpoint", service.subscriber_endpoint),
    ]

    said = [CliRunner().invoke(replaying.main, words).stdout for _ in range(2)]
    CliRunner().invoke(replaying.main, [*words, "--replay-id", "one", "--parallel"])

    assert said == [
        "done: 12 messages put on a-again, b-again, 0 were there\n",
        "done: 0 messages put on a-again, b-again, 12 were there\n",
    ]
    assert [int(one) for one in service.payloads("a-again")] == [*range(5)] * 2
    assert [int(one) for one in service.payloads("b-again")] == [*range(7)] * 2


def test_a_task_that_is_killed_is_tried_again_and_puts_each_message_once(
    spark: SparkSession, service: Service
) -> None:
    service.start_proxy()
    put(service, "a", ROWS, batch=BATCH_RECORDS)
    put(service, "b", ROWS, batch=BATCH_RECORDS)
    work = [
        ReplayTopic(
            wanted=MessageRange(topic, service.topic(topic).log, 0, ROWS),
            target=f"{topic}-again",
            client=f"replay.{topic}",
            access=Access(service.subscriber_endpoint, service.publisher_endpoint, STUBBORN),
        )
        for topic in "ab"
    ]

    def dies_once(one: ReplayTopic) -> SourceOutcome:
        context = TaskContext.get()
        assert context is not None
        first_try = context.attemptNumber() == 0
        batches = count(1)

        def before_put(_: int) -> None:
            if first_try and next(batches) == 3:  # two batches are stored
                os.kill(os.getpid(), signal.SIGKILL)

        return replay_topic(one, before_put)

    outcomes = SparkTasks(spark).run(dies_once, work)

    assert [(one.stored_before, one.put) for one in outcomes] == [
        (2 * BATCH_RECORDS, BATCH_RECORDS)
    ] * 2
    for topic in "ab":
        assert [int(one) for one in service.payloads(f"{topic}-again")] == [*range(ROWS)]


class TasksHere:
    """Does the work of tasks in this process, one after another; a test may come between."""

    def __init__(self, between: Callable[[int], None] = lambda number: None) -> None:
        """`between` is called before each piece of work, with the number of those before it."""
        self._between = between
        self._count = 0

    def run(self, act: Callable[[W], R], work: Sequence[W], on_done: object = None) -> list[R]:
        done = []
        for one in work:
            self._between(self._count)
            self._count += 1
            done.append(act(one))
        return done

    def round_size(self) -> int:
        return 2


class TestRangesOfATopic:
    @pytest.fixture(autouse=True)
    def small_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(replay_rounds, "PART_RECORDS_MAX", 10)

    @pytest.fixture
    def work(self, service: Service) -> ReplayTopic:
        """A hundred messages of topic t, for a replay to topic u."""
        service.start_proxy()
        with service.open_publisher("p") as publisher:
            for n in range(100):
                publisher.put("t", b"%d" % n, key=b"k%d" % n, headers={"n": "h"}, event_time_ns=n)
        return ReplayTopic(
            wanted=MessageRange("t", service.topic("t").log, 0, 100),
            target="u",
            client="replay.u",
            access=Access(service.subscriber_endpoint, service.publisher_endpoint, STUBBORN),
        )

    def put(self, work: ReplayTopic, tasks: TasksHere | None = None) -> SourceOutcome:
        (outcome,) = replay_side_by_side([work], tasks or TasksHere(), lambda n, topic: None)
        return outcome

    def assert_whole(self, service: Service) -> None:
        assert [int(one) for one in service.payloads("u")] == [*range(100)]

    def test_are_put_in_order_and_by_either_way_once(
        self, service: Service, work: ReplayTopic
    ) -> None:
        by_one = [replay_topic(work.part(0, 25)).put]
        side_by_side = [self.put(work.part(0, 60)).put]
        by_one.append(replay_topic(work.part(0, 75)).put)
        side_by_side += [self.put(work).put, self.put(work).put]

        assert (by_one, side_by_side) == ([25, 15], [35, 25, 0])
        self.assert_whole(service)
        with service.open_subscriber("reader") as reader:
            (one,) = reader.history("u", 70, max_messages=1)
        assert (one.key, one.headers, one.event_time_ns) == (b"k70", {"n": "h"}, 70)

    def test_that_do_not_fit_are_continued_in_the_next_round(
        self, service: Service, work: ReplayTopic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(replay_rounds, "PART_BYTES_MAX", 10_000)
        monkeypatch.setattr(numbered, "BATCH_BYTES", 3_000)
        with service.open_publisher("p") as publisher:  # after a hundred short ones
            publisher.put_many("t", [b"%d" % n + b" " * 2_000 for n in range(100, 150)])

        assert self.put(replace(work, wanted=replace(work.wanted, end=150))).put == 150
        assert [int(one) for one in service.payloads("u")] == [*range(150)]

    def test_continue_when_the_proxy_has_lost_what_was_staged(
        self, service: Service, work: ReplayTopic
    ) -> None:
        def between(number: int) -> None:
            if number in (4, 15):  # in the middle of a round
                service.restart_proxy()

        assert self.put(work, TasksHere(between)).put == 100
        self.assert_whole(service)

    def test_continue_when_the_answer_to_a_commit_is_lost(
        self, service: Service, work: ReplayTopic
    ) -> None:
        with losing_link(service.publisher_endpoint, answers=1, kind=CommitAck) as link:
            impatient = replace(STUBBORN, timeout_s=0.5)
            linked = Access(work.access.read_at, link.endpoint, impatient)
            with ThreadPoolExecutor() as thread:
                going = thread.submit(self.put, replace(work, access=linked))
                eventually(lambda: link.is_losing, "a lost answer")
                link.heal()
                assert going.result().put == 100

        self.assert_whole(service)

    def test_of_two_drivers_are_put_once(self, service: Service, work: ReplayTopic) -> None:
        one, other = TopicRounds(work), TopicRounds(work)
        for rounds in (one, other, one):
            parts = rounds.next_parts(8)
            rounds.commit(parts, [stage_part(part) for part in parts])
        stale = other.next_parts(8)
        staged = [stage_part(part) for part in stale]
        self.put(work)

        assert (one.done, other.done) == (90, 10)
        other.commit(stale, staged)
        assert other.done == 100
        self.assert_whole(service)

    def test_are_refused_by_the_proxy_after_another_message(
        self, service: Service, work: ReplayTopic
    ) -> None:
        rounds = TopicRounds(work)
        parts = rounds.next_parts(1)
        staged = [stage_part(part) for part in parts]
        replay_topic(work.part(0, 5))

        with pytest.raises(PubSubError, match="but 6 is next; nothing was stored"):
            rounds.commit(parts, staged)
        assert self.put(work).put == 95
        self.assert_whole(service)

    def test_of_a_past_that_was_changed_are_refused(
        self, service: Service, work: ReplayTopic
    ) -> None:
        with service.open_publisher(work.client) as publisher:
            publisher.put_many("u", [b"0", b"other"])

        with pytest.raises(ConflictError, match="record 2 is another one"):
            self.put(work)

    def test_may_be_of_an_archive_whose_files_are_checked_and_read_from_their_middle(
        self, service: Service, work: ReplayTopic
    ) -> None:
        folder = service.directory / "archive"
        catch_up(a_log(4, 30, 5), folder, merge=True)
        wanted, files = archived_past(folder, "t", 2, None)
        archived = replace(work, wanted=wanted, files=files)

        assert self.put(archived).put == 37
        assert [int(one[1:]) for one in service.payloads("u")] == [*range(3, 40)]
        (read,) = rows_of(files[0].manifest, files[0].path, ["offset"], replace(wanted, end=3))
        assert read.column(0).to_pylist() == [0, 1, 2]  # of eight

        Path(files[-1].path).write_bytes(b"changed")
        with pytest.raises(DamagedError, match="the file was changed"):
            self.put(replace(archived, client="other"))

    def test_of_which_a_task_is_killed_are_put_once(
        self, spark: SparkSession, service: Service, work: ReplayTopic
    ) -> None:
        def stage_or_die(one: StagePart) -> StagedPart:
            context = TaskContext.get()
            assert context is not None
            staged = stage_part(one)
            if context.attemptNumber() == 0 and one.task == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return staged

        class Killing(SparkTasks):
            def run(self, act: Any, work: Sequence[Any], on_done: OnDone = unshown) -> list[Any]:
                return super().run(stage_or_die if act is stage_part else act, work)

        assert replay_side_by_side([work], Killing(spark), lambda n, topic: None)[0].put == 100
        self.assert_whole(service)


@pytest.mark.parametrize(
    ("target", "text"),
    [("c", "several topics need one each"), ("{topic}", r"--to is the topic itself \(a\)")],
)
def test_a_target_that_would_mix_topics_is_refused(target: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        targets_of(["a", "b"], target)


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        (("--from-offset", "4"), "ends at offset 3, 4 is above"),
        (("--to-offset", "4"), "ends at offset 3, 4 is above"),
        (("--from-offset", "2", "--to-offset", "1"), "ends at offset 1, 2 is above"),
    ],
)
@pytest.mark.parametrize("is_archived", [False, True])
def test_a_replay_of_offsets_that_are_not_there_is_refused(
    offsets: Sequence[str], said: str, is_archived: bool, tmp_path: Path, service: Service
) -> None:
    where = ["--subscriber-endpoint", service.subscriber_endpoint]
    if is_archived:
        catch_up(a_log(3), tmp_path / "archive")
        where += ["--archive", str(tmp_path / "archive")]
        if offsets[0] == "--to-offset":
            said = "offsets 3 to 3 "
    else:
        service.start_proxy()
        with service.open_publisher("p") as publisher:
            publisher.put_many("t", [b"1", b"2", b"3"])

    refused = CliRunner().invoke(replaying.main, ["--topic", "t", "--to", "u", *where, *offsets])

    assert refused.exit_code != 0
    assert said in " ".join(refused.output.split())
