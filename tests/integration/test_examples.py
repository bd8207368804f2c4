"""The small examples by task: each does what its first line says."""

from __future__ import annotations

import importlib
import re
import shlex
import sqlite3
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from reliable_pubsub import Publisher, Subscriber
from reliable_pubsub.testing import MemoryBroker

from .harness import REPOSITORY, Service

EXAMPLES = REPOSITORY / "examples"
COMMAND = [sys.executable, "-m", "reliable_pubsub"]


class KilledError(Exception):
    """The program ends here."""


@pytest.fixture(autouse=True)
def at_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.fixture
def publisher(memory_broker: MemoryBroker) -> Iterator[Publisher]:
    with Publisher("p") as publisher:
        yield publisher


def example(name: str) -> Any:
    return importlib.import_module(name)


def test_the_index_has_each_example_and_those_by_task_are_short() -> None:
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\(([\w.]+)\)", index)

    files = {path.name for path in EXAMPLES.iterdir() if path.is_file()}

    assert files - {"README.md"} == set(linked)
    assert len(linked) == len(set(linked))
    lines = {name: len((EXAMPLES / name).read_text().splitlines()) for name in linked[:7]}
    assert {name: count for name, count in lines.items() if count > 40} == {}


def test_a_web_request_is_stored_when_it_is_answered(publisher: Publisher) -> None:
    orders = example("web_request").Orders
    orders.publisher = publisher
    with ThreadingHTTPServer(("127.0.0.1", 0), orders) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        with urlopen(f"http://127.0.0.1:{server.server_port}/orders", b"lamp") as answer:
            assert (answer.status, answer.read()) == (201, b"p_1")
        server.shutdown()
        serving.join()

    with Subscriber("s") as subscriber:
        assert [message.payload for message in subscriber.history("orders")] == [b"lamp"]


class DyingConnection(sqlite3.Connection):
    """Of a program that dies as it begins a statement, or after its first commit of an order."""

    dies_at = ""

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if statement.startswith(self.dies_at):
            raise KilledError
        return super().execute(statement, *values)

    def __exit__(self, *error: Any) -> Any:
        super().__exit__(*error)
        raise KilledError


@pytest.mark.parametrize("moment", ["SELECT", "INSERT", "REPLACE", "committed"])
def test_the_effect_is_stored_once_although_the_program_dies(
    moment: str, publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = str(tmp_path / "orders.db")
    program = example("effect_in_sqlite")
    program.store_orders(database)
    publisher.put_many("orders", ["lamp", "piano"], codec="text")
    monkeypatch.setattr(DyingConnection, "dies_at", moment)

    with monkeypatch.context() as dying:
        dying.setattr(program.sqlite3, "connect", DyingConnection)
        with pytest.raises(KilledError):
            program.store_orders(database)
    program.store_orders(database)

    with sqlite3.connect(database) as db:
        assert db.execute("SELECT item FROM orders").fetchall() == [("lamp",), ("piano",)]


def test_a_job_that_still_fails_after_its_retries_is_a_dead_letter(
    publisher: Publisher, capsys: pytest.CaptureFixture[str]
) -> None:
    program = example("group_worker")
    program.work("worker-1", 1)
    publisher.put_many("jobs", [b"7.png", b"7.txt", b"8.png"])

    program.work("worker-1", 100)

    assert sorted(capsys.readouterr().out.splitlines()) == ["resized 7.png", "resized 8.png"]
    with Subscriber("s") as subscriber:
        (letter,) = subscriber.history("jobs.dead")
    assert letter.payload == b"7.txt"


def test_a_subscriber_reads_the_last_hour_again(
    publisher: Publisher, memory_broker: MemoryBroker
) -> None:
    read_again = example("move_subscriber").read_again
    publisher.put("orders", b"old")
    memory_broker.advance(7200)
    publisher.put("orders", b"new")

    assert read_again("report", "orders") == [b"new"]
    assert read_again("report", "orders") == [b"new"]


def test_copies_of_a_program_share_the_orders(publisher: Publisher) -> None:
    share = example("replica").share
    handled: list[bytes] = []
    publisher.put_many("orders", [b"%d" % number for number in range(20)])
    copies = [threading.Thread(target=share, args=(handled.append, 0.5)) for _ in range(2)]

    for copy in copies:
        copy.start()
    for copy in copies:
        copy.join()

    assert sorted(map(int, handled)) == list(range(20))


def test_the_examples_for_the_shell_publish_and_requeue_each_line_once(service: Service) -> None:
    service.start_proxy()
    lines = service.file("lines.txt", "a\nb\n")
    settings = (
        f"RELIABLE_PUBSUB_PUBLISHER_ENDPOINT={service.publisher_endpoint}",
        f"RELIABLE_PUBSUB_SUBSCRIBER_ENDPOINT={service.subscriber_endpoint}",
    )
    command = f'reliable-pubsub() {{ {shlex.join(COMMAND)} "$@"; }}; export -f reliable-pubsub; '

    def run(*words: str | Path) -> str:
        script = command + shlex.join(map(str, words))
        process = service.run_command("example", ["env", *settings, "bash", "-c", script])
        process.done()
        return process.stdout

    for _ in range(2):
        run(EXAMPLES / "publish.sh", "t", lines)
    with service.open_subscriber("s") as subscriber:
        assert [message.payload for message in subscriber.history("t")] == [b"a", b"b"]
        subscriber.subscribe("t")
        with service.open_publisher("p") as publisher:
            publisher.put("t", b"c")
        (message,) = subscriber.get("t")
        subscriber.reject(message, "broken")
    assert "broken" in run(EXAMPLES / "requeue.sh", "t")
    assert "was put again before" in run(EXAMPLES / "requeue.sh", "t")
