"""The life of a blocking subscriber: how it connects, and how it ends."""

from __future__ import annotations

from reliable_pubsub.common.core.arguments import checked
from reliable_pubsub.common.core.names import TopicName
from reliable_pubsub.common.core.pattern import Pattern
from reliable_pubsub.common.gate import closing, gated
from reliable_pubsub.common.opened import BlockingClient, Opened

from .core.engine import SubscriberEngine
from .core.handlers import Handlers


class SubscriberLife(BlockingClient[SubscriberEngine]):
    """What a `Subscriber` is apart from its calls."""

    _role = "subscriber"
    _handlers: Handlers

    def __init__(self, client: str, opened: Opened[SubscriberEngine]) -> None:
        """Begin with what was opened, which is closed here."""
        self.inbox = opened.engine.session.inbox
        super().__init__(client, opened, threads=False)
        self._gate.undo = self.inbox.undo

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self._break_off(error)

    @closing
    def _break_off(self, error: BaseException | None) -> None:
        """Close without acknowledging the messages in hand; a group has them back immediately."""
        has_to_tell = not self._opened.remembers or self._engine.groups.members
        try:
            if not self._gate.closed and has_to_tell:
                with self._opened.last_words():
                    self._gate.begin_again()
                    self._run(self._engine.break_off(tells_cursors=not self._opened.remembers))
        finally:
            self._free(error)

    @checked
    def off(self, topic: TopicName | Pattern) -> bool:
        """Remove the handler of a topic or pattern; return whether it had one.

        The subscription stays. A `run` that has no handler left ends.
        """
        return self._handlers.remove(topic)

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
        self._break_off(None)
