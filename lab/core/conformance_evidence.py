"""From what a client wrote to what the checker reads: journal lines and output lines. Pure.

A foreign client keeps no journal. What it did is known from outside: when its processes began, when
its output said that a message was acknowledged, what the proxy wrote and what the log holds.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.journal import (
    AnyLine,
    Begin,
    Found,
    GrantedLine,
    Invoke,
    Ok,
    PositionLine,
    Seen,
    StoredLine,
    decode_line,
)
from reliable_pubsub.common.core.schemas import json_decoder


class ClientLife(Struct, frozen=True):
    """A process of the client."""

    pid: int
    began_ns: int


class Claim(Struct, frozen=True):
    """A line of the output: the client has this message, or has it acknowledged."""

    line: int  # of the output, 1, 2, 3, ...
    payload: bytes
    offset: int | None = None


class ReadOutput(Struct, frozen=True):
    """An output file as it was read."""

    claims: tuple[Claim, ...] = ()
    is_journal: bool = False  # a publisher's journal: the checker reads it as it is
    unreadable: tuple[int, ...] = ()  # lines


class _Written(Struct, frozen=True):
    """A line of the form that our subscriber writes, as far as it counts."""

    offset: int | None = None
    payload: str | None = None
    payload_base64: str | None = None


_decode_written = json_decoder(_Written).decode


def read_output(data: bytes) -> ReadOutput:
    """Read an output file; a line without its end is not complete yet."""
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    if any(_is_journal_line(line) for line in lines[:3]):
        return ReadOutput(is_journal=True)
    return claims_in(lines)


def claims_in(lines: Sequence[bytes], first: int = 1) -> ReadOutput:
    """Read lines of an output that is no journal.

    Args:
        first: number of the first one.
    """
    claims: list[Claim] = []
    unreadable: list[int] = []
    for number, line in enumerate(lines, start=first):
        claim = _claim(number, line)
        if claim is None:
            unreadable.append(number)
        else:
            claims.append(claim)
    return ReadOutput(tuple(claims), unreadable=tuple(unreadable))


def _is_journal_line(line: bytes) -> bool:
    try:
        decode_line(line)
    except msgspec.DecodeError:
        return False
    return True


def _claim(number: int, line: bytes) -> Claim | None:
    if not line.startswith(b"{"):
        head, tab, rest = line.partition(b"\t")
        if tab and head.isdigit():
            return Claim(number, rest, int(head))
        return None if tab else Claim(number, line)
    try:
        written = _decode_written(line)
        if written.payload is not None:
            return Claim(number, written.payload.encode(), written.offset)
        if written.payload_base64 is not None:
            payload = base64.b64decode(written.payload_base64, validate=True)
            return Claim(number, payload, written.offset)
    except (msgspec.DecodeError, binascii.Error):
        pass
    return None


def entries_of(lines: Sequence[AnyLine], topic: str) -> list[Seen]:
    """What the auditor found in a topic."""
    found = (line for line in lines if isinstance(line, Found) and line.topic == topic)
    return [seen for line in found for seen in line.messages]


class Watched(Struct, frozen=True):
    """What the journal of the proxy says of a client."""

    epochs: tuple[int, ...] = ()  # granted to it, in this order
    stored: int = 0  # messages of it
    cursor: int = 0  # the highest that it acknowledged
    subscribed: PositionLine | None = None  # its first one


def watched(before: Watched, lines: Sequence[AnyLine], role: str, client: str) -> Watched:
    """Add the next lines of the proxy to what is known of a client."""
    positions = [
        line for line in lines if isinstance(line, PositionLine) and line.subscriber == client
    ]
    granted = tuple(
        line.epoch
        for line in lines
        if isinstance(line, GrantedLine) and (line.role, line.client) == (role, client)
    )
    stored = sum(
        seen.publisher == client
        for line in lines
        if isinstance(line, StoredLine)
        for seen in line.messages
    )
    return Watched(
        before.epochs + granted,
        before.stored + stored,
        max([before.cursor, *(line.cursor for line in positions)]),
        before.subscribed or next(iter(positions), None),
    )


def begins(
    lives: Sequence[ClientLife], role: str, client: str, *, output: str = ""
) -> list[AnyLine]:
    """The beginnings of a client's processes."""
    return [
        Begin(
            at_ns=life.began_ns,
            process=client,
            pid=life.pid,
            role=role,
            wall_ns=0,
            output=output,
            observed=True,
        )
        for life in lives
    ]


def publisher_lines(
    lives: Sequence[ClientLife],
    client: str,
    topic: str,
    messages: Sequence[bytes],
    sent_ns: Mapping[int, int],
    claimed_ns: Mapping[int, int],
    claims: Sequence[Claim],
    entries: Sequence[Seen],
    *,
    again_from: int | None = None,
) -> list[AnyLine]:
    """Return the journal that a publisher would have written; each line is a place in a plan.

    Args:
        messages: its input.
        sent_ns: by line of the input, when the link first saw it; others count as put from the
            beginning, and say that this is inferred.
        claimed_ns: by line of the output, when it was first seen there; others: when put.
        again_from: from this offset on the plan counts as begun a second time (`repeated_from`).
    """
    numbers = {crc32(payload): n for n, payload in enumerate(messages, start=1)}
    stored: dict[int, list[Seen]] = {}
    for entry in entries:
        if entry.publisher == client and entry.crc in numbers:
            stored.setdefault(numbers[entry.crc], []).append(entry)
    said_of: dict[int, list[Claim]] = {}
    for claim in claims:
        if crc32(claim.payload) in numbers:
            said_of.setdefault(numbers[crc32(claim.payload)], []).append(claim)
    lines = begins(lives, "publisher", client)
    call = 0
    for number in sorted({*stored, *said_of}):
        places = stored.get(number) or [
            Seen(number - 1, client, number, crc32(messages[number - 1]))
        ]
        at_ns = sent_ns.get(number, lives[0].began_ns)
        life = next((one for one in reversed(lives) if one.began_ns <= at_ns), lives[0])
        head: dict[str, Any] = {"process": client, "pid": life.pid, "topic": topic}
        for entry in places:
            call += 1
            lines.append(
                Invoke(
                    at_ns=at_ns,
                    inferred=number not in sent_ns,
                    op="put",
                    call=call,
                    sequence=entry.sequence,
                    crcs=(entry.crc,),
                    qos=entry.qos,
                    plan=f"1:{number}",
                    plan_run=2 if again_from is not None and entry.offset >= again_from else 1,
                    **head,
                )
            )
            said = _said_of(entry, places, said_of.get(number, ()))
            if said is not None:
                offset = entry.offset if said.offset is None else said.offset
                lines.append(
                    Ok(
                        at_ns=max(at_ns, claimed_ns.get(said.line, at_ns)),
                        op="put",
                        call=call,
                        sequence=entry.sequence,
                        count=1,
                        offset=offset,
                        **head,
                    )
                )
    return sorted(lines, key=lambda line: line.at_ns)


def _said_of(entry: Seen, places: Sequence[Seen], claims: Sequence[Claim]) -> Claim | None:
    """What the output says of one place of a message.

    A claim that names none of its places, or none at all, is held against the first.
    """
    offsets = {place.offset for place in places}
    is_first = entry is places[0]
    said = (
        claim
        for claim in claims
        if claim.offset == entry.offset or (is_first and claim.offset not in offsets)
    )
    return next(said, None)


def repeated_from(entries: Sequence[Seen], client: str, *, since: int) -> int | None:
    """The first offset at which a client's content is repeated; None if it is not.

    Args:
        since: repeats below this offset do not count.
    """
    contents: set[int] = set()
    for entry in entries:
        if entry.publisher == client and entry.crc in contents and entry.offset >= since:
            return entry.offset
        contents.add(entry.crc)
    return None


def strangers(claims: Sequence[Claim], messages: Sequence[bytes]) -> tuple[int, ...]:
    """Lines of a publisher's output that are none of its messages."""
    known = set(messages)
    return tuple(claim.line for claim in claims if claim.payload not in known)


def subscriber_lines(
    lives: Sequence[ClientLife],
    client: str,
    topic: str,
    subscribed: PositionLine | None,
    output: str,
) -> list[AnyLine]:
    """The journal that a subscriber would have written, as far as it can be known.

    Args:
        subscribed: the proxy's first line about its subscription.
        output: the name of its output file.
    """
    lines = begins(lives, "subscriber", client, output=output)
    if subscribed is not None:
        head: dict[str, Any] = {"process": client, "pid": lives[0].pid, "topic": topic, "call": 1}
        lines.append(Invoke(at_ns=lives[0].began_ns, op="subscribe", inferred=True, **head))
        lines.append(
            Ok(
                at_ns=subscribed.at_ns + 1,
                op="subscribe",
                epoch=subscribed.epoch,
                generation=subscribed.generation,
                cursor=subscribed.cursor,
                **head,
            )
        )
    return sorted(lines, key=lambda line: line.at_ns)


def output_lines(claims: Sequence[Claim], topic: str, entries: Sequence[Seen]) -> Iterator[bytes]:
    """A subscriber's output in the form that our subscriber writes.

    Where it names no offset, its content does. What the log does not hold keeps its content, at the
    place that follows: the checker compares the two.
    """
    by_offset = {entry.offset: entry for entry in entries}
    by_crc: dict[int, Seen] = {}
    for entry in entries:
        by_crc.setdefault(entry.crc, entry)
    following = 0
    for claim in claims:
        offset = claim.offset
        if offset is None:
            known = by_crc.get(crc32(claim.payload))
            offset = known.offset if known else following
        following = offset + 1
        there = by_offset.get(offset)
        message_id = f"{there.publisher}_{there.sequence}" if there else f"unknown_{offset + 1}"
        yield (
            msgspec.json.encode(
                {
                    "topic": topic,
                    "offset": offset,
                    "message_id": message_id,
                    "timestamp_ns": 0,
                    "payload_base64": base64.b64encode(claim.payload).decode(),
                }
            )
            + b"\n"
        )
