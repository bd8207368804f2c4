"""Whether a key has the rights that a request needs. Pure.

What each needs: `needs.py`. How rights are written: `common/core/rights.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from typing import Final, Literal

from msgspec import UNSET, Struct

from ...core.answers import Denied
from ...core.dead_letter import is_dead
from ...core.errors import ConfigurationError, InvalidPatternError
from ...core.message_base import Request
from ...core.names import is_passing_id
from ...core.patterns.automaton import Effort
from ...core.patterns.matching import EVERYTHING, Kinds, Pattern, TopicTest, canonical, is_simple
from ...core.rights import NOTHING, Globs, KnownKey
from ...core.tree_messages import InterestRequest
from .needs import (
    NEEDS,
    OWN_OF_RELAY,
    PASSING,
    SHOWING,
    Need,
    TopicRight,
    to_be_pushed,
    to_be_whole,
    to_read,
)

Right = Literal["id", "relay", "connections_max"] | TopicRight

_MATCHES_MAX: Final = 16_384  # of names with globs that are remembered: one takes up to 300 us
_KINDS: Final = Kinds()


def _pattern(glob: str) -> Pattern:
    if not any(mark in glob for mark in "*?["):
        return Pattern("exact", glob)
    if not any(mark in glob[:-1] for mark in "*?[") and glob[-1] == "*":
        return Pattern("prefix", glob[:-1])
    return canonical(Pattern("glob", glob))


def _test(pattern: Pattern) -> TopicTest:
    return _KINDS.test(pattern) if is_simple(pattern) else partial(_matches, pattern)


@lru_cache(_MATCHES_MAX)
def _matches(pattern: Pattern, name: str) -> bool:
    return _KINDS.test(pattern)(name)


class Names:
    """The names that a right holds for."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        """Patterns in their simplest form."""
        self.patterns = tuple(patterns)
        self._tests = tuple(map(_test, self.patterns))
        self.is_all = EVERYTHING in self.patterns

    def has(self, name: str) -> bool:
        """Whether it is one of them."""
        return any(test(name) for test in self._tests)

    def cover(self, wanted: Pattern) -> bool:
        """Whether they surely include all that an exact pattern or a prefix matches."""
        return self.is_all or (
            is_simple(wanted) and any(_KINDS.covers(own, wanted) for own in self.patterns)
        )

    def share(self, wanted: Pattern, effort: Effort) -> bool:
        """Whether they surely include something that a pattern matches."""
        return any(_KINDS.overlap(own, wanted, effort) for own in self.patterns)


class ShownTopics:
    """The topics that an answer shows."""

    def __init__(self, names: Iterable[Names]) -> None:
        """Those that are among all of these."""
        self._names = tuple(names)

    def __call__(self, topic: str) -> bool:
        """Whether a topic is shown."""
        return all(one.has(topic) for one in self._names)

    def shares(self, wanted: Pattern, effort: Effort) -> bool:
        """Whether a pattern surely means one of them."""
        return all(one.share(wanted, effort) for one in self._names)


class Denial(Struct, frozen=True, kw_only=True):
    """A refusal for lack of a right: what the audit log says of it."""

    name: str  # of the key that asked
    lacking: str  # name of the key that lacks the right: this one, or that of the relay
    client: str
    verb: str
    right: Right
    topic: str
    via: str = ""  # name of the relay's key, if a relay asked for it

    @property
    def text(self) -> str:
        """What happened, and what to do."""
        if self.right == "relay" and self.verb == "INTEREST":
            may = "name relays below it other than itself"
        elif self.right == "relay":
            may = "name a sender's key unless it is a relay, nor leave it out if it is one"
        elif self.right == "id":
            may = f"use the id {self.client!r}"
        else:
            on = f"topic {self.topic!r}" if self.topic else "these topics"
            may = f"do this: {self.right} on {on}"
        via = f" (asked by {self.name!r}, by way of {self.via!r})" if self.via else ""
        return (
            f"{self.verb}: the key {self.lacking!r} may not {may}{via}; nothing was changed. Who "
            "runs the proxy can allow it among the rights of that key (docs/how-to/security.md)"
        )


class _Permit:
    """The rights of one key, read once."""

    def __init__(self, client: KnownKey) -> None:
        rights = client.rights
        named: dict[TopicRight, Globs] = {
            "put": rights.put,
            "get": rights.get,
            "history": rights.history,
            "dead_letters": rights.dead_letters,
            "status": rights.status,
            "admin": rights.admin,
        }
        self.name = client.name
        self.is_relay = rights.relay
        own = (Pattern("exact", client.name),)  # a name is no glob, whatever it looks like
        self.ids = Names(own if rights.ids is UNSET else map(_pattern, rights.ids))
        self.topics = {right: Names(map(_pattern, globs)) for right, globs in named.items()}

    def lacks(self, request: Request, more: Iterable[Need]) -> tuple[Right, str] | None:
        """The first right that a request lacks, with its topic."""
        is_passing = isinstance(request, PASSING) and is_passing_id(request.client)
        if not is_passing and not self.ids.has(request.client):
            return "id", ""
        find = NEEDS.get(type(request))
        if find is None:
            return "admin", ""
        is_alone = not isinstance(request, InterestRequest) or set(request.below) <= {
            request.client
        }
        if not (is_alone or self.is_relay):
            return "relay", ""  # with the name of another relay, that one would be refused (LOOP)
        return self.first_lacking((*find(request), *more))

    def first_lacking(self, needs: Iterable[Need]) -> tuple[Right, str] | None:
        """The first of these that is not held."""
        for need in needs:
            names = self.topics[need.right]
            if need.covers is not None:
                if not names.cover(need.covers):
                    return need.right, need.covers.text
            elif need.topic is None:
                if not names.patterns:
                    return need.right, ""
            elif not names.has(need.topic):
                return need.right, need.topic
        return None


_UNKNOWN: Final = KnownKey(name="(unknown)", rights=NOTHING)


class Authority:
    """Decides for every key what it may do. Where no keys are known, everything."""

    def __init__(self, clients: Mapping[str, KnownKey]) -> None:
        """Read the rights of all keys.

        Raises:
            ConfigurationError: a right has a pattern that cannot be read.
        """
        self._clients = clients
        self._permits: dict[str, _Permit] = {}
        self.has_rights = bool(clients)
        for key, one in clients.items():
            try:
                self._permits[key] = _Permit(one)
            except InvalidPatternError as error:
                raise ConfigurationError(f"rights of {one.name}: {error}") from None
        self._unknown = _Permit(_UNKNOWN)

    def changed(self, other: Authority) -> frozenset[str]:
        """The keys that have other rights there, or are not known in both."""
        keys = self._clients.keys() | other._clients.keys()
        return frozenset(k for k in keys if self._clients.get(k) != other._clients.get(k))

    def asker(self, key: str, request: Request) -> str:
        """The key that a request is of: that named by a relay, else that of the connection."""
        return key if request.key is UNSET or not self._permit(key).is_relay else request.key

    def name_of(self, key: str, request: Request) -> str:
        """The name of the key that a request is of; "": no keys are known."""
        if not self._clients:
            return ""
        client = self._clients.get(self.asker(key, request))
        return client.name if client else _UNKNOWN.name

    def clients_by_name(self) -> dict[str, KnownKey]:
        """The known clients; keys of one name share their quotas."""
        return {one.name: one for one in self._clients.values()}

    def charged(self, key: str, request: Request) -> KnownKey | None:
        """The client to whose key a request is charged; through a relay, that of its asker.

        None: the key is not known.
        """
        return self._clients.get(self.asker(key, request))

    def denial(self, key: str, request: Request, more: Iterable[Need] = ()) -> Denial | None:
        """Why a request is refused; None: it is allowed.

        A relay needs every right itself, too, so that its entry bounds what it may pass on.

        Args:
            key: of the connection that it came on.
            more: what it needs besides `NEEDS`.
        """
        if not self.has_rights:
            return None
        permit, more = self._permit(key), tuple(more)
        if request.key is UNSET and not (permit.is_relay and not isinstance(request, OWN_OF_RELAY)):
            return _denial(permit, request, permit.lacks(request, more))
        if request.key is UNSET or not permit.is_relay:
            return _denial(permit, request, ("relay", ""))
        asker = self._permit(request.key)
        for one in (asker, permit):
            lacking = one.lacks(request, more)
            if lacking is not None:
                return _denial(asker, request, lacking, of=one, via=permit.name)
        return None

    def denial_of_relayed(self, key: str, request: Request) -> Denial | None:
        """Why a relay below is not to pass a request on; None: it may, or asks for itself.

        A proxy knows the last relay on the way alone, so each relay holds those below it to their
        entries. An answer about the topics of a right needs that right to all that are asked for.
        """
        permit = self._permit(key)
        if request.key is UNSET or not (self.has_rights and permit.is_relay):
            return None
        lacking = permit.lacks(request, to_be_whole(request))
        asker = self._permit(request.key)
        return _denial(asker, request, lacking, of=permit, via=permit.name)

    def denial_of_offer(self, key: str, client: str, topic: str) -> Denial | None:
        """Why what was put at QoS 0 is refused."""
        if not self.has_rights:
            return None
        permit = self._permit(key)
        right: Right = "id" if not permit.ids.has(client) else "put"
        if right == "put" and permit.topics["put"].has(topic) and not is_dead(topic):
            return None
        name = permit.name
        return Denial(
            name=name, lacking=name, client=client, verb="OFFER", right=right, topic=topic
        )

    def denial_of_push(self, key: str, wanted: Pattern) -> Denial | None:
        """Why a plain ZeroMQ subscriber is not sent what it has subscribed to."""
        if not self.has_rights:
            return None
        permit = self._permit(key)
        lacking = permit.first_lacking(to_be_pushed(wanted))
        if lacking is None:
            return None
        (right, topic), name = lacking, permit.name
        return Denial(
            name=name, lacking=name, client="", verb="SUBSCRIBE", right=right, topic=topic
        )

    def gets_everything(self, key: str) -> bool:
        """Whether a link of a key may be sent more than it has asked for."""
        permit = self._permit(key)
        return not self.has_rights or all(
            permit.topics[right].is_all for right in ("get", "dead_letters")
        )

    def shown(self, key: str, request: Request) -> ShownTopics | None:
        """The topics that a STATUS or SUBSCRIPTIONS shows; None: all, or it is another request.

        One that a relay passes on shows what both its keys may see.
        """
        right = SHOWING.get(type(request))
        if not self.has_rights or right is None:
            return None
        found = {self._permit(key), self._permit(self.asker(key, request))}
        names = [one.topics[right] for one in found]
        return None if all(one.is_all for one in names) else ShownTopics(names)

    def keys_of(self, key: str, request: Request) -> str:
        """The keys that must all have a right for a request: its own, and that of a relay."""
        return " ".join(dict.fromkeys((self.asker(key, request), key)))

    def may_read(self, keys: str, topic: str) -> bool:
        """Whether all of these keys, of `keys_of`, may get a topic."""
        need = to_read(topic)
        return not self.has_rights or all(
            self._permit(key).topics[need.right].has(topic) for key in keys.split() or [""]
        )

    def _permit(self, key: str) -> _Permit:
        return self._permits.get(key, self._unknown)


def _denial(
    asker: _Permit,
    request: Request,
    lacking: tuple[Right, str] | None,
    *,
    of: _Permit | None = None,
    via: str = "",
) -> Denial | None:
    if lacking is None:
        return None
    right, topic = lacking
    return Denial(
        name=asker.name,
        lacking=(of or asker).name,
        client=request.client,
        verb=str(request.__struct_config__.tag),
        right=right,
        topic=topic,
        via=via,
    )


def denied(denial: Denial, request: Request, *, boot: str) -> Denied:
    """The answer to a refused request."""
    return Denied(
        client=request.client,
        epoch=request.epoch,
        request=request.request,
        boot=boot,
        right=denial.right,
        topic=denial.topic,
        text=denial.text,
    )
