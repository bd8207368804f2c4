"""`publisher.transaction()`: all topics or none, once, whatever is lost on the way (R23)."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from reliable_pubsub.common.core.answers import AnyReply
from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.errors import (
    ConflictError,
    InvalidNameError,
    LimitError,
    LogChangedError,
    ProxyUnreachableError,
    StorageFailedError,
    TooLargeError,
    UsageError,
)
from reliable_pubsub.common.core.limits import MIB
from reliable_pubsub.common.core.message_base import Request
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.transaction_messages import CommitAck
from reliable_pubsub.common.core.wire import encode_batch
from reliable_pubsub.proxy.transactions.staging import Staging
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.publisher.transactions.core import transaction as of_publisher
from tests.fakes import Disk, Link, MemoryProxy, a_body, a_world
from tests.interrupting import Interrupted, Interrupter

ONCE = RetryPolicy(retries_max=0)


def a_publisher(
    link: Link, state: Disk | None = None, *, adopt: bool = False, retry: RetryPolicy = ONCE
) -> Publisher:
    return Publisher(
        "p",
        retry=retry,
        on_log_changed="adopt" if adopt else "stop",
        _world=a_world(link, state=state),
    )


def put_both(publisher: Publisher, text: bytes) -> None:
    """One message on `a`, two on `b`, in one transaction."""
    with publisher.transaction() as transaction:
        transaction.put("a", text)
        transaction.put("b", text + b"1")
        transaction.put("b", text + b"2")


def stored(proxy: MemoryProxy) -> dict[str, list[bytes]]:
    """Bodies by topic."""
    return {
        name: [batch.body for batch in proxy.log.batches.get(log.topic_id, [])]
        for name, log in proxy.state.topics.items()
    }


def both(*texts: bytes) -> dict[str, list[bytes]]:
    """What `put_both` of these leaves."""
    return {
        "a": [a_body(text) for text in texts],
        "b": [a_body(text + b"1", text + b"2") for text in texts],
    }


class TestABlock:
    def test_stores_what_was_put_in_it_and_gives_a_receipt_for_each_topic(self) -> None:
        link = Link(MemoryProxy())
        publisher = a_publisher(link)
        publisher.put("b", b"before")

        with publisher.transaction() as transaction:
            transaction.put("a", b"1")
            transaction.put("b", b"2")
            transaction.put("a", b"3")

        receipts = [(r.topic, r.message_id, r.count, r.offset) for r in transaction.receipts]
        assert receipts == [("a", "p_1", 2, 0), ("b", "p_2", 1, 1)]
        assert stored(link.proxy)["a"] == [a_body(b"1", b"3")]
        assert publisher.put("a", b"after").message_id == "p_3"

    def test_sends_nothing_before_it_ends(self) -> None:
        link = Link(MemoryProxy())
        with a_publisher(link).transaction() as transaction:
            transaction.put("a", b"1")
            assert link.answers == []

    def test_that_an_error_leaves_stores_nothing(self) -> None:
        link = Link(MemoryProxy())
        publisher = a_publisher(link)

        def fails() -> None:
            with publisher.transaction() as transaction:
                transaction.put("a", b"1")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fails()

        put_both(publisher, b"x")
        assert stored(link.proxy) == both(b"x")

    def test_may_be_empty(self) -> None:
        link = Link(MemoryProxy())
        with a_publisher(link).transaction() as transaction:
            pass

        assert transaction.receipts == ()
        assert link.answers == []

    def test_takes_nothing_when_it_has_ended(self) -> None:
        with a_publisher(Link(MemoryProxy())).transaction() as transaction:
            transaction.put("a", b"1")

        with pytest.raises(UsageError, match="has ended"):
            transaction.put("a", b"2")

    def test_keeps_keys_headers_and_times_where_one_message_has_them(self) -> None:
        link = Link(MemoryProxy())
        with a_publisher(link).transaction() as transaction:
            transaction.put("a", b"1")
            transaction.put("a", b"2", key=b"k", headers={"h": "v"}, event_time_ns=7)

        batch = Batch([b"1", b"2"], [None, b"k"], [None, {"h": "v"}], [None, 7])
        assert stored(link.proxy) == {"a": [encode_batch(batch)]}

    def test_cuts_what_is_larger_than_a_batch(self) -> None:
        link = Link(MemoryProxy())
        half = b"x" * (MIB // 2)
        with a_publisher(link).transaction() as transaction:
            for _ in range(3):
                transaction.put("a", half)

        assert stored(link.proxy) == {"a": [a_body(half)] * 3}
        assert [(r.count, r.offset) for r in transaction.receipts] == [(3, 0)]

    def test_refuses_a_bad_message_and_keeps_the_good_ones(self) -> None:
        link = Link(MemoryProxy())
        with a_publisher(link).transaction() as transaction:
            transaction.put("a", b"1")
            with pytest.raises(InvalidNameError):
                transaction.put("", b"2")
            with pytest.raises(TooLargeError):
                transaction.put("b", b"x" * (MIB + 1))
            with pytest.raises(UsageError):
                transaction.put("b", "text")

        assert stored(link.proxy) == {"a": [a_body(b"1")]}

    def test_has_a_bound(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(of_publisher, "TRANSACTION_BYTES_MAX", 10_000)
        with a_publisher(Link(MemoryProxy())).transaction() as transaction:
            transaction.put("a", b"x" * 5_000)
            with pytest.raises(TooLargeError, match="make several transactions"):
                transaction.put("b", b"x" * 5_000)

    def test_takes_nothing_outside_its_block(self) -> None:
        """Nothing would send it."""
        link = Link(MemoryProxy())
        transaction = a_publisher(link).transaction()

        with pytest.raises(UsageError, match=r"with block.* nothing was added"):
            transaction.put("a", b"1")
        with transaction:
            transaction.put("a", b"2")
        with pytest.raises(UsageError, match="has ended"):
            transaction.put("a", b"3")

        assert stored(link.proxy) == {"a": [a_body(b"2")]}

    def test_is_not_begun_beside_a_stream(self) -> None:
        publisher = a_publisher(Link(MemoryProxy()))
        before = publisher.transaction()
        with publisher.stream():
            with pytest.raises(UsageError, match="open stream"):
                publisher.transaction()
            with pytest.raises(UsageError, match="open stream"):
                before.__enter__()

    def test_is_stored_once_if_its_block_is_begun_again(self) -> None:
        link = Link(MemoryProxy())
        with (transaction := a_publisher(link).transaction()):
            transaction.put("a", b"1")
            with pytest.raises(UsageError, match="used before"):
                transaction.__enter__()
        with pytest.raises(UsageError, match="used before"):
            transaction.__enter__()

        assert stored(link.proxy) == {"a": [a_body(b"1")]}


OTHER_CALLS: dict[str, Callable[[Publisher], object]] = {
    "put": lambda publisher: publisher.put("audit", b"x"),
    "put at QoS 1": lambda publisher: publisher.put("audit", b"x", qos=1),
    "put at QoS 0": lambda publisher: publisher.put("audit", b"x", qos=0),
    "put that waits for delivery": lambda one: one.put("audit", b"x", wait="delivered"),
    "put_many": lambda publisher: publisher.put_many("audit", [b"x"]),
    "put_batch": lambda publisher: publisher.put_batch("audit", Batch((b"x",)), b"note"),
    "begin_run": lambda publisher: publisher.begin_run(b"note", ["audit"]),
    "stream": lambda publisher: publisher.stream(),
    "transaction": lambda publisher: publisher.transaction(),
}


class TestAnOpenBlock:
    """Until it ends, its publisher puts nothing else (R38)."""

    @pytest.mark.parametrize("name", OTHER_CALLS)
    @pytest.mark.parametrize("in_thread", [False, True])
    def test_refuses_every_other_put_of_its_publisher(self, name: str, in_thread: bool) -> None:
        link, call = Link(MemoryProxy()), OTHER_CALLS[name]
        publisher = a_publisher(link)
        with suppress(KeyError), publisher.transaction() as transaction:
            transaction.put("orders", b"1")
            with ThreadPoolExecutor(1) as other, pytest.raises(UsageError, match="open transac"):
                other.submit(call, publisher).result() if in_thread else call(publisher)
            raise KeyError

        assert stored(link.proxy) == {}
        publisher.put("audit", b"2")  # after the block
        assert stored(link.proxy) == {"audit": [a_body(b"2")]}

    def test_refuses_a_block_that_was_made_before(self) -> None:
        publisher = a_publisher(Link(MemoryProxy()))
        first, second = publisher.transaction(), publisher.transaction()
        with first, pytest.raises(UsageError, match="open transaction"):
            second.__enter__()
        with second:
            pass

    def test_owns_its_publisher_even_after_an_interrupted_call_within(self) -> None:
        link = Link(MemoryProxy())
        publisher = a_publisher(link)
        transaction = publisher.transaction().__enter__()
        transaction.put("orders", b"1")
        with pytest.raises(Interrupted), Interrupter([20]):
            publisher.interest("orders")
        with pytest.raises(UsageError, match="open transaction"):
            publisher.put("audit", b"x")
        with pytest.raises(UsageError, match="this transaction ended when a call"):
            transaction.__exit__(None, None, None)

        assert stored(link.proxy) == {}

    def test_is_over_if_its_end_is_interrupted_before_the_first_line(self) -> None:
        link = Link(MemoryProxy())
        publisher = a_publisher(link)
        interrupter = Interrupter([1], files=("publisher/transactions/core/transaction.py",))
        with suppress(Interrupted), publisher.transaction() as transaction:
            transaction.put("orders", b"1")
            interrupter.__enter__()
        interrupter.__exit__(None, None, None)

        assert [place.split()[1] for place in interrupter.places] == ["_leave"]
        publisher.put("audit", b"2")
        assert stored(link.proxy) == {"audit": [a_body(b"2")]}
        assert not transaction.is_open

    def test_that_is_dropped_without_an_end_releases_its_publisher(self) -> None:
        link = Link(MemoryProxy())
        publisher = a_publisher(link)
        publisher.transaction().__enter__()
        gc.collect()

        publisher.put("audit", b"2")

        assert stored(link.proxy) == {"audit": [a_body(b"2")]}


class TestALostLink:
    """HELLO, HELLO of a, HELLO of b, STAGE, STAGE, COMMIT: each may be lost on its way or back."""

    @pytest.mark.parametrize("place", range(6))
    @pytest.mark.parametrize("lost", "<>")
    def test_stores_it_once_wherever_it_breaks(self, place: int, lost: str) -> None:
        link = Link(MemoryProxy(), "." * place + lost)
        publisher = a_publisher(link, retry=RetryPolicy(retries_max=2))

        put_both(publisher, b"x")
        put_both(publisher, b"y")

        assert stored(link.proxy) == both(b"x", b"y")

    def test_leaves_it_in_doubt_and_the_next_put_settles_it_first(self) -> None:
        link = Link(MemoryProxy(), ".....<")
        publisher = a_publisher(link)
        with pytest.raises(ProxyUnreachableError):
            put_both(publisher, b"x")
        assert publisher.transaction_in_doubt is not None

        receipt = publisher.put("a", b"after")

        assert (receipt.message_id, receipt.offset) == ("p_2", 1)
        assert publisher.transaction_in_doubt is None
        assert stored(link.proxy)["b"] == both(b"x")["b"]

    def test_says_which_topic_it_resumed_and_that_it_was_there(self) -> None:
        link = Link(MemoryProxy(), ".....<")
        publisher = a_publisher(link)
        with pytest.raises(ProxyUnreachableError):
            put_both(publisher, b"x")

        receipt = publisher.resume()

        assert receipt is not None
        assert (receipt.topic, receipt.duplicate) == ("a", True)


class TestAKill:
    @pytest.mark.parametrize("place", range(6))
    def test_of_the_publisher_is_settled_by_its_next_process(self, place: int) -> None:
        """It dies before an answer; the next process finds its outbox, or nothing was sent."""
        state, link = Disk(), Link(MemoryProxy(), "." * place + "<")
        with pytest.raises(ProxyUnreachableError):
            put_both(a_publisher(link, state), b"x")

        publisher = a_publisher(link, state)
        kept = publisher.transaction_in_doubt is not None
        publisher.resume()
        put_both(publisher, b"y")

        assert kept == (place >= 3)
        assert stored(link.proxy) == (both(b"x", b"y") if kept else both(b"y"))

    @pytest.mark.parametrize("place", [4, 5, 6])
    def test_of_the_proxy_while_it_is_staged_lets_the_publisher_stage_again(
        self, place: int
    ) -> None:
        link = Link(MemoryProxy())
        publisher = a_publisher(link, retry=RetryPolicy(retries_max=2))
        asked = 0
        answer = publisher._engine.session.asking

        def asking(request: Request, body: bytes | None = None) -> Conversation[AnyReply]:
            nonlocal asked
            asked += 1
            if asked == place:
                link.proxy = link.proxy.restarted()
            return answer(request, body)

        publisher._engine.session.asking = asking  # type: ignore[method-assign]

        put_both(publisher, b"x")

        assert stored(link.proxy) == both(b"x")

    def test_of_the_proxy_after_the_commit_changes_nothing(self) -> None:
        link = Link(MemoryProxy(), ".....<")
        publisher = a_publisher(link)
        with pytest.raises(ProxyUnreachableError):
            put_both(publisher, b"x")
        link.proxy = link.proxy.restarted()

        publisher.resume()

        assert isinstance(link.answers[-1], CommitAck)
        assert stored(link.proxy) == both(b"x")

    def test_leaves_the_place_in_the_plan_with_the_numbers(self) -> None:
        state, link = Disk(), Link(MemoryProxy(), "...<")
        publisher = a_publisher(link, state)
        with (
            pytest.raises(ProxyUnreachableError),
            publisher.transaction(b"3 of 5") as transaction,
        ):
            transaction.put("a", b"x")

        again = a_publisher(link, state)

        assert again.transaction_in_doubt is not None
        assert again.note == b"3 of 5"


class TestAState:
    def test_that_cannot_be_written_stores_and_keeps_nothing(self) -> None:
        state, link = Disk(), Link(MemoryProxy())
        publisher = a_publisher(link, state)
        put_both(publisher, b"x")
        state.is_full = True
        with pytest.raises(StorageFailedError):
            put_both(publisher, b"y")
        state.is_full = False

        assert publisher.transaction_in_doubt is None
        put_both(publisher, b"z")
        assert stored(link.proxy) == both(b"x", b"z")

    def test_in_memory_takes_its_number_from_the_proxy(self) -> None:
        link = Link(MemoryProxy())
        for text in (b"x", b"y"):
            put_both(a_publisher(link), text)

        assert stored(link.proxy) == both(b"x", b"y")

    @pytest.mark.parametrize("adopt", [False, True])
    @pytest.mark.parametrize("more", [(b"y",), (b"y", b"z")])
    def test_that_is_older_than_what_was_sent_continues_after_what_the_proxy_has(
        self, more: tuple[bytes, ...], adopt: bool
    ) -> None:
        """R24, also where the content is that of a transaction which the state has forgotten."""
        state, link = Disk(), Link(MemoryProxy())
        put_both(a_publisher(link, state), b"x")
        old = dict(state.values)
        for text in more:
            put_both(a_publisher(link, state), text)

        state.values = old
        put_both(a_publisher(link, state, adopt=adopt), b"y")

        assert stored(link.proxy) == both(b"x", *more, b"y")

    def test_that_is_older_learns_of_other_content_in_its_plan(self) -> None:
        state, link = Disk(), Link(MemoryProxy())
        old = self.in_a_plan(link, state, b"x", b"y")

        state.values = old
        with pytest.raises(ConflictError, match="another content"):
            self.put_both_at(1, a_publisher(link, state), b"z")

        assert stored(link.proxy) == both(b"x", b"y")

    def test_that_is_older_than_the_receipts_stops_a_plan(self) -> None:
        state, link = Disk(), Link(MemoryProxy())
        old = self.in_a_plan(link, state, b"x", b"y", b"z")

        state.values = old
        with pytest.raises(ConflictError, match="later ones too"):
            self.put_both_at(1, a_publisher(link, state), b"y")

    def in_a_plan(self, link: Link, state: Disk, *texts: bytes) -> dict[str, bytes]:
        """Put these by a plan; the state after the first."""
        a_publisher(link, state).begin_run(b"0", ["a", "b"])
        copies = []
        for message, text in enumerate(texts):
            self.put_both_at(message, a_publisher(link, state), text)
            copies.append(dict(state.values))
        return copies[0]

    def put_both_at(self, message: int, publisher: Publisher, text: bytes) -> None:
        with publisher.transaction(b"%d" % (message + 1)) as transaction:
            transaction.put("a", text)
            transaction.put("b", text + b"1")
            transaction.put("b", text + b"2")


class TestAnotherProxy:
    def test_stops_a_transaction_that_is_kept(self) -> None:
        state = Disk()
        put_both(a_publisher(Link(MemoryProxy()), state), b"x")

        with pytest.raises(LogChangedError):
            put_both(a_publisher(Link(MemoryProxy()), state), b"y")

    def test_under_a_running_publisher_stops_it_too(self) -> None:
        """The empty one does not know the epoch: everything is compared before anything is sent."""
        link = Link(MemoryProxy())
        publisher = a_publisher(link)
        put_both(publisher, b"x")
        link.proxy = MemoryProxy()

        with pytest.raises(LogChangedError):
            put_both(publisher, b"y")

        assert stored(link.proxy) == {}

    def test_is_adopted_if_a_person_says_so(self) -> None:
        state, link = Disk(), Link(MemoryProxy())
        put_both(a_publisher(Link(MemoryProxy()), state), b"x")

        put_both(a_publisher(link, state, adopt=True), b"y")

        assert stored(link.proxy) == both(b"y")


class TestARefusal:
    def test_at_a_limit_frees_the_numbers_and_what_was_staged(self) -> None:
        link = Link(MemoryProxy())
        publisher = a_publisher(link)
        link.proxy.allow(topics_max=1)
        with pytest.raises(LimitError):
            put_both(publisher, b"x")
        link.proxy.allow(topics_max=10)

        assert link.proxy.state.part(Staging).transactions == 0
        assert publisher.transaction_in_doubt is None
        put_both(publisher, b"y")
        assert stored(link.proxy) == both(b"y")
