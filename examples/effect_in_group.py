"""Store the effect of each job once in your database, with several workers.

The messages of a group end in any order, so there is no single offset to store. Store the id of
each message with its effect; the database refuses a second one.

It prints:

    delivery 1 of shop_1: stored
    delivery 2 of shop_1: was stored before
"""

import sqlite3

from reliable_pubsub import Message, Publisher, Subscriber

db = sqlite3.connect(":memory:")
db.execute("CREATE TABLE orders (message TEXT PRIMARY KEY, item TEXT)")


def store(order: Message) -> None:
    """Store an order in one statement, which has an effect once."""
    row = (order.message_id, order.payload.decode())
    with db:
        done = db.execute("INSERT INTO orders VALUES (?, ?) ON CONFLICT DO NOTHING", row)
    known = "stored" if done.rowcount else "was stored before"
    print(f"delivery {order.delivery_count} of {order.message_id}: {known}")


with Publisher("shop") as shop, Subscriber("worker-1") as worker:
    worker.subscribe("orders", group="accounts")
    shop.put("orders", b"lamp")
    for order in worker.messages("orders", timeout_s=1):
        store(order)
        if order.delivery_count == 1:
            worker.nack(order)  # as if the worker had died here
