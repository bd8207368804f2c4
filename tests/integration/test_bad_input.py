"""Mistakes of users: exit code 2, the place, what to do; and nothing is sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from .harness import NOWHERE, REPOSITORY, Process, Service

GOOD_PUBLISHER = "steps: [{topic: t, message: m}]"


def refused(process: Process, *parts: str) -> None:
    """Check that it ended with exit code 2 and a text with all of `parts`, and sent nothing."""
    assert process.wait() == 2, process.stdout + process.stderr
    text = " ".join(process.stderr.split())
    for part in parts:
        assert part in text, text
    assert "ready:" not in process.stdout
    assert max(map(len, process.stderr.splitlines())) <= 160, "not wrapped for reading"


# What else a step file may have wrong: tests/core/test_steps.py and test_yaml_file.py.


@pytest.mark.parametrize(
    ("steps", "parts"),
    [
        (
            "steps:\n- topic: t\n  mesage: m\n- {tpic: t, message: m}\n",
            [
                *("bad.yaml, line 3, steps[0].mesage", "unknown key", "did you mean 'message'?"),
                *("line 4, steps[1].tpic", "line 4, steps[1].topic"),
            ],
        ),
        ("steps:\n  - {topic: t, message: [}\n", ["bad.yaml, line 2, column"]),
        (
            "steps: [{topic: t, message_file: none.txt}]",
            ["message_file", "none.txt", "No such file"],
        ),
    ],
    ids=["keys", "no YAML", "message file"],
)
def test_a_bad_publisher_file_is_reported_with_its_place(
    steps: str, parts: list[str], service: Service
) -> None:
    refused(service.run("publisher", "-f", service.file("bad.yaml", steps), "-i", "p"), *parts)

    assert not (service.directory / "client-state").exists()


def test_a_bad_subscriber_file_is_reported_with_its_place(service: Service) -> None:
    steps = "steps:\n- {action: subscribe, topic: t}\n- {action: get, topic: t, on_empty: stop}\n"

    process = service.run("subscriber", "-f", service.file("bad.yaml", steps), "-i", "s")

    refused(process, "bad.yaml, line 3", "steps[1].on_empty", "'stop'", "one of wait, skip")


def test_a_file_that_is_missing_or_no_text_is_reported(service: Service) -> None:
    (service.directory / "binary.yaml").write_bytes(b"steps:\n  - \xff\xfe\n")

    missing = service.run("publisher", "-f", "missing.yaml", "-i", "p")
    binary = service.run("publisher", "-f", "binary.yaml", "-i", "p")

    refused(missing, "missing.yaml", "No such file")
    refused(binary, "binary.yaml, line 2", "UTF-8", "0xff")


@pytest.mark.parametrize("client", ["a_b", "", "-a"])
def test_a_bad_id_is_refused_before_anything_is_sent(client: str, service: Service) -> None:
    file = service.file("good.yaml", GOOD_PUBLISHER)

    process = service.run("publisher", "-f", file, f"--id={client}", "--endpoint", NOWHERE)

    refused(process, "INVALID_NAME", "expected 1 to 64 of A-Z a-z 0-9")
    assert not (service.directory / "client-state").exists()


@pytest.mark.parametrize("room", ["publisher", "subscriber"])
def test_a_client_refuses_an_endpoint_on_another_machine(room: str, service: Service) -> None:
    steps = GOOD_PUBLISHER if room == "publisher" else "steps: [{action: subscribe, topic: t}]"
    file = service.file("good.yaml", steps)

    process = service.run(room, "-f", file, "-i", "c", "--endpoint", "tcp://192.0.2.1:5555")

    refused(process, "192.0.2.1", "not encrypted", "--allow-plaintext")


def test_a_proxy_refuses_to_listen_to_the_network(service: Service) -> None:
    service.publisher_endpoint = "tcp://0.0.0.0:*"

    refused(service.launch_proxy(), "0.0.0.0", "not encrypted", "--allow-plaintext")
    assert not service.data_dir.exists()


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--durability", "fast"], ["--durability", "'fast'", "sync, os, snapshot"]),
        (["--publisher-endpoint", "127.0.0.1:5555"], ["127.0.0.1:5555", "tcp://127.0.0.1:5555"]),
        (["-f", "missing.yaml"], ["missing.yaml", "No such file"]),
        (["-f", "bad.yaml"], ["bad.yaml, line 2", "durabilty", "did you mean 'durability'?"]),
        (["--no-such-option"], ["--no-such-option"]),
    ],
    ids=["choice", "endpoint", "missing file", "bad file", "option"],
)
def test_bad_settings_of_a_proxy_are_reported(
    options: list[str], parts: list[str], service: Service
) -> None:
    service.file("bad.yaml", "send_retries: 3\ndurabilty: os\n")

    refused(service.run("proxy", *options), *parts)


def test_a_port_that_is_taken_is_reported(service: Service) -> None:
    service.start_proxy()
    other = service.directory / "other"

    process = service.run("proxy", "--data-dir", other, "--publisher-endpoint",
                          service.publisher_endpoint)  # fmt: skip

    refused(process, "cannot bind", service.publisher_endpoint, "another proxy")


# What is right.


def plan_shown(process: Process) -> list[list[str]]:
    """The rows of the table of a dry run, without what stands in the last column."""
    lines = process.stdout.replace("│", "|").splitlines()
    return [[cell.strip() for cell in line.split("|")[1:8]] for line in lines if line[:1] == "|"]


def plan_of(file: Path) -> list[list[str]]:
    """The same rows, from the file itself: step, action, topic, messages, batch, both pauses."""
    steps = yaml.safe_load(file.read_text(encoding="utf-8"))["steps"]
    return [
        [
            str(number),
            action := step.get("action", "put"),
            step["topic"],
            str(step.get("number_of_times", 1 if action in ("put", "get") else 0)),
            str(step.get("batch", 1)),
            f"{step.get('sleep_between', step.get('sleep_between_messages', 0)):g} s",
            f"{step.get('sleep_after', 0):g} s",
        ]
        for number, step in enumerate(steps, 1)
    ]


@pytest.mark.parametrize("figure", sorted((REPOSITORY / "configs").glob("figure*.yaml")))
def test_the_figures_are_plans_that_a_dry_run_shows(figure: Path, service: Service) -> None:
    room = "publisher" if "publisher" in figure.name else "subscriber"

    process = service.run(room, "-f", figure, "-i", "c", "--dry-run", "--endpoint", NOWHERE)

    process.done()
    assert plan_shown(process) == plan_of(figure)
    assert "ready:" not in process.stdout
    assert not (service.directory / "client-state").exists()


def test_a_dry_run_counts_the_lines_of_a_file(service: Service) -> None:
    service.file("lines.txt", "a\n" * 1234)
    file = service.file("plan.yaml", "steps: [{topic: t, message_file: lines.txt, batch: 10}]")

    process = service.run("publisher", "-f", file, "-i", "p", "--dry-run")

    process.done()
    assert "1,234" in process.stdout
    assert "lines.txt" in process.stdout


def test_config_show_tells_each_value_with_its_origin(service: Service) -> None:
    (service.directory / "proxy").mkdir()
    service.file("proxy/settings.json", '{"send_retries": 4, "history_s": 60}')
    file = service.file("proxy.yaml", "history_s: 90\ndurability: os\n")

    process = service.run(
        "", "config", "show", "proxy", "-f", file, "--json",
        prefix=["env", "RELIABLE_PUBSUB_ACK_TIMEOUT=7", "RELIABLE_PUBSUB_SEND_RETRIES=9"],
    )  # fmt: skip

    process.done()
    shown = {
        name: (one["value"], one["origin"]) for name, one in json.loads(process.stdout).items()
    }
    assert shown["ack_timeout"] == (7.0, "RELIABLE_PUBSUB_ACK_TIMEOUT")
    assert shown["send_retries"] == (4, "proxy/settings.json, line 1")
    assert shown["history_s"] == (90, f"{file}, line 1")
    assert shown["durability"] == ("os", f"{file}, line 2")
    assert shown["data_dir"] == ("proxy-data", "default")


def test_config_show_says_of_which_bounds_there_are_none(service: Service) -> None:
    process = service.run("", "config", "show", prefix=["env", "COLUMNS=200"])

    process.done()
    row = next(one for one in process.stdout.splitlines() if "stored_bytes_max" in one)
    assert "no bound" in row
    assert "9223372036854775807" not in process.stdout


def test_the_help_of_every_command_teaches_and_names_the_exit_codes(service: Service) -> None:
    rooms = ("proxy", "publisher", "subscriber", "status", "config")
    processes = [service.run("", room, "--help") for room in rooms]
    for process in processes:
        process.done()
        assert "Exit codes: 0 done" in " ".join(process.stdout.split()), process.stdout
