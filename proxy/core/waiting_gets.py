"""GETs that wait until there is something for them, or until their time is over. Pure.

A GET with `wait_ms` that finds nothing is kept here without an answer. It becomes due when

    something of its topic becomes durable, or comes to the ring if it named a place there
    its time is over, or its subscription has changed
    a newer request comes from its subscriber, or over its return address

and is then decided as if it had just arrived, so a fenced or ended session gets its refusal. One
GET of each subscriber waits, so a client that asks again over a new socket does not add one. Only
GETs of topics that have changed are looked at, and a bounded number of them in one turn.

Source: Kafka's fetch with `max.wait`, whose purgatory is indexed by partition and by deadline.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from reliable_pubsub.common.core.group_messages import Settle, Take
from reliable_pubsub.common.core.limits import WAITING_GETS_MAX
from reliable_pubsub.common.core.pattern_messages import Fetch, Match
from reliable_pubsub.common.core.patterns.pattern import Pattern
from reliable_pubsub.common.core.qos0_messages import Ring
from reliable_pubsub.common.core.requests import Ack, AnyRequest, Bye, Dead, Get, Hello, Sub, Unsub
from reliable_pubsub.common.core.rights import KnownKey

from .lease_ends import longest_wait_s
from .lower_bounds import LowerBounds
from .state import State

OVERTAKEN: Final = -2.0
DECIDED_ONCE: Final = -1.0
TURN_MAX: Final = 64  # GETs that are decided in one turn of the loop


Waits = Get | Take | Fetch
_WAITING: Final = (Get, Take, Fetch)  # a tuple: a union would be built again at each use


class WaitingGet(Struct, frozen=True):
    """A GET, TAKE or FETCH without an answer."""

    request: Waits
    reply_to: Any
    until_s: float  # OVERTAKEN: its sender has asked again; DECIDED_ONCE: it waits no longer
    client: KnownKey | None = None  # to whose key its decision is charged


class WaitingGets:
    """The GETs that wait, and those that are due."""

    def __init__(self, most: int = WAITING_GETS_MAX) -> None:
        """Nothing waits.

        Args:
            most: GETs that may wait; further ones are answered at once.
        """
        self._most = most
        self.of: dict[str, WaitingGet] = {}  # those that wait, by subscriber
        self._over: dict[Any, str] = {}  # subscriber, by return address
        self._on: dict[str | Pattern, dict[str, None]] = {}  # subscribers, by what they wait for
        self._ends: LowerBounds[str] = LowerBounds()  # subscribers, by when their time is over
        self.due: deque[WaitingGet] = deque()

    def __len__(self) -> int:
        """How many have no answer yet."""
        return len(self.of) + len(self.due)

    def keep(
        self,
        state: State,
        request: AnyRequest,
        reply_to: Any,
        now_s: float,
        client: KnownKey | None = None,
    ) -> bool:
        """Keep a request that has found nothing; return False if it is to be answered now.

        Args:
            client: to whose key it is charged; None: to none.
        """
        if not isinstance(request, _WAITING) or not request.wait_ms:
            return False
        wait_s = min(request.wait_ms / 1000, longest_wait_s(state, request.client))
        has_ring = (
            isinstance(request, Get)
            and request.ring is not UNSET
            and request.ring < state.rings.ends.get(request.topic, 0)
        )
        if wait_s <= 0 or has_ring or request.client in self.of or len(self) >= self._most:
            return False
        get = WaitingGet(request, reply_to, now_s + wait_s, client)
        self._keep(get)
        return True

    def _keep(self, get: WaitingGet) -> None:
        request = get.request
        self.of[request.client] = get
        if get.reply_to is not None:
            self._over[get.reply_to] = request.client
        self._on.setdefault(waits_on(request), {})[request.client] = None
        self._ends.add(request.client, get.until_s)

    # What makes them due.

    def heard(self, request: AnyRequest, reply_to: Any) -> None:
        """A request has come: what its sender asked before is due. Late copies change nothing."""
        over = self._over.get(reply_to)
        if over is not None:
            self._take([over], until_s=OVERTAKEN)
        if request.client in self.of and _is_of_subscriber(request):
            before = self.of[request.client].request
            if (request.epoch, request.request) >= (before.epoch, before.request):
                self._take([request.client], until_s=OVERTAKEN)

    def has_come(self, *sources: str | Pattern, to_ring: bool = False) -> None:
        """Wake the waits for topics, or topics of patterns, with new messages."""
        for source in sources:
            if on := self._on.get(source):
                rings = (one for one in on if _ring_of(self.of[one].request) is not UNSET)
                self._take(list(rings) if to_ring else list(on))

    def has_changed(self, subscriber: str) -> None:
        """A subscription has changed without a request from its subscriber."""
        if subscriber in self.of:
            self._take([subscriber])

    def end(self, now_s: float) -> None:
        """Some have waited for long enough."""
        self._take(self._ends.take_below(math.nextafter(now_s, math.inf), self._end_of))

    def end_all(self) -> None:
        """Nothing waits any longer."""
        self._take(list(self.of))
        self.due = deque(replace(get, until_s=DECIDED_ONCE) for get in self.due)

    def keep_again(self, get: WaitingGet, now_s: float) -> bool:
        """Keep a TAKE for which others were faster; False: it is to be answered."""
        request, reply_to = get.request, get.reply_to
        if now_s >= get.until_s or request.client in self.of or reply_to in self._over:
            return False
        self._keep(get)
        return True

    @property
    def ends_at_s(self) -> float:
        """When the time of the next one is over; infinite if none waits."""
        lowest = self._ends.lowest(self._end_of)
        return lowest[0] if lowest else math.inf

    def turn(self) -> list[WaitingGet]:
        """Those that are decided in this turn."""
        return [self.due.popleft() for _ in range(min(len(self.due), TURN_MAX))]

    def _end_of(self, subscriber: str) -> float | None:
        get = self.of.get(subscriber)
        return get.until_s if get else None

    def _take(self, subscribers: Iterable[str], until_s: float | None = None) -> None:
        for subscriber in subscribers:
            get = self.of.pop(subscriber)
            self._over.pop(get.reply_to, None)
            on = self._on[waits_on(get.request)]
            del on[subscriber]
            if not on:
                del self._on[waits_on(get.request)]
            self.due.append(get if until_s is None else replace(get, until_s=until_s))


def waits_on(request: Waits) -> str | Pattern:
    """The topic or the pattern whose messages a request waits for."""
    return request.match if isinstance(request, Fetch) else request.topic


def _ring_of(request: Waits) -> int | UnsetType:
    if isinstance(request, Fetch):
        return UNSET if request.ring is UNSET else request.ring.number
    return request.ring if isinstance(request, Get) else UNSET


def _is_of_subscriber(request: AnyRequest) -> bool:
    """Whether a request comes from the process that has the epoch; a publisher may have its id."""
    if isinstance(request, Hello):
        return request.role == "subscriber"
    return isinstance(
        request, Get | Ack | Dead | Take | Settle | Sub | Unsub | Bye | Ring | Match | Fetch
    )
