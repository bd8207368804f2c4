"""Share jobs among workers, with retries; a job that still fails is a dead letter.

    python examples/group_worker.py worker-1   # and others, with other ids

requeue.sh shows the dead letters and puts them again.
"""

from __future__ import annotations

import sys

from reliable_pubsub import Message, Subscriber


def resize(job: Message) -> None:
    """Do one job; an exception makes it fail."""
    if not job.payload.endswith(b".png"):
        raise ValueError(f"{job.payload!r} is no picture")
    print("resized", job.payload.decode())


def work(worker: str, timeout_s: float | None = None) -> None:
    """Work until there was no job for `timeout_s`; None: until Ctrl-C."""
    with Subscriber(worker) as subscriber:
        subscriber.subscribe("jobs", group="workers", lease_s=30)
        subscriber.on("jobs", resize, group="workers", retries=3, on_failure="reject")
        subscriber.run(timeout_s=timeout_s)


if __name__ == "__main__":
    work(sys.argv[1])
