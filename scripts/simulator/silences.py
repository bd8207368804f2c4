"""Who was heard when, counted beside the broker: its leases end neither too early nor too late.

The broker counts a request of the sender's current epoch, however it is answered. Its own pauses
are no silence of its clients (rule R30).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from reliable_pubsub.common.core.pattern_messages import Fetch, Match
from reliable_pubsub.common.core.qos0_messages import Ring
from reliable_pubsub.common.core.requests import Ack, AnyRequest, Bye, Dead, Get, Sub, Unsub
from reliable_pubsub.proxy.core.state import Record, State
from reliable_pubsub.proxy.core.subscription_records import Expired

_RENEWING: Final = (Get, Ring, Ack, Dead, Sub, Unsub, Bye, Match, Fetch)
TICKS_S: Final = 0.1  # a lease may end this much later: ticks look at leases
LATE_S: Final = 0.04  # a look that comes later than this after the last one may end a pause


class Moment(Struct, frozen=True):
    """A time, and how long the broker had stood still by then, counted in two ways."""

    at_s: float
    paused_s: float  # at least
    late_s: float  # at most, with the time in which clients return


class Silences:
    """Of one start of a broker."""

    def __init__(self) -> None:
        self._since: Moment | None = None  # its first tick
        self._now = Moment(0.0, 0.0, 0.0)
        self._heard: dict[str, Moment] = {}

    def _look(self, now_s: float) -> float:
        """Note how long the broker stood still until now; return how long it did not look."""
        gap_s = now_s - self._now.at_s
        paused_s, late_s = self._now.paused_s, self._now.late_s
        if gap_s > TICKS_S:
            paused_s += gap_s - TICKS_S / 2
        if gap_s > LATE_S:
            late_s += gap_s + TICKS_S  # and some time in which clients return
        self._now = Moment(now_s, paused_s, late_s)
        return gap_s

    def heard(self, request: AnyRequest, state: State, now_s: float) -> None:
        """A request arrived."""
        self._look(now_s)
        session = state.sessions.get(("subscriber", request.client))
        is_current = session is not None and session.epoch == request.epoch
        if isinstance(request, _RENEWING) and is_current:
            self._heard[request.client] = self._now

    def judge(self, state: State, due: Iterable[Record], now_s: float) -> None:
        """A tick ends some leases: those, and only those, that were silent for twice as long."""
        gap_s = self._look(now_s)
        if state.storage_full_until_s is not None:
            return  # no lease ends until a write is tried again
        now = self._now
        since = self._since = self._since or now
        ended = set()
        for record in due:
            if isinstance(record, Expired):
                ended.add((record.topic_id, record.subscriber))
                heard = self._heard.get(record.subscriber, since)
                silent_s = now.at_s - heard.at_s - (now.paused_s - heard.paused_s)
                assert silent_s * 1000 >= 2 * record.terms.lease_ms - 1, (
                    f"{record} ended, and was heard {silent_s:.3f} s ago, pauses left out"
                )
        leases = {
            (log.topic_id, name): one.terms.lease_ms
            for log in state.topics.values()
            for name, one in log.subscriptions.items()
            if one.listens and one.terms.lease_ms
        }
        for topic_id, client in () if gap_s > TICKS_S else leases.keys() - ended:
            lease_ms, heard = leases[topic_id, client], self._heard.get(client, since)
            silent_s = now.at_s - TICKS_S - heard.at_s - (now.late_s - heard.late_s)
            assert silent_s * 1000 <= 2 * lease_ms, (
                f"{client} was not heard for {silent_s:.3f} s; its lease of {lease_ms} ms continues"
            )
