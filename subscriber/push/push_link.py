"""Receiving pushes over ZeroMQ. Decides nothing."""

from __future__ import annotations

from collections.abc import Sequence

import zmq

from reliable_pubsub.common.core.endpoint import endpoints_of
from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.limits import INTEREST_PATTERNS_MAX
from reliable_pubsub.common.core.patterns.matching import Pattern
from reliable_pubsub.common.transport import ClientContext, DataLink, end_with
from reliable_pubsub.relay.above import NodeAbove
from reliable_pubsub.relay.core.push import AnyPush, decode_any_push

TURN_MAX = 1_000  # pushes that are taken at once


class ZmqPushLink(DataLink):
    """A link over ZeroMQ. Implements `PushLink`."""

    def __init__(self, endpoint: str, client: str, push_via: str = "") -> None:
        """Connect in the background; see `NodeAbove`."""
        self._context = ClientContext(len(endpoints_of(endpoint)))
        end_with(self, self._context)
        self._above = NodeAbove(
            self._context, endpoint, client, cap=INTEREST_PATTERNS_MAX, push_via=push_via
        )
        super().__init__(self._above.data, self._above.interest)
        self.due_in_s = 0.0

    @property
    def is_refused(self) -> bool:
        return bool(self._above.wish.refused)

    def want(self, patterns: frozenset[Pattern]) -> None:
        self._above.want(patterns, frozenset())

    def turn(self, now_s: float) -> bool:
        self.due_in_s = self._above.turn(now_s)
        return self._above.wish.settled

    def doubt(self, now_s: float) -> None:
        self._above.wish.ask_soon(now_s)

    def receive(self) -> Sequence[AnyPush]:
        found: list[AnyPush] = []
        while len(found) < TURN_MAX:
            try:
                found.append(decode_any_push(self._above.data.recv_multipart(zmq.DONTWAIT)))
            except zmq.Again:
                break
            except MalformedError:
                continue  # as if it were lost
        return found

    def close(self) -> None:
        self._context.destroy(linger=0)
