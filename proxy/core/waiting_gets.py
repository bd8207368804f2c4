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
from collections.abc import Callable, Container, Hashable, Iterable, Mapping
from typing import Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.limits import WAITING_GETS_MAX
from reliable_pubsub.common.core.message_base import Reply
from reliable_pubsub.common.core.requests import AnyRequest, Hello

from .lower_bounds import LowerBounds
from .state import State

OVERTAKEN: Final = -2.0
DECIDED_ONCE: Final = -1.0
TURN_MAX: Final = 64  # GETs that are decided in one turn of the loop


class WaitKind(Struct, frozen=True):
    """How requests of one type wait, if they have `wait_ms`."""

    on: Callable[[Any], Hashable]  # return what a request waits for, such as its topic
    # Return the empty answer to a request that is granted something when it is decided: it gets
    # this if its sender has asked again, and waits on if others were faster.
    nothing: Callable[[State, Any], Reply] | None = None


class WaitingGet(Struct, frozen=True):
    """A GET, or another request that can wait, without an answer."""

    request: Any
    reply_to: Any
    until_s: float  # OVERTAKEN: its sender has asked again; DECIDED_ONCE: it waits no longer
    client: Any = None  # to whom its decision is charged


class WaitingGets:
    """The GETs that wait, and those that are due."""

    def __init__(
        self,
        waits: Mapping[type[Any], WaitKind],
        of_subscribers: Container[type[Any]],
        most: int = WAITING_GETS_MAX,
    ) -> None:
        """Nothing waits.

        Args:
            waits: the types of requests that can wait.
            of_subscribers: the types that come from a subscriber's process, except HELLO.
            most: GETs that may wait; further ones are answered immediately.
        """
        self._waits = waits
        self._of_subscribers = of_subscribers
        self._most = most
        self.of: dict[str, WaitingGet] = {}  # those that wait, by subscriber
        self._over: dict[Any, str] = {}  # subscriber, by return address
        self._on: dict[Hashable, dict[str, None]] = {}  # subscribers, by what they wait for
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
        client: Any = None,
    ) -> bool:
        """Keep a request that has found nothing; return False to answer it now.

        Args:
            client: to whom it is charged; None: it is not charged.
        """
        if type(request) not in self._waits or not (wait_ms := getattr(request, "wait_ms", 0)):
            return False
        longest_s = [longest(state, request.client) for longest in state.hooks.waits_s]
        wait_s = min(wait_ms / 1000, *longest_s)
        if wait_s <= 0 or request.client in self.of or len(self) >= self._most:
            return False
        get = WaitingGet(request, reply_to, now_s + wait_s, client)
        self._keep(get)
        return True

    def _keep(self, get: WaitingGet) -> None:
        request = get.request
        self.of[request.client] = get
        if get.reply_to is not None:
            self._over[get.reply_to] = request.client
        self._on.setdefault(self._source(request), {})[request.client] = None
        self._ends.add(request.client, get.until_s)

    # What makes them due.

    def heard(self, request: AnyRequest, reply_to: Any) -> None:
        """A request has come: what its sender asked before is due. Late copies change nothing."""
        over = self._over.get(reply_to)
        if over is not None:
            self._take([over], until_s=OVERTAKEN)
        if request.client in self.of and self._is_of_subscriber(request):
            before = self.of[request.client].request
            if (request.epoch, request.request) >= (before.epoch, before.request):
                self._take([request.client], until_s=OVERTAKEN)

    def has_come(self, *sources: Hashable, to_ring: bool = False) -> None:
        """Wake the waits for topics, or other sources, with new messages."""
        for source in sources:
            if on := self._on.get(source):
                rings = (one for one in on if _has_ring(self.of[one].request))
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

    def nothing_for(self, request: AnyRequest) -> Callable[[State, Any], Reply] | None:
        """Return the empty answer to a request that would be granted something; None: it is not."""
        return self._waits[type(request)].nothing

    def _source(self, request: AnyRequest) -> Hashable:
        return self._waits[type(request)].on(request)

    def _is_of_subscriber(self, request: AnyRequest) -> bool:
        """Return whether a process with the epoch has sent it; a publisher may have its id."""
        if isinstance(request, Hello):
            return request.role == "subscriber"
        return type(request) in self._of_subscribers

    def _end_of(self, subscriber: str) -> float | None:
        get = self.of.get(subscriber)
        return get.until_s if get else None

    def _take(self, subscribers: Iterable[str], until_s: float | None = None) -> None:
        for subscriber in subscribers:
            get = self.of.pop(subscriber)
            self._over.pop(get.reply_to, None)
            source = self._source(get.request)
            on = self._on[source]
            del on[subscriber]
            if not on:
                del self._on[source]
            self.due.append(get if until_s is None else replace(get, until_s=until_s))


def _has_ring(request: AnyRequest) -> bool:
    """Return whether a request also waits for messages at QoS 0."""
    return getattr(request, "ring", UNSET) is not UNSET
