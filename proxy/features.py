"""The features of a proxy, in the order in which they act on time."""

from __future__ import annotations

from typing import Final

from reliable_pubsub.common.core.requests import Ack, Bye, Get, Hello, History, Put, Sub, Unsub

from .access import admission
from .core.feature import Feature, Tables, tables_of
from .core.forgetting import forgotten, trims_due
from .core.lease_ends import ended_leases, longest_wait_s
from .core.publishing import put
from .core.reading import ack, get, history
from .core.schema import CORE_TABLES
from .core.sessions import hello
from .core.state import Hooks
from .core.subscribing import bye, sub, unsub
from .core.waiting_gets import WaitKind
from .dead_letters import verbs as dead_letters
from .groups import verbs as groups
from .operators import verbs as operators
from .patterns import feature as patterns
from .push import node_requests
from .qos0 import verbs as qos0
from .status import delivery, interests, report
from .transactions import verbs as transactions

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
    of_subscribers=dict.fromkeys((Get, Ack, Sub, Unsub, Bye), True),
    waits={Get: WaitKind(lambda request: request.topic)},
    tables=CORE_TABLES,
    due=ended_leases,
    hooks=Hooks(waits_s=[longest_wait_s]),
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
    delivery.FEATURE,
    operators.FEATURE,
    admission.FEATURE,
    node_requests.FEATURE,
    report.FEATURE,
)
TABLES: Final[Tables] = tables_of(FEATURES)
SCHEMA: Final = "".join(table.sql for table in TABLES.tables)
