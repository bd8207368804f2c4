"""The auditor: reads every topic to its end through the proxy, when all is over."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from reliable_pubsub.common.core.client_state import MemoryState
from reliable_pubsub.common.core.journal import Found, FoundEnd
from reliable_pubsub.common.core.recorder import Recorder, seen
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.status_client import StatusClient
from reliable_pubsub.common.world import World
from reliable_pubsub.subscriber.client import Subscriber

NAME: Final = "auditor"
PAGE_MESSAGES: Final = 500
PATIENT: Final = RetryPolicy(timeout_s=2.0, retries_max=5)


def audit(
    endpoint: str, recorder: Recorder, *, topics: Collection[str], others: bool = True
) -> None:
    """Write what the log holds, message by message, and the cursor of each subscription.

    Args:
        topics: what was put to; the proxy may have forgotten one of them.
        others: read all other topics of the proxy, too.

    Raises:
        InDoubtError: the proxy does not answer.
        TruncatedError, LostError: the log does not hold what its status says.
    """
    recorder.begin(NAME)
    asking = StatusClient(endpoint, PATIENT)
    try:
        report = asking.ask()
    finally:
        asking.close()
    known = {topic.topic: topic for topic in report.topics}
    world = World(state=MemoryState())
    with Subscriber(NAME, endpoint=endpoint, retry=PATIENT, _world=world) as reader:
        for name in sorted({*known, *topics} if others else topics):
            status = known.get(name)
            start = offset = status.start if status else 0
            while page := reader.history(name, offset, max_messages=PAGE_MESSAGES):
                recorder.line(Found, topic=name, messages=tuple(seen(message) for message in page))
                offset = page[-1].offset + 1
            subscriptions = status.subscriptions if status else ()
            positions = {one.subscriber: one.cursor for one in subscriptions}
            recorder.line(FoundEnd, topic=name, start=start, end=offset, positions=positions)
    recorder.end()
