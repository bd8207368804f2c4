"""The files that `--journal` leaves, whatever kills the process: each line whole, the last perhaps
torn; the next life continues after it, and `lab check` reads it all."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from .harness import Process, Service, eventually

MESSAGES = 400
KILLS = 4
PUT = f"steps: [{{topic: t, message: m, number_of_times: {MESSAGES}}}]"
GET = f"""
    steps:
      - {{action: subscribe, topic: t}}
      - {{action: get, topic: t, number_of_times: {MESSAGES}}}
"""


@pytest.fixture
def folder(service: Service) -> Path:
    """Where the three journals stand."""
    folder = service.directory / "journals"
    folder.mkdir()
    return folder


def whole_lines(path: Path) -> list[dict[str, object]]:
    """The lines of a journal; all but what comes after the last line end must be whole."""
    *lines, _ = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines]


def oks(path: Path) -> int:
    """How many puts a journal says to be stored."""
    return path.read_bytes().count(b'"type":"ok","op":"put"') if path.exists() else 0


def checked(service: Service, folder: Path) -> Process:
    """`lab check` over the folder, at its end."""
    process = service.run("", "lab", "check", folder)
    process.wait()
    return process


class Trio:
    """A proxy and two clients, each with a journal."""

    def __init__(self, service: Service, folder: Path) -> None:
        self._service = service
        self._folder = folder

    def start_proxy(self) -> Process:
        return self._service.start_proxy("--journal", self._folder / "proxy.jsonl")

    def start_publisher(self) -> Process:
        return self._service.publisher("p", PUT, "--journal", self._folder / "p.jsonl")

    def start_subscriber(self) -> Process:
        return self._service.subscriber("s", GET, "--journal", self._folder / "s.jsonl")


def test_kills_in_the_middle_of_puts_leave_histories_that_continue_and_are_judged(
    service: Service, folder: Path, chance: random.Random
) -> None:
    trio = Trio(service, folder)
    trio.start_proxy()
    subscriber = trio.start_subscriber()
    service.subscribed("t", "s")
    publisher = trio.start_publisher()
    restart: dict[str, Callable[[], Process]] = {
        "p": trio.start_publisher,
        "proxy": trio.start_proxy,
    }
    for kill in range(KILLS):
        seen = min(oks(folder / "p.jsonl") + chance.randrange(20, 60), MESSAGES)
        eventually(lambda seen=seen: oks(folder / "p.jsonl") >= seen, "put")  # type: ignore[misc]
        victim = ("p", "proxy")[kill % 2]
        (publisher if victim == "p" else service.proxy).kill()
        before = (folder / f"{victim}.jsonl").read_bytes()
        whole_lines(folder / f"{victim}.jsonl")
        next_life = restart[victim]()
        publisher = next_life if victim == "p" else publisher
        assert (folder / f"{victim}.jsonl").read_bytes().startswith(before)
    publisher.done()
    subscriber.done()
    assert service.proxy.terminate() == 0

    assert [line["type"] for line in whole_lines(folder / "p.jsonl")].count("begin") == 3
    # A publisher that is killed between the line of a put and its state says so again.
    stored = [line for line in whole_lines(folder / "p.jsonl") if line["type"] == "ok"]
    assert MESSAGES <= oks(folder / "p.jsonl") <= MESSAGES + KILLS
    assert len({line["sequence"] for line in stored if line["op"] == "put"}) == MESSAGES
    verdict = checked(service, folder)
    assert verdict.exit_code == 0, verdict.stdout


def test_a_life_after_a_torn_line_begins_a_line_of_its_own(service: Service, folder: Path) -> None:
    trio = Trio(service, folder)
    trio.start_proxy()
    journal = folder / "p.jsonl"
    publisher = trio.start_publisher()
    eventually(lambda: oks(journal) > 9, "put")
    publisher.kill()
    torn = journal.read_bytes().rstrip(b"\n")[:-20]
    journal.write_bytes(torn)  # as if the system had gone with it

    trio.start_publisher().done()
    assert service.proxy.terminate() == 0

    data = journal.read_bytes()
    assert data.startswith(torn + b'\n{"type":"begin"')
    assert data.endswith(b"\n")
    verdict = checked(service, folder)
    assert verdict.exit_code == 0, verdict.stdout


def test_what_a_journal_hides_is_found(service: Service, folder: Path) -> None:
    """The judge of these files can fail: a stored message that the proxy does not tell of."""
    trio = Trio(service, folder)
    trio.start_proxy()
    trio.start_publisher().done()
    assert service.proxy.terminate() == 0
    journal = folder / "proxy.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    stored = [line for line in lines if line.startswith(b'{"type":"stored"')]

    lines.remove(stored[100])
    journal.write_bytes(b"".join(lines))

    verdict = checked(service, folder)
    assert verdict.exit_code == 1, verdict.stdout
    assert "V1" in verdict.stdout
