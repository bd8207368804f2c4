"""Put messages and get them, each once.

It prints:

    stored as shop_1
    lamp
    piano
"""

from reliable_pubsub import Publisher, Subscriber

with Publisher("shop") as shop, Subscriber("shipping") as shipping:
    shipping.subscribe("orders")  # from now on
    receipt = shop.put("orders", b"lamp")  # returns when the proxy has stored it
    print("stored as", receipt.message_id)
    shop.put("orders", b"piano")
    for order in shipping.messages("orders", timeout_s=1):
        print(order.payload.decode())  # acknowledged when the loop asks for the next one
