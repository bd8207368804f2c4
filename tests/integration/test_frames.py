"""What the threads of a process execute."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from reliable_pubsub.common.frames import frames_of

from .harness import PATIENCE_S

# Garbage with a `threading.local` waits, and is collected when this many objects more are made.
LOOK = """
import gc, sys, threading
from reliable_pubsub.common.frames import frames_of

def make_garbage():
    local = threading.local()
    local.value = 1
    cycle = [local]
    cycle.append(cycle)

end = threading.Event()
threads = [threading.Thread(target=end.wait) for _ in range(20)]
for thread in threads:
    thread.start()
gc.collect()
gc.disable()
make_garbage()
gc.set_threshold(int(sys.argv[1]))
gc.enable()
own = {frame.f_code.co_name for frame in frames_of(threads[0].ident)}
assert "wait" in own, own
assert gc.isenabled()
end.set()
"""


@pytest.mark.parametrize("objects", [8, 12, 16, 20])
def test_a_look_at_them_ends_although_garbage_is_due(objects: int) -> None:
    command = [sys.executable, "-c", LOOK, str(objects)]
    subprocess.run(command, timeout=PATIENCE_S, check=True)


def test_are_those_of_one_thread_or_of_all() -> None:
    met, end = threading.Event(), threading.Event()

    def stay() -> None:
        met.set()
        end.wait(PATIENCE_S)

    thread = threading.Thread(target=stay)
    thread.start()
    met.wait(PATIENCE_S)
    codes = {frame.f_code for frame in frames_of()}
    theirs = {frame.f_code for frame in frames_of(thread.ident)}
    end.set()
    thread.join()

    assert stay.__code__ in theirs < codes
    here = test_are_those_of_one_thread_or_of_all.__code__
    assert here in codes
    assert here not in theirs
