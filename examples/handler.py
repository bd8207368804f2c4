"""Call a function with each message.

It prints:

    ship lamp
    ship piano
"""

from reliable_pubsub import Message, Publisher, Subscriber


def ship(order: Message) -> None:
    """Handle one order. It is acknowledged when this returns, and retried after an exception."""
    print("ship", order.payload.decode())


with Publisher("shop") as shop, Subscriber("shipping") as shipping:
    shipping.subscribe("orders")
    shipping.on("orders", ship)
    shop.put_many("orders", [b"lamp", b"piano"])
    shipping.run(timeout_s=1)  # ends after a second without a message; without it: runs until stop
