"""Real processes under test: started, watched through what they write, killed, always reaped.

Waiting is by observation (`eventually`): a line, a file, a status, each with a bound. Every child
writes to files below the test's own directory and is ended by the `Service` that started it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zmq

from reliable_pubsub import RetryPolicy
from reliable_pubsub.lab.rig.child_process import ANY_PORT as ANY_PORT
from reliable_pubsub.lab.rig.link import losing_link as losing_link
from reliable_pubsub.lab.rig.service import STUBBORN as STUBBORN
from reliable_pubsub.lab.rig.service import STUBBORN_OPTIONS as STUBBORN_OPTIONS
from reliable_pubsub.lab.rig.service import Process as Process
from reliable_pubsub.lab.rig.service import Service as Service
from reliable_pubsub.lab.rig.waiting import LOOK_AGAIN_S as LOOK_AGAIN_S
from reliable_pubsub.lab.rig.waiting import PATIENCE_S as PATIENCE_S
from reliable_pubsub.lab.rig.waiting import eventually as eventually

from .fork_server import REPOSITORY as REPOSITORY

NOWHERE = "tcp://127.0.0.1:1"  # no process listens there

# A client that hears soon that there is no answer; a busy machine may answer late, so not too soon.
IMPATIENT = RetryPolicy(timeout_s=5.0, retries_max=1, pause_s=0.01)
IMPATIENT_OPTIONS = ("--ack-timeout", "5", "--send-retries", "1", "--quiet")
# A client that believes a refusal soon, and waits for every answer.
BELIEVING = RetryPolicy(timeout_s=PATIENCE_S, retries_max=1, pause_s=0.01)
BELIEVING_OPTIONS = ("--ack-timeout", f"{PATIENCE_S:g}", "--send-retries", "1", "--quiet")


def children(pid: int) -> list[int]:
    """The processes that a process has started, and that it has not taken note of yet."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def zmq_context(linger_ms: int = 0) -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    """A context that ends with its test, however that ends.

    One that is left to the garbage collector waits for its peers, forever, in whichever test runs
    then.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        yield context
    finally:
        context.destroy(linger=linger_ms)
