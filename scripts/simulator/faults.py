"""Planted faults: each makes the system wrong in one place, to prove that the checker sees it.

A fault that no seed finds is a hole in the simulator. `pytest -s tests/simulation` prints the
table with the seeds that each one took; docs/internals/runs.md has one from a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .faults_of_administration import FAULTS_OF_ADMINISTRATION
from .faults_of_bounds import FAULTS_OF_BOUNDS
from .faults_of_clients import FAULTS_OF_CLIENTS
from .faults_of_dead_letters import FAULTS_OF_DEAD_LETTERS
from .faults_of_forgetting import FAULTS_OF_FORGETTING
from .faults_of_groups import FAULTS_OF_GROUPS
from .faults_of_interests import FAULTS_OF_INTERESTS
from .faults_of_loops import FAULTS_OF_LOOPS
from .faults_of_numbering import FAULTS_OF_NUMBERING
from .faults_of_patterns import FAULTS_OF_PATTERNS
from .faults_of_proxy import FAULTS_OF_THE_PROXY
from .faults_of_publishing import FAULTS_OF_PUBLISHING
from .faults_of_push import FAULTS_OF_PUSH
from .faults_of_sessions import FAULTS_OF_SESSIONS
from .faults_of_standby import FAULTS_OF_STANDBY
from .faults_of_subscribing import FAULTS_OF_SUBSCRIBING
from .faults_of_transactions import FAULTS_OF_TRANSACTIONS
from .faults_of_unstored import FAULTS_OF_UNSTORED
from .faults_of_waiting import FAULTS_OF_WAITING
from .simulation import Variant

FAULTS: Final[Mapping[str, Variant]] = {
    **FAULTS_OF_THE_PROXY,
    **FAULTS_OF_PUBLISHING,
    **FAULTS_OF_SUBSCRIBING,
    **FAULTS_OF_CLIENTS,
    **FAULTS_OF_WAITING,
    **FAULTS_OF_SESSIONS,
    **FAULTS_OF_NUMBERING,
    **FAULTS_OF_BOUNDS,
    **FAULTS_OF_FORGETTING,
    **FAULTS_OF_ADMINISTRATION,
    **FAULTS_OF_DEAD_LETTERS,
    **FAULTS_OF_PUSH,
    **FAULTS_OF_LOOPS,
    **FAULTS_OF_GROUPS,
    **FAULTS_OF_PATTERNS,
    **FAULTS_OF_INTERESTS,
    **FAULTS_OF_TRANSACTIONS,
    **FAULTS_OF_UNSTORED,
    **FAULTS_OF_STANDBY,
}
