"""Raw connections to encrypted endpoints: without a key, half open, and slow.

CURVE (ZeroMQ RFC 26): both greetings of 64 bytes, then HELLO and INITIATE of the client, WELCOME
and READY of the server. Nothing here has a key, so nothing gets beyond HELLO. Peers with keys are
in `intruders.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import Final

from reliable_pubsub.common.core.message_base import Role

from . import zmtp
from .attacks import SILENCE_S, Attack, Kind, Scene
from .floods import SCENE, Following, Place

GREETING: Final = zmtp.greeting(mechanism=b"CURVE")
PREPARED: Final = 1_000
_HELLO_BYTES: Final = 194  # after its name: version, padding, key, nonce, box


def _hello(chance: random.Random, version: bytes = b"\1\0") -> bytes:
    """A HELLO whose box cannot be opened."""
    rest = version + bytes(72) + chance.randbytes(_HELLO_BYTES - 74)
    return zmtp.command(b"HELLO", rest)


def _curve(rest: bytes, stays_s: float) -> Attack:
    """An attack that continues once the greeting of the server is there."""
    return Attack(opening=GREETING, rest=rest, stays_s=stays_s, handshake_bytes=zmtp.GREETING_BYTES)


# Half open: the server waits for what does not come.


def a_connection_and_silence(_: random.Random, __: Scene, ___: Role) -> Attack:
    return Attack(stays_s=SILENCE_S)


def a_curve_greeting_and_silence(_: random.Random, __: Scene, ___: Role) -> Attack:
    return Attack(opening=GREETING, stays_s=SILENCE_S)


def half_a_hello_and_silence(chance: random.Random, _: Scene, __: Role) -> Attack:
    return _curve(_hello(chance)[: chance.randrange(1, _HELLO_BYTES)], SILENCE_S)


def a_hello_that_cannot_be_opened(chance: random.Random, _: Scene, __: Role) -> Attack:
    return _curve(_hello(chance), 0.1)


def a_hello_of_another_version(chance: random.Random, _: Scene, __: Role) -> Attack:
    return _curve(_hello(chance, chance.randbytes(2)), 0.1)


def a_ready_instead_of_a_hello(_: random.Random, __: Scene, ___: Role) -> Attack:
    return _curve(zmtp.ready(), 0.1)


# Slow.


def a_curve_greeting_byte_by_byte(chance: random.Random, _: Scene, __: Role) -> Attack:
    return Attack(opening=GREETING + _hello(chance), trickles=True, stays_s=SILENCE_S)


HALF_OPEN: Final[tuple[Kind, ...]] = (
    a_connection_and_silence,
    a_curve_greeting_and_silence,
    half_a_hello_and_silence,
    a_hello_that_cannot_be_opened,
    a_hello_of_another_version,
    a_ready_instead_of_a_hello,
)
SLOW: Final[tuple[Kind, ...]] = (a_curve_greeting_byte_by_byte,)


def keyless_attacks(places: Sequence[Place], seed: int) -> Following:
    """Endless attacks: without a key, half open and slow in turn, at each place in turn.

    The same seed gives the same attacks in the same order. They are made before the first one, and
    come again: the CPU of the attackers is that of the attacked, too.

    Args:
        places: with the kinds of plaintext connections for each.
    """
    chance = random.Random(seed)

    def endless() -> Iterator[tuple[Attack, int]]:
        while True:
            for number, place in enumerate(places):
                for kinds in (place.kinds, HALF_OPEN, SLOW):
                    yield chance.choice(kinds)(chance, SCENE, place.role), number

    return cycle(list(islice(endless(), PREPARED))).__next__
