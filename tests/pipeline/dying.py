"""A command that is killed (kill -9) at a moment that is not seen from outside.

    python -m tests.pipeline.dying MODULE:FUNCTION CALL COMMAND...

runs `reliable-pubsub COMMAND...` and dies just before that call of the function, counted from one.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from itertools import count
from typing import Any

from reliable_pubsub.__main__ import main


def die_before(place: str, call: int) -> None:
    """Replace a function by one that passes a number of calls on, and dies at the next."""
    module_name, name = place.split(":")
    module = importlib.import_module(module_name)
    act = getattr(module, name)
    calls = count(1)

    def counted(*arguments: Any) -> Any:
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return act(*arguments)

    setattr(module, name, counted)


if __name__ == "__main__":
    die_before(sys.argv[1], int(sys.argv[2]))
    main(sys.argv[3:], prog_name="reliable-pubsub")
