"""The life of a blocking subscriber: its gate, a new begin after an interrupted call, its end."""

from __future__ import annotations

from typing import Self

from reliable_pubsub.common.conversing import Shell
from reliable_pubsub.common.gate import Gate, Unpicklable, closing, gated
from reliable_pubsub.common.opened import Opened

from .core.engine import SubscriberEngine


class SubscriberLife(Unpicklable):
    """What a `Subscriber` is apart from its calls."""

    def __init__(self, client: str, opened: Opened[SubscriberEngine]) -> None:
        """Begin with what was opened, which is closed here."""
        self.client = client
        self._opened = opened
        self._engine, asker = opened.engine, opened.asker
        self.inbox = self._engine.session.inbox
        self._run = Shell(asker.transport, asker.clock, opened.state).run
        self._gate = Gate(f"subscriber {client!r}", self._begin_again, threads=False)
        opened.may_be_taken(lambda: self._gate.replace(lambda: self._free(None)))

    def _begin_again(self) -> None:
        """Reset to the stored state, after a call that was interrupted by a foreign exception.

        Messages in hand are not acknowledged: they are redelivered, marked.
        """
        self._opened.begin_again()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self._close(error)

    @gated
    def connect(self) -> None:
        """Get an epoch now; the other calls do it when they need one."""
        self._run(self._engine.session.connecting())

    @closing
    def close(self) -> None:
        """Acknowledge the messages in hand, send the cursors, and close socket and state.

        With state on disk an unreachable proxy is not an error: the position is kept, and the next
        process sends it.

        Raises:
            InDoubtError: without `state_dir`; the proxy may deliver messages again.
        """
        if self._gate.closed:
            self._free(None)
            return
        with self._opened.last_call(self._free):
            self._gate.begin_again()
            # Messages that were prefetched but not delivered must not come again marked.
            self._run(self._engine.leave(tells_ahead=not self._opened.remembers))

    def abandon(self) -> None:
        """Close socket and state without acknowledging the messages in hand: redelivered later."""
        self._close(None)

    @closing
    def _close(self, error: BaseException | None) -> None:
        self._free(error)

    def _free(self, error: BaseException | None) -> None:
        self._gate.closed = True  # now it can only be closed, again if that is interrupted
        self._opened.close(error)
