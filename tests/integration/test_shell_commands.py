"""`put`, `get`, `tail`, `subscribe`, `topics` and `dead` as a shell uses them: lines and pipes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import Struct, msgpack

from reliable_pubsub.common.core.answers import PutAck
from reliable_pubsub.common.core.limits import BATCH_MESSAGES_MAX
from reliable_pubsub.common.core.requests import Put
from reliable_pubsub.lab.rig.link import LinkTo, Way

from .harness import (
    IMPATIENT_OPTIONS,
    NOWHERE,
    REPOSITORY,
    Process,
    Service,
    eventually,
)

COMMAND = (sys.executable, "-m", "reliable_pubsub")
LINES = [f"line {number}" for number in range(3_500)]


def put(service: Service, *options: str | Path, lines: Path | None = None) -> Process:
    """Run a put, with a file as stdin."""
    words = ("put", *options, "--endpoint", service.publisher_endpoint)
    return from_file(service, lines or Path("/dev/null"), *words)


def from_file(service: Service, file: Path, *words: str | Path) -> Process:
    command = ["sh", "-c", 'exec "$@" < "$0"', str(file), *COMMAND, *map(str, words)]
    return service.run_command(str(words[0]), command)


def start(service: Service, *words: str | Path) -> Process:
    """Start a command of a subscriber."""
    return service.run("", *words, "--endpoint", service.subscriber_endpoint)


def printed(service: Service, *words: str | Path) -> list[str]:
    """The lines that a command of a subscriber prints until its good end."""
    process = start(service, *words)
    process.done()
    return process.stdout.splitlines()


def named(service: Service, client: str) -> Sequence[str]:
    return ("--id", client, "--state-dir", str(service.state_dir))


def file_of(service: Service, lines: Sequence[str]) -> Path:
    return service.file("lines.txt", "".join(f"{line}\n" for line in lines))


def stored(service: Service) -> list[str]:
    return [payload.decode() for payload in service.payloads("t")]


def offsets(lines: Sequence[str]) -> list[int]:
    return [json.loads(line)["offset"] for line in lines]


# Put.


@pytest.mark.parametrize(
    ("way", "name"), [("answers", ("answer", PutAck)), ("requests", ("verb", Put))]
)
@pytest.mark.parametrize("passing", [2, 3], ids=["in the middle", "with the last lines"])
def test_a_put_of_lines_that_is_killed_and_repeated_stores_each_line_once(
    service: Service, way: Way, name: tuple[str, type[Struct]], passing: int
) -> None:
    service.start_proxy()
    lines, to = file_of(service, LINES), named(service, "import-1")
    direct = service.publisher_endpoint
    words = [name[0], name[1].__struct_config__.tag]
    with closing(LinkTo(direct)) as link:
        link.half_open(way, awaited=[b"".join(map(msgpack.encode, words))] * (passing + 1))
        service.publisher_endpoint = link.endpoint
        killed = put(service, "t", "-", *to, *IMPATIENT_OPTIONS[:2], lines=lines)
        eventually(lambda: "waiting: no answer" in killed.stderr, "batch without an answer")
        killed.kill()
    service.publisher_endpoint = direct

    again = put(service, "t", "-", *to, lines=lines)
    again.done()

    assert stored(service) == LINES
    assert f"; {min(1_000 * (passing + 1), len(LINES)):,} were put before" in again.stdout


def stored_count(service: Service) -> int:
    return sum(topic.end for topic in service.status().topics)


def test_a_repeated_put_of_lines_puts_only_what_the_file_has_more(service: Service) -> None:
    service.start_proxy()
    to = named(service, "import-1")
    put(service, "t", *to, lines=file_of(service, LINES[:5])).done()
    put(service, "t", *to, lines=file_of(service, LINES[:5])).done()
    put(service, "t", *to, lines=file_of(service, LINES[:8])).done()

    assert stored(service) == LINES[:8]


@pytest.mark.parametrize(
    "changed", [["other", *LINES[1:9]], LINES[:3]], ids=["another row", "fewer rows"]
)
def test_a_put_of_a_changed_file_is_refused_until_again(
    service: Service, changed: list[str]
) -> None:
    service.start_proxy()
    to = named(service, "import-1")
    put(service, "t", *to, lines=file_of(service, LINES[:5])).done()

    refused = put(service, "t", *to, lines=file_of(service, changed))

    assert refused.wait() == 2
    assert "another input" in refused.complaints
    assert stored(service) == LINES[:5]
    put(service, "t", "--again", *to, lines=file_of(service, changed)).done()
    assert stored(service) == [*LINES[:5], *changed]


def test_a_repeated_message_is_put_once_and_another_one_is_put(service: Service) -> None:
    service.start_proxy()
    for message in ("a", "a", "b"):
        put(service, "t", message, *named(service, "shop")).done()

    assert stored(service) == ["a", "b"]


def test_lines_are_put_while_the_input_pauses(service: Service) -> None:
    service.start_proxy()
    gate = service.directory / "gate"
    os.mkfifo(gate)
    script = f"echo first; cat {gate}; echo second"  # `cat` waits until the gate is closed
    words = shlex.join([*COMMAND, "put", "t", "--endpoint", service.publisher_endpoint])
    process = service.run_command("put", ["sh", "-c", f"({script}) | {words}"])

    eventually(lambda: stored_count(service) == 1, "first line")
    gate.write_bytes(b"")

    process.done()
    assert stored(service) == ["first", "second"]


def test_a_put_that_nothing_answers_is_exit_code_3(service: Service) -> None:
    process = service.run("", "put", "t", "x", "--endpoint", NOWHERE, *IMPATIENT_OPTIONS)

    assert process.wait() == 3


def test_the_lines_before_a_wrong_line_of_json_are_put(service: Service) -> None:
    service.start_proxy()
    lines = service.file("lines.json", '{"payload": "a"}\n{"payload": "b"}\n{"pay": "c"}\n')

    process = put(service, "t", "--json", lines=lines)

    assert process.wait() == 2
    assert "line 3 is not a message" in process.complaints
    assert stored(service) == ["a", "b"]


# Get and tail.


def test_prints_a_topic_from_a_place_on_or_its_last_message(service: Service) -> None:
    """Rows 2.2, 2.5 and 2.17 without a program."""
    service.start_proxy()
    with service.open_publisher("p") as publisher:
        for number in range(3):
            publisher.put("t", b"m%d" % number)

    assert printed(service, "get", "t") == ["m0", "m1", "m2"]
    assert printed(service, "get", "t", "--from", "newest 1") == ["m2"]
    assert offsets(printed(service, "get", "t", "--from", "offset 1", "--json")) == [1, 2]
    assert offsets(printed(service, "history", "t", "--from", "age 1h", "--json")) == [0, 1, 2]
    assert offsets(printed(service, "get", "t", "--from", "newest 2", "-n", "1", "--json")) == [1]
    assert printed(service, "get", "t", "--from", "now") == []


def test_a_get_reads_on_until_the_end_of_the_topic(service: Service) -> None:
    service.start_proxy()
    count = BATCH_MESSAGES_MAX + 10
    with service.open_publisher("p") as publisher:
        publisher.put_many("t", [b"x"] * BATCH_MESSAGES_MAX)
        publisher.put_many("t", [b"x"] * 10)

    assert offsets(printed(service, "get", "t", "--json")) == list(range(count))
    assert len(printed(service, "get", "t", *named(service, "s"))) == count


def test_a_get_without_an_id_leaves_neither_a_client_nor_a_subscription_nor_a_topic(
    service: Service,
) -> None:
    service.start_proxy()

    process = start(service, "get", "t", "--from", "age 1h")
    process.done()

    assert (process.stdout, "no message of 't'" in process.stderr) == ("", True)
    report = service.status()
    assert (report.topics_count, report.sessions_count) == (0, 0)


def test_fewer_messages_than_asked_for_are_printed_and_exit_code_3(service: Service) -> None:
    service.start_proxy()
    put(service, "t", "a").done()

    for options in ([], named(service, "s")):
        process = start(service, "get", "t", "-n", "2", *options)

        assert process.wait() == 3
        assert process.stdout == "a\n"
    assert service.topic("t").subscriptions[0].cursor == 1


def test_a_get_with_a_timeout_waits_for_its_messages(service: Service) -> None:
    service.start_proxy()
    process = start(service, "get", "t", "-n", "2", "--timeout", "40", *named(service, "s"))
    service.subscribed("t", "s")

    put(service, "t", lines=file_of(service, ["a", "b"])).done()

    process.done()
    assert process.stdout == "a\nb\n"


def test_a_message_is_acknowledged_only_if_its_line_was_written(service: Service) -> None:
    service.start_proxy()
    put(service, "t", lines=file_of(service, LINES[:9])).done()
    words = ("get", "t", *named(service, "s"), "--endpoint", service.subscriber_endpoint)
    full = service.run_command("get", ["sh", "-c", 'exec "$@" > /dev/full', "", *COMMAND, *words])

    assert full.wait() == 5
    assert printed(service, *words[:-2]) == LINES[:9]
    assert printed(service, *words[:-2]) == []


def test_an_output_has_each_message_once_however_often_its_tail_is_killed(
    service: Service,
) -> None:
    service.start_proxy()
    output = service.directory / "out.txt"
    words: tuple[str | Path, ...] = ("t", *named(service, "s"), "--output", output)
    for first in range(0, len(LINES), 700):
        put(service, "t", lines=file_of(service, LINES[first : first + 700])).done()
        process = start(service, "tail", "--from", "earliest", *words)
        eventually(lambda n=first: size_of(output) > n, "more lines")  # type: ignore[misc]
        process.kill()

    printed(service, "get", *words)

    assert output.read_text().splitlines() == LINES


def size_of(output: Path) -> int:
    return output.read_bytes().count(b"\n") if output.exists() else 0


@pytest.mark.parametrize("has_id", [True, False], ids=["with an id", "without"])
def test_ctrl_c_ends_a_tail_of_several_topics_with_exit_code_130(
    service: Service, has_id: bool
) -> None:
    service.start_proxy()
    options = named(service, "s") if has_id else ()
    process = start(service, "tail", "t", "u", *options)
    for topic, message in (("t", "a"), ("u", "b"), ("t", "c")):
        put(service, topic, message).done()
        eventually(lambda m=message: f"{m}\n" in process.stdout, message)  # type: ignore[misc]

    process.signal(signal.SIGINT)

    assert (process.wait(), process.stdout) == (130, "a\nb\nc\n")
    if has_id:
        assert printed(service, "get", "t", *options) == []


@pytest.mark.parametrize(("command", "count"), [("get t", len(LINES)), ("tail t", 1)])
def test_a_closed_pipe_ends_the_command_quietly(service: Service, command: str, count: int) -> None:
    service.start_proxy()
    put(service, "t", lines=file_of(service, LINES[:count])).done()
    words = shlex.join([*COMMAND, *command.split(), "--endpoint", service.subscriber_endpoint])

    process = service.run_command("head", ["bash", "-c", f"set -o pipefail; {words} | head -1"])

    assert (process.wait(), process.stdout, process.stderr) == (0, f"{LINES[0]}\n", "")


def test_a_line_of_json_has_all_of_a_message_and_can_be_put(service: Service) -> None:
    service.start_proxy()
    with service.open_publisher("p") as publisher:
        publisher.put("t", b"\xff", key=b"\xfe", headers={"region": "eu"}, event_time_ns=-1)
        publisher.put("t", "é".encode(), key=b"k")

    first, second = printed(service, "get", "t", "--json")
    put(service, "u", "--json", lines=file_of(service, [first, second])).done()

    assert json.loads(first)["payload_base64"] == "/w=="
    assert json.loads(first)["key_base64"] == "/g=="
    found = json.loads(second)
    for name, value in {"topic": "t", "offset": 1, "publisher": "p", "key": "k"}.items():
        assert found[name] == value
    assert (found["headers"], found["payload"], found["time"][-1]) == ({}, "é", "Z")
    with service.open_subscriber("s") as subscriber:
        for one, other in zip(subscriber.history("t"), subscriber.history("u"), strict=True):
            for name in ("payload", "key", "headers", "event_time_ns"):
                assert getattr(one, name) == getattr(other, name)


def test_options_give_each_message_its_key_and_headers(service: Service) -> None:
    service.start_proxy()

    put(service, "t", "m", "--key", "k", "-H", "a=1", "-H", "b=x=y").done()

    with service.open_subscriber("s") as subscriber:
        (message,) = subscriber.history("t")
    assert (message.key, message.headers) == (b"k", {"a": "1", "b": "x=y"})


# The others.


def test_a_subscription_keeps_what_is_put_until_it_is_ended(service: Service) -> None:
    service.start_proxy()
    s = named(service, "s")
    put(service, "t", "before").done()
    printed(service, "subscribe", "t", *s)
    put(service, "t", "after").done()

    assert printed(service, "get", "t", *s) == ["after"]
    printed(service, "unsubscribe", "t", *s)
    assert service.topic("t").subscriptions == ()


def test_topics_are_listed_and_completed(service: Service) -> None:
    service.start_proxy()
    for topic in ("orders", "orders-eu", "payments"):
        put(service, topic, "m").done()

    assert printed(service, "topics") == ["orders", "orders-eu", "payments"]
    assert json.loads(printed(service, "topics", "--json")[0])["end"] == 1
    assert completed(service, service.subscriber_endpoint) == "plain,orders\nplain,orders-eu"
    assert completed(service, NOWHERE) == ""


def completed(service: Service, endpoint: str) -> str:
    words = ("COMP_WORDS=reliable-pubsub get ord", "COMP_CWORD=2")
    variables = ("_RELIABLE_PUBSUB_COMPLETE=bash_complete", *words)
    setting = f"RELIABLE_PUBSUB_SUBSCRIBER_ENDPOINT={endpoint}"
    process = service.run_command("complete", ["env", *variables, setting, *COMMAND])
    process.done()
    assert process.stderr == ""
    return process.stdout.strip()


def test_dead_letters_are_put_again_once_however_often(service: Service) -> None:
    service.start_proxy()
    with service.open_publisher("p") as publisher, service.open_subscriber("s") as subscriber:
        subscriber.subscribe("t")
        publisher.put_many("t", [b"a", b"b"], keys=[b"k", None])
        for message in subscriber.get("t", max_messages=2):
            subscriber.reject(message, "broken")
    words = ("dead", "put-again", "t", "--publisher-endpoint", service.publisher_endpoint)

    assert printed(service, *words, "1") == ["t.dead 1: put again"]
    assert printed(service, *words) == ["t.dead 0: put again", "t.dead 1: was put again before"]

    assert stored(service) == ["a", "b", "b", "a"]
    missing = start(service, *words, "7")
    assert missing.wait() == 2
    assert "has letters 0 to 1" in missing.complaints


def test_a_step_file_is_read_from_stdin(service: Service) -> None:
    service.start_proxy()
    steps = service.file("steps.yaml", "steps: [{topic: t, message: m, number_of_times: 2}]")
    to = ("-i", "p", "--state-dir", service.state_dir, "--endpoint", service.publisher_endpoint)

    from_file(service, steps, "publisher", "-f", "-", *to).done()

    assert stored(service) == ["m_1", "m_2"]


def test_the_commands_of_the_page_run_as_they_are_printed(service: Service) -> None:
    service.start_proxy()
    page = (REPOSITORY / "docs/start/shell.md").read_text()
    (block,) = re.findall(r"(?ms)^```sh\n(.*?)^```", page)
    settings = (
        f"RELIABLE_PUBSUB_PUBLISHER_ENDPOINT={service.publisher_endpoint}",
        f"RELIABLE_PUBSUB_SUBSCRIBER_ENDPOINT={service.subscriber_endpoint}",
    )
    run = f'reliable-pubsub() {{ {shlex.join(COMMAND)} "$@"; }}; set -eo pipefail; {block}'

    process = service.run_command("page", ["env", *settings, "bash", "-c", run])

    process.done()
    assert process.stdout.splitlines()[-4:] == ["put 1 on orders", "two books", "copy", "orders"]
