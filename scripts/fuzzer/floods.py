"""The table of floods, by endpoint: what a connection sends until it is cut off.

The kinds of `attacks.py` are for request endpoints, and go to that of a relay too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.core.patterns.matching import Pattern
from reliable_pubsub.common.core.status import Status
from reliable_pubsub.common.core.tree_messages import InterestRequest, Node
from reliable_pubsub.common.core.wire import encode
from reliable_pubsub.relay.core.push import END
from reliable_pubsub.relay.core.unstored import Offer, encode_offer

from . import zmtp
from .attacks import KINDS, Attack, Kind, Scene
from .malformed import BODY, MALFORMED
from .zmtp import OPENED, asked

STAYS_S: Final = 2.0
SHORTER_HANDSHAKE_BYTES: Final = zmtp.GREETING_BYTES + 28  # that of XPUB and XSUB: without an id
JUNK: Final = zmtp.framed(b"j" * 100) * 600
MIB: Final = 2**20

SCENE: Final = Scene(topic="honest", publisher="honest-pub", subscriber="honest-sub", old_epoch=1)
Following = Callable[[], tuple[Attack, int]]  # the next attack, and which of the places it is for

Endpoint = str  # one of these
REQUEST: Final[Endpoint] = "request"
PUSH: Final[Endpoint] = "push"
INGRESS: Final[Endpoint] = "ingress"
RELAY: Final[Endpoint] = "relay"
ENDPOINTS: Final = (REQUEST, PUSH, INGRESS, RELAY)


def _at_push(rest: bytes, *, repeats: bool = False) -> Attack:
    return _at_data(b"SUB", rest, repeats=repeats)


def _at_data(kind: bytes, rest: bytes, *, repeats: bool = False) -> Attack:
    return Attack(
        opening=zmtp.greeting() + zmtp.ready(kind),
        rest=rest,
        stays_s=STAYS_S,
        repeats=repeats,
        handshake_bytes=SHORTER_HANDSHAKE_BYTES,
    )


# On a push endpoint.


def junk_on_push(_: random.Random, __: Scene, ___: Role) -> Attack:
    return _at_push(JUNK, repeats=True)


def large_plain_subscriptions(chance: random.Random, _: Scene, __: Role) -> Attack:
    return _at_push(zmtp.framed(b"\1" + chance.randbytes(8) + bytes(MIB)))


def many_small_plain_subscriptions(chance: random.Random, _: Scene, __: Role) -> Attack:
    one = (zmtp.framed(b"\1%032x" % chance.getrandbits(128)) for _ in range(2000))
    return _at_push(b"".join(one))


def subscriptions_as_commands(chance: random.Random, _: Scene, __: Role) -> Attack:
    one = (zmtp.command(b"SUBSCRIBE", b"%032x" % chance.getrandbits(128)) for _ in range(2000))
    return _at_push(b"".join(one))


def links_of_others(chance: random.Random, _: Scene, __: Role) -> Attack:
    return _at_push(b"".join(zmtp.framed(b"\1" + END + chance.randbytes(16)) for _ in range(50)))


def a_subscription_without_end(_: random.Random, __: Scene, ___: Role) -> Attack:
    return _at_push(zmtp.unfinished([b"x" * 400] * 100), repeats=True)


# At the ingress.


def junk_on_ingress(_: random.Random, __: Scene, ___: Role) -> Attack:
    return _at_data(b"PUB", JUNK, repeats=True)


def malformed_offers(chance: random.Random, scene: Scene, _: Role) -> Attack:
    frames = chance.choice(list(MALFORMED.values()))
    topic = scene.topic.encode() + END
    return _at_data(b"PUB", zmtp.multipart(frames) + zmtp.multipart([topic, *frames]) * 3)


def offers_that_are_not_wanted(_: random.Random, __: Scene, ___: Role) -> Attack:
    offer = Offer(publisher="stranger", epoch=1, first_sequence=1, count=1, crc=crc32(BODY))
    return _at_data(b"PUB", zmtp.multipart(encode_offer("t", offer, BODY)) * 100, repeats=True)


def an_offer_without_end(_: random.Random, __: Scene, ___: Role) -> Attack:
    return _at_data(b"PUB", zmtp.unfinished([b"x" * 400] * 100), repeats=True)


EMPTY_PARTS: Final = zmtp.unfinished([b""] * 30_000)  # libzmq keeps each in 64 bytes
SMALL_PART: Final = zmtp.unfinished([b"x" * 40])  # and what one read brings of these in 8 KiB


def an_offer_of_empty_parts(_: random.Random, __: Scene, ___: Role) -> Attack:
    return _at_data(b"PUB", EMPTY_PARTS, repeats=True)


def an_offer_in_small_pieces(_: random.Random, __: Scene, ___: Role) -> Attack:
    return _at_data(b"PUB", SMALL_PART, repeats=True)


# At request endpoints, and where those of links come in.


def a_request_of_empty_parts(_: random.Random, __: Scene, ___: Role) -> Attack:
    return Attack(opening=OPENED, rest=EMPTY_PARTS, stays_s=STAYS_S, repeats=True)


def a_request_in_small_pieces(_: random.Random, __: Scene, ___: Role) -> Attack:
    return Attack(opening=OPENED, rest=SMALL_PART, stays_s=STAYS_S, repeats=True)


def _interest(chance: random.Random, patterns: tuple[Pattern, ...]) -> Attack:
    link = chance.randbytes(16)
    said = (
        InterestRequest(
            client="stranger",
            epoch=0,
            request=version,
            link=link,
            version=version,
            digest=chance.randbytes(32),
            patterns=patterns,
        )
        for version in range(1, 20)
    )
    rest = b"".join(asked(encode(one)) for one in said)
    return Attack(opening=OPENED, rest=rest, stays_s=STAYS_S)


def costly_interest(chance: random.Random, _: Scene, __: Role) -> Attack:
    first = chance.getrandbits(32)
    patterns = (Pattern("regex", f"([aX]?){{500}}{first + n}") for n in range(128))
    return _interest(chance, tuple(patterns))


def much_small_interest(chance: random.Random, _: Scene, __: Role) -> Attack:
    first = chance.getrandbits(32)
    return _interest(
        chance, tuple(Pattern("regex", f"([a-z]?){{20}}{first + n}") for n in range(60))
    )


def status_that_is_not_read(_: random.Random, __: Scene, ___: Role) -> Attack:
    status = asked(encode(Status(client="stranger", epoch=0, request=1)))
    node = asked(encode(Node(client="stranger", epoch=0, request=1)))
    return Attack(opening=OPENED, rest=(status + node) * 100, reads=False, repeats=True)


class Place(Struct, frozen=True):
    """Where attacks go: a socket of a process."""

    endpoint: str
    role: Role
    kinds: tuple[Kind, ...]


_INTEREST: Final[tuple[Kind, ...]] = (costly_interest, much_small_interest)
_AT_PUSH: Final[tuple[Kind, ...]] = (
    junk_on_push,
    large_plain_subscriptions,
    many_small_plain_subscriptions,
    subscriptions_as_commands,
    links_of_others,
    a_subscription_without_end,
)
_AT_INGRESS: Final[tuple[Kind, ...]] = (
    junk_on_ingress,
    malformed_offers,
    offers_that_are_not_wanted,
    an_offer_without_end,
    an_offer_of_empty_parts,
    an_offer_in_small_pieces,
)
_WITHOUT_END: Final[tuple[Kind, ...]] = (a_request_of_empty_parts, a_request_in_small_pieces)


def places(chosen: frozenset[Endpoint], at: Mapping[str, str]) -> list[Place]:
    """The sockets that are attacked, and by what.

    Args:
        at: the endpoints, by their names: publisher, subscriber, push, ingress, relay, relay_push.
    """
    some = (*KINDS.values(), *_WITHOUT_END)
    found = []
    if REQUEST in chosen:
        found += [
            Place(at["publisher"], "publisher", some),
            Place(at["subscriber"], "subscriber", (*some, *_INTEREST, status_that_is_not_read)),
        ]
    if PUSH in chosen:  # with its interest, which comes by another socket
        found += [Place(at["push"], "subscriber", _AT_PUSH)]
        found += [Place(at["subscriber"], "subscriber", _INTEREST)]
    if INGRESS in chosen:
        found += [Place(at["ingress"], "publisher", _AT_INGRESS)]
    if RELAY in chosen:
        found += [
            Place(at["relay"], "subscriber", (*some, *_INTEREST)),
            Place(at["relay"], "publisher", (*some, status_that_is_not_read)),
            Place(at["relay_push"], "subscriber", _AT_PUSH),
        ]
    return found


def flood_of(found: Sequence[Place], seed: int) -> Following:
    """Endless attacks: each place in turn, each of its kinds as often as the others.

    The same seed gives the same attacks in the same order.
    """
    chance = random.Random(seed)

    def of(place: Place) -> Iterator[Attack]:
        kinds = list(place.kinds)
        while True:
            chance.shuffle(kinds)
            for kind in kinds:
                yield kind(chance, SCENE, place.role)

    def endless() -> Iterator[tuple[Attack, int]]:
        all_of_them = [of(place) for place in found]
        while True:
            for number, attacks in enumerate(all_of_them):
                yield next(attacks), number

    return endless().__next__
