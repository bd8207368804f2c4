"""A known key asks for everything, under every name, in any order: its rights bound it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from reliable_pubsub.common.core.answers import Denied
from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.message_base import Start
from reliable_pubsub.common.core.patterns.matching import Pattern
from reliable_pubsub.common.core.qos0_messages import Listeners, Ring
from reliable_pubsub.common.core.requests import Dead, DeliveryRequest
from reliable_pubsub.common.core.status import Status
from reliable_pubsub.common.core.tree_messages import Node
from reliable_pubsub.proxy.push.pushes import Pushes
from tests.core.rights_world import GovernedProxy, Said, key_of
from tests.core.test_rights import ALL, LINK, an_interest
from tests.fakes import (
    NONCE,
    a_body,
    a_bye,
    a_commit,
    a_get,
    a_hello,
    a_history,
    a_put,
    a_stage,
    a_sub,
    an_abort,
    an_ack,
    an_unsub,
)

RIGHTS: Said = {
    "ids": ["mine*"],
    **{right: ["open*", "secret-?"] for right in ("put", "get", "history", "dead_letters")},
}
CLASSIFIED, FORGED = a_body(b"classified"), a_body(b"forged")
CLIENTS = ("mine", "mine-2", "victim", "reader-0123abcd")
TOPICS = ("open", "open.dead", "secret", "secret.dead", "secret-1", "new")
TEXTS = ("", "open", "o", "s", "secret", "*", "secret*", "secret|open")


def requests_of(client: str, topic: str, epoch: int) -> Iterator[Any]:
    """Every verb, about one topic."""
    head: dict[str, Any] = {"client": client, "epoch": epoch, "request": 1}
    at: dict[str, Any] = {**head, "topic": topic, "generation": 1, "boot": "boot-1"}
    yield a_hello("publisher", client, epoch=epoch)
    yield a_hello("publisher", client, epoch=epoch, topics=("open", topic))
    yield a_hello("subscriber", client, epoch=epoch)
    for sequence in (1, 2):
        yield replace(a_put(sequence, body=FORGED), **head, topic=topic)
    for transaction in (1, 2):
        yield a_stage(transaction, topic=topic, client=client, body=FORGED)
        yield a_commit(transaction, (0, NONCE, 1), client=client, epoch=epoch)
        yield an_abort(transaction + 1, client=client, epoch=epoch)
    yield a_sub(epoch, topic=topic, client=client, epoch=epoch, cursor=0)
    yield an_unsub(epoch, topic=topic, client=client, epoch=epoch)
    yield a_get(1, topic=topic, client=client, epoch=epoch)
    yield a_get(0, topic=topic, client=client, epoch=epoch)
    yield replace(an_ack(1), **head, topic=topic)
    yield Dead(**at, cursor=0, crc=crc32(FORGED))
    yield Ring(**at, place=0)
    yield a_bye(client=client, epoch=epoch)
    yield replace(a_history(Start("earliest")), **head, topic=topic)
    yield DeliveryRequest(**head, topic=topic, offset=0)
    yield Listeners(**head, topic=topic)
    yield Status(**head)
    yield Node(**head)


def everything() -> list[tuple[Any, str]]:
    """Each request, and the key that it names."""
    found = [
        request for names in product(CLIENTS, TOPICS, (1, 2, 3)) for request in requests_of(*names)
    ]
    found += [
        an_interest(*(Pattern(kind, text) for text in pair), client=client, version=version)
        for version, (kind, client, *pair) in enumerate(
            product(("exact", "prefix", "glob", "own"), ("mine", "victim"), TEXTS, TEXTS), 1
        )
        if pair[0] < pair[1] and (kind != "exact" or pair[0])
    ]
    return list(product(found, ("", "", "operator", "attacker")))


def a_proxy() -> GovernedProxy:
    """A victim has put to a secret topic, and reads it."""
    proxy = GovernedProxy(attacker=RIGHTS, operator=ALL)
    for role in ("publisher", "subscriber"):
        proxy.ask_as("operator", a_hello(role, "victim"))
    put = a_put(1, topic="secret", client="victim", body=CLASSIFIED)
    proxy.ask_as("operator", put, CLASSIFIED)
    proxy.ask_as("operator", a_sub(topic="secret", client="victim", cursor=0))
    return proxy


def protected(proxy: GovernedProxy) -> object:
    """All that belongs to the victim."""
    log = proxy.state.topics["secret"]
    one = log.subscriptions["victim"]
    epochs = {key: one.epoch for key, one in proxy.state.sessions.items() if key[1] == "victim"}
    heard_s = proxy.state.leases.heard_s.get("victim")
    return log.end, list(log.subscriptions), one.cursor, one.generation, one.active, epochs, heard_s


@pytest.mark.parametrize("seed", range(3))
def test_nothing_that_a_key_asks_goes_beyond_its_rights(seed: int) -> None:
    proxy = a_proxy()
    before = protected(proxy)
    asked = everything()
    random.Random(seed).shuffle(asked)
    heard: set[str] = set()

    for request, named in asked:
        request = replace(request, key=key_of(named)) if named else request
        body = FORGED if type(request).__name__ in ("Put", "Stage", "Dead") else None
        proxy.now_s += 1.0
        reply = proxy.ask_as("attacker", request, body)
        assert b"classified" not in b"".join(proxy.frames_of_answer), request
        assert isinstance(reply, Denied) or (request.client != "victim" and not named), request
        if not isinstance(reply, Denied):
            heard.add(type(request).__name__)
        pushed = proxy.state.kept(Pushes).links.applied(LINK, key_of("attacker"))
        assert all(one.text.startswith("open") for one in pushed), request

    assert protected(proxy) == before
    assert {one for one in proxy.state.topics if not one.startswith(("open", "secret-"))} == {
        "secret"
    }
    assert {client for _, client in proxy.state.sessions} <= {"victim", "mine", "mine-2"}
    assert len(heard) >= 15, "it is heard within its rights"
