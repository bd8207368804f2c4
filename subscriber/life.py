"""The life of a blocking subscriber: how it connects, how it ends, and what can be looked at."""

from __future__ import annotations

import logging
from typing import Final

from reliable_pubsub.common.core.arguments import Seconds, TimeoutS
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import InDoubtError
from reliable_pubsub.common.core.patterns.pattern import Topics
from reliable_pubsub.common.gate import closing, gated, gated_after_close
from reliable_pubsub.common.opened import CLOSE_S, BlockingClient

from .core.engine import SubscriberEngine
from .core.qos0_queue import UnstoredCounts
from .opening import OpenedSubscriber

UNSENT: Final = "leaves, and messages that were processed may be redelivered"


class SubscriberLife(OpenedSubscriber, BlockingClient[SubscriberEngine]):
    """What a `Subscriber` is apart from its calls."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            self._break_off(error)
            return
        try:
            self.close()
        except InDoubtError as unsent:
            self._engine.session.tell(logging.WARNING, f"{UNSENT}: {unsent}")

    @closing
    def _break_off(self, error: BaseException | None) -> None:
        """Close without acknowledging the messages in hand; a group has them back immediately."""
        has_to_tell = not self._opened.remembers or self._engine.has_members
        try:
            if not self._gate.closed and has_to_tell:
                with self._opened.last_words():
                    self._gate.begin_again()
                    self._run(self._engine.break_off(tells_cursors=not self._opened.remembers))
        finally:
            self._free(error)

    @gated
    def connect(self, *, timeout_s: TimeoutS = None) -> None:
        """Get an epoch now; the other calls do it when they need one."""
        return self._run(self._engine.session.connecting())

    @closing
    def close(self, *, timeout_s: Seconds = CLOSE_S) -> None:
        """Acknowledge the messages in hand, send the cursors, and close socket and state.

        With state on disk an unreachable proxy is not an error: the position is kept, and the next
        process sends it. Without, the messages since the last cursor that the proxy has are
        redelivered, and those of a group when its lease ends. Leaving the block only warns of that.

        Args:
            timeout_s: that the proxy has for its answers.

        Raises:
            InDoubtError: without `state_dir`; the proxy may deliver messages again. It is closed.
        """
        if self._gate.closed:
            self._free(None)
            return
        with self._opened.last_call(self._free, timeout_s):
            self._gate.begin_again()
            # Messages that were prefetched but not delivered must not come again marked.
            self._run(self._engine.leave(tells_ahead=not self._opened.remembers))

    @gated
    def _get_by_retries(self, topic: Topics, max_messages: int, wait_s: float) -> list[Message]:
        """As `get`, but `retry` says how often the proxy is asked, however long it waits."""
        return self._run(self._engine.get(topic, max_messages, wait_s))

    def abandon(self) -> None:
        """Close socket and state without acknowledging the messages in hand: redelivered later."""
        self._break_off(None)

    @gated_after_close
    def is_pushed(self, topic: Topics) -> bool:
        """Return whether push is on for a topic, even while it fails and the topic is polled."""
        return self._engine.is_pushed(topic)

    @gated_after_close
    def unstored_counts(self, topic: str) -> UnstoredCounts:
        """Counts of the QoS 0 messages of a topic, in this process."""
        return self.inbox.of(topic).qos0.counts

    @property
    @gated_after_close
    def note(self) -> bytes | None:
        """Return the note last stored by `record` or `write_note`."""
        return self.inbox.note

    @gated
    def record(self, topic: Topics, note: bytes) -> None:
        """Write that the messages in hand are processed, and a note, in one durable step.

        Args:
            note: found in `note` after a crash.
        """
        return self._run(self._engine.record(topic, note))

    @gated
    def write_note(self, note: bytes) -> None:
        """Write a note durably when no message belongs to it."""
        self._opened.state.write(self.inbox.write_note(note), durable=True)
