"""How to test a service: `pytest examples/test_orders.py`. No broker has to run."""

from __future__ import annotations

import pytest
from orders import ship_orders, take_order

from reliable_pubsub import Subscriber
from reliable_pubsub.testing import MemoryBroker, ProcessBroker


@pytest.fixture
def shipped(memory_broker: MemoryBroker) -> list[str]:
    """What was shipped; the workers know the topic before the first order."""
    ship_orders("worker-1", lambda _: None)
    return []


def test_an_order_is_shipped_once_if_its_answer_is_lost(
    memory_broker: MemoryBroker, shipped: list[str]
) -> None:
    memory_broker.lose_next_answer("PUT")
    take_order("lamp")

    ship_orders("worker-1", shipped.append)

    assert shipped == ["lamp"]


def test_an_order_survives_a_restart_of_the_broker(
    memory_broker: MemoryBroker, shipped: list[str]
) -> None:
    take_order("lamp")
    memory_broker.restart()

    ship_orders("worker-1", shipped.append)

    assert shipped == ["lamp"]


def test_an_order_of_a_worker_that_hangs_goes_to_another(
    memory_broker: MemoryBroker, shipped: list[str]
) -> None:
    take_order("lamp")
    with Subscriber("worker-2") as hanging:
        hanging.subscribe("orders", group="shipping")
        assert hanging.get("orders")
        memory_broker.advance(31)  # seconds: its lease is over

        ship_orders("worker-1", shipped.append)

    assert shipped == ["lamp"]


def test_an_order_that_fails_three_times_is_a_dead_letter(shipped: list[str]) -> None:
    def fail(item: str) -> None:
        shipped.append(item)
        raise OSError("no van")

    take_order("piano")
    ship_orders("worker-1", fail, timeout_s=100)  # no second of it is waited

    with Subscriber("operator") as operator:
        letters = list(operator.history("orders.dead"))
    assert shipped == ["piano"] * 3
    assert [letter.payload for letter in letters] == [b"piano"]


def test_the_service_works_with_a_broker_of_its_own(process_broker: ProcessBroker) -> None:
    shipped: list[str] = []
    ship_orders("worker-1", shipped.append, timeout_s=0)
    take_order("lamp")
    process_broker.restart()

    ship_orders("worker-1", shipped.append)

    assert shipped == ["lamp"]
