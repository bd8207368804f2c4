"""Golden bytes: each message of `vectors.json` is read, written, and answered as it is there.

The file is data, so that a client in another language tests itself with the same bytes. A change of
them is a change of the protocol: it needs another first frame than `RPS1`, not another hex there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import msgspec
import pytest
from msgspec import Struct

from reliable_pubsub.common.core.answers import AnyReply
from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.patterns.matching import Pattern
from reliable_pubsub.common.core.requests import AnyRequest
from reliable_pubsub.common.core.tree_messages import AnyInterestReply, InterestRequest, Node
from reliable_pubsub.common.core.wire import (
    decode_batch,
    decode_reply,
    decode_request,
    encode,
    encode_batch,
)
from reliable_pubsub.relay.core.interest_link import interest_digest
from reliable_pubsub.relay.core.push import decode_any_push, encode_push, shared_topic_frame
from reliable_pubsub.relay.core.unstored import decode_offer, encode_offer
from reliable_pubsub.relay.core.wire import decode_node_reply, decode_node_request

from .dialogue import a_proxy_of_dialogues
from .vectors import (
    ANSWERS,
    BATCHES,
    CONTENT,
    DIALOGUES,
    MALFORMED,
    NODE_ANSWERS,
    NODE_REQUESTS,
    OFFERS,
    PUSHES,
    REQUESTS,
    Step,
    Vector,
)

each = pytest.mark.parametrize


def says(struct: Struct, header: Mapping[str, Any]) -> bool:
    """Whether a message says what its header says in the file."""
    return bool(msgspec.msgpack.decode(msgspec.msgpack.encode(struct)) == header)


@each("one", REQUESTS.values(), ids=REQUESTS)
def test_a_request_is_these_bytes(one: Vector) -> None:
    request, body = decode_request(one.frames)

    assert says(request, one.header)
    assert body == (one.body or b"")
    assert encode(request, one.body) == one.frames


@each("one", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_is_these_bytes(one: Vector) -> None:
    reply, body = decode_reply(one.frames)

    assert says(reply, one.header)
    assert body == (one.body or b"")
    assert encode(reply, one.body) == one.frames


@each("one", NODE_REQUESTS.values(), ids=NODE_REQUESTS)
def test_what_a_node_asks_is_these_bytes(one: Vector) -> None:
    request = decode_node_request(one.frames)

    assert says(request, one.header)
    assert encode(request) == one.frames


@each("one", NODE_ANSWERS.values(), ids=NODE_ANSWERS)
def test_what_a_node_answers_is_these_bytes(one: Vector) -> None:
    reply = decode_node_reply(one.frames)

    assert says(reply, one.header)
    assert encode(reply) == one.frames


@each("one", PUSHES.values(), ids=PUSHES)
def test_a_push_is_these_bytes(one: Vector) -> None:
    push = decode_any_push(one.frames)

    assert says(push.pushed, one.header)
    body = push.body if push.body is not None else bytes(push.pushed.batch.body_bytes)
    frames = encode_push(push.topic, push.pushed, body)
    assert frames == [shared_topic_frame(one.frames[0]), *one.frames[1:]]


@each("one", OFFERS.values(), ids=OFFERS)
def test_an_offer_is_these_bytes(one: Vector) -> None:
    offered = decode_offer(one.frames)

    assert says(offered.offer, one.header)
    assert encode_offer(offered.topic, offered.offer, offered.body) == one.frames


@each(("columns", "count", "frame"), BATCHES.values(), ids=BATCHES)
def test_a_batch_is_these_bytes(columns: Sequence[Any], count: int, frame: bytes) -> None:
    batch = Batch(*columns)

    assert encode_batch(batch) == frame
    assert decode_batch(frame, count) == batch


@each("one", CONTENT["digests"], ids=lambda one: one["name"])
def test_a_digest_is_these_bytes(one: dict[str, Any]) -> None:
    patterns = [Pattern(*pattern) for pattern in one["patterns"]]

    assert interest_digest(patterns, one["below"]).hex() == one["digest"]


@each("name", [name for name, one in MALFORMED.items() if not one.echo])
def test_these_frames_are_no_request(name: str) -> None:
    with pytest.raises(MalformedError):
        decode_request(MALFORMED[name].frames)


@each("steps", DIALOGUES.values(), ids=DIALOGUES)
def test_a_dialogue_is_answered_with_these_bytes(steps: Sequence[Step]) -> None:
    proxy = a_proxy_of_dialogues()

    for step in steps:
        assert without_text(proxy.frames(step.request.frames)) == without_text(step.answer.frames)
        assert says(decode_request(step.request.frames)[0], step.request.header)
        assert says(decode_reply(step.answer.frames)[0], step.answer.header)


def without_text(frames: Sequence[bytes]) -> list[Any]:
    """An answer without its sentence, which is for people."""
    protocol, header, *body = frames
    said = msgspec.msgpack.decode(header)
    return [protocol, {key: value for key, value in said.items() if key != "text"}, *body]


@each(
    ("named", "types", "key"),
    [
        (REQUESTS, AnyRequest, "verb"),
        (ANSWERS, AnyReply, "answer"),
        (NODE_REQUESTS, InterestRequest | Node, "verb"),
        (NODE_ANSWERS, AnyInterestReply, "answer"),
    ],
    ids=["requests", "answers", "requests of nodes", "answers of nodes"],
)
def test_every_type_has_its_golden_bytes(named: Mapping[str, Vector], types: Any, key: str) -> None:
    """A new verb or answer is there on the day it is made."""
    tags = {one.__struct_config__.tag for one in get_args(types)}

    assert {one.header[key] for one in named.values()} == tags


def test_the_dialogues_speak_every_verb_but_those_that_need_more_than_a_broker() -> None:
    verbs = {one.header["verb"] for one in REQUESTS.values()}

    spoken = {step.request.header["verb"] for steps in DIALOGUES.values() for step in steps}

    assert verbs - spoken == {"RING", "STATUS"}
