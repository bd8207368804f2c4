"""Share work among workers, but keep the order of each customer's messages.

It prints:

    worker-1 has anna's order 1
    worker-2 has ben's order 1
    worker-2 has nothing more: anna's order 2 waits for order 1
    worker-2 has anna's order 2
"""

from reliable_pubsub import Publisher, Subscriber

with Publisher("shop") as shop, Subscriber("worker-1") as one, Subscriber("worker-2") as two:
    for worker in (one, two):
        worker.subscribe("orders", group="workers", ordered_by="key")
    shop.put_many("orders", [b"order 1", b"order 2", b"order 1"], keys=[b"anna", b"anna", b"ben"])

    (first,) = one.get("orders")
    print(f"worker-1 has {(first.key or b'').decode()}'s {first.payload.decode()}")
    (second,) = two.get("orders")
    print(f"worker-2 has {(second.key or b'').decode()}'s {second.payload.decode()}")
    if not two.get("orders"):  # it acknowledges ben's order
        print("worker-2 has nothing more: anna's order 2 waits for order 1")
    one.ack(first)
    (third,) = two.get("orders", timeout_s=10)
    print(f"worker-2 has {(third.key or b'').decode()}'s {third.payload.decode()}")
