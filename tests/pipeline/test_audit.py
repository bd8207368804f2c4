"""The audit of a log gives the verdict that the lab's checker gives over the same messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from reliable_pubsub.common.core.errors import InDoubtError
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.core.run import LabRun
from reliable_pubsub.pipeline import auditing
from reliable_pubsub.pipeline.archive import Archive
from reliable_pubsub.pipeline.archiving import Archiving
from reliable_pubsub.pipeline.auditing import judge_log, kept_files, whereabouts
from reliable_pubsub.pipeline.core.log_verdict import extents, of_one_log
from reliable_pubsub.pipeline.core.planning import MessageRange, TopicExtent
from reliable_pubsub.pipeline.job import topics_wanted
from reliable_pubsub.pipeline.proxy_topics import ProxyTopics
from reliable_pubsub.pipeline.tasks import SparkTasks
from tests.integration.harness import STUBBORN, Service

from .sightings import sight_file, sight_range, with_log

LOG = "x.1"


class TestAnArchiveAndALiveTopic:
    def test_are_one_log(self) -> None:
        archived = [MessageRange("t", LOG, 0, 4)]
        now = {"t": TopicExtent(LOG, 2, 6)}

        assert of_one_log(archived, now) == (archived, [])
        extent = extents(archived, now)["t"]
        assert (extent.start, extent.end) == (0, 6)

    def test_of_two_logs_are_not_mixed(self) -> None:
        archived = [MessageRange("t", "old.1", 0, 2)]

        kept, warnings = of_one_log(archived, {"t": TopicExtent(LOG, 0, 2)})

        assert kept == []
        assert "another log" in warnings[0]


@pytest.mark.long
def test_an_audit_of_real_processes_agrees_with_the_checker(
    service: Service, jobs_in_this_spark: SparkTasks, tmp_path: Path
) -> None:
    service.start_proxy()
    with service.open_publisher("p") as publisher:
        publisher.put_many("t", [b"%d" % n for n in range(300)])
    tasks = jobs_in_this_spark
    options = topics_wanted(
        (), ".*", endpoint=service.subscriber_endpoint, retry=STUBBORN, partition_rows_max=120
    )
    job = Archiving(
        archive=Archive(tmp_path / "archive"),
        options=options,
        topics=ProxyTopics(options),
        tasks=tasks,
    )
    job.catch_up()
    now = whereabouts(options)
    files = kept_files(tmp_path / "archive", options)
    archived = [sight_file(one) for one in files]
    live = [
        sight_range(MessageRange(topic, one.log, one.start, one.end), service.subscriber_endpoint)
        for topic, one in now.items()
    ]
    assert [s for one in archived for s in one.messages] == [
        s for one in live for s in one.messages
    ]
    nothing = LabRun(lines=[], outputs={})
    for where in ({}, now):  # the archive alone, and with the proxy
        by_checker = check(with_log(nothing, archived, live if where else [], where, pid=1))
        _, by_spark = judge_log(tasks, options, where, files)
        assert by_spark.rules == by_checker.rules
        assert sum(rule.checked for rule in by_spark.rules) == 900

    words = ["--live", "--archive", tmp_path / "archive", "--endpoint", service.subscriber_endpoint]
    command = CliRunner().invoke(auditing.main, [*map(str, words)])

    assert command.exit_code == 0, command.output
    assert "t: 300 messages, offsets 0 to 299, 1 publishers\n" in command.output
    assert "holds: 3 of 13 rules judged" in command.output
    service.proxy.terminate()
    hasty = replace(options, retry=RetryPolicy(timeout_s=0.1, retries_max=0))
    with pytest.raises(InDoubtError, match="no answer to STATUS") as failure:
        judge_log(tasks, hasty, now, [])
    assert failure.value.code == "PROXY_UNREACHABLE"
