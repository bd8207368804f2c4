"""A publisher's state that is older than what was sent: no number gets a second content (R24).

Contents are equal on purpose: the proxy cannot tell a new message from a repeated one by them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.errors import ConflictError, ProxyUnreachableError
from reliable_pubsub.common.core.plan_mark import PlanMark, mark_of
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.steps import PlanPosition
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.publisher.core.receipt import Receipt
from tests.fakes import Disk, Link, MemoryProxy, a_world

PLAN = PlanMark("digest", steps=1)


def a_publisher(link: Link, disk: Disk, *, retries_max: int = 10) -> Publisher:
    return Publisher(
        "p", retry=RetryPolicy(retries_max=retries_max), _world=a_world(link, state=disk)
    )


def set_back(disk: Disk, copy: dict[str, bytes]) -> None:
    """Restore an older copy of a state."""
    disk.values = dict(copy)


def stored(link: Link, topic: str = "t") -> int:
    """How many messages a topic has."""
    log = link.proxy.state.topics.get(topic)
    return log.end if log else 0


def put_plan(
    publisher: Publisher, messages: int, *, mark: PlanMark = PLAN, count: int = 1
) -> list[Receipt]:
    """Run a plan of this many equal messages, from where the state is."""
    publisher.resume()
    if not mark.is_same_run(mark_of(publisher.note)):
        publisher.begin_run(mark.note, ["t"])
    done = mark_of(publisher.note)
    assert done is not None
    receipts = []
    for message in range(done.message, messages, count):
        after = mark.at(PlanPosition(0, message + count))
        receipts.append(publisher.put_batch("t", Batch([b"same"] * count), after.note))
    return receipts


def put(publisher: Publisher) -> None:
    publisher.put("t", b"same")


def put_many(publisher: Publisher) -> None:
    publisher.put_many("t", [b"same"])


def put_in_a_stream(publisher: Publisher) -> None:
    with publisher.stream() as stream:
        stream.put("t", b"same")


def put_in_a_transaction(publisher: Publisher) -> None:
    with publisher.transaction() as transaction:
        transaction.put("t", b"same")


class TestWhatAProgramPuts:
    @pytest.mark.parametrize("put", [put, put_many, put_in_a_stream, put_in_a_transaction])
    @pytest.mark.parametrize("lost", [1, 2, 3])
    def test_is_stored_although_its_number_stands_for_equal_content(
        self, put: Callable[[Publisher], None], lost: int
    ) -> None:
        link, disk = Link(MemoryProxy()), Disk()
        put(a_publisher(link, disk))
        copy = dict(disk.values)
        for _ in range(lost):
            put(a_publisher(link, disk))

        set_back(disk, copy)
        publisher = a_publisher(link, disk)
        for _ in range(5):
            put(publisher)

        assert stored(link) == 1 + lost + 5

    def test_is_stored_when_power_loss_took_what_was_not_synced(self) -> None:
        link, disk = Link(MemoryProxy()), Disk()
        first = a_publisher(link, disk)
        put(first)
        put(first)
        disk.lose_power()

        put(a_publisher(link, disk))

        assert stored(link) == 3

    def test_continues_without_a_stop_where_the_content_differs(self) -> None:
        link, disk = Link(MemoryProxy()), Disk()
        put(a_publisher(link, disk))
        copy = dict(disk.values)
        put(a_publisher(link, disk))

        set_back(disk, copy)
        receipt = a_publisher(link, disk).put("t", b"other")

        assert (receipt.first_sequence, receipt.duplicate) == (3, False)

    def test_is_not_numbered_before_the_proxy_was_asked(self) -> None:
        link, disk = Link(MemoryProxy()), Disk()
        put(a_publisher(link, disk))
        publisher = a_publisher(link, disk, retries_max=0)
        link.script(">")

        with pytest.raises(ProxyUnreachableError):
            put(publisher)

        assert publisher.in_doubt is None

    def test_comes_above_a_batch_in_doubt_that_the_old_state_still_has(self) -> None:
        """The batch is sent under its number again; the proxy has it, and later ones."""
        link, disk = Link(MemoryProxy()), Disk()
        first = a_publisher(link, disk, retries_max=0)
        put(first)
        link.script("<")
        with pytest.raises(ProxyUnreachableError):
            put(first)
        copy = dict(disk.values)
        put(a_publisher(link, disk))
        put(a_publisher(link, disk))

        set_back(disk, copy)
        publisher = a_publisher(link, disk)
        resumed = publisher.resume()
        put(publisher)

        assert resumed is not None
        assert (resumed.first_sequence, resumed.duplicate) == (2, True)
        assert stored(link) == 5

    def test_comes_above_a_transaction_in_doubt_that_the_old_state_still_has(self) -> None:
        link, disk = Link(MemoryProxy()), Disk()
        first = a_publisher(link, disk, retries_max=0)
        put_in_a_transaction(first)
        link.script(".<")  # STAGE, COMMIT
        with pytest.raises(ProxyUnreachableError):
            put_in_a_transaction(first)
        copy = dict(disk.values)
        put(a_publisher(link, disk))

        set_back(disk, copy)
        publisher = a_publisher(link, disk)
        put(publisher)
        put_in_a_transaction(publisher)

        assert stored(link) == 5

    def test_needs_no_fsync_and_no_request_of_its_own(self) -> None:
        link, disk = Link(MemoryProxy()), Disk()
        put(a_publisher(link, disk))
        publisher = a_publisher(link, disk)
        put(publisher)
        synced, asked = dict(disk.after_power_loss), len(link.answers)

        for _ in range(10):
            put(publisher)

        assert disk.after_power_loss == synced
        assert len(link.answers) == asked + 10


class TestAPlan:
    @pytest.mark.parametrize("place", [0, 1, 4, 6])
    def test_repeats_from_the_place_in_the_state_what_is_stored_already(self, place: int) -> None:
        link, disk = Link(MemoryProxy()), Disk()
        put(a_publisher(link, disk))  # by a program, before the plan
        put_plan(a_publisher(link, disk), place)
        copy = dict(disk.values)
        put_plan(a_publisher(link, disk), 6)

        set_back(disk, copy)
        receipts = put_plan(a_publisher(link, disk), 8)

        assert [receipt.duplicate for receipt in receipts] == [True] * (6 - place) + [False] * 2
        assert stored(link) == 9

    def test_that_is_set_back_twice_stores_nothing_twice(self) -> None:
        link, disk = Link(MemoryProxy()), Disk()
        put_plan(a_publisher(link, disk), 1)
        copy = dict(disk.values)
        put_plan(a_publisher(link, disk), 4)
        set_back(disk, copy)
        put_plan(a_publisher(link, disk), 2)
        copy = dict(disk.values)
        put_plan(a_publisher(link, disk), 6)

        set_back(disk, copy)
        put_plan(a_publisher(link, disk), 7)

        assert stored(link) == 7

    def test_keeps_its_numbers_while_a_program_puts_new_messages(self) -> None:
        link, disk = Link(MemoryProxy()), Disk()
        put_plan(a_publisher(link, disk), 2)
        copy = dict(disk.values)
        put_plan(a_publisher(link, disk), 5)

        set_back(disk, copy)
        put(a_publisher(link, disk))
        put_plan(a_publisher(link, disk), 3)
        put(a_publisher(link, disk))
        put_plan(a_publisher(link, disk), 6)

        assert stored(link) == 6 + 2

    @pytest.mark.parametrize(
        "mark", [PlanMark("digest", steps=1, run=2), PlanMark("other", steps=1)]
    )
    def test_that_begins_has_numbers_of_its_own(self, mark: PlanMark) -> None:
        """`--again`, or another file: its messages are new, whatever the state has forgotten."""
        link, disk = Link(MemoryProxy()), Disk()
        put_plan(a_publisher(link, disk), 2)
        copy = dict(disk.values)
        put_plan(a_publisher(link, disk), 5)

        set_back(disk, copy)
        put_plan(a_publisher(link, disk), 3, mark=mark)

        assert stored(link) == 5 + 3

    def test_that_has_begun_and_put_nothing_repeats_nothing_of_before(self) -> None:
        """The numbering was compared before its beginning was written."""
        link, disk = Link(MemoryProxy()), Disk()
        put(a_publisher(link, disk))
        copy = dict(disk.values)
        put(a_publisher(link, disk))
        set_back(disk, copy)
        put_plan(a_publisher(link, disk), 0)

        put_plan(a_publisher(link, disk), 3)

        assert stored(link) == 2 + 3

    def test_that_comes_to_another_topic_repeats_it_after_power_loss(self) -> None:
        """That the topic has our numbers is durable before the first of them is sent."""
        link, disk = Link(MemoryProxy()), Disk()
        publisher = a_publisher(link, disk)
        publisher.begin_run(PLAN.note, [])
        note = PLAN.at(PlanPosition(0, 1)).note
        publisher.put_batch("t", Batch([b"same"]), note)
        disk.lose_power()

        again = a_publisher(link, disk)
        assert again.note == PLAN.note
        assert again.put_batch("t", Batch([b"same"]), note).duplicate
        assert stored(link) == 1

    def test_whose_beginning_is_known_repeats_it_after_power_loss(self) -> None:
        """It had forgotten that the topic was its own, and took new numbers."""
        link, disk = Link(MemoryProxy()), Disk()
        put_plan(a_publisher(link, disk), 2)
        disk.lose_power()

        receipts = put_plan(a_publisher(link, disk), 3)

        assert [receipt.duplicate for receipt in receipts] == [True, True, False]

    def test_takes_no_numbers_that_its_batch_cannot_have_had(self) -> None:
        """One message stands where it would put two: that was another one."""
        link, disk = Link(MemoryProxy()), Disk()
        put_plan(a_publisher(link, disk), 2, count=2)
        copy = dict(disk.values)
        put(a_publisher(link, disk))

        set_back(disk, copy)
        put_plan(a_publisher(link, disk), 6, count=2)

        assert stored(link) == 2 + 1 + 4

    def test_that_makes_other_messages_under_its_numbers_is_reported(self) -> None:
        link, disk = Link(MemoryProxy()), Disk()
        put_plan(a_publisher(link, disk), 1)
        copy = dict(disk.values)
        put_plan(a_publisher(link, disk), 2)

        set_back(disk, copy)
        publisher = a_publisher(link, disk)
        with pytest.raises(ConflictError, match="another content"):
            publisher.put_batch("t", Batch([b"other"]), PLAN.at(PlanPosition(0, 2)).note)

    def test_repeats_its_transactions_too(self) -> None:
        link, disk = Link(MemoryProxy()), Disk()

        def transact(message: int) -> Receipt:
            publisher = a_publisher(link, disk)
            if publisher.note is None:
                publisher.begin_run(PLAN.note, ["t", "u"])
            with publisher.transaction(PLAN.at(PlanPosition(0, message)).note) as transaction:
                transaction.put("t", b"same")
                transaction.put("u", b"same")
            return transaction.receipts[0]

        transact(1)
        copy = dict(disk.values)
        transact(2)
        set_back(disk, copy)

        duplicates = [transact(message).duplicate for message in (2, 3)]

        assert duplicates == [True, False]
        assert (stored(link, "t"), stored(link, "u")) == (3, 3)
