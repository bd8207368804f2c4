"""Requests of known keys through a node: it says whose they are, and keeps them apart."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.requests import AnyRequest
from reliable_pubsub.common.core.wire import decode_request, encode
from reliable_pubsub.relay.core.batch_cache import BatchCache
from reliable_pubsub.relay.core.forwarding import TELL_S, Forwarding
from tests.core.rights_world import key_of
from tests.fakes import a_get, a_history, a_sub
from tests.relay.test_forwarding import ANode, envelope

MINE, THEIRS = key_of("mine"), key_of("theirs")


def ask(node: ANode, request: AnyRequest, key: str) -> Sequence[AnyRequest]:
    """Ask with a key; return what is under way above then."""
    node.forwarding.request(envelope("x"), encode(request), node.now_s, lambda _: key)
    node.collect()
    return [decode_request(one.frames)[0] for one in node.above]


def a_node_with_a_reader() -> ANode:
    """A reader with the key `mine` is confirmed, and a batch that it has not read is cached."""
    node = ANode("one")
    get = a_get(0, client="one")
    ask(node, get, MINE)
    node.answer()
    node.proxy.put(1)
    ask(node, get, MINE)
    node.answer()
    return node


def test_a_request_says_above_whose_it_is_whatever_it_said_itself() -> None:
    for said in (UNSET, THEIRS):
        (passed,) = ask(ANode(), replace(a_sub(), key=said), MINE)
        assert passed.key == MINE


def test_a_node_that_knows_no_keys_passes_none_on() -> None:
    (passed,) = ask(ANode(), replace(a_sub(), key=THEIRS), "")

    assert passed.key is UNSET


def test_a_reader_is_served_from_the_cache_to_its_own_key_alone() -> None:
    node = a_node_with_a_reader()
    served = node.forwarding.from_cache_count

    assert ask(node, a_get(0, client="one"), MINE) == []
    assert node.forwarding.from_cache_count == served + 1
    (passed,) = ask(node, a_get(0, client="one"), THEIRS)
    assert passed.key == THEIRS


def test_the_answer_to_a_history_is_shared_by_requests_of_one_key() -> None:
    node = ANode()

    assert len(ask(node, a_history(0), MINE)) == 1
    assert len(ask(node, a_history(0), MINE)) == 1
    assert [one.key for one in ask(node, a_history(0), THEIRS)] == [MINE, THEIRS]


def test_a_cursor_that_is_sent_later_is_sent_for_its_key() -> None:
    node = a_node_with_a_reader()
    ask(node, a_get(0, client="one"), MINE)
    node.proxy.put(2)
    node.now_s += TELL_S
    readers = node.forwarding._readers
    readers["one", "t"].cursor = 1
    node.forwarding.tick(node.now_s)
    node.collect()

    told = decode_request(node.above[-1].frames)[0]
    assert (type(told).__name__, told.key) == ("Ack", MINE)


def test_what_cannot_be_read_is_not_passed_on_where_it_may_name_a_key() -> None:
    forwarding = Forwarding(BatchCache(), passes_unread=False)

    with pytest.raises(MalformedError):
        forwarding.request(envelope("x"), [b"RPS1", b"rubbish"], 0.0)
    assert forwarding.actions() == []
