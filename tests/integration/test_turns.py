"""A call whose time is over ends, whatever the call before it does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from reliable_pubsub import Publisher, TimedOutError
from tests.fakes import FakeClock, Link, MemoryProxy, a_world


@pytest.mark.parametrize("call", ["interests", "wait_for_interest", "put"])
def test_a_call_ends_when_the_call_before_it_takes_too_long(call: str) -> None:
    clock = FakeClock()
    is_open, is_over = threading.Event(), threading.Event()
    link = Link(MemoryProxy())

    def answer(frames: Sequence[bytes]) -> Sequence[bytes] | None:
        if threading.current_thread() is other:
            is_open.set()
            while len(publisher._gate._turns) < 2:
                continue
            clock.time_s += 8
            is_over.wait(1)
        return link(frames)

    publisher = Publisher("p", _world=a_world(answer, clock))
    calls: dict[str, Callable[[], object]] = {
        "interests": lambda: next(publisher.interests("t", timeout_s=7.0)),
        "wait_for_interest": lambda: publisher.wait_for_interest("t", 7.0),
        "put": lambda: publisher.put("t", b"b", qos=1, timeout_s=7.0),
    }
    other = threading.Thread(target=lambda: publisher.put("t", b"a"))
    other.start()
    assert is_open.wait()

    with pytest.raises(TimedOutError):
        calls[call]()

    is_over.set()
    other.join()
