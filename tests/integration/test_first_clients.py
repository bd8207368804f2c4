"""Threads that create the first clients of a process together: its types are described once."""

from __future__ import annotations

from .test_imports import run

# Each child begins as a program does that has imported everything and used nothing.
FIRST_CLIENTS = """\
import os, sys, threading
from dataclasses import dataclass
from reliable_pubsub import Publisher, Subscriber, typed

THREADS = 32

@dataclass
class Line:
    name: str

@dataclass
class Order:
    lines: list[Line]

def begin():
    sys.setswitchinterval(1e-6)
    barrier, failed = threading.Barrier(THREADS), []
    def first(number):
        barrier.wait()
        try:
            typed(Order).decode(b'{"lines": [{"name": "a"}]}')
            (Publisher, Subscriber)[number % 2](f"c{number}").close()
        except BaseException as error:
            failed.append(error)
    threads = [threading.Thread(target=first, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        print(repr(failed[0]), file=sys.stderr, flush=True)
    os._exit(1 if failed else 0)

ends = []
for _ in range(30):
    child = os.fork()
    if not child:
        begin()
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(ends)
"""


def test_threads_create_the_first_clients_of_a_process_together() -> None:
    """Without the lock of `schemas.py`, 12 of 30 processes died."""
    assert run(FIRST_CLIENTS) == f"{[0] * 30}\n"
