"""Planted faults of what happens at a bound; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from reliable_pubsub.common.core.messages import Commit, Dead, Get, Put
from reliable_pubsub.proxy.core.broker import Broker
from reliable_pubsub.proxy.core.records import Decision, Expired, Record
from reliable_pubsub.proxy.core.topic_log import TopicLog

from .simulation import Variant

Room = Decision | tuple[Record, ...]


class LetsOneMoreWait(Broker):
    """The message that is put does not count."""

    def _make_room(
        self, request: Put | Commit | Dead, log: TopicLog, count: int, body_bytes: int
    ) -> Room:
        return super()._make_room(request, log, count - 1, body_bytes)


class PassesOverInSilence(Broker):
    """Who lags behind the bound goes on where it begins, and hears of no loss."""

    def _get(self, request: Get, body: bytes, now_ns: int) -> Decision:
        found = self._subscription(request)
        if not isinstance(found, Decision):
            log, _, _ = found
            request = replace(request, cursor=max(request.cursor, log.kept_from))
        return super()._get(request, body, now_ns)


class GivesUpOne(Broker):
    """Of several subscriptions that are too slow, one expires."""

    expiring = 1

    def _make_room(
        self, request: Put | Commit | Dead, log: TopicLog, count: int, body_bytes: int
    ) -> Room:
        room = super()._make_room(request, log, count, body_bytes)
        if isinstance(room, Decision):
            return room
        expired = [one for one in room if isinstance(one, Expired)]
        return tuple(one for one in room if one not in expired[self.expiring :])


class TakesWithoutExpiry(GivesUpOne):
    """What a slow subscription has not read goes, and the subscription stays."""

    expiring = 0


FAULTS_OF_BOUNDS: Mapping[str, Variant] = {
    "quota: one message more": Variant(broker=LetsOneMoreWait),
    "quota: passed over in silence": Variant(broker=PassesOverInSilence),
    "expire: one alone": Variant(broker=GivesUpOne),
    "expire: taken, but not expired": Variant(broker=TakesWithoutExpiry),
}
