"""Let the proxy push messages: many subscribers, no requests while they wait.

It prints:

    got lamp
    got piano
"""

from reliable_pubsub import Publisher, Subscriber

with Publisher("shop") as shop, Subscriber("display") as display:
    display.subscribe("orders", push=True)
    shop.put("orders", b"lamp")
    shop.put("orders", b"piano")
    for _ in range(2):
        for order in display.get("orders", timeout_s=300):
            print("got", order.payload.decode())
