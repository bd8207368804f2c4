"""`pipeline replay` of several topics, by tasks of Spark."""

from __future__ import annotations

import os
import signal
from itertools import count

import pytest
from click.testing import CliRunner
from pyspark import TaskContext
from pyspark.sql import SparkSession

from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.pipeline import replaying
from reliable_pubsub.pipeline.core.planning import MessageRange
from reliable_pubsub.pipeline.job import Access
from reliable_pubsub.pipeline.numbered import BATCH_RECORDS, Outcome
from reliable_pubsub.pipeline.replaying import ReplayTopic, replay_topic, targets_of
from reliable_pubsub.pipeline.tasks import SparkTasks
from tests.integration.harness import STUBBORN, Service

from .test_spark_source import put

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
    CliRunner().invoke(replaying.main, [*words, "--replay-id", "one"])

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
            archive="",
            target=f"{topic}-again",
            client=f"replay.{topic}",
            access=Access(service.subscriber_endpoint, service.publisher_endpoint, STUBBORN),
        )
        for topic in "ab"
    ]

    def dies_once(one: ReplayTopic) -> Outcome:
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


@pytest.mark.parametrize(
    ("target", "text"),
    [("c", "several topics need one each"), ("{topic}", r"--to is the topic itself \(a\)")],
)
def test_a_target_that_would_mix_topics_is_refused(target: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        targets_of(["a", "b"], target)
