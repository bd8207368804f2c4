"""Transactions with real processes: kill -9 of publisher and proxy; the topics are the judge."""

from __future__ import annotations

import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier

import pytest

from reliable_pubsub import InDoubtError
from reliable_pubsub.common.core.answers import Fenced
from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.transaction_messages import Part
from reliable_pubsub.common.core.wire import decode_reply, encode
from reliable_pubsub.common.transport import ReqTransport
from reliable_pubsub.publisher.core.outbox import encoded_batch
from reliable_pubsub.publisher.writer import TransactionWriter
from tests.fakes import a_stage, put_body

from .harness import IMPATIENT, PATIENCE_S, Process, Service, eventually, losing_link

TRANSACTIONS = 150
PROGRAM = """
import sys
from reliable_pubsub import Publisher, RetryPolicy

endpoint, state_dir, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
patient = RetryPolicy(timeout_s=0.5, retries_max=1000, pause_s=0.05, pause_s_max=0.3)
with Publisher("bank", endpoint=endpoint, state_dir=state_dir, retry=patient) as publisher:
    publisher.resume()
    for number in range(publisher.ready_for("debits") - 1, count):
        with publisher.transaction() as transaction:
            transaction.put("debits", b"%d" % number)
            transaction.put("credits", b"%d" % number)
            transaction.put("credits", b"fee %d" % number)
"""


def bank(service: Service) -> Process:
    """Moves money: one message on `debits`, two on `credits`, each time."""
    arguments = (service.publisher_endpoint, str(service.state_dir), str(TRANSACTIONS))
    return service.run_command("bank", [sys.executable, "-c", PROGRAM, *arguments])


def debits(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def credits(count: int) -> list[bytes]:
    return [text for n in range(count) for text in (b"%d" % n, b"fee %d" % n)]


@pytest.mark.parametrize("victims", [("bank",), ("proxy",), ("bank", "proxy")], ids="+".join)
def test_kills_at_random_moments_leave_whole_transactions_once(
    service: Service, chance: random.Random, victims: tuple[str, ...]
) -> None:
    service.start_proxy()
    process = bank(service)
    kills = 0
    while process.exit_code is None and kills < 12:
        time.sleep(chance.uniform(0.0, 0.3))
        if chance.choice(victims) == "proxy":
            service.restart_proxy()
        else:
            process.kill()
            process = bank(service)
        kills += 1
    process.done()

    assert kills >= 1
    assert service.payloads("debits") == debits(TRANSACTIONS)
    assert service.payloads("credits") == credits(TRANSACTIONS)


@pytest.mark.parametrize("answers", range(3, 7))
def test_a_transaction_whose_answers_are_lost_is_resumed_once(
    service: Service, answers: int
) -> None:
    """HELLO and both positions have come; then an answer of STAGE or COMMIT is lost for good."""
    service.start_proxy()
    lost = False
    with losing_link(service.publisher_endpoint, answers=answers) as link:
        options = {"endpoint": link.endpoint, "state_dir": service.state_dir, "retry": IMPATIENT}
        with service.open_publisher("p", **options) as publisher:
            try:
                with publisher.transaction() as transaction:
                    transaction.put("a", b"1")
                    transaction.put("b", b"1")
            except InDoubtError:
                lost = True
                assert publisher.transaction_in_doubt is not None

    with service.open_publisher("p", state_dir=service.state_dir) as publisher:
        publisher.resume()
        with publisher.transaction() as transaction:
            transaction.put("a", b"2")
            transaction.put("b", b"2")

    assert lost == (answers < 6)
    assert service.payloads("a") == service.payloads("b") == [b"1", b"2"]


def test_a_subscriber_sees_all_topics_of_a_transaction_at_the_same_moment(
    service: Service,
) -> None:
    """A program that has seen a debit finds its credits, without waiting."""
    service.start_proxy()
    process = bank(service)
    with service.open_subscriber("s") as subscriber:
        eventually(lambda: subscriber.history("debits", 0), "a debit")
        for number in range(TRANSACTIONS):
            eventually(lambda n=number: subscriber.history("debits", n), "debit")  # type: ignore[misc]
            found = subscriber.history("credits", 2 * number, max_messages=2)
            assert [m.payload for m in found][:2] == credits(number + 1)[-2:]
    process.done()


def test_tasks_of_an_unknown_writer_stage_at_once_and_stop_neither_each_other_nor_the_driver(
    service: Service,
) -> None:
    service.start_proxy()
    tasks, begin = 8, Barrier(8)

    def a_writer() -> TransactionWriter:
        return TransactionWriter("sink", endpoint=service.publisher_endpoint, retry=IMPATIENT)

    def stage(task: int) -> Part:
        begin.wait()
        with a_writer() as writer:
            for chunk in range(3):
                row = encoded_batch("rows", Batch([b"%d.%d" % (task, chunk)]))
                assert writer.stage(1, task, b"attempt%d" % task, chunk, row)
        return Part(task, b"attempt%d" % task, 3)

    with ThreadPoolExecutor(tasks) as pool:
        parts = list(pool.map(stage, range(tasks)))
    with a_writer() as driver:
        driver.commit(1, parts)
        with a_writer() as late:  # a task of a try that Spark has given up
            assert not late.stage(1, 0, b"attempt-late", 0, encoded_batch("rows", Batch([b"late"])))
            late.stage(2, 0, b"attempt-late", 0, encoded_batch("rows", Batch([b"late"])))
        driver.commit(2, [])

    assert service.payloads("rows") == [b"%d.%d" % (t, c) for t in range(tasks) for c in range(3)]


def test_what_a_client_stages_without_a_session_is_refused_by_the_proxy(service: Service) -> None:
    service.start_proxy()
    body = put_body(1)
    with closing(ReqTransport(service.publisher_endpoint)) as transport:
        transport.send(encode(a_stage(1, client="stranger"), body))
        answer = transport.receive(PATIENCE_S)

    assert answer is not None
    refused = decode_reply(answer)[0]
    assert isinstance(refused, Fenced)
    assert "does not know 'stranger'; send HELLO first" in refused.text


def test_status_counts_transactions(service: Service) -> None:
    service.start_proxy()
    with service.open_publisher("p") as publisher, publisher.transaction() as transaction:
        transaction.put("a", b"1")

    text = service.run("", "status", "--endpoint", service.subscriber_endpoint)
    text.done()

    assert "transactions: 0 not committed" in text.stdout
    assert "1 publishers use them" in " ".join(text.stdout.split())
