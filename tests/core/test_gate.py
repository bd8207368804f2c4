"""The gate of a client: which calls come in, which are refused, and what breaks one off."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from reliable_pubsub.common.core.errors import InDoubtError, UsageError
from reliable_pubsub.common.core.retry import Patience
from reliable_pubsub.common.gate import Gate, closing, gated, gated_after_close
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.client import Subscriber
from tests.fakes import FakeClock, Link, MemoryProxy, a_world


class Foreign(BaseException):
    """Not a PubSubError."""


class Counter:
    """A client whose state is a number."""

    def __init__(self) -> None:
        self.recoveries = 0
        self.refuses_to_recover = False
        patience = Patience(lambda: 0.0)
        self._gate = Gate("the counter", self._begin_again, patience, threads=True)

    def _begin_again(self) -> None:
        self.recoveries += 1
        if self.refuses_to_recover:
            raise InDoubtError("not now")

    @gated
    def call(self, inner: Callable[[], object] = int) -> object:
        return inner()

    @gated_after_close
    def look(self) -> int:
        return self.recoveries

    @closing
    def close(self) -> None:
        self._gate.closed = True


def fail(error: BaseException) -> Callable[[], object]:
    def raises() -> object:
        raise error

    return raises


def test_a_call_that_returns_or_raises_one_of_our_errors_has_ended() -> None:
    counter = Counter()

    counter.call()
    with pytest.raises(UsageError):
        counter.call(fail(UsageError("no")))
    counter.call()

    assert counter.recoveries == 0


@pytest.mark.parametrize("error", [Foreign(), KeyboardInterrupt(), MemoryError(), ValueError()])
def test_whatever_else_leaves_a_call_has_broken_it_off_once(error: BaseException) -> None:
    counter = Counter()

    with pytest.raises(type(error)):
        counter.call(fail(error))
    counter.call()
    counter.call()

    assert counter.recoveries == 1


def test_a_recovery_that_fails_is_tried_again_by_the_next_call() -> None:
    counter = Counter()
    with pytest.raises(Foreign):
        counter.call(fail(Foreign()))
    counter.refuses_to_recover = True
    with pytest.raises(InDoubtError):
        counter.call()
    counter.refuses_to_recover = False

    counter.call()
    counter.call()

    assert counter.recoveries == 2


def test_a_call_from_within_a_call_is_refused_and_the_outer_one_counts_as_broken_off() -> None:
    """As by a signal handler: its error comes out of the outer call, at any line of it."""
    counter = Counter()

    with pytest.raises(UsageError, match="in the middle of a call"):
        counter.call(counter.call)
    counter.call()

    assert counter.recoveries == 1


def test_a_handler_that_catches_the_refusal_leaves_the_outer_call_alone() -> None:
    counter = Counter()

    def handler() -> str:
        with pytest.raises(UsageError):
            counter.call()
        return "done"

    assert counter.call(handler) == "done"
    counter.call()
    assert counter.recoveries <= 1  # the refused one is over; to begin again does no harm


def test_an_error_of_another_client_that_comes_out_of_a_call_has_broken_it_off() -> None:
    counter, other = Counter(), Counter()

    with pytest.raises(UsageError):
        counter.call(lambda: other.call(fail(UsageError("of the other"))))
    counter.call()

    assert counter.recoveries == 1


def test_a_closed_client_is_closed_again_and_answers_nothing_else() -> None:
    counter = Counter()
    counter.close()

    counter.close()

    assert counter.look() == 0
    with pytest.raises(UsageError, match="closed"):
        counter.call()


class Work:
    """What a call wants to have done."""

    outcome = None


def test_work_of_a_call_that_was_broken_off_while_it_waited_is_not_done_by_others() -> None:
    """Its turn is open, and no thread is in it."""
    counter = Counter()
    gate = counter._gate

    def others() -> object:
        gate._turns.append(replace(gate._turns[0], shared=Work()))
        return list(gate.waiting())

    assert counter.call(others) == []


def test_a_client_that_is_replaced_is_in_a_call_until_everything_is_freed() -> None:
    """Otherwise a thread that waits would come in while it is freed."""
    gate = Counter()._gate
    seen = []

    assert gate.replace(lambda: seen.append(gate._turns[0].is_running()))

    assert seen == [True]
    assert gate.closed


NOT_CALLS = {"put", "put_many", "put_batch", "wait_delivered", "messages", "offer_counts"}
NOT_CALLS |= {"on", "run", "stop", "interests", "wait_for_interest"}
NOT_CALLS |= {"close", "abandon"}  # they free through it
CALLS = [
    (client, name)
    for client in (Publisher, Subscriber)
    for name, member in vars(client).items()
    if name[0] != "_" and name not in NOT_CALLS
    if inspect.isfunction(member) or isinstance(member, property)
]


@pytest.mark.parametrize(("client", "name"), CALLS)
def test_every_public_call_goes_through_the_gate(client: type, name: str) -> None:
    """Those of `NOT_CALLS` are made of calls that do, or touch nothing."""
    member = vars(client)[name]
    function = member.fget if isinstance(member, property) else member
    codes = set()
    while function is not None:
        codes.add(function.__code__.co_filename.rsplit("/", 1)[-1])
        function = getattr(function, "__wrapped__", None)

    assert "gate.py" in codes


def a_publisher(link: Callable[[Sequence[bytes]], Sequence[bytes] | None]) -> Publisher:
    clock = FakeClock()
    return Publisher("p", _world=a_world(link, clock))


def test_what_is_open_when_a_call_is_broken_off_is_void_and_says_so() -> None:
    link = Link(MemoryProxy())
    publisher = a_publisher(link)
    transaction = publisher.transaction().__enter__()
    transaction.put("t", b"never")
    link.proxy, proxy = None, link.proxy  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        publisher.interest("t")  # the error of another
    link.proxy = proxy

    with pytest.raises(UsageError, match="broken off"):
        transaction.__exit__(None, None, None)

    assert publisher.put("t", b"after").offset == 0
