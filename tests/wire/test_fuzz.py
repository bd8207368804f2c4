"""Every message there is, as it was written, cut, changed, and swollen (rules R2, R20).

What is here goes over all types and all places; single rules stand in `test_malformed.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET, Struct, inspect

from reliable_pubsub.common.core.answers import AnyReply, MessageBatches
from reliable_pubsub.common.core.batch import Batch, crc32
from reliable_pubsub.common.core.errors import MalformedError, TooLargeError, UsageError
from reliable_pubsub.common.core.group_messages import Outcome, Settle, Take, Taken
from reliable_pubsub.common.core.message_base import BatchHeader, Start
from reliable_pubsub.common.core.names import topic_fits
from reliable_pubsub.common.core.pattern_messages import Fetched, FetchedTopic, Match
from reliable_pubsub.common.core.requests import AnyRequest, Dead, History, Put, Sub
from reliable_pubsub.common.core.transaction_messages import Commit, Stage
from reliable_pubsub.common.core.wire import (
    decode_batch,
    decode_reply,
    decode_request,
    encode,
    encode_batch,
)

from .vectors import ANSWERS, BATCHES, BODY, REQUESTS

REQUEST_HEADERS = {name: one.frames[1] for name, one in REQUESTS.items()}
REPLY_HEADERS = {name: one.frames[1] for name, one in ANSWERS.items()}
BODIES = {name: frame for name, (_, _, frame) in BATCHES.items()}

# In the place of a value: deeper than the stack, longer than the memory, or of an unused type.
SWOLLEN = (
    b"\x91" * 100_000,  # nested lists
    b"\x81\xa1k" * 100_000,  # nested maps
    b"\xdd\xff\xff\xff\xff",  # list of 2^32 - 1
    b"\xdf\xff\xff\xff\xff",  # map of 2^32 - 1
    b"\xdb\xff\xff\xff\xff",  # text of 2^32 - 1 bytes
    b"\xc6\xff\xff\xff\xff",  # bytes of 2^32 - 1
    b"\xc9\xff\xff\xff\xff\x01",  # extension of 2^32 - 1 bytes
    b"\xc7\x0c\xff" + b"\xff" * 12,  # timestamp
    b"\xd4\x05\x00",  # extension
    b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",  # not a number
    b"\xcf" + b"\xff" * 8,  # 2^64 - 1
    b"\xa4\xff\xfe\xfd\xfc",  # no text
    b"\xc1",  # a byte that msgpack does not use
)


# Any message, from its type.


def values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Values that a type allows."""
    match kind:
        case inspect.IntType(ge=low, le=high):
            return st.integers(
                -(2**63) if low is None else low, 2**63 - 1 if high is None else high
            )
        case inspect.StrType(pattern=None, min_length=low):
            return st.text(min_size=low or 0, max_size=20)
        case inspect.StrType(pattern=pattern):
            assert pattern is not None
            return st.from_regex(pattern, fullmatch=True).filter(topic_fits)
        case inspect.BytesType(min_length=low, max_length=high):
            return st.binary(min_size=low or 0, max_size=high)
        case inspect.LiteralType(values=words):
            return st.sampled_from(words)
        case inspect.UnionType(types=types):
            return st.one_of(*map(values, types))
        case inspect.VarTupleType(item_type=item):
            return st.lists(values(item), max_size=3).map(tuple)
        case inspect.StructType(cls=cls, fields=fields):
            known = {field.name: values(field.type) for field in fields}
            return st.builds(cls, **known)
    simple: dict[type[inspect.Type], st.SearchStrategy[Any]] = {
        inspect.NoneType: st.none(),
        inspect.BoolType: st.booleans(),
        inspect.FloatType: st.floats(allow_nan=False),
    }
    if type(kind).__name__ == "CustomType":  # UnsetType
        return st.just(UNSET)
    return simple[type(kind)]


@cache  # made again for each example, a strategy costs more than what it draws
def of_type(message: type[Struct]) -> st.SearchStrategy[Any]:
    return values(inspect.type_info(message))


@pytest.mark.parametrize("kind", get_args(AnyRequest), ids=lambda kind: kind.__name__)
@given(data=st.data(), body=st.binary(max_size=50))
def test_any_request_is_read_back_as_it_was_written(
    kind: type[AnyRequest], data: st.DataObject, body: bytes
) -> None:
    request = data.draw(of_type(kind))
    if isinstance(request, Put | Stage | Dead):
        request = msgspec.structs.replace(request, crc=crc32(body))
        if not isinstance(request, Dead):
            most = 2**63 - 1 - request.count
            first = request.first_sequence and min(request.first_sequence, most)
            request = msgspec.structs.replace(request, first_sequence=first)
        assert decode_request(encode(request, body)) == (request, body)
    else:
        request = with_sense(request)
        assert decode_request(encode(request)) == (request, b"")


def with_sense(request: AnyRequest) -> AnyRequest:
    """The same, as `common/core/well_formed.py` wants it."""
    change: dict[str, Any] = {}
    if isinstance(request, Commit):
        change = {"parts": tuple({part.task: part for part in request.parts}.values())}
    elif isinstance(request, Sub | History | Match) and request.start is not None:
        words = request.start.at in ("now", "last", "earliest")
        change = {"start": Start(request.start.at, 0 if words else request.start.value)}
        change |= {"log": "log"} if isinstance(request, Sub) else {}
        if isinstance(request, Sub) and request.cursor is None:
            change["witness_ns"] = None
    elif isinstance(request, Sub):
        change = {"log": request.log or "log"}
        if request.cursor is None:
            change = {"log": None, "witness_ns": None}
    elif isinstance(request, Take | Settle):
        outcomes = [
            Outcome(
                number,
                1,
                one.delivery,
                one.how,
                one.delay_ms if one.how == "nack" else 0,
                (one.reason or "x") if one.how == "reject" else "",
            )
            for number, one in enumerate(request.outcomes[:10])
        ]
        change = {"outcomes": tuple(outcomes)}
    return msgspec.structs.replace(request, **change)


@pytest.mark.parametrize("kind", get_args(AnyReply), ids=lambda kind: kind.__name__)
@given(data=st.data(), bodies=st.lists(st.binary(max_size=20), max_size=3))
def test_any_answer_is_read_back_as_it_was_written(
    kind: type[AnyReply], data: st.DataObject, bodies: list[bytes]
) -> None:
    reply = data.draw(of_type(kind))
    if isinstance(reply, MessageBatches | Taken):
        batches = tuple(BatchHeader(at, 1, "p", 1, 1, 0, len(b)) for at, b in enumerate(bodies))
        reply = msgspec.structs.replace(reply, batches=batches)
        body = b"".join(bodies)
        assert decode_reply(encode(reply, body)) == (reply, body)
    elif isinstance(reply, Fetched):
        topics = tuple(
            FetchedTopic("t", 1, "log", 0, 0, (BatchHeader(at, 1, "p", 1, 1, 0, len(b)),), at + 1)
            for at, b in enumerate(bodies)
        )
        reply = msgspec.structs.replace(reply, topics=topics, unstored=())
        body = b"".join(bodies)
        assert decode_reply(encode(reply, body)) == (reply, body)
    else:
        assert decode_reply(encode(reply)) == (reply, b"")


@given(
    st.lists(st.binary(max_size=9) | st.text(max_size=2) | st.none(), max_size=4),
    st.none() | st.lists(st.none() | st.binary(max_size=2) | st.text(max_size=2), max_size=4),
    st.none()
    | st.lists(
        st.none()
        | st.dictionaries(
            st.text(st.characters(), max_size=3), st.text(st.characters(), max_size=3)
        ),
        max_size=4,
    ),
    st.none() | st.lists(st.none() | st.integers() | st.floats(), max_size=4),
)
@example([b"m"], [], None, None)  # it must not be stored, because it cannot be read
@example([b"m"], None, [{"h": "\ud800"}], None)
@example([b"m"], None, None, [2**64])
def test_whatever_a_program_puts_is_a_batch_that_can_be_read_or_is_refused(
    payloads: list[Any], keys: Any, headers: Any, times: Any
) -> None:
    """Surrogates in a header, numbers above 64 bits, columns of any length: never stored."""
    batch = Batch(payloads, keys, headers, times)
    try:
        body = encode_batch(batch)
    except (UsageError, TooLargeError):
        return
    assert decode_batch(body, len(payloads)) == batch


# Golden bytes, cut and changed in every place.


def request_or_malformed(header: bytes) -> bool:
    """Read it alone and with a body; say whether it was a request."""
    return any(is_read(decode_request, [b"RPS1", header, *more]) for more in ([], [BODY]))


def reply_or_malformed(header: bytes) -> bool:
    return any(is_read(decode_reply, [b"RPS1", header, *more]) for more in ([], [BODY]))


def batch_or_malformed(body: bytes) -> bool:
    return any(is_read(partial(decode_batch, count=count), body) for count in (1, 2))


def is_read(decode: Callable[[Any], object], content: bytes | Sequence[bytes]) -> bool:
    try:
        decode(content)
    except MalformedError:
        return False
    return True


GOLDEN: list[tuple[Callable[[bytes], bool], dict[str, bytes]]] = [
    (request_or_malformed, REQUEST_HEADERS),
    (reply_or_malformed, REPLY_HEADERS),
    (batch_or_malformed, BODIES),
]
EACH_GOLDEN = [
    pytest.param(read, golden, id=f"{read.__name__.split('_')[0]}: {name}")
    for read, examples in GOLDEN
    for name, golden in examples.items()
]


@pytest.mark.parametrize(("read", "golden"), EACH_GOLDEN)
def test_golden_bytes_cut_anywhere_are_malformed(
    read: Callable[[bytes], bool], golden: bytes
) -> None:
    assert read(golden)
    assert not [at for at in range(len(golden)) if read(golden[:at])]


@pytest.mark.parametrize(("read", "golden"), EACH_GOLDEN)
def test_golden_bytes_with_something_after_them_are_malformed(
    read: Callable[[bytes], bool], golden: bytes
) -> None:
    assert not [more for more in range(256) if read(golden + bytes([more]))]


@pytest.mark.parametrize(("read", "golden"), EACH_GOLDEN)
def test_golden_bytes_with_one_byte_changed_are_a_value_or_malformed(
    read: Callable[[bytes], bool], golden: bytes
) -> None:
    for changed in with_one_byte_changed(golden):
        read(changed)


def with_one_byte_changed(golden: bytes) -> Iterator[bytes]:
    """Each bit turned, and each byte by what means most to msgpack."""
    for at, value in enumerate(golden):
        others = {value ^ (1 << bit) for bit in range(8)}
        others |= {0x00, 0x7F, 0x80, 0x90, 0xA0, 0xC0, 0xC1, 0xC6, 0xC9, 0xDB, 0xDD, 0xDF, 0xFF}
        for other in others - {value}:
            yield golden[:at] + bytes([other]) + golden[at + 1 :]


@pytest.mark.parametrize(("read", "golden"), EACH_GOLDEN)
def test_golden_bytes_with_a_swollen_value_are_a_value_or_malformed(
    read: Callable[[bytes], bool], golden: bytes
) -> None:
    """In the place of each element of the outermost map or list, and as one more of them."""
    for swollen in SWOLLEN:
        for content in with_a_value_replaced(golden, swollen):
            read(content)


def with_a_value_replaced(golden: bytes, swollen: bytes) -> Iterator[bytes]:
    outer = msgspec.msgpack.decode(golden)
    raw = msgspec.Raw(swollen)
    if isinstance(outer, dict):
        for key in [*outer, "one more"]:
            yield msgspec.msgpack.encode(outer | {key: raw})
    else:
        for at in range(len(outer)):
            yield msgspec.msgpack.encode([*outer[:at], raw, *outer[at + 1 :]])
            yield msgspec.msgpack.encode([*outer[:at], [raw], *outer[at + 1 :]])
        yield msgspec.msgpack.encode([*outer, raw])


def test_a_header_that_is_no_text_is_malformed() -> None:
    """Not a UnicodeDecodeError in the program of every subscriber."""
    body = bytes.fromhex("94 91 c400 c0 91 81a161a1ff c0")

    with pytest.raises(MalformedError, match="not a batch"):
        decode_batch(body, 1)


def test_a_column_of_a_later_version_may_be_deep_and_is_malformed_then() -> None:
    """Not a RecursionError."""
    body = bytes.fromhex("95 91 c400 c0 c0 c0") + b"\x91" * 100_000

    with pytest.raises(MalformedError, match="not a batch"):
        decode_batch(body, 1)
