"""Who was heard when, counted beside the broker: its leases end neither too early nor too late.

The broker counts a request of the sender's current epoch, however it is answered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from reliable_pubsub.common.core.pattern_messages import Fetch, Match
from reliable_pubsub.common.core.qos0_messages import Ring
from reliable_pubsub.common.core.requests import Ack, AnyRequest, Bye, Dead, Get, Sub, Unsub
from reliable_pubsub.proxy.core.records import Expired, Record
from reliable_pubsub.proxy.core.state import State

_RENEWING: Final = (Get, Ring, Ack, Dead, Sub, Unsub, Bye, Match, Fetch)
TICKS_S: Final = 0.1  # a lease may end this much later: ticks look at leases


class Silences:
    """Of one start of a broker."""

    def __init__(self) -> None:
        """No client was heard yet."""
        self._since_s: float | None = None  # its first tick
        self._ticked_s = 0.0
        self._heard_s: dict[str, float] = {}

    def heard(self, request: AnyRequest, state: State, now_s: float) -> None:
        """A request arrived."""
        session = state.sessions.get(("subscriber", request.client))
        is_current = session is not None and session.epoch == request.epoch
        if isinstance(request, _RENEWING) and is_current:
            self._heard_s[request.client] = now_s

    def judge(self, state: State, due: Iterable[Record], now_s: float) -> None:
        """A tick ends some leases: those, and only those, that were silent for twice as long."""
        if state.is_storage_full:
            return  # no lease ends while it cannot write
        if self._since_s is None:
            self._since_s = now_s
        late = now_s - self._ticked_s > TICKS_S
        self._ticked_s = now_s
        ended = set()
        for record in due:
            if isinstance(record, Expired):
                ended.add((record.topic_id, record.subscriber))
                silent_s = now_s - self._heard_s.get(record.subscriber, self._since_s)
                assert silent_s * 1000 >= 2 * record.terms.lease_ms - 1, (
                    f"{record} ended, and was heard {silent_s:.3f} s ago"
                )
        leases = {
            (log.topic_id, name): one.terms.lease_ms
            for log in state.topics.values()
            for name, one in log.subscriptions.items()
            if one.listens and one.terms.lease_ms
        }
        for topic_id, client in () if late else leases.keys() - ended:
            lease_ms = leases[topic_id, client]
            silent_s = now_s - TICKS_S - self._heard_s.get(client, self._since_s)
            assert silent_s * 1000 <= 2 * lease_ms, (
                f"{client} was not heard for {silent_s:.3f} s; its lease of {lease_ms} ms continues"
            )
