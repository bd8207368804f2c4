"""Process messages in batches, and acknowledge each batch when its work is done.

It prints:

    stored rows 1 to 4
    stored rows 5 to 8
    stored rows 9 to 10
"""

from reliable_pubsub import Publisher, Subscriber

with Publisher("p") as publisher, Subscriber("loader") as loader:
    loader.subscribe("rows")
    publisher.put_many("rows", [b"%d" % number for number in range(1, 11)])
    while rows := loader.get("rows", max_messages=4, timeout_s=1):
        first, last = rows[0].payload.decode(), rows[-1].payload.decode()
        print(f"stored rows {first} to {last}")
        loader.acknowledge("rows")  # the next `get` would do it, too
