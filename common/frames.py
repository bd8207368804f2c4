"""The frames that the threads of this process execute."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from operator import call
from types import FrameType
from typing import Final, cast

_WITHOUT_COLLECTION: Final = (gc.disable, sys._current_frames, gc.enable)  # noqa: TID251


def frames_of(thread: int | None = None) -> Iterator[FrameType]:
    """The frames of one thread, or of all, each thread's newest first."""
    for identity, top in _tops().items():
        frame: FrameType | None = top if thread in (None, identity) else None
        while frame is not None:
            yield frame
            frame = frame.f_back


def _tops() -> dict[int, FrameType]:
    """The newest frame of each thread.

    CPython before 3.12.3 holds a lock of the runtime while it makes these objects. If they are one
    too many, garbage is collected there, and a `threading.local` among it waits for that lock
    forever, with the GIL (python/cpython, issue 106883). So none is collected: in one call of C, so
    that no thread and no signal handler meets a process that does not collect.
    """
    if not gc.isenabled():
        return sys._current_frames()  # noqa: TID251
    return cast("dict[int, FrameType]", tuple(map(call, _WITHOUT_COLLECTION))[1])
