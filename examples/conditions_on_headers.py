"""Get only the messages whose headers meet a condition. The proxy applies it.

It prints:

    lamp for eu
"""

from reliable_pubsub import Publisher, Subscriber, prefix

with Publisher("shop") as shop, Subscriber("europe") as europe:
    orders = prefix("orders")
    europe.subscribe(match=orders, where='region = "eu"')
    shop.put("orders", b"lamp", headers={"region": "eu"})
    shop.put("orders", b"piano", headers={"region": "us"})
    for order in europe.messages(orders, timeout_s=1):
        print(order.payload.decode(), "for", (order.headers or {})["region"])
