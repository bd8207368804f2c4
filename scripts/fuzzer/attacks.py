"""The table of hostile kinds: what one connection sends, and how it leaves.

An attack is chosen by chance from a seed, and is a value: bytes and times. What sends it
(`crowd.py`) decides nothing. Ids of others are used with old epochs only: a peer that claims a
client's id and a newer epoch takes its place, because ids are not secret
(docs/concepts/guarantees.md).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from reliable_pubsub.common.core.actions import AdminRequest, SetCursor
from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.group_messages import Outcome, Settle, Take
from reliable_pubsub.common.core.interest_messages import Subscriptions
from reliable_pubsub.common.core.limits import FRAME_BYTES_MAX
from reliable_pubsub.common.core.message_base import Role, Start
from reliable_pubsub.common.core.pattern_messages import Fetch, Match
from reliable_pubsub.common.core.qos0_messages import Listeners, Ring
from reliable_pubsub.common.core.requests import (
    Ack,
    AnyRequest,
    Bye,
    Dead,
    DeliveryRequest,
    Get,
    Hello,
    History,
    Put,
    Sub,
    Unsub,
)
from reliable_pubsub.common.core.start import Earliest
from reliable_pubsub.common.core.status import Clients, Status
from reliable_pubsub.common.core.transaction_messages import Abort, Commit, Stage
from reliable_pubsub.common.core.wire import encode

from . import zmtp
from .malformed import BODY, MALFORMED
from .zmtp import OPENED, asked

SILENCE_S = 3.0  # longer than the proxy waits for a handshake
NO_ANSWER_S = 1.0


class Scene(Struct, frozen=True, kw_only=True):
    """What the hostile know of the honest."""

    topic: str
    publisher: str
    subscriber: str
    old_epoch: int  # both had it, and have a newer one


class Attack(Struct, frozen=True, kw_only=True):
    """One connection."""

    opening: bytes = b""  # sent at once
    rest: bytes = b""  # sent when the proxy's half of the handshake is there
    stays_s: float = 0.0  # from the last byte sent to the end
    trickles: bool = False  # the opening goes out byte by byte
    resets: bool = False  # ends with RST
    reads: bool = True  # otherwise not a byte after the handshake
    repeats: bool = False  # the rest goes out over and over, as fast as it is taken
    handshake_bytes: int = zmtp.HANDSHAKE_BYTES  # that are read before the rest is sent


Kind = Callable[[random.Random, Scene, Role], Attack]
KINDS: dict[str, Kind] = {}


def _kind(function: Kind) -> Kind:
    """Enter a kind in the table under its name in words."""
    KINDS[function.__name__.replace("_", " ")] = function
    return function


def attack(name: str, chance: random.Random, scene: Scene, role: Role) -> Attack:
    """One connection of a kind, at the endpoint of a role."""
    return KINDS[name](chance, scene, role)


# Before ZMTP.


@_kind
def connects_and_vanishes(chance: random.Random, _: Scene, __: Role) -> Attack:
    return Attack(resets=chance.random() < 0.5)


@_kind
def garbage_for_a_greeting(chance: random.Random, _: Scene, __: Role) -> Attack:
    return Attack(opening=chance.randbytes(chance.randrange(1, 2000)), stays_s=0.1)


@_kind
def another_protocol(chance: random.Random, _: Scene, __: Role) -> Attack:
    hello = [
        b"GET / HTTP/1.1\r\nHost: proxy\r\n\r\n",
        bytes.fromhex("16030100c8010000c40303") + chance.randbytes(189),  # TLS
        b"SSH-2.0-OpenSSH_9.2\r\n",
        bytes.fromhex("101000044d5154540402003c0004") + b"evil",  # MQTT
    ]
    return Attack(opening=chance.choice(hello), stays_s=0.1)


@_kind
def half_a_greeting_and_silence(chance: random.Random, _: Scene, __: Role) -> Attack:
    return Attack(opening=zmtp.greeting()[: chance.randrange(64)], stays_s=SILENCE_S)


@_kind
def a_greeting_byte_by_byte(_: random.Random, __: Scene, ___: Role) -> Attack:
    return Attack(opening=OPENED, trickles=True, stays_s=SILENCE_S)


@_kind
def a_greeting_and_silence(_: random.Random, __: Scene, ___: Role) -> Attack:
    return Attack(opening=zmtp.greeting(), stays_s=SILENCE_S)


@_kind
def the_wrong_mechanism(chance: random.Random, _: Scene, __: Role) -> Attack:
    mechanism = chance.choice([b"PLAIN", b"CURVE", b"GSSAPI", b"", b"\xff" * 20])
    return Attack(opening=zmtp.greeting(mechanism=mechanism), stays_s=0.1)


@_kind
def another_version(chance: random.Random, _: Scene, __: Role) -> Attack:
    """Of 1 and 2, which know no heartbeat, of 3.0, and of the future."""
    status = _status()
    return chance.choice(
        [
            Attack(opening=zmtp.V1_OPENED, stays_s=SILENCE_S),
            Attack(opening=zmtp.V1_OPENED + zmtp.v1_asked(status), stays_s=0.1),
            Attack(opening=zmtp.V2_OPENED, stays_s=SILENCE_S),
            Attack(opening=zmtp.V2_OPENED + asked(status), stays_s=0.1),
            Attack(opening=zmtp.greeting(3, 0) + zmtp.ready(), rest=asked(status)),
            Attack(opening=zmtp.greeting(chance.randrange(4, 256)), stays_s=0.1),
        ]
    )


@_kind
def a_broken_ready(chance: random.Random, _: Scene, __: Role) -> Attack:
    ready = chance.choice(
        [
            zmtp.command(b"READY", chance.randbytes(chance.randrange(300))),
            zmtp.command(b"READY", b"\x0bSocket-Type\xff\xff\xff\xff"),
            zmtp.command(b"HELLO", b"\x05admin\x05admin"),
            zmtp.command(b"ERROR", b"\x09 go away!"),
            zmtp.ready(b"XYZ"),
            zmtp.ready() + zmtp.ready(),
            asked([b"early"]) + zmtp.ready(),
        ]
    )
    return Attack(opening=zmtp.greeting() + ready, stays_s=0.1)


@_kind
def another_kind_of_socket(chance: random.Random, _: Scene, __: Role) -> Attack:
    kind = chance.choice([b"SUB", b"PUB", b"PUSH", b"PULL", b"PAIR", b"REP", b"ROUTER"])
    opening = zmtp.greeting() + zmtp.ready(kind)
    return Attack(opening=opening, rest=zmtp.multipart([b"\x01"]), stays_s=0.1)


@_kind
def the_routing_id_of_others(chance: random.Random, scene: Scene, _: Role) -> Attack:
    routing_id = chance.choice(
        [scene.publisher.encode(), b"same", b"\0", chance.randbytes(5), bytes(255)]
    )
    opening = zmtp.greeting() + zmtp.ready(b"DEALER", routing_id)
    return Attack(opening=opening, rest=asked(_status()), stays_s=0.2)


# Envelopes and frames.


def _status(number: int = 1) -> list[bytes]:
    return encode(Status(client="stranger", epoch=0, request=number))


@_kind
def no_delimiter(chance: random.Random, _: Scene, __: Role) -> Attack:
    message = zmtp.multipart(_status())
    return Attack(opening=OPENED, rest=message * chance.randrange(1, 4))


@_kind
def wrong_envelopes(chance: random.Random, _: Scene, __: Role) -> Attack:
    frames = chance.choice(
        [
            [chance.randbytes(5), b"", b"", chance.randbytes(50)],
            [b""] * chance.randrange(1, 12),
            [b"hop"] * 50 + [b"", *_status()],
            [b"", *_status(), b"extra", b"extra"],
            [b"", b"", *_status()],
            [b"x" * 300, b""],
        ]
    )
    opening = zmtp.greeting() + zmtp.ready(b"DEALER")
    return Attack(opening=opening, rest=zmtp.multipart(frames) * 2)


@_kind
def an_unfinished_message(chance: random.Random, _: Scene, __: Role) -> Attack:
    """MORE is promised; then silence, and the end of the connection."""
    frames = [b"", *_status()[:1], *[b"part"] * chance.randrange(200)]
    return Attack(
        opening=OPENED,
        rest=zmtp.unfinished(frames),
        stays_s=chance.choice([0.0, 0.1, NO_ANSWER_S]),
        resets=chance.random() < 0.5,
    )


@_kind
def a_frame_above_the_limit(chance: random.Random, _: Scene, __: Role) -> Attack:
    size = chance.choice([FRAME_BYTES_MAX + 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
    flags = chance.choice([0, zmtp.MORE, zmtp.COMMAND])
    return Attack(opening=OPENED, rest=zmtp.announced(size, flags) + b"x" * 50, stays_s=0.1)


@_kind
def a_frame_that_never_comes(chance: random.Random, _: Scene, __: Role) -> Attack:
    head = zmtp.announced(chance.randrange(300, FRAME_BYTES_MAX))
    return Attack(opening=OPENED, rest=head + b"x" * 50, stays_s=NO_ANSWER_S)


@_kind
def a_flood_of_commands(chance: random.Random, scene: Scene, _: Role) -> Attack:
    one = chance.choice(
        [
            zmtp.command(b"PING", b"\xff\xff" + b"context"),
            zmtp.command(b"PING", b"\0\0" + b"x" * 5000),
            zmtp.command(b"PING"),  # without its time to live
            zmtp.command(b"PONG", b"x" * 16),
            zmtp.command(b"SUBSCRIBE", scene.topic.encode()),
            zmtp.command(b"CANCEL", b""),
            zmtp.command(b"JOIN", b"group"),
            zmtp.command(b"ERROR", b"\x03bad"),
            zmtp.command(b"WHAT", chance.randbytes(100)),
            zmtp.framed(b"", zmtp.COMMAND),
            zmtp.framed(b"\xffA", zmtp.COMMAND),
            b"\xff\xff",  # flags that do not exist
        ]
    )
    return Attack(opening=OPENED, rest=one * 100 + asked(_status()), stays_s=0.1)


@_kind
def a_byte_changed(chance: random.Random, scene: Scene, role: Role) -> Attack:
    """An ordinary conversation with one byte changed, or cut off."""
    said = bytearray(OPENED + asked(_status()) + _all_asked(_strange_requests(scene, role)))
    place = chance.randrange(len(said))
    said[place] = chance.randrange(256)
    said = said[: chance.choice([None, chance.randrange(1, len(said))])]
    opening = bytes(said[: len(OPENED)])
    return Attack(opening=opening, rest=bytes(said[len(OPENED) :]), stays_s=0.05)


# Requests.


def _all_asked(requests: Sequence[AnyRequest]) -> bytes:
    return b"".join(
        asked(encode(one, BODY if isinstance(one, Put | Stage | Dead) else None))
        for one in requests
    )


def _strange_requests(scene: Scene, role: Role) -> list[AnyRequest]:
    """Requests of a client that never says HELLO, on a topic that the proxy knows."""
    return requests_of(scene, role, client="stranger", epoch=1)


def requests_of(scene: Scene, role: Role, *, client: str, epoch: int) -> list[AnyRequest]:
    """One of each verb of a role, with the ids and the epoch given."""
    who = {"client": client, "epoch": epoch, "request": 1}
    topic = {"topic": scene.topic}
    place = {"generation": 1, "boot": "b", "cursor": 2**40}
    fields: list[tuple[type[AnyRequest], dict[str, object]]]
    if role == "publisher":
        crc = crc32(BODY)
        fields = [(Put, {**topic, "first_sequence": n, "count": 1, "crc": crc}) for n in (1, 2, 9)]
        late: dict[str, object] = {"transaction": 2**40}
        part = {"task": 0, "attempt": b"8 random"}
        staged = {**late, **part, **topic, "chunk": 0, "count": 1, "crc": crc}
        fields += [
            (Stage, staged),
            (Stage, {**staged, "chunk": 7}),
            (Commit, {**late, "parts": [[0, b"8 random", 1]]}),
            (Abort, late),
            (DeliveryRequest, {**topic, "offset": 0}),
            (Listeners, {**topic}),
            (Subscriptions, {"match": ["regex", "(a|b)*" * 40], "after": [["z", "z"], None]}),
        ]
    else:
        # An operator's action is only looked at: without keys any client may do it.
        back = SetCursor(topic=scene.topic, subscriber=scene.subscriber, start=Start("earliest"))
        of_group = {**topic, "group": "strangers"}
        ended = Outcome(0, 2**30, 1, "ack")
        every = ["glob", "*" * 200]
        fields = [
            (Get, {**topic, **place}),
            (Ack, {**topic, **place}),
            (Sub, {**topic, "control": 2**40, "cursor": 0}),
            (Unsub, {**topic, "control": 2**40}),
            (Sub, {**of_group, "control": 2**40}),
            (Take, {**of_group, "generation": 1, "messages_max": 65_536, "outcomes": [ended]}),
            (Settle, {**of_group, "generation": 1, "outcomes": [ended]}),
            (Unsub, {**of_group, "control": 2**40, "ends_group": True}),
            (Dead, {**topic, **place, "crc": crc32(BODY)}),
            (Ring, {**topic, "generation": 1, "boot": "b", "place": 0}),
            (Match, {"match": every, "control": 2**40}),
            (Fetch, {"match": every, "boot": "b", "told": [[scene.topic, 1, 2**40]]}),
            (Clients, {}),
            (AdminRequest, {"do": back}),
            (Bye, {}),
        ]
    return [msgspec.convert({**who, **more}, kind) for kind, more in fields]


@_kind
def asks_and_vanishes(chance: random.Random, scene: Scene, role: Role) -> Attack:
    request: list[AnyRequest] = [Status(client="stranger", epoch=0, request=1)]
    if role == "subscriber":
        request.append(
            History(client="stranger", epoch=0, request=2, topic=scene.topic, start=Earliest)
        )
    return Attack(
        opening=OPENED,
        rest=_all_asked(request) * chance.randrange(1, 8),
        resets=chance.random() < 0.5,
    )


@_kind
def malformed_requests(chance: random.Random, _: Scene, __: Role) -> Attack:
    frames = chance.choice(list(MALFORMED.values()))
    return Attack(opening=OPENED, rest=asked(frames), stays_s=chance.choice([0.0, 0.05]))


@_kind
def unknown_clients(_: random.Random, scene: Scene, role: Role) -> Attack:
    return Attack(opening=OPENED, rest=_all_asked(_strange_requests(scene, role)), stays_s=0.05)


@_kind
def the_id_of_an_honest_client_with_an_old_epoch(
    chance: random.Random, scene: Scene, role: Role
) -> Attack:
    client = scene.publisher if role == "publisher" else scene.subscriber
    epoch = chance.randrange(scene.old_epoch + 1)
    requests = requests_of(scene, role, client=client, epoch=epoch)
    nonce = b"not-the-nonce"
    requests.append(Hello(client=client, epoch=epoch, request=1, role=role, nonce=nonce))
    return Attack(opening=OPENED, rest=_all_asked(requests), stays_s=0.05)


@_kind
def verbs_of_the_other_endpoint(_: random.Random, scene: Scene, role: Role) -> Attack:
    other: Role = "subscriber" if role == "publisher" else "publisher"
    client = scene.publisher if other == "publisher" else scene.subscriber
    requests = requests_of(scene, other, client=client, epoch=2**40)
    return Attack(opening=OPENED, rest=_all_asked(requests), stays_s=0.05)


@_kind
def another_protocol_tag(chance: random.Random, _: Scene, __: Role) -> Attack:
    tag = chance.choice([b"RPS2", b"rps1", b"", b"MDPC01", b"RPS1" * 100])
    return Attack(opening=OPENED, rest=asked([tag, *_status()[1:]]) * 3, stays_s=0.05)


@_kind
def a_flood_of_new_clients(chance: random.Random, _: Scene, role: Role) -> Attack:
    hellos = [
        Hello(
            client=f"flood-{chance.getrandbits(64):x}",
            epoch=1,
            request=1,
            role=role,
            nonce=chance.randbytes(16),
        )
        for _ in range(5)
    ]
    return Attack(opening=OPENED, rest=_all_asked(hellos), stays_s=0.05)


@_kind
def reads_nothing(_: random.Random, scene: Scene, role: Role) -> Attack:
    """Asks for more than one connection may hold, and does not take it."""
    if role == "publisher":
        rest = b"".join(asked(_status(n)) for n in range(50))
    else:
        want = {"client": "stranger", "epoch": 0, "topic": scene.topic, "messages_max": 100}
        rest = _all_asked(
            [
                msgspec.convert({**want, "request": n, "start": Start("earliest")}, History)
                for n in range(50)
            ]
        )
    return Attack(opening=OPENED, rest=rest, stays_s=NO_ANSWER_S, reads=False)


@_kind
def asks_too_much_and_resets(_: random.Random, __: Scene, ___: Role) -> Attack:
    """A PING after more requests than a queue should hold, from a client that has gone.

    Where a reset is heard this ends the process, see `common/access/listener.py`.
    """
    rest = asked([b"?"]) * 40 + zmtp.command(b"PING", b"\0\0x")
    return Attack(opening=OPENED, rest=rest, resets=True)


# What cannot be read, as the frames of a request.
