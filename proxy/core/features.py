"""The features of a proxy, in the order in which they act on time."""

from __future__ import annotations

from typing import Final

from reliable_pubsub.common.core.requests import Ack, Bye, Get, Hello, History, Put, Sub, Unsub

from . import (
    administering,
    dead_letters,
    delivery_status,
    groups,
    interests,
    node_requests,
    patterns,
    qos0,
    status_report,
    transactions,
    visibility,
)
from .feature import Feature, Tables, tables_of
from .forgetting import forgotten, trims_due
from .lease_ends import ended_leases
from .publishing import put
from .reading import ack, get, history
from .sessions import hello
from .subscribing import bye, sub, unsub

# With these three alone, a proxy keeps its promise.
CORE: Final = Feature(
    name="core",
    verbs={
        Hello: hello,
        Put: put,
        Get: get,
        Ack: ack,
        Sub: sub,
        Unsub: unsub,
        Bye: bye,
        History: history,
    },
    endpoints={Put: "publisher"},  # that of HELLO depends on its role
    due=ended_leases,
)
RETENTION: Final = Feature(name="retention", due=trims_due)
FORGETTING: Final = Feature(name="forgetting", due=forgotten)

FEATURES: Final = (
    CORE,
    groups.FEATURE,
    patterns.FEATURE,
    RETENTION,
    transactions.FEATURE,
    FORGETTING,
    dead_letters.FEATURE,
    qos0.FEATURE,
    interests.FEATURE,
    delivery_status.FEATURE,
    visibility.FEATURE,
    administering.FEATURE,
    node_requests.FEATURE,
    status_report.FEATURE,
)
TABLES: Final[Tables] = tables_of(FEATURES)
