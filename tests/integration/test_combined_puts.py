"""Puts of several threads share requests, and each gets the outcome of its own message (R25)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from reliable_pubsub import InDoubtError, LimitError, Publisher, Receipt
from reliable_pubsub.common.core.answers import Limit
from reliable_pubsub.common.core.client_state import MemoryState
from reliable_pubsub.common.core.message_base import QoS
from reliable_pubsub.common.core.requests import Put
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.wire import decode_batch, decode_request, encode
from tests.fakes import FakeClock, Link, MemoryProxy, a_world

from .harness import Service, eventually

THREADS = 8


class Interrupted(BaseException):
    """Not a PubSubError."""


class HoldingLink(Link):
    """A link that holds the first put until `THREADS` others wait, and counts all puts.

    What leaves it then is what `fate` says of the next one: "." passes, ">" and "<" lose the
    request or the answer, "L" is the answer LIMIT, "!" and "?" raise in the sending thread, before
    and after it is stored.
    """

    def __init__(self, fate: str = ".", *, times: int = 1) -> None:
        super().__init__(MemoryProxy())
        self.clock = FakeClock()
        self.publisher = Publisher(
            "p",
            retry=RetryPolicy(timeout_s=1.0, retries_max=0),
            _world=a_world(self, self.clock, MemoryState()),
        )
        self.sizes: list[int] = []  # of each request, in messages
        self._fates = [".", *fate * times]

    def __call__(self, frames: Sequence[bytes]) -> Sequence[bytes] | None:
        request, _ = decode_request(frames)
        if not isinstance(request, Put):
            return super().__call__(frames)
        if not self.sizes:
            waiting = self.publisher._gate.waiting
            eventually(lambda: len(list(waiting())) >= THREADS, "puts that wait")
        self.sizes.append(request.count)
        fate = self._fates.pop(0) if self._fates else "."
        if fate == "!":
            raise Interrupted
        if fate == "L":
            limit = Limit(
                client="p", epoch=request.epoch, request=request.request, limit=1, text="no room"
            )
            return encode(limit, b"")
        self.script(fate if fate in "<>" else "")
        answer = super().__call__(frames)
        if fate == "?":
            raise Interrupted
        return answer

    def stored(self, topic: str = "t") -> list[tuple[int, bytes]]:
        """Sequence and payload of each message of a topic."""
        log = self.proxy.state.topics[topic]
        return [
            (batch.first_sequence + index, payload)
            for batch in self.proxy.log.batches[log.topic_id]
            for index, payload in enumerate(decode_batch(batch.body, batch.count).payloads)
        ]


Outcomes = dict[bytes, Receipt | BaseException]


def put_from_threads(
    link: HoldingLink, put: Callable[[Publisher, bytes], Receipt], *, first: bytes = b"first"
) -> Outcomes:
    """One thread puts, and is held; the others come. The outcome of each, by its payload."""
    outcomes: Outcomes = {}
    link.publisher.ready_for("t")

    def call(payload: bytes) -> None:
        try:
            outcomes[payload] = put(link.publisher, payload)
        except BaseException as error:
            outcomes[payload] = error

    payloads = [first, *(b"%d" % number for number in range(THREADS))]
    threads = [threading.Thread(target=call, args=(payload,)) for payload in payloads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def each_once(link: HoldingLink, outcomes: Outcomes) -> None:
    """Every message stands in the log once, and where its receipt says."""
    stored = link.stored()
    assert sorted(payload for _, payload in stored) == sorted(outcomes)
    assert [sequence for sequence, _ in stored] == list(range(1, len(stored) + 1))
    for payload, receipt in outcomes.items():
        if isinstance(receipt, Receipt):
            assert receipt.offset is not None
            assert stored[receipt.offset] == (receipt.first_sequence, payload)


def put_at(qos: QoS) -> Callable[[Publisher, bytes], Receipt]:
    return lambda publisher, payload: publisher.put("t", payload, qos=qos)


@pytest.mark.parametrize("qos", [1, 2])
def test_puts_that_wait_are_one_request_and_each_has_its_own_receipt(qos: QoS) -> None:
    link = HoldingLink()

    outcomes = put_from_threads(link, put_at(qos))

    assert link.sizes == [1, THREADS]
    assert all(isinstance(one, Receipt) and one.count == 1 for one in outcomes.values()), outcomes
    places = [one.offset for one in outcomes.values() if isinstance(one, Receipt)]
    assert sorted(places, key=lambda one: one or 0) == list(range(THREADS + 1))
    if qos == 2:
        each_once(link, outcomes)


def test_puts_on_other_topics_do_not_share() -> None:
    link = HoldingLink()

    put_from_threads(link, lambda publisher, payload: publisher.put(f"t{payload[-1] % 2}", payload))

    assert sorted(link.sizes) == [1, THREADS // 2, THREADS // 2]


@pytest.mark.parametrize("fate", ["<", ">"])
def test_in_doubt_together_is_kept_together_and_each_call_raises_it(fate: str) -> None:
    link = HoldingLink(fate)

    outcomes = put_from_threads(link, put_at(2))

    errors = [one for one in outcomes.values() if isinstance(one, InDoubtError)]
    assert len(errors) == len(set(map(id, errors))) == THREADS
    assert all(error.kept for error in errors)
    assert link.publisher.in_doubt is not None
    assert link.publisher.in_doubt.count == THREADS
    link.publisher.resume()
    each_once(link, outcomes)


@pytest.mark.parametrize("fate", ["!", "?", "!!", "??", "?!", "!?"])
def test_where_the_sending_thread_is_interrupted_the_others_lose_and_double_nothing(
    fate: str,
) -> None:
    """Before or after the proxy has them; the next thread may be interrupted as well."""
    link = HoldingLink(fate)

    outcomes = put_from_threads(link, put_at(2))

    interrupted = [one for one in outcomes.values() if isinstance(one, Interrupted)]
    assert len(interrupted) == len(fate)
    assert sum(isinstance(one, Receipt) for one in outcomes.values()) == THREADS + 1 - len(fate)
    each_once(link, outcomes)
    assert link.publisher.in_doubt is None


def test_after_an_interrupted_thread_what_is_in_doubt_is_kept_for_the_others() -> None:
    """Its batch is sent again by the next thread, which does not reach the proxy either."""
    link = HoldingLink("?<")

    outcomes = put_from_threads(link, put_at(2))

    errors = [one for one in outcomes.values() if isinstance(one, InDoubtError)]
    assert len(errors) == THREADS - 1
    assert all(error.kept for error in errors)
    link.publisher.resume()
    each_once(link, outcomes)


def test_what_is_refused_together_is_put_alone_so_that_each_gets_its_own_outcome() -> None:
    link = HoldingLink("L.L")

    outcomes = put_from_threads(link, put_at(2))

    assert link.sizes == [1, THREADS, *[1] * THREADS]
    refused = [one for one in outcomes.values() if isinstance(one, LimitError)]
    assert len(refused) == 1
    for payload, one in list(outcomes.items()):
        if one in refused:
            del outcomes[payload]
    each_once(link, outcomes)


def test_puts_of_threads_share_requests_at_a_real_proxy(service: Service) -> None:
    service.start_proxy()
    count = 50
    with service.open_publisher("p") as publisher:
        publisher.put("t", b"warm")
        numbers = publisher._opened.asker.numbers
        before = next(numbers)
        ready = threading.Barrier(THREADS)

        def puts(thread: int) -> None:
            ready.wait()
            for number in range(count):
                publisher.put("t", b"%d/%d" % (thread, number))

        threads = [threading.Thread(target=puts, args=(number,)) for number in range(THREADS)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        requests = next(numbers) - before

    assert len(set(service.payloads("t"))) == THREADS * count + 1
    assert requests < THREADS * count / 2
