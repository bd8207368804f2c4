"""Read what is stored, page by page, without a subscription.

It prints:

    page of 4: 0 to 3
    page of 4: 4 to 7
    page of 2: 8 to 9
"""

from reliable_pubsub import Publisher, Subscriber

with Publisher("p") as publisher, Subscriber.unique("auditor") as auditor:
    for number in range(10):
        publisher.put("numbers", b"%d" % number)
    start = 0
    while page := auditor.history("numbers", start, max_messages=4):
        print(f"page of {len(page)}: {page[0].offset} to {page[-1].offset}")
        start = page[-1].offset + 1
