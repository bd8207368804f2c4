"""The engine of a publisher without a shell, and with one that does not block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import deepcopy
from typing import TypeVar

import pytest

from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.conversation import (
    Conversation,
    Exchange,
    Reopen,
    Save,
    ShellEffect,
    Sleep,
)
from reliable_pubsub.common.core.errors import InDoubtError, ProxyUnreachableError
from reliable_pubsub.common.core.message_base import QoS
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.world import World
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.publisher.core.outbox import Outbox, encoded_batch
from reliable_pubsub.publisher.core.puts import WaitingPut
from reliable_pubsub.publisher.core.receipt import Receipt
from tests.fakes import Disk, FakeClock, FakeTransport, Link, MemoryProxy

T = TypeVar("T")
ONCE = RetryPolicy(retries_max=1)


class House:
    """A proxy, and a publisher of which the engine is used."""

    def __init__(self, script: str = "") -> None:
        self.clock = FakeClock()
        self.disk = Disk()
        self.transport = FakeTransport(Link(MemoryProxy(), script), self.clock)
        world = World(
            connect=lambda _: self.transport,
            clock=self.clock,
            state=self.disk,
            chance=lambda: 0.0,
            token=lambda count: b"n" * count,
        )
        self.publisher = Publisher("p", retry=ONCE, _world=world)
        self.engine = self.publisher._engine

    async def run(self, conversation: Conversation[T]) -> T:
        """A shell that could wait for other things meanwhile."""
        value: object = None
        while True:
            try:
                effect = conversation.send(value)
            except StopIteration as end:
                result: T = end.value
                return result
            await asyncio.sleep(0)
            value = self.carry_out(effect)

    def carry_out(self, effect: ShellEffect) -> object:
        match effect:
            case Exchange():
                self.transport.send(effect.frames)
                return self.transport.receive(effect.timeout_s)
            case Reopen():
                self.transport.move_on()
            case Save():
                self.disk.write(effect.changes, durable=effect.durable)
            case Sleep():
                self.clock.sleep(effect.seconds)
        return None


def a_put(qos: QoS = 2, note: bytes | None = None, *, count: int = 1) -> WaitingPut:
    batch = Batch([b"a"] * count)
    return WaitingPut(batch, encoded_batch("t", batch), qos, note)


def by_asyncio(house: House, puts: int) -> None:
    for _ in range(puts):
        asyncio.run(house.run(house.engine.put(a_put())))


def by_blocking(house: House, puts: int) -> None:
    for _ in range(puts):
        house.publisher.put("t", b"a")


@pytest.mark.parametrize("script", ["", "...<", "..>.<"], ids=["calm", "answer lost", "both lost"])
def test_two_shells_send_the_same_bytes_and_keep_the_same_state(script: str) -> None:
    """Retries, numbers and the outbox are the engine's; a shell adds nothing."""
    houses = House(script), House(script)

    by_blocking(houses[0], 3)
    by_asyncio(houses[1], 3)

    first, second = houses
    assert first.transport.sent == second.transport.sent
    assert first.disk.values == second.disk.values
    assert first.clock.sleeps == second.clock.sleeps


def test_without_an_answer_each_attempt_is_an_exchange_and_each_pause_a_value() -> None:
    house = House()
    by_blocking(house, 1)
    effects: list[type] = []

    with pytest.raises(ProxyUnreachableError) as error:
        effects.extend(map(type, house.engine.put(a_put())))  # each has the result None: silence

    assert effects == [Save, Exchange, Reopen, Sleep, Exchange, Reopen, Reopen]
    assert isinstance(error.value, InDoubtError)
    assert error.value.kept


def test_puts_that_share_a_request_each_get_their_part_of_its_receipt() -> None:
    house = House()
    by_blocking(house, 1)
    for qos in (2, 1):
        puts = [a_put(qos), a_put(qos, count=2), a_put(qos)]
        sent = len(house.transport.sent)

        asyncio.run(house.run(house.engine.put(puts[0], puts[1:])))
        assert len(house.transport.sent) == sent + 1
        told = [asyncio.run(house.run(house.engine.put(put))) for put in puts]

        assert len(house.transport.sent) == sent + 1
        first, offset = told[0].first_sequence, told[0].offset
        assert offset is not None
        assert [(one.first_sequence - first, one.count, one.offset) for one in told] == [
            (0, 1, offset),
            (1, 2, offset + 1),
            (3, 1, offset + 3),
        ]


def test_without_an_offset_the_part_of_a_receipt_has_none() -> None:
    house = House()
    put = a_put()
    put.outcome, put.ahead = Receipt("t", "p", 11, 2, None, "sync", True), 1

    part = asyncio.run(house.run(house.engine.put(put)))

    assert (part.first_sequence, part.count, part.offset) == (12, 1, None)


def test_a_put_that_raised_an_error_stays_so_when_it_is_settled_later() -> None:
    house = House("...>>")
    by_blocking(house, 1)
    put = a_put()
    with pytest.raises(ProxyUnreachableError):
        asyncio.run(house.run(house.engine.put(put)))

    asyncio.run(house.run(house.engine.settle()))

    assert isinstance(put.outcome, ProxyUnreachableError)


def looks(outbox: Outbox) -> object:
    return deepcopy(vars(outbox))


Begin = Callable[[House], Conversation[object]]
CONVERSATIONS: dict[str, Begin] = {
    "put": lambda house: house.engine.put(a_put()),
    "put with a note": lambda house: house.engine.put(a_put(note=b"1")),
    "put at QoS 1": lambda house: house.engine.put(a_put(1)),
    "begin a run": lambda house: house.engine.begin_run(b"0", ["t", "u"]),
    "ready for": lambda house: house.engine.ready_for("u", 1, repeats=False),
    "connect": lambda house: house.engine.session.connecting(),
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_that_is_left_at_an_effect_does_nothing_when_it_is_collected(
    name: str,
) -> None:
    """R25: by then the next call has read the state, and what it knows must stay."""
    for left_at in range(1, 20):
        house = House()
        conversation = CONVERSATIONS[name](house)
        try:
            effect = next(conversation)
            for _ in range(left_at - 1):
                effect = conversation.send(house.carry_out(effect))
        except StopIteration:
            assert left_at > 2
            return
        before = looks(house.engine.outbox), list(house.transport.sent), dict(house.disk.values)

        conversation.close()

        after = looks(house.engine.outbox), list(house.transport.sent), dict(house.disk.values)
        assert after == before
    raise AssertionError("it does not end")


def test_a_put_whose_time_is_over_leaves_the_others_of_its_request_their_time() -> None:
    house = House("...>")
    by_blocking(house, 1)
    first, second = a_put(), a_put()
    run, patience = house.publisher._run, house.publisher._gate.patience

    patience.begin(1.0)
    with pytest.raises(ProxyUnreachableError) as error:
        run(house.engine.put(first, [second]))
    assert (error.value.kept, error.value.timeout_s) == (True, 1.0)
    assert second.outcome is None
    assert not second.withdraw()  # it is kept with the first one

    patience.begin(None)
    receipt = run(house.engine.put(second))
    assert (receipt.first_sequence, receipt.offset) == (3, 2)


def test_a_put_that_was_taken_back_is_in_no_request_of_another_call() -> None:
    house = House()
    first, second = a_put(), a_put()

    assert second.withdraw()
    house.publisher._run(house.engine.put(first, [second]))

    assert second.outcome is None
    assert house.publisher.put("t", b"a").first_sequence == 2


def test_a_put_that_was_not_numbered_in_time_is_its_callers_again() -> None:
    house = House(">")
    first, second = a_put(), a_put()

    house.publisher._gate.patience.begin(1.0)
    with pytest.raises(ProxyUnreachableError) as error:
        house.publisher._run(house.engine.put(first, [second]))

    assert not error.value.kept
    assert second.withdraw()
