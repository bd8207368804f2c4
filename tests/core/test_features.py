"""Features are rows in the engine's tables: the core alone keeps the promise."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.answers import (
    Duplicate,
    Malformed,
    MessageBatches,
    NoMessagesYet,
    NotSub,
    PutAck,
    UnsubAck,
)
from reliable_pubsub.common.core.status import Status
from reliable_pubsub.common.core.wire import decode_reply, encode
from reliable_pubsub.proxy.core.feature import Feature, Tables, tables_of
from reliable_pubsub.proxy.core.outputs import Answer
from reliable_pubsub.proxy.core.state import BrokerSettings
from reliable_pubsub.proxy.core.topic_log import Retention
from reliable_pubsub.proxy.core.verbs import CORE, RETENTION
from reliable_pubsub.proxy.features import FEATURES
from tests.fakes import NOW_NS, MemoryProxy, a_get, a_hello, a_sub, an_ack, an_unsub

KEEP_NOTHING = BrokerSettings(retention=Retention(history_bytes=0, history_s=0.0))
CORE_TABLES = tables_of((CORE, RETENTION))
LEFT_OUT = [one for one in FEATURES if one not in (CORE, RETENTION)]


def a_proxy(tables: Tables) -> MemoryProxy:
    proxy = MemoryProxy(tables=tables, settings=KEEP_NOTHING)
    proxy.ask(a_hello("publisher", "p"))
    proxy.ask(a_hello("subscriber", "s"))
    return proxy


def assert_keeps_the_promise(proxy: MemoryProxy) -> None:
    """Put, subscribe, get, acknowledge, unsubscribe and retention, with a kill in between."""
    proxy.ask(a_sub())
    assert isinstance(proxy.put(1), PutAck)
    assert isinstance(proxy.put(1), Duplicate)
    assert isinstance(proxy.ask(a_get(0)), MessageBatches)
    proxy.tick(now_s=1.0)
    assert proxy.state.topics["t"].start == 0  # not acknowledged yet

    proxy = proxy.restarted()

    assert isinstance(proxy.put(1), Duplicate)
    assert isinstance(proxy.ask(a_get(0, boot="boot-2")), MessageBatches)
    assert isinstance(proxy.ask(an_ack(1, boot="boot-2")), PutAck)
    assert isinstance(proxy.ask(a_get(1, boot="boot-2")), NoMessagesYet)
    proxy.tick(now_s=2.0)
    assert proxy.state.topics["t"].start == 1
    assert isinstance(proxy.ask(an_unsub(2)), UnsubAck)
    assert isinstance(proxy.ask(a_get(1, boot="boot-2")), NotSub)


def test_the_core_alone_keeps_the_promise() -> None:
    assert_keeps_the_promise(a_proxy(CORE_TABLES))


@pytest.mark.parametrize("left_out", LEFT_OUT, ids=lambda one: one.name)
def test_without_any_one_feature_the_others_keep_the_promise(left_out: Feature) -> None:
    others = tables_of([one for one in FEATURES if one is not left_out])

    assert_keeps_the_promise(a_proxy(others))


def test_a_request_of_a_feature_that_is_left_out_is_refused() -> None:
    proxy = a_proxy(CORE_TABLES)

    proxy.engine.receive(
        encode(Status(client="s", epoch=1, request=5)),
        "there",
        role="subscriber",
        now_s=0.0,
        now_ns=NOW_NS,
    )

    answer = proxy.engine.outputs.pop()
    assert isinstance(answer, Answer)
    reply, _ = decode_reply(answer.frames)
    assert isinstance(reply, Malformed)
    assert reply.text == "STATUS is not served: this proxy runs without that feature"
