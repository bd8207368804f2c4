"""A known key tries random requests: what it may not do, no order of them brings about."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.messages import Dead, Delivery, Listeners, Ring, Start, Status
from reliable_pubsub.relay.core.messages import Node
from reliable_pubsub.relay.core.pattern import Pattern
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
    **{
        right: ["open*", "secret-?"]
        for right in ("put", "get", "history", "dead_letters", "status")
    },
}
CLASSIFIED = a_body(b"classified")
BODY = a_body(b"forged")

clients = st.sampled_from(["mine", "victim", "mine-2", "reader-0123abcd"])
topics = st.sampled_from(["open", "open.dead", "secret", "secret.dead", "secret-1", "new"])
epochs = st.integers(1, 3)
texts = st.sampled_from(["", "open", "o", "s", "secret", "*", "secret*", "secret|open"])
patterns = st.builds(Pattern, st.sampled_from(["exact", "prefix", "glob", "regex", "own"]), texts)
places: dict[str, Any] = {"epoch": epochs, "request": st.integers(1, 9), "client": clients}
at: dict[str, Any] = {
    **places,
    "topic": topics,
    "generation": st.integers(1, 2),
    "boot": st.just("boot-1"),
}
requests = st.one_of(
    st.builds(
        a_hello,
        st.sampled_from(["publisher", "subscriber"]),
        clients,
        epoch=epochs,
        topics=st.tuples(topics),
    ),
    st.builds(a_put, st.integers(1, 3), topic=topics, client=clients, body=st.just(BODY)),
    st.builds(a_stage, st.integers(1, 2), topic=topics, client=clients, body=st.just(BODY)),
    st.builds(a_commit, st.integers(1, 2), st.just((0, NONCE, 1)), client=clients),
    st.builds(an_abort, st.integers(1, 2), client=clients),
    st.builds(a_sub, st.integers(1, 3), topic=topics, client=clients, cursor=st.just(0)),
    st.builds(an_unsub, st.integers(1, 3), topic=topics, client=clients),
    st.builds(a_get, st.integers(0, 2), topic=topics, client=clients),
    st.builds(an_ack, st.integers(0, 2), client=clients).map(
        lambda one: replace(one, topic="secret")
    ),
    st.builds(Dead, **at, cursor=st.integers(0, 1), crc=st.just(crc32(BODY))),
    st.builds(Ring, **at, place=st.just(0)),
    st.builds(a_bye, client=clients),
    st.builds(a_history, st.just(Start("earliest")), topic=topics),
    st.builds(Delivery, **places, topic=topics, offset=st.just(0)),
    st.builds(Listeners, **places, topic=topics),
    st.builds(Status, **places),
    st.builds(Node, **places),
    st.lists(patterns, max_size=3, unique=True).map(
        lambda found: an_interest(*found, client="mine")
    ),
)
keys = st.sampled_from(["", "operator", "mine"])


def a_proxy() -> GovernedProxy:
    """A victim has put to a secret topic, and reads it."""
    proxy = GovernedProxy(attacker=RIGHTS, operator=ALL)
    for role in ("publisher", "subscriber"):
        proxy.ask_as("operator", a_hello(role, "victim"))
    for topic in ("secret", "open"):
        put = a_put(1, topic=topic, client="victim", body=CLASSIFIED if topic == "secret" else BODY)
        proxy.ask_as("operator", put, CLASSIFIED if topic == "secret" else BODY)
    proxy.ask_as("operator", a_sub(topic="secret", client="victim", cursor=0))
    return proxy


def protected(proxy: GovernedProxy) -> object:
    """All that belongs to the victim."""
    log = proxy.state.topics["secret"]
    one = log.subscriptions["victim"]
    sessions = {key: one.epoch for key, one in proxy.state.sessions.items() if key[1] == "victim"}
    return (
        log.end,
        one.cursor,
        one.generation,
        one.active,
        sessions,
        proxy.state.leases.heard_s.get("victim"),
    )


@given(st.lists(st.tuples(requests, keys), max_size=25))
def test_nothing_that_a_key_asks_goes_beyond_its_rights(asked: list[tuple[Any, str]]) -> None:
    proxy = a_proxy()
    before = protected(proxy)

    for request, named in asked:
        if named:
            request = replace(request, key=key_of(named))
        body = BODY if type(request).__name__ in ("Put", "Stage", "Dead") else None
        proxy.now_s += 1.0
        proxy.ask_as("attacker", request, body)
        assert b"classified" not in b"".join(proxy.frames_of_answer)

    assert protected(proxy) == before
    allowed = ("open", "secret-")
    assert all(one == "secret" or one.startswith(allowed) for one in proxy.state.topics)
    assert {client for _, client in proxy.state.sessions} <= {"victim", "mine", "mine-2"}
    pushed = proxy.engine.pushes.links.applied(LINK, key_of("attacker"))
    assert all(one.text.startswith("open") for one in pushed)
