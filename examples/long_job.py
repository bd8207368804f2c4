"""Keep a job while it takes longer than its lease.

Without `extend`, another worker would get the job when the lease ends.

It prints:

    part 1 of 3
    part 2 of 3
    part 3 of 3
    done once
"""

from reliable_pubsub import Publisher, Subscriber

with Publisher("studio") as studio, Subscriber("worker") as worker:
    worker.subscribe("films", group="cutters", lease_s=30)
    studio.put("films", b"film")
    for film in worker.messages("films", timeout_s=1):
        for part in (1, 2, 3):
            print(f"part {part} of 3")  # a part takes at most 30 s
            worker.extend(film)
        print("done once")
