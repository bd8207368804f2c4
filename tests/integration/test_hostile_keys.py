"""Hostile peers at encrypted endpoints, with and without keys: the honest lose nothing.

What they try is in `curve_attacks.py` and `intruders.py` of `scripts/fuzzer`; the long form is
`scripts/fuzz --secure`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from reliable_pubsub.common.system import IS_LINUX
from scripts.fuzzer.floods import ENDPOINTS
from scripts.fuzzer.siege import Siege

SEED = 21
CONNECTIONS = 150  # of each sort: with a key, and without one


@pytest.mark.skipif(not IS_LINUX, reason="the crowd waits with epoll")
def test_an_honest_pair_with_keys_loses_nothing_beside_hostile_connections(tmp_path: Path) -> None:
    """No key, wrong key, stolen id, right key beyond its rights, slow, half open."""
    siege = Siege(tmp_path, frozenset(ENDPOINTS), seed=SEED, attacks_per_s=100, is_secure=True)
    with siege.running():
        outcome = siege.run(connections=CONNECTIONS)

    assert outcome.problems == []
    assert outcome.denials > 0
    assert min(outcome.attacks, outcome.intrusions) >= CONNECTIONS
    assert {name: one.perfect for name, one in outcome.verdicts.items()} == {
        "honest-sub": True,
        "honest-pushed": True,
    }
