"""Reject a message that cannot be processed, and read the dead letters with their reasons.

`reliable-pubsub dead put-again orders` puts each of them again, once (requeue.sh).

It prints:

    shipped lamp
    dead: pianoo, because there is no such item
"""

from reliable_pubsub import Publisher, Subscriber

with Publisher("shop") as shop, Subscriber("shipping") as shipping:
    shipping.subscribe("orders")
    shop.put_many("orders", [b"lamp", b"pianoo"])
    for order in shipping.messages("orders", timeout_s=1):
        if order.payload == b"lamp":
            print("shipped lamp")
        else:
            shipping.reject(order, "there is no such item")
    for letter in shipping.history("orders.dead"):
        reason = (letter.headers or {})["dead-letter-reason"]
        print(f"dead: {letter.payload.decode()}, because {reason}")
