"""A `TransactionWriter` over a proxy in memory: its tasks stage in any session of the id."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from reliable_pubsub.common.core.actions import ForgetClient
from reliable_pubsub.common.core.answers import AnyReply, Fenced, HelloAck, StageLost
from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.errors import LimitError
from reliable_pubsub.common.core.requests import Hello
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.transaction_messages import CommitAck, Part, StageAck
from reliable_pubsub.common.core.wire import decode_request
from reliable_pubsub.proxy.core.state import BrokerSettings
from reliable_pubsub.proxy.operators.history import Administration
from reliable_pubsub.proxy.transactions.staging import Staging
from reliable_pubsub.publisher.core.outbox import encoded_batch
from reliable_pubsub.publisher.writer import TransactionWriter
from tests.fakes import Link, MemoryProxy, a_broker, a_hello, a_world, an_action

BATCH = encoded_batch("t", Batch([b"x"]))
ATTEMPT = b"attempt0"
PART = Part(0, ATTEMPT, 1)


class Watched(Link):
    """A way on which something happens just before a HELLO of epoch `at` arrives."""

    at = 0
    happens: Callable[[], object]

    def __call__(self, frames: Sequence[bytes]) -> Sequence[bytes] | None:
        request = decode_request(frames)[0]
        if isinstance(request, Hello) and request.epoch == self.at:
            self.at = 0
            self.happens()
        return super().__call__(frames)


def a_writer(link: Link) -> TransactionWriter:
    return TransactionWriter("w", retry=RetryPolicy(retries_max=1), _world=a_world(link))


def kinds(answers: Sequence[AnyReply]) -> list[type[AnyReply]]:
    return [type(one) for one in answers]


def with_forgotten_epochs(proxy: MemoryProxy) -> MemoryProxy:
    """Make the proxy forget an id whose epoch was 5."""
    proxy.ask(a_hello("publisher", "other", epoch=5))
    number = proxy.state.part(Administration).last_number + 1
    proxy.ask(an_action(ForgetClient(role="publisher", of="other"), number=number))
    assert proxy.state.epoch_floor == 5
    return proxy


@pytest.mark.parametrize(("forgotten", "epoch"), [(False, 1), (True, 6)])
def test_a_task_begins_a_session_if_its_writer_has_none(forgotten: bool, epoch: int) -> None:
    proxy = with_forgotten_epochs(a_broker()) if forgotten else a_broker()
    link = Link(proxy)

    assert a_writer(link).stage(1, 0, ATTEMPT, 0, BATCH)

    assert proxy.state.sessions["publisher", "w"].epoch == epoch
    asks_again = [Fenced] * forgotten
    assert kinds(link.answers) == [Fenced, *asks_again, HelloAck, StageAck]


def test_a_task_asks_for_no_session_if_there_is_one() -> None:
    link = Link(a_broker(publishers=("w",)))

    assert a_writer(link).stage(1, 0, ATTEMPT, 0, BATCH)

    assert kinds(link.answers) == [StageAck]


@pytest.mark.parametrize(("forgotten", "at"), [(False, 1), (True, 1), (True, 6)])
def test_a_task_stops_no_process_that_begins_its_session_meanwhile(
    forgotten: bool, at: int
) -> None:
    """Between STAGE and the HELLO of a task the driver begins to commit."""
    proxy = with_forgotten_epochs(a_broker()) if forgotten else a_broker()
    driver, link = a_writer(Link(proxy)), Watched(proxy)
    link.at, link.happens = at, lambda: driver.commit(1, [])

    assert a_writer(link).stage(2, 0, ATTEMPT, 0, BATCH)

    assert not driver.commit(2, [PART]).already  # its session is as it was
    assert proxy.state.topics["t"].durable_end == 1


def test_a_writer_commits_in_the_session_that_it_began_to_stage() -> None:
    link = Link(a_broker())
    writer = a_writer(link)

    writer.stage(1, 0, ATTEMPT, 0, BATCH)
    writer.commit(1, [PART])

    assert kinds(link.answers) == [Fenced, HelloAck, StageAck, HelloAck, CommitAck]
    assert link.proxy.state.sessions["publisher", "w"].epoch == 1


def test_a_writer_whose_session_was_forgotten_commits_in_the_one_that_it_began_to_stage() -> None:
    """It does not take its own session for that of another process."""
    proxy = a_broker()
    writer = a_writer(Link(proxy))
    writer.commit(1, [])
    proxy.ask(an_action(ForgetClient(role="publisher", of="w"), number=1))
    with_forgotten_epochs(proxy)

    writer.stage(2, 0, ATTEMPT, 0, BATCH)
    writer.commit(2, [PART])

    assert proxy.state.sessions["publisher", "w"].epoch == 6
    assert proxy.state.topics["t"].durable_end == 1


def test_a_session_that_ends_while_a_task_stages_takes_what_is_staged_along() -> None:
    link = Link(a_broker())
    writer = a_writer(link)
    writer.stage(1, 0, ATTEMPT, 0, BATCH)
    link.proxy.ask(an_action(ForgetClient(role="publisher", of="w"), number=1))

    with pytest.raises(Exception, match="stage the transaction again"):
        writer.stage(1, 0, ATTEMPT, 1, BATCH)

    assert kinds(link.answers)[-1] is StageLost


def test_a_task_learns_that_there_are_too_many_ids() -> None:
    """All of them have an effect: none can be forgotten."""
    proxy = a_broker(publishers=(), subscribers=(), settings=BrokerSettings(clients_max=1))
    a_writer(Link(proxy)).stage(1, 0, ATTEMPT, 0, BATCH)
    other = TransactionWriter("v", _world=a_world(Link(proxy)))

    with pytest.raises(LimitError, match="clients_max"):
        other.stage(1, 0, ATTEMPT, 0, BATCH)

    assert set(proxy.state.part(Staging).clients) == {"w"}
