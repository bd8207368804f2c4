"""The jobs as commands: what they do, what they say, how they end."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from reliable_pubsub.common.signals import Stopped
from reliable_pubsub.pipeline import archiving, job
from reliable_pubsub.pipeline.job import SparkWish, running_job, spark_tasks
from reliable_pubsub.pipeline.proxy_topics import ProxyTopics
from tests.integration.harness import NOWHERE, Service, eventually

from .jobs import BUSY_S, JAVA_SAYS, Jobs, run_here
from .test_documents import PAGE, ROOT
from .test_spark_source import put

IN_A_TERMINAL = "import pty, sys; pty.spawn(sys.argv[1:])"


@pytest.fixture
def jobs(service: Service, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """Jobs against a running proxy."""
    service.start_proxy()
    return Jobs(service, monkeypatch)


@pytest.mark.long
@pytest.mark.usefixtures("jobs_in_this_spark")
def test_the_worked_example_runs_as_it_stands_in_the_docs(
    service: Service, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    service.file("CHANGELOG.md", changelog)
    (service.directory / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(service.directory)

    load, *commands, live = commands_of_the_example()
    with monkeypatch.context() as patch:
        patch.delenv("PYSPARK_PYTHON")  # the Python of a student, not the quick one of the tests
        process = jobs.run(*load)
    assert process.stderr in ("", JAVA_SAYS)
    said = [process.stdout, *(run_here(service, *words) for words in commands)]

    lines = changelog.splitlines()
    assert service.payloads("changes-again") == [line.encode() for line in lines]
    assert said[0] == f"done: {len(lines)} messages put on changes, 0 were there (1 files)\n"
    assert f"done: archived {len(lines)} messages in run/archive\n" in said[1]
    assert "\nholds: " in said[2]
    assert said[3] == f"done: {len(lines)} messages put on changes-again, 0 were there\n"

    count = jobs.start(*live)
    known = Counter(re.findall("[a-z]+", changelog.lower()))
    eventually(lambda: word_counts(service) == known or count.exit_code, "counts", timeout_s=BUSY_S)
    assert count.terminate() == 0, count.stderr


def commands_of_the_example() -> list[list[str]]:
    """The jobs of the section, in their order."""
    section = PAGE.split("\n## Jobs\n")[1].split("\n## ")[0]
    blocks = re.findall(r"(?s)```sh\n(.*?)```", section)
    lines = [shlex.split(line) for block in blocks for line in block.splitlines()]
    return [words[2:] for words in lines if words[1] == "pipeline"]  # the proxy runs already


def word_counts(service: Service) -> Counter[str]:
    """What a subscriber reads on topic words, over all windows: the last count of each counts."""
    newest: dict[tuple[str, str], int] = {}
    with service.open_subscriber("reader") as reader:
        for message in reader.history("words", 0, max_messages=10_000):
            found = message.value
            newest[found["minute"], found["word"]] = found["count"]
    counts: Counter[str] = Counter()
    for (_, word), count in newest.items():
        counts[word] += count
    return counts


class TestAReplayCommand:
    def test_shows_in_a_terminal_how_far_it_is(self, service: Service, jobs: Jobs) -> None:
        put(service, "t", 50)
        command = (sys.executable, "-m", "reliable_pubsub", "pipeline", "replay", "--topic", "t")

        process = service.run_command(
            "pty", [sys.executable, "-c", IN_A_TERMINAL, *command, "--to=u"]
        )
        process.done()

        assert re.search(r"u .*50/50", process.stdout)
        assert "done: 50 messages put on u" in process.stdout

    def test_that_is_stopped_says_so_and_not_that_it_is_done(
        self, service: Service, jobs: Jobs
    ) -> None:
        put(service, "t", 5_000)
        process = jobs.start("replay", "--topic", "t", "--to", "u", "--rate", "0.1")
        eventually(lambda: any(one.topic == "u" for one in service.status().topics), "first batch")

        assert process.terminate() == 3
        assert "done" not in process.stdout
        assert process.stderr.startswith("stopped: ")

    def test_of_other_messages_under_the_same_id_is_refused(
        self, service: Service, jobs: Jobs
    ) -> None:
        put(service, "t", 9)
        words = ("replay", "--topic", "t", "--to", "u", "--replay-id", "one")
        jobs.run(*words)

        process = jobs.run(*words, "--from-offset", "1", exit_code=4)

        assert process.stderr.startswith(
            "error [CONFLICT]: replay replay.one of 't': 9 records of it"
        )
        assert len(service.payloads("u")) == 9


class TestAJob:
    def test_that_is_stopped_while_spark_works_does_nothing_more(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        context = SimpleNamespace(master="local", _accumulatorServer=SimpleNamespace())
        idle = SimpleNamespace(sparkContext=context, stop=lambda: None)
        monkeypatch.setattr(job, "open_session", lambda *_, **__: idle)
        monkeypatch.setattr(job, "start_java", lambda *_, **__: None)
        steps: list[str] = []

        def work() -> None:
            with running_job():
                with spark_tasks("load", SparkWish()):
                    os.kill(os.getpid(), signal.SIGTERM)
                    steps.append("worked")
                steps.append("said done")

        with pytest.raises(SystemExit) as ended:
            work()

        assert steps == []
        assert ended.value.code == 3  # not that it is done
        assert capsys.readouterr().err.startswith("stopped: ")

    def test_that_is_stopped_while_java_starts_waits_for_that_and_then_stops(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Java would write thirty lines if it were left in the middle of its start."""
        steps: list[str] = []

        def start(*_: object, **__: object) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            steps.append("started")

        monkeypatch.setattr(job, "start_java", start)
        monkeypatch.setattr(job, "open_session", lambda *_, **__: steps.append("opened"))

        with pytest.raises(Stopped), spark_tasks("load", SparkWish()):
            steps.append("worked")

        assert steps == ["started"]

    def test_without_the_extra_says_how_to_get_it(self, service: Service) -> None:
        without = (
            "import sys; sys.modules['pyspark'] = None; from reliable_pubsub.__main__ import main"
        )
        command = [sys.executable, "-c", f"{without}; main(['pipeline', 'load', '--help'])"]

        process = service.run_command("without", command)

        assert process.wait() == 2
        assert process.complaints == (
            "error [CONFIGURATION]: pyspark is not installed, and the pipeline needs it: "
            "pip install 'reliable-pubsub[spark]', or in a clone scripts/setup --spark"
        )

    def test_tells_a_proxy_that_does_not_answer_before_it_starts_spark(
        self, service: Service
    ) -> None:
        impatient = ("--ack-timeout", "0.1", "--send-retries", "1")
        process = service.run(
            "pipeline",
            *("archive", "--topic", "t", "--folder", "a", "--endpoint", NOWHERE, *impatient),
        )

        assert process.wait() == 3
        assert "error [PROXY_UNREACHABLE]: no answer to STATUS" in process.stderr

    def test_that_ends_in_an_error_has_closed_its_sockets(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        closed: list[ProxyTopics] = []
        monkeypatch.setattr(ProxyTopics, "close", lambda view: closed.append(view))
        monkeypatch.setenv("RELIABLE_PUBSUB_SUBSCRIBER_ENDPOINT", NOWHERE)
        words = ["--topic", "t", "--folder", str(tmp_path / "a")]

        ended = CliRunner().invoke(
            archiving.main, [*words, "--ack-timeout", "0.1", "--send-retries", "0"]
        )

        assert ended.exit_code == 3
        assert len(closed) == 1

    def test_names_file_and_line_of_an_option_that_does_not_exist(self, service: Service) -> None:
        config = service.file("j.yaml", "topic: t\nfoldr: x\n")

        process = service.run("pipeline", "archive", "-f", config)

        assert process.wait() == 2
        told = process.stderr.replace("\n", " ")
        assert "line 2, foldr: found an unknown key" in told
        assert "did you mean 'folder'" in told

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (("archive", "--folder", "a"), "name the topics by --topic, or by --pattern"),
            (("audit",), "name what to audit: --live, --archive DIR, or both"),
            (("replay", "--topic", "t", "--to", "t"), "--to is the topic itself"),
            (("replay", "--topic", "t", "--to", "u", "--archive", "."), "is not an archive"),
            (
                ("load", "--topic", "t", "--file", ".", "--base", "/nowhere"),
                "is not below /nowhere",
            ),
        ],
        ids=["topics", "evidence", "target", "archive", "base"],
    )
    def test_that_cannot_be_is_one_sentence_and_exit_code_2(
        self, service: Service, words: tuple[str, ...], told: str
    ) -> None:
        process = service.run("pipeline", *words)

        assert process.wait() == 2
        assert told in process.complaints
        assert process.complaints.startswith("error [")
