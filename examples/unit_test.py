"""Test a service without a proxy: the broker is in memory, and loses an answer on demand.

With pytest, use the fixture `memory_broker` instead (test_orders.py).

It prints:

    ['lamp'], although the first answer was lost
"""

from reliable_pubsub import Publisher, Subscriber
from reliable_pubsub.testing import MemoryBroker


def test_an_order_arrives_once_if_an_answer_is_lost(broker: MemoryBroker) -> None:
    """Put an order, which is sent twice, and get it once."""
    with Publisher("shop") as shop, Subscriber("shipping") as shipping:
        shipping.subscribe("orders")
        broker.lose_next_answer("PUT")
        shop.put("orders", b"lamp")
        orders = [order.payload.decode() for order in shipping.messages("orders", timeout_s=60)]
        assert orders == ["lamp"]
        print(f"{orders}, although the first answer was lost")


if __name__ == "__main__":
    with MemoryBroker() as memory_broker, memory_broker.serving():
        test_an_order_arrives_once_if_an_answer_is_lost(memory_broker)
