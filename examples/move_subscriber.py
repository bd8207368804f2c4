"""Read again what a subscriber had in the last hour, for example after a bug was fixed.

    python examples/move_subscriber.py report orders

Only what is still stored can be read again: by default 24 hours or 256 MiB a topic.
"""

from __future__ import annotations

import sys
from datetime import timedelta

from reliable_pubsub import Subscriber, ago


def read_again(subscriber_id: str, topic: str) -> list[bytes]:
    """Move a subscriber back by an hour, and return what it gets from there on."""
    with Subscriber(subscriber_id) as subscriber:
        subscriber.subscribe(topic)  # resumes where it was
        subscriber.seek(topic, ago(timedelta(hours=1)))
        messages = subscriber.messages(topic, timeout_s=1)
        return [message.payload for message in messages]  # each has `redelivered` set


if __name__ == "__main__":
    for payload in read_again(*sys.argv[1:3]):
        print(payload.decode())
