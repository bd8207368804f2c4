"""The lines of a journal: what a process did and saw, checked by the crash lab.

Every process can write one (`--journal FILE`), as JSON lines. A client writes `invoke` before it
sends anything, and then `ok`, `failed` (it will never have an effect) or `unknown` (it may, or may
not). A process that is killed in between leaves an `invoke` without an answer: also unknown. The
proxy writes what has become durable, and an auditor what the log contains at the end.

Times are of the monotonic clock of the machine, which all its processes share; so lines of several
files can be put in one order. Source: the histories of Jepsen (jepsen-io/jepsen, "history").
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import msgspec
from msgspec import Struct

from .schemas import json_decoder

Operation = Literal[
    "hello",
    "put",
    "subscribe",
    "unsubscribe",
    "get",
    "record",
    "acknowledge",
    "reject",
    "match",
    "unmatch",
    "join",
    "take",
    "settle",
]


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="type"):
    """The fields of every line."""

    at_ns: int  # monotonic clock
    process: str  # client id, or the name of a proxy
    pid: int  # tells a process from its restart


# Of every process.


class Begin(Line, frozen=True, tag="begin"):
    """A process has started."""

    role: str  # "publisher", "subscriber", "proxy", "auditor" or "lab"
    wall_ns: int  # wall clock at the same moment, for readers
    boot: str = ""  # of a proxy
    durability: str = ""  # of a proxy
    output: str = ""  # name of a subscriber's output file, without its folders
    remembers: bool = True  # False: its state is in memory, and lost when it ends
    observed: bool = False  # it keeps no journal: a judge wrote what its link and output showed


class End(Line, frozen=True, tag="end"):
    """A process ends normally; a killed one leaves no such line."""

    code: str = ""  # of the error that ended it; "" if it finished or was asked to stop


# Of clients.


class Invoke(Line, frozen=True, tag="invoke"):
    """An operation begins; nothing of it was sent before. `call` counts within a process.

    A put whose messages are renumbered before they are sent has a second `invoke`.
    """

    op: Operation
    call: int
    topic: str = ""
    epoch: int = 0
    sequence: int = 0  # put: of the first message
    crcs: tuple[int, ...] = ()  # put: CRC-32 of each payload
    qos: int = 2  # put
    plan: str = ""  # put: `<step>:<message>` of its first message, if it belongs to a step file
    plan_run: int = 1  # put: how often the step file was begun (--again), with `plan`
    cursor: int | None = None  # get, acknowledge: the client's cursor; reject: the message
    transaction: int = 0  # put: number of the transaction that it belongs to, if it does
    start: str = ""  # subscribe: the requested start, as in a step file; "" if none
    seeks: bool = False  # subscribe: an existing subscription is moved to `start`
    match: str = ""  # match, unmatch, a subscribe that a pattern began: its kind, a space, its text
    group: str = ""  # join, take, settle
    outcomes: tuple[tuple[int, int, int, str], ...] = ()  # of a group: first, count, delivery, how
    inferred: bool = False  # of one that is observed: it was not seen, and its time is not known


class Seen(Struct, frozen=True, array_like=True, gc=False):
    """A message that was delivered, or is in a log. In JSON an array, in this order."""

    offset: int
    publisher: str
    sequence: int
    crc: int  # CRC-32 of the payload
    timestamp_ns: int = 0
    delivery_count: int = 1  # above 1: marked as redelivered
    qos: int = 2  # in a log its publisher's level; when delivered the lower of both


class Ok(Line, frozen=True, tag="ok"):
    """An operation had its effect."""

    op: Operation
    call: int
    topic: str = ""
    epoch: int = 0
    sequence: int = 0  # put: of the first message
    count: int = 0  # put: messages
    offset: int | None = None  # put: of the first message; None if it was removed meanwhile
    # reject: of the dead letter; None if an earlier process had sent it
    duplicate: bool = False  # put: an earlier attempt had stored it
    durability: str = ""  # put: what the acknowledgement promises
    qos: int = 2  # put, subscribe
    log: str = ""  # subscribe: log id
    generation: int = 0  # subscribe
    cursor: int | None = None  # subscribe, record, acknowledge, reject: of the next message
    messages: tuple[Seen, ...] = ()  # get, take: delivered
    group: str = ""  # join, take, settle
    refused: tuple[tuple[int, int], ...] = ()  # of a group: first and count, settled too late
    in_doubt: tuple[tuple[int, int], ...] = ()  # of a group: settled, or they come again
    lease_ms: int = 0  # take: how long what was delivered is still held; settle: if extended


class Failed(Line, frozen=True, tag="failed"):
    """An operation did not have its effect and never will."""

    op: Operation
    call: int
    code: str
    topic: str = ""
    sequence: int = 0
    first: int = 0  # code LOST: offsets first to end - 1 were lost, and reported
    end: int = 0
    by_operator: bool = False  # with LOST: skipped or removed by an operator
    waiting_max: int | None = None  # with LOST: they are stored, but too many waited here


class Unknown(Line, frozen=True, tag="unknown"):
    """It is unknown whether an operation had its effect, or will have it."""

    op: Operation
    call: int
    code: str
    topic: str = ""
    sequence: int = 0


# Of the proxy: each line is written when what it says is durable. Without `Line` it is a record.


class StoredLine(Line, frozen=True, tag="stored"):
    """A batch is in a topic. `messages` have the batch's timestamp."""

    topic: str
    epoch: int
    messages: tuple[Seen, ...]


class CreatedLine(Line, frozen=True, tag="created"):
    """A topic was created."""

    topic: str
    log: str  # log id


class GrantedLine(Line, frozen=True, tag="granted"):
    """A client was granted an epoch; requests of older ones no longer have an effect."""

    role: str
    client: str
    epoch: int


class PositionLine(Line, frozen=True, tag="position"):
    """The position of a subscription."""

    topic: str
    subscriber: str
    generation: int
    cursor: int
    active: bool
    epoch: int = 0  # of the subscriber that moved it; 0: unknown
    session: str = "persistent"  # or "clean": then it may end without an unsubscribe


class DeadLetteredLine(Line, frozen=True, tag="dead_lettered"):
    """A subscriber rejected a message: its dead letter is stored, and its cursor is past it."""

    topic: str
    subscriber: str
    generation: int
    offset: int  # of the message
    dead_topic: str
    letter: Seen
    epoch: int  # of the subscriber


class ExpiredLine(Line, frozen=True, tag="expired"):
    """A subscription was silent for twice its lease: a clean one has ended with that.

    A persistent one no longer keeps messages stored; its subscriber may return, and gets LOST.
    """

    topic: str
    subscriber: str
    generation: int
    cursor: int
    session: str
    lease_ms: int
    silent_ms: int  # by the clock of the proxy; 0: it expired at a bound of its topic


class ControlSeenLine(Line, frozen=True, tag="control_seen"):
    """A subscriber unsubscribed from a topic without a subscription: nothing was changed."""

    subscriber: str
    epoch: int


class TrimmedLine(Line, frozen=True, tag="trimmed"):
    """A topic now begins here; lower offsets were acknowledged by all, or are reported LOST."""

    topic: str
    start: int


class AdministeredLine(Line, frozen=True, tag="administered"):
    """An operator did something; the lines of what that changed follow this one."""

    number: int  # 1, 2, 3, ...
    action: str  # its tag in ADMIN
    who: str = ""  # name of the key; "": none
    topic: str = ""
    subscriber: str = ""  # or the publisher of `forget_client`, with `role`
    role: str = ""
    generation: int = 0  # of the subscription that it ends, or begins
    first: int = 0  # removed or skipped: offsets first to end - 1; moved: from first to end
    end: int = 0


class GroupMovedLine(Line, frozen=True, tag="group_moved"):
    """A request of a member changed its group."""

    topic: str
    group: str
    generation: int
    cursor: int  # every message below it has ended
    member: str
    epoch: int
    granted: tuple[tuple[int, int, int], ...] = ()  # first, count, delivery
    settled: tuple[tuple[int, int, int, str], ...] = ()  # and how


# Of an auditor: the log of a topic as it is at the end, read through the proxy.


class Found(Line, frozen=True, tag="found"):
    """The topic holds these messages, among others."""

    topic: str
    messages: tuple[Seen, ...]


class FoundEnd(Line, frozen=True, tag="found_end"):
    """The topic was read to its end: it holds offsets start to end - 1, and nothing else."""

    topic: str
    start: int
    end: int
    positions: dict[str, int]  # cursor of each active subscription


# Of the lab, or of the simulator.


class Event(Line, frozen=True, tag="event"):
    """Something was done to a process, to a link or to a disk."""

    what: str  # kill, stop, continue, restart, cut, cut_push, half_open, delay, slow, heal,
    # fill_disk, free_disk, rollback, power_loss, replace (`detail`: pid of the process whose work
    # another one continues), quiet (no more faults after this)
    target: str = ""
    detail: str = ""


class Finished(Line, frozen=True, tag="finished"):
    """At the end of a run: whether a process did everything that it was expected to do."""

    target: str
    done: bool
    expected: bool = True  # False: it was not asked to finish
    drained: bool = False  # a subscriber that must have received everything that is stored
    messages: int | None = None  # of a publisher's plan; None: unknown
    detail: str = ""  # exit code, or why not


ProxyLine = (
    StoredLine
    | CreatedLine
    | GrantedLine
    | PositionLine
    | DeadLetteredLine
    | ExpiredLine
    | ControlSeenLine
    | TrimmedLine
    | AdministeredLine
    | GroupMovedLine
)
AnyLine = (
    Begin | End | Invoke | Ok | Failed | Unknown | ProxyLine | Found | FoundEnd | Event | Finished
)

_encoder = msgspec.json.Encoder()


@cache  # made when first used: who writes lines reads none
def line_decoder() -> msgspec.json.Decoder[AnyLine]:
    return json_decoder(AnyLine)


def encode_line(line: AnyLine) -> bytes:
    """A line as JSON, with its line end."""
    return _encoder.encode(line) + b"\n"


def decode_line(text: bytes) -> AnyLine:
    """Read a line.

    Raises:
        msgspec.DecodeError: it is not a line of a journal; the text says where.
    """
    return line_decoder().decode(text)
