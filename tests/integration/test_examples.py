"""The small examples by task: each does what its first line says."""

from __future__ import annotations

import ast
import importlib
import os
import re
import runpy
import shutil
import signal
import sqlite3
import sys
import textwrap
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from reliable_pubsub import Earliest, Publisher, Subscriber
from reliable_pubsub.testing import MemoryBroker
from tests.postgres import needs_postgresql, shared_server

from .harness import REPOSITORY, Service

EXAMPLES = REPOSITORY / "examples"
PRINTS = "It prints:"
LONGER = {"README.md", "bridge.py", "conforming_client.py", "on_demand.py", "service.py"}
LONGER |= {"graded_library.py", "graded_service.py", "wrong_services.py"}
LONGER |= {"smallest_client.py", "test_orders.py"}
NEED_SOCKETS = ("pushed.py", "sensor_at_most_once.py")
START_A_PROXY = ("backup.sh", "metrics.sh", "two_machines.sh")


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


def announced(path: Path) -> str | None:
    """Return the output that an example says it prints."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        about = ast.get_docstring(ast.parse(text)) or ""
    else:
        about = "\n".join(re.findall(r"(?m)^#(?!!) ?(.*)$", text))
    _, _, rest = about.partition(f"{PRINTS}\n\n")
    block = re.match(r"(?:    .*\n?)+", rest)
    return block and textwrap.dedent(block[0]).rstrip() + "\n"


PROGRAMS = [path.name for path in sorted(EXAMPLES.glob("*.py")) if announced(path)]
SCRIPTS = [path.name for path in sorted(EXAMPLES.glob("*.sh")) if announced(path)]


def test_the_index_has_each_example_and_those_by_task_are_short() -> None:
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\(([\w./]+)\)", index)

    files = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.*")}

    assert {file for file in files if ".pyc" not in file} - {"README.md"} == set(linked)
    assert len(linked) == len(set(linked))
    programs = [name for name in linked if name.endswith((".py", ".sh")) and name not in LONGER]
    lines = {name: len((EXAMPLES / name).read_text().splitlines()) for name in programs}
    assert {name: count for name, count in lines.items() if count > 40} == {}
    assert len(programs) >= 25


@pytest.fixture
def at_the_end_the_signals_are_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("at_the_end_the_signals_are_as_before")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_what_it_announces(
    name: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    request.getfixturevalue("process_broker" if name in NEED_SOCKETS else "memory_broker")

    runpy.run_path(str(EXAMPLES / name), run_name="__main__")

    assert capsys.readouterr().out == announced(EXAMPLES / name)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_prints_what_it_announces(name: str, service: Service) -> None:
    if name == "metrics.sh" and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    if name not in START_A_PROXY:
        service.start_proxy()

    assert run_script(service, EXAMPLES / name) == announced(EXAMPLES / name)


def run_script(service: Service, script: Path, *words: str | Path) -> str:
    """Run a script whose commands use the ports of a service; return what it prints."""
    command = service.directory / "bin" / "reliable-pubsub"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m reliable_pubsub "$@"\n')
    command.chmod(0o755)
    endpoints = {
        "PUBLISHER": service.publisher_endpoint,
        "SUBSCRIBER": service.subscriber_endpoint,
        "PUSH": service.push_endpoint,
        "INGRESS": service.ingress_endpoint,
        "METRICS": service.own_endpoint().removeprefix("tcp://"),
    }
    settings = (f"RELIABLE_PUBSUB_{name}_ENDPOINT={one}" for name, one in endpoints.items())
    surroundings = (
        f"PATH={command.parent}:{os.environ['PATH']}",
        f"PYTHONPATH={REPOSITORY}",
        f"TMPDIR={service.directory}",
        "RELIABLE_PUBSUB_SEND_RETRIES=1000",
        "no_proxy=127.0.0.1",
    )
    process = service.run_command(
        script.stem, ["env", *settings, *surroundings, "bash", str(script), *map(str, words)]
    )
    process.done()
    return process.stdout


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


@needs_postgresql
def test_the_effect_is_stored_once_in_postgresql_although_orders_are_delivered_twice(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = shared_server().new_schema()
    program = example("effect_in_postgresql")
    execute = program.psycopg.Connection.execute

    def die_in_the_transaction(db: Any, statement: str, *values: Any) -> Any:
        if statement.startswith("INSERT INTO orders"):
            raise KilledError
        return execute(db, statement, *values)

    publisher.put_many("orders", ["lamp", "piano"], codec="text")
    with monkeypatch.context() as dying:
        dying.setattr(program.psycopg.Connection, "execute", die_in_the_transaction)
        with pytest.raises(KilledError):
            program.store_orders(database, timeout_s=1)
    program.store_orders(database, timeout_s=1)
    with Subscriber("accounts") as subscriber:
        subscriber.subscribe("orders")
        subscriber.seek("orders", Earliest)
    program.store_orders(database, timeout_s=1)

    with program.psycopg.connect(database) as db:
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
    for _ in range(2):
        run_script(service, EXAMPLES / "publish.sh", "t", lines)
    with service.open_subscriber("s") as subscriber:
        assert [message.payload for message in subscriber.history("t")] == [b"a", b"b"]
        subscriber.subscribe("t")
        with service.open_publisher("p") as publisher:
            publisher.put("t", b"c")
        (message,) = subscriber.get("t")
        subscriber.reject(message, "broken")
    assert "broken" in run_script(service, EXAMPLES / "requeue.sh", "t")
    assert "was put again before" in run_script(service, EXAMPLES / "requeue.sh", "t")
