"""The handlers of a subscriber, and a wait for all of their topics. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from reliable_pubsub.common.core.conversation import Conversation, Sleep
from reliable_pubsub.common.core.patterns.pattern import Topics
from reliable_pubsub.common.core.retry import poll_pause_s

from ...core.engine import SubscriberEngine
from ...core.feature import Opening, SubscriberFeature
from .handlers import Handlers


class HandlerFeature(SubscriberFeature):
    """The handlers of a subscriber."""

    name = "handlers"

    def __init__(self, _engine: SubscriberEngine, _opening: Opening) -> None:
        self.handlers = Handlers()


def wait_any(
    engine: SubscriberEngine, topics: Sequence[Topics], timeout_s: float
) -> Conversation[Topics | None]:
    """Settle the messages in hand of each, and wait until one has messages to deliver.

    Returns:
        The first one that has some; None if the time is over.
    """
    found = [(topic, *engine.of(topic)) for topic in topics]
    deadline_s = engine.now_s() + timeout_s
    for _, source, state in found:
        yield from engine.delivering.settle_in_hand(source, state)
    if len(found) == 1:
        ((topic, source, state),) = found
        return topic if (yield from engine.delivering.find(source, state, timeout_s)) else None
    empty = 0
    while True:
        for topic, source, state in found:
            if (yield from engine.delivering.find(source, state, 0.0, asks=False)):
                return topic
        left_s = deadline_s - engine.now_s()
        if left_s <= 0:
            return None
        empty += 1
        pushed = [state.pushes for *_, state in found if state.pushes is not None]
        if len(pushed) == len(found):
            yield from engine.delivering.pushes.wait(pushed, left_s)
        else:
            yield Sleep(min(poll_pause_s(empty), left_s))
