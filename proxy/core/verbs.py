"""The rows of the core: with these three alone, a proxy keeps its promise."""

from __future__ import annotations

from typing import Final

from reliable_pubsub.common.core.requests import Ack, Bye, Get, Hello, History, Put, Sub, Unsub

from .feature import Feature
from .forgetting import forgotten, trims_due
from .lease_ends import ended_leases, longest_wait_s
from .publishing import put
from .reading import ack, get, history
from .schema import CORE_TABLES
from .sessions import hello
from .state import Hooks
from .subscribing import bye, sub, unsub
from .waiting_gets import WaitKind

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
