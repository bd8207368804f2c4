"""When a proxy may no longer serve its store: it starts again, and stands by.

The process replaces itself, so that nothing of what it had in memory is left: no state, no answer
that waits, no thread that is still in a commit. Its id stays the same.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from reliable_pubsub.common.command_line import complain

from .core.storage import NotServingError


@contextmanager
def starts_again(*, is_shared: bool) -> Iterator[threading.Event]:
    """Start the process again after a `NotServingError`.

    Args:
        is_shared: whether other processes may serve the same store.

    Yields:
        To be set when the process is asked to end; then the error ends it.
    """
    ending = threading.Event()
    try:
        yield ending
    except NotServingError as error:
        if not is_shared or ending.is_set():
            raise
        complain(f"warning [{error.code}]: {error}. This proxy answers nothing, and stands by")
        sys.stdout.flush()
        for number in (signal.SIGTERM, signal.SIGINT):  # which stay ignored otherwise
            signal.signal(number, signal.SIG_DFL)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
