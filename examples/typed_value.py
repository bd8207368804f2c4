"""Put values of a type, and get them as that type.

It prints:

    refused: orders accepts only Order
    Order(item='lamp', count=2)
"""

import msgspec

from reliable_pubsub import PayloadError, Publisher, Subscriber, typed


class Order(msgspec.Struct):
    """What a customer wants."""

    item: str
    count: int


with Publisher("shop", codecs={"orders": typed(Order)}) as shop, Subscriber("shipping") as shipping:
    shipping.subscribe("orders")
    try:
        shop.put("orders", {"item": "lamp", "count": "two"})
    except PayloadError:
        print("refused: orders accepts only Order")
    shop.put("orders", Order("lamp", 2))
    for order in shipping.messages("orders", timeout_s=1):
        print(order.value_as(Order))
