"""The features of a subscriber, in the order in which a call asks them."""

from __future__ import annotations

from typing import Final

from .core.engine import MakeFeature
from .groups.core.group_feature import GroupFeature
from .groups.group_calls import GroupCalls
from .handlers.core.handler_feature import HandlerFeature
from .handlers.handling import HandlerCalls
from .patterns.core.pattern_feature import PatternFeature
from .push.push_calls import PushCalls
from .push.push_feature import PushFeature

# With none of them, a subscriber keeps its promise.
FEATURES: Final[tuple[MakeFeature, ...]] = (
    GroupFeature,
    PatternFeature,
    PushFeature,
    HandlerFeature,
)


class SubscriberCalls(GroupCalls, PushCalls, HandlerCalls):
    """A blocking subscriber with its features, and the calls that they add."""

    _features = FEATURES
