"""Push in the calls of a subscriber: one link to the node above, for all that is pushed."""

from __future__ import annotations

from reliable_pubsub.common.core.patterns.pattern import Topics

from ..core.engine import SubscriberEngine
from ..core.feature import Opening, SubscriberFeature
from .core.pull_timer import timing_of
from .core.pushing import Pushing
from .push_link import ZmqPushLink


class PushFeature(SubscriberFeature):
    """What is pushed to a subscriber."""

    name = "push"

    def __init__(self, engine: SubscriberEngine, opening: Opening) -> None:
        client, endpoint, settings = opening.client, opening.endpoint, opening.settings
        connect = opening.connect_data or (
            lambda endpoint: ZmqPushLink(endpoint, client, settings.push_via)
        )
        self.pushing = Pushing(
            engine.session.inbox,
            lambda: connect(endpoint),
            timing=opening.push_timing or timing_of(settings),
            now_s=engine.now_s,
        )
        engine.deliver_pushes(self.pushing)

    def set_push(self, topic: Topics, push: bool) -> None:
        self.pushing.use(topic, push)

    def is_pushed(self, topic: Topics) -> bool:
        return topic in self.pushing

    def begin_again(self) -> None:
        self.pushing.begin_again()

    def close(self) -> None:
        self.pushing.close()
