"""Put many messages: as one batch, or as a stream that does not wait for each.

It prints:

    a batch: 3 messages in one request
    a stream: 1000 messages, the last at offset 1002
"""

from reliable_pubsub import Publisher

with Publisher("sensor") as sensor:
    sensor.put_many("heat", [b"20.9", b"21.0", b"21.2"])  # all of them or none
    print("a batch: 3 messages in one request")
    with sensor.stream() as stream:  # sends batches, keeps the order, ends when all are stored
        tickets = [stream.put("heat", b"%d" % number) for number in range(1000)]
    print("a stream: 1000 messages, the last at offset", tickets[-1].result().offset)
