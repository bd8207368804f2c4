"""The commands as an operator meets them: ready lines, exit codes, locks, signals, status."""

from __future__ import annotations

import json
import re
import signal
import sys

import pytest

from reliable_pubsub.common.signals import RESUME
from scripts.delivery import compare, read_lines

from .harness import (
    IMPATIENT_OPTIONS,
    NOWHERE,
    REPOSITORY,
    STUBBORN_OPTIONS,
    Process,
    Service,
    eventually,
)

ONE_PUT = "steps: [{topic: t, message: m}]"
SUBSCRIBE = "steps: [{action: subscribe, topic: t}]"
WAITING = """
    steps:
      - {action: subscribe, topic: t}
      - {action: get, topic: t, number_of_times: 2}
"""
SLOW = """
    steps:
      - {topic: t, message: m, number_of_times: 3, sleep_between_messages: 60}
"""


OUTPUT_IS_FULL = ("sh", "-c", 'exec "$0" -m reliable_pubsub "$@" > /dev/full', sys.executable)


def ended(process: Process, exit_code: int, *parts: str) -> None:
    """Check that it ended so, with one paragraph that has all of `parts`."""
    assert process.wait() == exit_code, process.stdout + process.stderr
    text = " ".join(process.stderr.split())
    for part in parts:
        assert part in text, text


FIGURES = [
    ("figure2_publisher.yaml", "figure4_subscriber.yaml", {"topic1": 4}),
    ("figure3_publisher.yaml", "figure5_subscriber.yaml", {"topic1": 3, "topic2": 5}),
]


@pytest.mark.parametrize(("puts", "gets", "counts"), FIGURES, ids=["2 and 4", "3 and 5"])
def test_the_figures_of_the_report_run_as_they_are(
    puts: str, gets: str, counts: dict[str, int], service: Service
) -> None:
    service.start_proxy()
    configs = REPOSITORY / "configs"
    common = ("--state-dir", service.state_dir)
    subscriber = service.run(
        "", "subscriber", "-f", configs / gets, "-i", "subscriber-1",
        "--endpoint", service.subscriber_endpoint, "--output", service.output("s"), *common,
    )  # fmt: skip
    service.subscribed("topic1", "subscriber-1")
    publisher = service.run(
        "", "publisher", "-f", configs / puts, "-i", "publisher-1",
        "--endpoint", service.publisher_endpoint, *common,
    )  # fmt: skip
    publisher.done()
    subscriber.done()

    expected = {
        topic: {
            "publisher-1": [
                b"%s Msg_%d" % (topic.capitalize().encode(), n + 1) for n in range(count)
            ]
        }
        for topic, count in counts.items()
    }
    (verdict,) = compare({"s": service.output("s")}, {"s": list(counts)}, expected)
    assert verdict.perfect, verdict
    by_topic = ", ".join(f"{topic}: {count}" for topic, count in counts.items())
    assert f"put {sum(counts.values())} messages ({by_topic})" in publisher.stdout
    assert f"received {sum(counts.values())} messages ({by_topic})" in subscriber.stdout
    assert all(service.topic(topic).subscriptions == () for topic in counts)


def test_a_ready_line_says_what_runs_where(service: Service) -> None:
    proxy = service.start_proxy()
    publisher = service.publisher("p", SLOW)
    subscriber = service.subscriber("s", WAITING)

    assert re.fullmatch(
        r"ready: proxy publishers=tcp://127\.0\.0\.1:\d+ subscribers=tcp://127\.0\.0\.1:\d+ "
        rf"durability=sync data-dir={service.data_dir} topics=0 messages=0 "
        r"push=tcp://127\.0\.0\.1:\d+ ingress=tcp://127\.0\.0\.1:\d+",
        proxy.ready(),
    )
    assert publisher.ready() == (
        f"ready: publisher p endpoint={service.publisher_endpoint} messages=3 left=3"
    )
    assert subscriber.ready() == (
        f"ready: subscriber s endpoint={service.subscriber_endpoint} step=1 of 2"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_proxy_with_exit_code_0_and_an_unfinished_plan_with_3(
    number: signal.Signals, service: Service
) -> None:
    proxy = service.start_proxy()
    subscriber = service.subscriber("s", WAITING)
    service.subscribed("t", "s")
    processes = [service.publisher("p", SLOW), subscriber]
    eventually(lambda: service.line_count("s"), "first message, so that all sleep or wait")

    for process in (*processes, proxy):
        process.signal(number)
        assert process.wait() == (0 if process is proxy else 3)
        said = " ".join(process.stderr.split())
        assert said == ("" if process is proxy else RESUME)

    service.start_proxy()
    service.subscriber("s", WAITING)  # continues, and gets what the publisher has left
    ready = service.publisher("p", SLOW).ready()
    assert ready.endswith("messages=3 left=2")
    eventually(lambda: service.line_count("s") == 2, "second message")
    assert [line and line.offset for line in read_lines(service.output("s"))] == [0, 1]


@pytest.mark.parametrize("role", ["publisher", "subscriber"])
def test_a_proxy_that_is_away_is_exit_code_3_and_the_same_command_resumes(
    role: str, service: Service
) -> None:
    service.start_proxy()
    service.subscriber("s", SUBSCRIBE).done()
    waiting = service.subscriber("s", WAITING, "--again", options=IMPATIENT_OPTIONS)
    plan = "steps: [{topic: t, message: m, number_of_times: 2, sleep_between_messages: 4}]"
    publisher = service.publisher("p", plan, options=IMPATIENT_OPTIONS)
    eventually(lambda: service.line_count("s") == 1, "first message")
    service.proxy.kill()

    ended(publisher, 3, "PROXY_UNREACHABLE", "in 2 attempts", "run the same command again")
    ended(waiting, 3, "PROXY_UNREACHABLE", "in 2 attempts", "run the same command again")
    if role == "subscriber":
        again = service.subscriber("s", WAITING, options=IMPATIENT_OPTIONS)
        ended(again, 3, "PROXY_UNREACHABLE", "HELLO", "in 2 attempts")
    service.start_proxy()
    service.publisher("p", plan).done()
    service.subscriber("s", WAITING).done()

    assert service.payloads("t") == [b"m_1", b"m_2"]
    lines = read_lines(service.output("s"))
    assert [line and line.payload for line in lines] == [b"m_1", b"m_2"]


def test_a_get_with_a_timeout_is_in_doubt_and_resumes(service: Service) -> None:
    service.start_proxy()
    plan = """
        steps:
          - {action: subscribe, topic: t}
          - {action: get, topic: t, timeout: 0.2}
    """
    ended(service.subscriber("s", plan), 3, "TIMED_OUT", "steps[1]", "0 of 1 were received")
    service.publisher("p", ONE_PUT).done()

    service.subscriber("s", plan).done()

    assert service.line_count("s") == 1


def test_a_second_proxy_on_one_data_directory_is_refused(service: Service) -> None:
    first = service.start_proxy()

    second = service.run("proxy", "--data-dir", service.data_dir)

    ended(second, 4, "IN_USE", str(service.data_dir))
    assert first.exit_code is None
    first.kill()
    service.start_proxy()  # the kernel has freed the lock


@pytest.mark.parametrize("role", ["publisher", "subscriber"])
def test_a_second_client_on_one_state_is_refused_at_once(role: str, service: Service) -> None:
    service.start_proxy()
    plan = SLOW if role == "publisher" else WAITING
    start = service.publisher if role == "publisher" else service.subscriber
    first = start("c", plan)
    first.ready()

    ended(start("c", plan), 4, "IN_USE", f"{role} 'c'", str(service.state_dir))

    assert first.exit_code is None


def test_an_older_process_with_the_same_id_is_fenced(service: Service) -> None:
    service.start_proxy()
    fast = """
        steps: [{topic: t, message: m, number_of_times: 100, sleep_between_messages: 0.2}]
    """
    get_nothing = WAITING.replace("topic: t", "topic: silent")
    old = [service.publisher("c", fast), service.subscriber("c2", get_nothing)]
    for process in old:
        process.ready()

    service.state_dir = service.directory / "other-state"
    service.publisher("c", SLOW).ready()
    service.subscriber("c2", get_nothing, "--output", service.directory / "other.jsonl").ready()

    ended(old[0], 4, "FENCED", "'c' epoch 1", "epoch 2")
    ended(old[1], 4, "FENCED", "'c2' epoch 1", "epoch 2")


def test_a_changed_step_file_is_refused_until_again(service: Service) -> None:
    service.start_proxy()
    service.publisher("p", ONE_PUT).done()

    changed = ONE_PUT.replace("message: m", "message: other")
    ended(service.publisher("p", changed), 2, "p.yaml", "another plan", "--again")
    assert service.payloads("t") == [b"m_1"]
    service.publisher("p", changed, "--again").done()

    assert service.payloads("t") == [b"m_1", b"other_2"]


def test_a_changed_message_file_is_another_plan(service: Service) -> None:
    service.start_proxy()
    plan = "steps: [{topic: t, message_file: lines.txt}]"
    service.file("lines.txt", "a\nb\n")
    service.publisher("p", plan).done()

    service.file("lines.txt", "a\nb\nc\n")

    ended(service.publisher("p", plan), 2, "another plan", "--again")


def test_a_finished_plan_stays_finished(service: Service) -> None:
    service.start_proxy()
    get_one = f"{SUBSCRIBE[:-1]}, {{action: get, topic: t}}]"
    subscriber = service.subscriber("s", get_one)
    service.subscribed("t", "s")
    service.publisher("p", ONE_PUT).done()
    subscriber.done()

    publisher, subscriber = service.publisher("p", ONE_PUT), service.subscriber("s", get_one)

    publisher.done()
    subscriber.done()
    assert "left=0" in publisher.ready()
    for done in (publisher, subscriber):
        assert " 0 messages" in done.stdout
        assert "--again" in done.stdout
    assert service.payloads("t") == [b"m_1"]
    assert service.line_count("s") == 1


def test_status_shows_what_an_operator_asks_for(service: Service) -> None:
    service.start_proxy()
    service.subscriber("s", SUBSCRIBE).done()
    service.publisher("p", "steps: [{topic: t, message: m, number_of_times: 5, batch: 2}]").done()
    endpoint = ("--endpoint", service.subscriber_endpoint)

    as_json, as_text = (
        service.run("", "status", "--json", *endpoint),
        service.run("", "status", *endpoint),
    )
    as_json.done()
    as_text.done()

    report = json.loads(as_json.stdout)
    (topic,) = report["topics"]
    assert (topic["topic"], topic["start"], topic["end"]) == ("t", 0, 5)
    assert topic["stored_bytes"] > 0
    (subscription,) = topic["subscriptions"]
    assert subscription.pop("lag_s") > 0
    assert subscription.pop("silent_s") >= 0
    assert subscription == {
        "subscriber": "s",
        "generation": 1,
        "terms": {"qos": 2, "session": "persistent", "lease_ms": 0},
        "state": "active",
        "cursor": 0,
        "lag_messages": 5,
    }
    (publisher,) = topic["publishers"]
    assert publisher == {"publisher": "p", "qos": 2, "last_sequence": 5, "last_offset": 4}
    assert report["durability"] == "sync"
    assert report["dropped_requests"] == 0
    assert report["committer"]["queued_records"] == 0
    assert report["committer"]["commits"] > 0
    assert report["committer"]["storage_full"] is False
    for word in ("topics", "subscriptions", "publishers", "durability sync", "committer"):
        assert word in as_text.stdout


def test_status_of_a_proxy_that_is_away_is_exit_code_3(service: Service) -> None:
    process = service.run("", "status", "--endpoint", NOWHERE, "--ack-timeout", "0.1")

    ended(process, 3, "PROXY_UNREACHABLE", NOWHERE)


def test_status_watch_continues_until_a_signal(service: Service) -> None:
    service.start_proxy()
    process = service.run(
        "", "status", "--json", "--watch", "--endpoint", service.subscriber_endpoint
    )

    eventually(lambda: process.stdout.count("\n") >= 2, "second report")

    assert process.terminate() == 0
    for line in process.stdout.splitlines():
        assert json.loads(line)["topics"] == []


def test_a_misspelt_variable_is_warned_of(service: Service) -> None:
    service.start_proxy()
    file = service.file("p.yaml", ONE_PUT)
    process = service.run(
        "publisher", "-f", file, "-i", "p", "--endpoint", service.publisher_endpoint,
        "--state-dir", service.state_dir, *STUBBORN_OPTIONS,
        prefix=["env", "RELIABLE_PUBSUB_ACK_TIMEUOT=1"],
    )  # fmt: skip

    process.done()
    assert "RELIABLE_PUBSUB_ACK_TIMEUOT" in process.stderr
    assert "did you mean 'RELIABLE_PUBSUB_ACK_TIMEOUT'?" in " ".join(process.stderr.split())


class TestStandardOutput:
    @pytest.mark.parametrize("command", ["status", "subscriber", "publisher", "check", "--help"])
    def test_that_is_full_is_a_sentence_and_an_exit_code(
        self, service: Service, command: str
    ) -> None:
        service.start_proxy()
        steps = service.file("steps.yaml", ONE_PUT if command == "publisher" else SUBSCRIBE)
        arguments = {
            "status": ("--endpoint", service.subscriber_endpoint),
            "subscriber": ("-f", steps, "-i", "s", "--endpoint", service.subscriber_endpoint),
            "publisher": ("-f", steps, "-i", "p", "--endpoint", service.publisher_endpoint),
            "check": (service.data_dir,),
            "--help": (),
        }[command]
        if command == "check":
            service.proxy.terminate()

        process = service.run_command("full", [*OUTPUT_IS_FULL, command, *map(str, arguments)])

        ended(process, 5, "error [STORAGE_FAILED]: standard output cannot be written", "again")

    def test_in_another_alphabet_than_a_topic_has_is_written_with_escapes(
        self, service: Service
    ) -> None:
        service.start_proxy()
        with service.open_publisher("p") as publisher:
            publisher.put("tÄ", b"m")

        words = ("-m", "reliable_pubsub", "status", "--endpoint", service.subscriber_endpoint)
        process = service.run_command(
            "ascii", ["env", "PYTHONIOENCODING=ascii", sys.executable, *words]
        )

        process.done()
        assert r"t\xc4" in process.stdout
