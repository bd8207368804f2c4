"""Which request needs which rights: one table for every verb of proxy and relays. Pure.

A verb that is not in it is denied to every key with rights (`rights.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from msgspec import UNSET, Struct

from ...core import requests
from ...core.actions import AdminRequest
from ...core.dead_letter import dead_topic, is_dead
from ...core.group_messages import Settle, Take
from ...core.interest_messages import Subscriptions
from ...core.message_base import Request
from ...core.pattern_messages import Fetch, Match
from ...core.patterns.matching import EVERYTHING, Pattern
from ...core.qos0_messages import Listeners, Ring
from ...core.status import Clients, Status
from ...core.transaction_messages import Abort, Commit, Stage
from ...core.tree_messages import InterestRequest, Node

TopicRight = Literal["put", "get", "history", "dead_letters", "status", "admin"]


class Need(Struct, frozen=True):
    """A right that a request needs."""

    right: TopicRight
    topic: str | None = None  # None: for any topic, the answer shows only those
    covers: Pattern | None = None  # instead of a topic: all that it matches


def to_read(topic: str, right: TopicRight = "get") -> Need:
    return Need("dead_letters" if is_dead(topic) else right, topic)


def _reads(request: Any) -> Iterator[Need]:
    yield to_read(request.topic)


def _puts(request: Any) -> Iterator[Need]:
    yield Need("put", request.topic)


def _hello(request: requests.Hello) -> Iterator[Need]:
    return (Need("put", topic) for topic in request.topics)


def _dead(request: requests.Dead) -> Iterator[Need]:
    yield to_read(request.topic)
    letters = dead_topic(request.topic)
    if letters is not None:
        yield Need("dead_letters", letters)


def _settles(request: Take | Settle) -> Iterator[Need]:
    yield to_read(request.topic)
    letters = dead_topic(request.topic)
    if letters is not None and any(one.how == "reject" for one in request.outcomes):
        yield Need("dead_letters", letters)


def _sub(request: requests.Sub) -> Iterator[Need]:
    yield to_read(request.topic)
    letters = dead_topic(request.topic)
    terms = request.group_terms
    if letters is not None and terms is not UNSET and terms.max_deliveries:
        yield Need("dead_letters", letters)  # the proxy makes them for the group


def _unsub(request: requests.Unsub) -> Iterator[Need]:
    if request.group is not UNSET:
        yield to_read(request.topic)


def _history(request: requests.History) -> Iterator[Need]:
    yield to_read(request.topic, "history")


def _subscriptions(request: Subscriptions) -> Iterator[Need]:
    pattern = request.match
    yield Need("put", pattern.text if pattern.kind == "exact" else None)


def to_be_pushed(pattern: Pattern) -> Iterator[Need]:
    """What a node or a plain ZeroMQ subscriber needs, to be sent all that a pattern matches."""
    if pattern.kind == "exact":
        yield to_read(pattern.text)
    else:  # it may match topics of dead letters
        yield Need("get", covers=pattern)
        yield Need("dead_letters", covers=pattern)


def _admin(request: AdminRequest) -> Iterator[Need]:
    topic = getattr(request.do, "topic", None)
    yield Need("admin", covers=EVERYTHING) if topic is None else Need("admin", topic)


def _interest(request: InterestRequest) -> Iterator[Need]:
    for pattern in request.patterns or ():
        yield from to_be_pushed(pattern)


def _nothing(_: Any) -> Iterator[Need]:
    return iter(())


# Beside an id of the key, which every verb needs. COMMIT: the proxy adds its topics.
NEEDS: Final[Mapping[type[Request], Callable[[Any], Iterator[Need]]]] = {
    requests.Hello: _hello,
    requests.Put: _puts,
    Stage: _puts,
    Commit: _nothing,
    Abort: _nothing,
    requests.DeliveryRequest: _puts,
    Listeners: _puts,
    Subscriptions: _subscriptions,
    requests.Get: _reads,
    requests.Ack: _reads,
    requests.Dead: _dead,
    Take: _settles,
    Settle: _settles,
    Match: lambda _: iter((Need("get"),)),  # topics that may not be read are not matched
    Fetch: lambda _: iter((Need("get"),)),
    requests.Sub: _sub,
    requests.Unsub: _unsub,
    requests.Bye: _nothing,
    Ring: _reads,
    requests.History: _history,
    Status: lambda _: iter((Need("status"),)),
    Clients: lambda _: iter((Need("admin", covers=EVERYTHING),)),
    AdminRequest: _admin,
    InterestRequest: _interest,
    Node: lambda _: iter((Need("status", covers=EVERYTHING),)),
}
# They change nothing for their sender, so they may come under the random id of a command.
PASSING: Final = (requests.History, Status, Clients, AdminRequest, Node)
# They show the topics of a right, and no others.
SHOWING: Final[Mapping[type[Request], TopicRight]] = {
    Status: "status",
    Subscriptions: "put",
}
# What a relay asks for itself; all else it passes on, and says for which key.
OWN_OF_RELAY: Final = (Status, InterestRequest, Node)


def to_be_whole(request: Request) -> Iterable[Need]:
    """What a request needs so that its answer need not leave topics out."""
    if isinstance(request, Match | Fetch):
        return to_be_pushed(request.match)
    return (Need("status", covers=EVERYTHING),) if isinstance(request, Status) else ()
