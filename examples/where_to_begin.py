"""Choose where a new subscription begins.

It prints:

    Now: []
    Earliest: ['1', '2', '3', '4', '5']
    newest(2): ['4', '5']
    at_offset(1): ['2', '3', '4', '5']
"""

from reliable_pubsub import Earliest, Now, Publisher, Subscriber, at_offset, newest

with Publisher("p") as publisher:
    publisher.put_many("numbers", [b"1", b"2", b"3", b"4", b"5"])

starts = {"Now": Now, "Earliest": Earliest, "newest(2)": newest(2), "at_offset(1)": at_offset(1)}
for name, start in starts.items():
    with Subscriber.unique("reader") as reader:
        reader.subscribe("numbers", start=start, session="clean")
        found = reader.messages("numbers", timeout_s=0)
        print(f"{name}: {[message.payload.decode() for message in found]}")
