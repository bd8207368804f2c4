"""The command of all, `reliable-pubsub`, where a lab forks the processes that it would execute.

A scenario starts some seven, and each would import the product first: 0.4 s of CPU, where a fork
costs 20 ms. Only what names another program is executed, as in a namespace of its own.
"""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from typing import IO, Any

from reliable_pubsub.lab.rig.child_process import ChildProcess, RunningProcess

from .fork_server import Helper, fork_from_here

_execute = ChildProcess._start


def fork_children(helper: Helper) -> None:
    """Let this process fork what it would execute."""

    def start(
        process: ChildProcess, command: Sequence[str], **options: Any
    ) -> tuple[RunningProcess, IO[bytes] | None]:
        if child := helper.start(command, process_group=0, **options):
            return child, None
        return _execute(process, command, **options)

    ChildProcess._start = start  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    fork_children(fork_from_here())
    runpy.run_module("reliable_pubsub", run_name="__main__", alter_sys=True)
