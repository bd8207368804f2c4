"""The features of a publisher, in the order in which a call asks them."""

from __future__ import annotations

from typing import Final

from .core.engine import MakeFeature
from .delivery.delivery_calls import DeliveryCalls
from .interests.interest_calls import InterestCalls
from .qos0.qos0_calls import ListenerCalls
from .qos0.qos0_feature import QoS0Feature
from .streams.stream_calls import StreamCalls
from .transactions.core.transaction_feature import TransactionFeature
from .transactions.transaction_calls import TransactionCalls

# With none of them, a publisher keeps its promise.
FEATURES: Final[tuple[MakeFeature, ...]] = (QoS0Feature, TransactionFeature)


class PublisherCalls(StreamCalls, TransactionCalls, DeliveryCalls, ListenerCalls, InterestCalls):
    """A blocking publisher with its features, and the calls that they add."""

    _features = FEATURES
