"""What libzmq lets pass: the frames of a push are made for its filter by prefix."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import zmq
from hypothesis import given, settings

from reliable_pubsub.common.core.patterns.matching import Pattern
from reliable_pubsub.relay.core.push import prefixes_of
from tests.relay.wishes import KINDS, patterns, topics

LAST = b"\xff last"  # no topic begins so


def libzmq_lets_pass(subscriptions: Iterable[bytes], frame: bytes) -> bool:
    """What real sockets do: an XPUB, and a SUB with these subscriptions. Nothing is timed."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    with context.socket(zmq.XPUB) as above, context.socket(zmq.SUB) as below:
        address = f"inproc://{uuid.uuid4()}"
        above.bind(address)
        below.connect(address)
        for subscription in (*subscriptions, LAST):
            below.setsockopt(zmq.SUBSCRIBE, subscription)
            above.recv()  # it has heard of it
        above.send(frame)
        above.send(LAST)
        passed = below.recv() == frame
        return passed and below.recv() == LAST


@settings(max_examples=60, deadline=None)
@given(patterns, topics)
def test_zeromq_lets_pass_what_a_simple_pattern_matches_and_nothing_else(
    pattern: Pattern, topic: str
) -> None:
    passes = libzmq_lets_pass(prefixes_of([pattern], KINDS), topic.encode() + b"\0")

    if pattern.kind in ("exact", "prefix") or KINDS.everything(pattern):
        assert passes == KINDS.test(pattern)(topic)
    else:
        assert not passes  # served singly
