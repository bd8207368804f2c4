"""A service that takes orders and ships them. Its tests are in test_orders.py."""

from __future__ import annotations

from collections.abc import Callable

from reliable_pubsub import Publisher, Subscriber


def take_order(item: str) -> str:
    """Take an order, and return its id."""
    with Publisher.unique("shop") as shop:
        return shop.put("orders", item, codec="text").message_id


def ship_orders(worker: str, ship: Callable[[str], None], timeout_s: float = 1.0) -> None:
    """Ship orders until there is none for a while; other workers may do so at the same time.

    An order that fails three times is a dead letter.
    """
    with Subscriber(worker) as subscriber:
        subscriber.subscribe("orders", group="shipping", lease_s=30, max_deliveries=3)
        for order in subscriber.messages("orders", timeout_s=timeout_s):
            try:
                ship(str(order.value))
            except OSError:
                subscriber.nack(order, delay_s=60)
