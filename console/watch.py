"""Polls the proxy, once for all browsers: often while one of them is open, else for the history."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common import threads
from reliable_pubsub.common.core.errors import ProxyUnreachableError, PubSubError
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.tree_messages import NodeReport
from reliable_pubsub.common.status_client import StatusClient
from reliable_pubsub.relay.core.tree import TreeSnapshot
from reliable_pubsub.relay.topology import ask_upwards

from .core.board import Board
from .core.history import STEP_S, Samples, TopicHistory

PAUSE_S: Final = 2.0  # between two looks, at least
SHARE_MAX: Final = 0.1  # of the time is spent looking, at most
FAULT: Final = "the console has stopped polling because of a bug: see its output; start it again"
IDLE_S: Final = 10.0  # without a request of a browser, after which only the history is kept


class WatchedBoard(Struct, frozen=True):
    """The newest look, and how it stands now."""

    number: int  # of the look: 1, 2, 3, ...; changes with each, and with `error`
    board: Board | None  # None: there was none yet
    at_s: float  # of the board, by the monotonic clock
    error: str  # why the last look failed; "": it did not


class Watch:
    """A thread that looks, and keeps the newest board."""

    def __init__(self, endpoint: str, relays: Sequence[str], retry: RetryPolicy) -> None:
        """Ask nothing yet.

        Args:
            relays: endpoints of relays, which are asked for themselves.
        """
        self._endpoint = endpoint
        self._relays = relays
        self._status = StatusClient(endpoint, retry)
        self._history = TopicHistory()
        self._changed = threading.Condition()
        self._seen = WatchedBoard(0, None, 0.0, "")
        self._wanted_s = 0.0  # until when browsers want looks
        self._is_ending = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to look."""
        self._thread = threads.start(self._run, name="watch")

    def close(self) -> None:
        """Stop looking; a look that waits for an answer is left alone."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()

    def seen(self, *, wait_s: float = 0.0) -> WatchedBoard:
        """The newest look; and let there be others for a while.

        Args:
            wait_s: for the first one, if there was none for a while.
        """
        now_s = time.monotonic()
        with self._changed:
            was_idle = now_s > self._wanted_s
            self._wanted_s = now_s + IDLE_S
            self._changed.notify_all()
            if was_idle:
                number = self._seen.number
                self._changed.wait_for(lambda: self._seen.number > number, wait_s)
            if self._thread is None or not self._thread.is_alive():
                return replace(self._seen, error=FAULT)
            return self._seen

    def history(self, topic: str) -> Samples:
        """Return what was seen of a topic over the last hours."""
        with self._changed:
            return self._history.of(topic)

    def _run(self) -> None:
        earlier: TreeSnapshot | None = None
        while self._may_look():
            begun_s = time.monotonic()
            pause_s = PAUSE_S
            try:
                look = self._look()
            except PubSubError as error:
                self._tell(None, as_the_page_says(error))
            else:
                self._tell(Board(look, earlier), "")
                earlier = look
                took_s = time.monotonic() - begun_s
                pause_s = max(pause_s, took_s * (1 / SHARE_MAX - 1))
            self._pause(pause_s)
        self._status.close()

    def _look(self) -> TreeSnapshot:
        report = self._status.ask()
        at_s = time.monotonic()
        nodes: dict[str, NodeReport] = {}
        silent: list[str] = []
        for endpoint in (self._endpoint, *self._relays):
            try:
                found = ask_upwards([endpoint])
            except PubSubError:
                if endpoint != self._endpoint:  # the proxy itself has just answered
                    silent.append(endpoint)
                continue
            nodes |= {place: one for place, one in found.items() if one is not None}
        return TreeSnapshot(at_s, nodes, silent, report)

    def _tell(self, board: Board | None, error: str) -> None:
        with self._changed:
            before = self._seen
            if board is None:
                self._seen = WatchedBoard(before.number + 1, before.board, before.at_s, error)
            else:
                self._seen = WatchedBoard(before.number + 1, board, time.monotonic(), "")
                if self._history.is_due(wall_s := time.time()):
                    self._history.add(board.rows(), wall_s)
            self._changed.notify_all()

    def _may_look(self) -> bool:
        """Wait until a browser or the history wants a look; False: the end."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_ending or time.monotonic() <= self._wanted_s, STEP_S
            )
            return not self._is_ending

    def _pause(self, pause_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_ending, pause_s)


def as_the_page_says(error: PubSubError) -> str:
    """What an error means on the page; one of a proxy that is away speaks of commands itself."""
    if not isinstance(error, ProxyUnreachableError):
        return str(error)
    if error.verb == "ADMIN":
        fate = "It is not known whether it was done: look when it answers, before you ask again."
    else:
        fate = "Nothing was changed."
    return (
        f"The proxy has not answered {error.verb} in {error.attempts} attempts over "
        f"{error.waited_s:.1f} s. {fate}"
    )
