"""Checks of a request beyond the types of its fields: no duplicate keys, no undefined combination.

A proxy that ignored a part of a request would do something else than what was asked. So it
refuses combinations that docs/internals/protocol.md does not define, and unknown fields. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from .errors import MalformedError
from .group_messages import Settle, Take
from .limits import GROUP_REASONS_MAX, NUMBER_MAX
from .message_base import GroupTerms, Start, Terms
from .pattern_messages import Match
from .requests import History, Sub
from .schemas import msgpack_decoder
from .transaction_messages import Commit

_NAMED_BY_VALUE: Final = frozenset({"offset", "newest", "time", "age"})

Fields = Mapping[str, msgspec.Raw]


class _AskedTerms(Terms, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The terms of a request; a reply may have further ones."""


class _AskedGroupTerms(GroupTerms, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same of a group."""


_map = msgpack_decoder(dict[str, Any])
_fields = msgpack_decoder(dict[str, msgspec.Raw])
_array = msgpack_decoder(list[msgspec.Raw])
_asked: Final[Mapping[str, msgspec.msgpack.Decoder[Any]]] = {
    "terms": msgpack_decoder(_AskedTerms),
    "group_terms": msgpack_decoder(_AskedGroupTerms),
}


def check_keys(header: bytes | memoryview) -> None:
    """Check that a decodable map has no duplicate key.

    Raises:
        MalformedError: a key appears twice.
    """
    if len(_map.decode(header)) != _entries(header):
        raise MalformedError("header: a key appears twice")


def _entries(header: bytes | memoryview) -> int:
    """How many entries a msgpack map says that it has."""
    first = header[0]
    if first == 0xDE:
        return int.from_bytes(header[1:3])
    return int.from_bytes(header[1:5]) if first == 0xDF else first & 0x0F


def check_request(request: Sub | History | Commit | Take | Settle | Match, header: bytes) -> None:
    """Check that the fields of a decoded request fit together.

    Raises:
        MalformedError: they do not; names the fields.
    """
    if isinstance(request, Commit):
        tasks = [part.task for part in request.parts]
        if len(set(tasks)) != len(tasks):
            raise MalformedError("COMMIT: $.parts names a task twice; one try of each counts")
        return
    if isinstance(request, Take | Settle):
        _check_outcomes(request)
        return
    fields = _fields.decode(header)
    if isinstance(request, Sub | Match):
        _check_terms(fields)
    if isinstance(request, Sub):
        _check_sub(request)
    if request.start is not None:
        _check_start(request.start, fields)


def _check_sub(request: Sub) -> None:
    """Check that its start and cursor are a defined combination."""
    if request.cursor is None:
        if request.witness_ns is not None or (request.log is not None and request.start is None):
            raise MalformedError("SUB: $.log and $.witness_ns belong to a $.cursor")
    elif request.log is None and (request.start is None or request.cursor):
        raise MalformedError("SUB: $.cursor needs $.log, the log that it refers to")


def _check_outcomes(request: Take | Settle) -> None:
    """Check that no message is settled twice, and that few have a reason."""
    end = reasons = 0
    for one in request.outcomes:
        is_rejected = one.how == "reject"
        reasons += is_rejected
        if one.first < end or one.first > NUMBER_MAX - one.count:
            raise MalformedError("$.outcomes are not in the order of their offsets")
        if is_rejected != bool(one.reason) or (is_rejected and one.count > 1):
            raise MalformedError(
                "$.outcomes: a reason belongs to `reject`, and that to one message"
            )
        if one.delay_ms and one.how != "nack":
            raise MalformedError("$.outcomes: $.delay_ms belongs to `nack`")
        end = one.first + one.count
    if reasons > GROUP_REASONS_MAX:
        raise MalformedError(f"$.outcomes: at most {GROUP_REASONS_MAX} can be `reject`")


def _check_terms(fields: Fields) -> None:
    """Check that the terms of a subscriber, or of a group, have known fields, each once."""
    for name, decoder in _asked.items():
        if name not in fields:
            continue
        terms = memoryview(fields[name])
        try:
            decoder.decode(terms)
        except msgspec.MsgspecError as error:
            raise MalformedError(f"$.{name}: {error}") from error
        check_keys(terms)


def _check_start(start: Start, fields: Fields) -> None:
    """Check that `start` has a value if and only if its kind needs one."""
    says_value = len(_array.decode(memoryview(fields["start"]))) > 1
    if start.at in _NAMED_BY_VALUE and not says_value:
        raise MalformedError(f"$.start: {start.at!r} needs a value")
    if start.at not in _NAMED_BY_VALUE and start.value:
        raise MalformedError(f"$.start: {start.at!r} has no value but 0, not {start.value}")
