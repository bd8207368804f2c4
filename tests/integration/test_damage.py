"""Stored data that is not as it was written: refused with topic and offsets, exit code 5."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from reliable_pubsub import LogChangedError, LostError
from scripts.delivery import read_lines

from .harness import PATIENCE_S, Process, Service

PUT_TEN = "steps: [{topic: t, message: m, number_of_times: 10, batch: 2}]"
GET_NINE = """
    steps:
      - {action: subscribe, topic: t}
      - {action: get, topic: t, number_of_times: 9, batch: 10, timeout: 20}
"""
SUBSCRIBE = "steps: [{action: subscribe, topic: t}]"


def damaged(process: Process, *parts: str) -> None:
    """Check that it ended with exit code 5 and one paragraph with all of `parts`."""
    assert process.wait() == 5, process.stdout + process.stderr
    text = " ".join(process.stderr.split())
    for part in ("DAMAGED", *parts):
        assert part in text, text


@pytest.fixture
def ten(service: Service) -> Service:
    """A proxy that ended with ten messages in five batches, and a subscriber that has none."""
    service.start_proxy()
    service.subscriber("s", SUBSCRIBE).done()
    service.publisher("p", PUT_TEN).done()
    assert service.proxy.terminate() == 0
    return service


def change(service: Service, statement: str) -> None:
    """Change the store as a failing disk, or a user, would."""
    with closing(sqlite3.connect(service.data_dir / "proxy.sqlite3")) as store:
        assert store.execute(statement).rowcount == 1
        store.commit()


DAMAGES = {  # others: tests/store/test_check.py
    "body": (
        "UPDATE batch SET body = zeroblob(length(body)) WHERE base = 4",
        "topic 't' offsets 4 to 5",
        (4, 6),
    ),
    "end": ("DELETE FROM batch WHERE base = 8", "topic 't' offsets 8 to 9", (8, 10)),
}


@pytest.mark.parametrize(("statement", "where", "gone"), DAMAGES.values(), ids=DAMAGES)
def test_damage_refuses_to_start_and_giving_it_up_is_reported_to_all(
    statement: str, where: str, gone: tuple[int, int], ten: Service
) -> None:
    change(ten, statement)
    before = (ten.data_dir / "proxy.sqlite3").read_bytes()

    damaged(ten.launch_proxy(), where, "Nothing was changed", "--accept-loss")
    assert (ten.data_dir / "proxy.sqlite3").read_bytes() == before
    proxy = ten.start_proxy("--accept-loss")

    assert f"given up: {where}" in " ".join(proxy.stderr.split())
    first, end = gone
    ten.publisher("q", "steps: [{topic: t, message: n}]").done()  # never on a lost offset
    subscriber = ten.subscriber("s", GET_NINE, "--again")
    subscriber.done()
    kept = [offset for offset in range(11) if not first <= offset < end]
    assert [line and line.offset for line in read_lines(ten.output("s"))] == kept
    assert f"offsets {first} to {end - 1} (2 messages)" in " ".join(subscriber.stderr.split())
    with ten.open_subscriber("reader") as reader, pytest.raises(LostError) as lost:
        reader.history("t", first)
    assert (lost.value.first, lost.value.end) == gone

    assert proxy.terminate() == 0
    ten.start_proxy()  # the loss is accepted once and for all
    ten.publisher("p", PUT_TEN, "--again").done()
    with ten.open_subscriber("reader") as reader:
        newest = reader.history("t", ten.topic("t").end - 1)
        assert [message.payload for message in newest] == [b"m_20"]


def in_the_log(service: Service, payload: bytes) -> None:
    """Change a page in the write-ahead log of a killed proxy, as a failing disk does."""
    path = service.data_dir / "proxy.sqlite3-wal"
    content = path.read_bytes()
    assert payload in content
    path.write_bytes(content.replace(payload, payload.swapcase()))


def test_a_damaged_log_refuses_to_start_and_clients_that_are_ahead_learn_it(
    service: Service,
) -> None:
    """P6: SQLite alone would continue without these commits and say nothing."""
    service.start_proxy()
    with (
        service.open_subscriber("s", state_dir=service.state_dir) as subscriber,
        service.open_publisher("p", state_dir=service.state_dir) as publisher,
    ):
        subscriber.subscribe("t")
        for number in range(5):
            publisher.put("t", b"message-%d" % number)
        assert len(subscriber.get("t", max_messages=9, timeout_s=PATIENCE_S)) == 5
    service.proxy.kill()
    in_the_log(service, b"message-2")

    refused = (
        "proxy.sqlite3-wal bytes",
        "commits cannot be read",
        "topic number 1 offsets after 1",
    )
    damaged(service.launch_proxy(), *refused, "Nothing was changed", "--accept-loss")
    proxy = service.start_proxy("--accept-loss")

    assert "given up:" in " ".join(proxy.stderr.split())
    assert service.payloads("t") == [b"message-0", b"message-1"]
    with (
        service.open_subscriber("s", state_dir=service.state_dir) as subscriber,
        pytest.raises(LogChangedError),
    ):
        subscriber.get("t")
    with (
        service.open_publisher("p", state_dir=service.state_dir) as publisher,
        pytest.raises(LogChangedError),
    ):
        publisher.put("t", b"message-5")
    proxy.kill()
    service.start_proxy()  # the loss is accepted once and for all


def test_a_killed_proxy_does_not_start_without_its_log(service: Service) -> None:
    """What else a log may be: tests/store/test_wal_check.py."""
    service.start_proxy()
    service.publisher("p", PUT_TEN).done()
    service.proxy.kill()

    (service.data_dir / "proxy.sqlite3-wal").unlink()

    damaged(service.launch_proxy(), "proxy.sqlite3-wal")


def test_a_store_that_is_none_refuses_to_start(ten: Service) -> None:
    """What else it may be: `TestAStoreThatIsNotWhole`."""
    path = ten.data_dir / "proxy.sqlite3"
    path.write_bytes(path.read_bytes()[:-8192])

    damaged(ten.launch_proxy())


def test_an_output_file_that_was_cut_is_refused(service: Service) -> None:
    service.start_proxy()
    plan = GET_NINE.replace("number_of_times: 9", "number_of_times: 2")
    subscriber = service.subscriber("s", plan)
    service.subscribed("t", "s")
    service.publisher("p", "steps: [{topic: t, message: m, number_of_times: 2, batch: 2}]").done()
    subscriber.done()
    content = service.output("s").read_bytes()
    service.output("s").write_bytes(content[:-1])

    again = service.subscriber("s", plan, "--again")

    damaged(again, str(len(content) - 1), str(len(content)), "cut or replaced")


@pytest.mark.parametrize("role", ["publisher", "subscriber"])
def test_a_damaged_client_state_is_refused(role: str, service: Service) -> None:
    service.start_proxy()
    plan = PUT_TEN if role == "publisher" else SUBSCRIBE
    start = service.publisher if role == "publisher" else service.subscriber
    start("c", plan).done()
    path = service.state_dir / f"{role}-c.sqlite3"
    with closing(sqlite3.connect(path)) as state:
        state.execute("UPDATE state SET value = x'00' WHERE name = 'topic:t'")
        state.commit()

    damaged(start("c", plan), path.name, "topic:t")
    path.write_bytes(b"x" * 5000)
    damaged(start("c", plan), path.name)
