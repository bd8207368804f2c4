"""Put a message once, even if the program dies before the answer arrives.

With a `state_dir` the publisher writes each message to disk before it sends it. The next process
with this id sends it again under the same number, so the proxy stores it once. Here the broker is
in memory, and loses the answer.

It prints:

    no answer: the message is kept
    sent again; it had been stored before: True
    stored: ['lamp']
"""

from tempfile import TemporaryDirectory

from reliable_pubsub import InDoubtError, Publisher, Subscriber
from reliable_pubsub.testing import MemoryBroker

with MemoryBroker() as broker, broker.serving(), TemporaryDirectory() as state_dir:
    with Publisher("shop", state_dir=state_dir) as shop:
        broker.lose_next_answer("PUT")
        try:
            shop.put("orders", b"lamp", timeout_s=0.1)
        except InDoubtError as error:  # the program might also have been killed here
            print("no answer: the message is", "kept" if error.kept else "not kept")
    with Publisher("shop", state_dir=state_dir) as shop:
        receipt = shop.resume()
        print("sent again; it had been stored before:", receipt is not None and receipt.duplicate)
    with Subscriber("auditor") as auditor:
        print("stored:", [order.payload.decode() for order in auditor.history("orders")])
