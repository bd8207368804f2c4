"""The audit judges as the crash lab does, whichever process has read the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from pyspark.sql import SparkSession

from reliable_pubsub.common.core.errors import ConfigurationError, InDoubtError
from reliable_pubsub.common.core.journal import (
    AdministeredLine,
    Begin,
    End,
    Event,
    Found,
    FoundEnd,
    Ok,
    Seen,
    encode_line,
)
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.lab.core import parts
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.core.one_run import check_one_run
from reliable_pubsub.lab.core.run import LabRun
from reliable_pubsub.lab.core.story import tell
from reliable_pubsub.lab.core.verdict import Verdict
from reliable_pubsub.lab.reading import read_run
from reliable_pubsub.pipeline import auditing, journal_tasks
from reliable_pubsub.pipeline.archive import Archive
from reliable_pubsub.pipeline.archiving import Archiving
from reliable_pubsub.pipeline.audit_tasks import kept_files
from reliable_pubsub.pipeline.auditing import (
    judge_log,
    read_archive,
    read_live,
    whereabouts,
)
from reliable_pubsub.pipeline.core.evidence import AUDITOR, Sighting, Whereabouts, with_log
from reliable_pubsub.pipeline.job import topics_wanted
from reliable_pubsub.pipeline.journal_audit import journal_work, judge_journals, survey
from reliable_pubsub.pipeline.proxy_topics import ProxyTopics
from reliable_pubsub.pipeline.tasks import SparkTasks
from tests.integration.harness import NOWHERE, STUBBORN, Service
from tests.lab.damage import broken
from tests.lab.planted import Damage, all_planted, with_each
from tests.lab.side_by_side import side_by_side
from tests.lab.small_world import SmallWorld, sound_world, write_run
from tests.lab.test_parts import in_any_order

LOG = "x.1"
ALL_RULES = {f"V{number}" for number in range(1, 13)}  # what is planted has no groups


def without_auditor(run: LabRun) -> LabRun:
    """The lines that the processes themselves write."""
    return replace(run, lines=[line for line in run.lines if line.process != AUDITOR])


def as_sighted(world: SmallWorld) -> tuple[list[Sighting], dict[str, Whereabouts]]:
    """What the lab's auditor found, as if tasks had read it."""
    sightings = [
        Sighting(
            line.topic, LOG, line.messages[0].offset, line.messages[-1].offset + 1, line.messages
        )
        for line in world.lines
        if isinstance(line, Found) and line.messages
    ]
    now = {
        line.topic: Whereabouts(LOG, line.start, line.end, line.positions)
        for line in world.lines
        if isinstance(line, FoundEnd)
    }
    return sightings, now


def verdict_of(world: SmallWorld, *, archived: bool) -> Verdict:
    sightings, now = as_sighted(world)
    read = (sightings, []) if archived else ([], sightings)
    return check(with_log(without_auditor(world.run), *read, now, pid=9))


@pytest.mark.parametrize("archived", [False, True], ids=["live", "archive"])
class TestAnAuditOf:
    def test_a_sound_run_holds_as_in_the_lab(self, archived: bool) -> None:
        world = sound_world()

        assert verdict_of(world, archived=archived).rules == check(world.run).rules

    @with_each(all_planted())
    def test_a_planted_damage_breaks_the_same_rules(
        self, rules: set[str], damage: Damage, archived: bool
    ) -> None:
        world = sound_world()
        damage(world)

        assert broken(verdict_of(world, archived=archived)) == rules


def seen(offset: int, crc: int = 1) -> Seen:
    return Seen(offset, "p", offset + 1, crc, 10 + offset)


class TestAnArchiveAndALiveTopic:
    def test_are_one_log(self) -> None:
        archived = [Sighting("t", LOG, 0, 4, [seen(n) for n in range(4)])]
        live = [Sighting("t", LOG, 2, 6, [seen(n) for n in range(2, 6)])]

        run = with_log(
            LabRun(lines=[], outputs={}), archived, live, {"t": Whereabouts(LOG, 2, 6, {})}, pid=1
        )

        (end,) = (line for line in run.lines if isinstance(line, FoundEnd))
        assert (end.start, end.end) == (0, 6)
        assert check(run).holds

    def test_that_differ_break_the_rule_of_one_value(self) -> None:
        archived = [Sighting("t", LOG, 0, 2, [seen(0), seen(1, crc=7)])]
        live = [Sighting("t", LOG, 0, 2, [seen(0), seen(1)])]

        run = with_log(
            LabRun(lines=[], outputs={}), archived, live, {"t": Whereabouts(LOG, 0, 2, {})}, pid=1
        )

        assert broken(check(run)) == {"V3"}

    def test_of_two_logs_are_not_mixed(self) -> None:
        archived = [Sighting("t", "old.1", 0, 2, [seen(0, 5), seen(1, 5)])]
        live = [Sighting("t", LOG, 0, 2, [seen(0), seen(1)])]

        run = with_log(
            LabRun(lines=[], outputs={}), archived, live, {"t": Whereabouts(LOG, 0, 2, {})}, pid=1
        )

        assert check(run).holds
        assert any("another log" in warning for warning in run.warnings)


@pytest.mark.long
def test_an_audit_of_real_processes_agrees_with_the_lab_also_when_they_are_damaged(
    service: Service, jobs_in_this_spark: SparkTasks, tmp_path: Path
) -> None:
    service.start_proxy("--journal", tmp_path / "proxy.jsonl")
    with (
        service.open_publisher("p", journal=tmp_path / "p.jsonl") as publisher,
        service.open_subscriber("s", journal=tmp_path / "s.jsonl") as subscriber,
    ):
        subscriber.subscribe("t")
        publisher.put_many("t", [b"%d" % n for n in range(300)])
        for _ in range(3):
            subscriber.get("t", max_messages=100)
            subscriber.acknowledge("t")
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
    archived = read_archive(files, tasks)
    live = read_live(options, now, tasks)
    journals = read_run(tmp_path)
    assert [one.messages for one in archived] == [one.messages for one in live]
    nothing = LabRun(lines=[], outputs={})
    for where in ({}, now):  # of the archive alone, and with the proxy
        by_checker = check(with_log(nothing, archived, live if where else [], where, pid=1))
        _, by_spark = judge_log(tasks, options, where, files)
        assert by_spark == by_checker
        assert sum(rule.checked for rule in by_spark.rules) == 900

    words = ["--live", "--archive", tmp_path / "archive", "--journal", tmp_path]
    words += ["--tables", tmp_path / "tables", "--endpoint", service.subscriber_endpoint]
    command = CliRunner().invoke(auditing.main, [*map(str, words)])

    verdict = check(with_log(journals, archived, live, now, pid=1))
    assert verdict.holds, [v.text for rule in verdict.rules for v in rule.violations]
    assert command.exit_code == 0, command.output
    by_tasks = pq.read_table(tmp_path / "tables" / "rules.parquet").to_pylist()
    assert [
        (one["rule"], one["checked"], one["violations"], one["not_judged"]) for one in by_tasks
    ] == [(one.rule, one.checked, 0, one.reason) for one in verdict.rules]
    assert sum(rule.checked for rule in verdict.rules) > 1000
    assert pq.read_table(tmp_path / "tables" / "deliveries.parquet").num_rows == 300
    given = next(line for line in journals.lines if isinstance(line, Ok) and line.op == "get")
    lines = [
        replace(line, messages=line.messages[1:]) if line is given else line
        for line in journals.lines
    ]
    damaged = check(with_log(replace(journals, lines=lines), archived, live, now, pid=1))
    service.proxy.terminate()
    hasty = replace(options, retry=RetryPolicy(timeout_s=0.1, retries_max=0))
    with pytest.raises(InDoubtError, match="no answer to STATUS") as failure:
        judge_log(tasks, hasty, now, [])
    assert failure.value.code == "PROXY_UNREACHABLE"
    of_the_lab = check(replace(journals, lines=lines))
    assert broken(damaged) == broken(of_the_lab) != set()


def can_stand_beside_others(world: SmallWorld) -> bool:
    """Whether it can be written as one run, and does not tie all topics into one part."""
    try:
        check_one_run("", world.lines)
    except ConfigurationError:
        return False
    written = {line.message.crc for lines in world.outputs.values() for line in lines}
    return written <= world.payloads.keys() and not any(
        isinstance(line, AdministeredLine)
        or (isinstance(line, Event) and line.what == "rollback")
        or getattr(line, "code", "") == "LOG_CHANGED"
        for line in world.lines
    )


def worlds_that_break_each_rule() -> Iterator[SmallWorld]:
    """For each rule that a planted damage breaks, a world in which it is broken."""
    left = set(ALL_RULES)
    for rules, damage in all_planted():
        world = sound_world()
        damage(world)
        if rules & left and can_stand_beside_others(world):
            left -= rules
            yield world


def test_tasks_judge_the_files_of_damaged_runs_as_one_checker_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PARTS_MAX", 4)  # lines of lives are judged in each
    monkeypatch.setattr(journal_tasks, "CHUNK_FACTS", 40)
    every = side_by_side(list(worlds_that_break_each_rule()))
    write_run(every, tmp_path, file_of=lambda process: process.rpartition(".")[2])
    with (tmp_path / "s1.jsonl").open("ab") as journal:
        journal.write(b'{"type":"torn')
    options = topics_wanted((), ".*", endpoint=NOWHERE, retry=STUBBORN)
    tasks = SparkTasks(spark)

    journals = survey(tasks, tmp_path, journal_work(tmp_path))
    verdict, story = judge_journals(tasks, journals, options, None, [])

    run = read_run(tmp_path)
    by_checker = check(run)
    assert broken(by_checker) == ALL_RULES
    assert in_any_order(verdict) == in_any_order(by_checker)
    assert journals.files.torn == run.torn != {}
    assert story is not None
    assert verdict.first is not None
    assert story == tell(run, story.message)
    assert story.message == verdict.first.message


def test_a_topic_of_which_nothing_is_left_is_warned_of_by_tasks_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    """No line and no message is of it, so nothing but the proxy's word makes a part of it."""
    begin = Begin(at_ns=1, process="p", pid=1, role="publisher", wall_ns=0)
    (tmp_path / "p.jsonl").write_bytes(encode_line(begin))
    now = {topic: Whereabouts(LOG, 5, 5, {}) for topic in ("quiet", "still")}
    options = topics_wanted((), ".*", endpoint=NOWHERE, retry=STUBBORN)
    tasks = SparkTasks(spark)

    journals = survey(tasks, tmp_path, journal_work(tmp_path))
    verdict, _ = judge_journals(tasks, journals, options, now, [])

    by_checker = check(with_log(read_run(tmp_path), [], [], now, pid=1))
    assert len(by_checker.warnings) == 2
    assert in_any_order(verdict) == in_any_order(by_checker)


def test_an_auditor_begins_and_ends() -> None:
    run = with_log(LabRun(lines=[], outputs={}), [], [], {}, pid=1)

    assert [type(line) for line in run.lines] == [Begin, End]
