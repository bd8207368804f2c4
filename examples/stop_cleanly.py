"""End a service on SIGTERM or Ctrl-C after the message in hand; it is acknowledged.

It prints:

    ship lamp
    stopped; 1 order is left for the next start
"""

import signal

from reliable_pubsub import Message, Publisher, Subscriber


def ship(order: Message) -> None:
    """Handle one order; meanwhile, an operator ends the service."""
    print("ship", order.payload.decode())
    signal.raise_signal(signal.SIGTERM)


with Publisher("shop") as shop, Subscriber("shipping") as shipping:
    shipping.subscribe("orders")
    shipping.on("orders", ship)
    shop.put_many("orders", [b"lamp", b"piano"])
    signal.signal(signal.SIGTERM, lambda *_: shipping.stop())
    signal.signal(signal.SIGINT, lambda *_: shipping.stop())
    shipping.run()
    left = shipping.get("orders", max_messages=10)
    print(f"stopped; {len(left)} order is left for the next start")
