"""The features of a proxy, in the order in which they act on time."""

from __future__ import annotations

from typing import Final

from .access import admission
from .core.feature import Tables, schema_of, tables_of
from .core.verbs import CORE, FORGETTING, RETENTION
from .dead_letters import verbs as dead_letters
from .groups import verbs as groups
from .operators import verbs as operators
from .patterns import feature as patterns
from .push import node_requests
from .qos0 import verbs as qos0
from .status import delivery, interests, report
from .transactions import verbs as transactions

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
SCHEMA: Final = schema_of(TABLES)
