"""The command of all, `reliable-pubsub`, where a lab forks the processes that it would execute.

A scenario starts some seven, and each would import the product first: 0.4 s of CPU, where a fork
costs 20 ms. Only what names another program is executed, as in a namespace of its own.
"""

from __future__ import annotations

import runpy

from reliable_pubsub.lab.rig.child_process import ChildProcess

from .fork_server import fork_from_here, forking

if __name__ == "__main__":
    helper = fork_from_here()
    ChildProcess.execute = forking(lambda: helper)
    runpy.run_module("reliable_pubsub", run_name="__main__", alter_sys=True)
