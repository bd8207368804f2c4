"""Waits for what other processes do, by looking."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

# A longer wait has failed. Sound runs end early; only a broken one, never a busy machine, needs it.
PATIENCE_S: Final = 600.0
LOOK_AGAIN_S: Final = 0.005  # at first; what takes long is looked at less often, as looking costs
LOOK_AGAIN_S_MAX: Final = 0.03

T = TypeVar("T")


def eventually(
    look: Callable[[], T | None],
    what: str,
    *,
    timeout_s: float = PATIENCE_S,
    since: Callable[[], object] = lambda: None,
) -> T:
    """Look until there is something to see; return it.

    Args:
        timeout_s: fail after this long in which `since` has returned the same value.

    Raises:
        TimeoutError: there was nothing to see.
    """
    seen = since()
    deadline_s = time.monotonic() + timeout_s
    pause_s = LOOK_AGAIN_S
    while not (found := look()):
        if seen != (now := since()):
            seen, deadline_s = now, time.monotonic() + timeout_s
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"after {timeout_s:g} s there was still no {what} ({seen=})")
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, LOOK_AGAIN_S_MAX)
    return found
