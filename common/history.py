"""What a process did and saw, as lines: the history that the crash lab judges.

Every process can write one (`--history FILE`), as JSON lines. A client writes `invoke` before it
sends anything, and then `ok`, `failed` (it will never have an effect) or `unknown` (it may, or may
not). A process that is killed in between leaves an `invoke` without an answer: also unknown. The
proxy writes what has become durable, and an auditor what the log holds at the end.

Times are of the monotonic clock of the machine, which all its processes share; so lines of several
files can be put in one order. Source: the histories of Jepsen (jepsen-io/jepsen, "history").
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

Operation = Literal[
    "hello", "put", "subscribe", "unsubscribe", "get", "record", "acknowledge", "reject"
]


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="type"):
    """What every line says."""

    at_ns: int  # monotonic clock
    process: str  # client id, or the name of a proxy
    pid: int  # tells one life of a process from the next


# Of every process.


class Begin(Line, frozen=True, tag="begin"):
    """A life of a process begins."""

    role: str  # "publisher", "subscriber", "proxy", "auditor" or "lab"
    wall_ns: int  # wall clock of the same moment, for people
    boot: str = ""  # of a proxy
    durability: str = ""  # of a proxy
    output: str = ""  # name of a subscriber's output file, without its folders
    remembers: bool = True  # False: its state is in memory, and gone with it


class End(Line, frozen=True, tag="end"):
    """A life of a process ends by itself; one that is killed leaves no such line."""

    code: str = ""  # of the error it ended with; "" if it had done its work or was asked to stop


# Of clients.


class Invoke(Line, frozen=True, tag="invoke"):
    """An operation begins; nothing of it was sent before. `call` counts within a life.

    A put whose messages get other numbers before they are sent has a second `invoke`.
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
    cursor: int | None = None  # get, acknowledge: what the client says it has; reject: the message
    transaction: int = 0  # put: number of the transaction that it belongs to, if it does
    start: str = ""  # subscribe: where it is to begin, in the words of a step file; "" if not said


class Seen(Struct, frozen=True, array_like=True, gc=False):
    """A message that was handed over, or stands in a log. In JSON an array, in this order."""

    offset: int
    publisher: str
    sequence: int
    crc: int  # CRC-32 of the payload
    timestamp_ns: int = 0
    delivery_count: int = 1  # above 1: marked as redelivered
    qos: int = 2  # in a log its publisher's level; where it was handed over the lower of both


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
    messages: tuple[Seen, ...] = ()  # get: handed over


class Failed(Line, frozen=True, tag="failed"):
    """An operation did not have its effect and never will."""

    op: Operation
    call: int
    code: str
    topic: str = ""
    sequence: int = 0
    first: int = 0  # code LOST: offsets first to end - 1 are gone, and the client was told
    end: int = 0
    waiting_max: int | None = None  # and LOST: they are stored, but too many waited here


class Unknown(Line, frozen=True, tag="unknown"):
    """Nobody knows whether an operation had its effect, or will have it."""

    op: Operation
    call: int
    code: str
    topic: str = ""
    sequence: int = 0


# Of the proxy: each line is written when what it says is durable.


class Stored(Line, frozen=True, tag="stored"):
    """A batch is in a topic. `messages` have the batch's timestamp."""

    topic: str
    epoch: int
    messages: tuple[Seen, ...]


class Created(Line, frozen=True, tag="created"):
    """A topic appears."""

    topic: str
    log: str  # log id


class Granted(Line, frozen=True, tag="granted"):
    """A client has an epoch; older ones have no effect any more."""

    role: str
    client: str
    epoch: int


class Position(Line, frozen=True, tag="position"):
    """A subscription stands here."""

    topic: str
    subscriber: str
    generation: int
    cursor: int
    active: bool
    epoch: int = 0  # of the subscriber that moved it; 0: not told
    session: str = "persistent"  # or "clean": then it may end without an unsubscribe


class DeadLettered(Line, frozen=True, tag="dead_lettered"):
    """A subscriber gave a message up: its letter is stored, and its cursor is past it."""

    topic: str
    subscriber: str
    generation: int
    offset: int  # of the message
    dead_topic: str
    letter: Seen
    epoch: int  # of the subscriber


class Expired(Line, frozen=True, tag="expired"):
    """A subscription was silent for twice its lease: a clean one has ended with that.

    A persistent one holds nothing back any more; its subscriber may return, and is told of losses.
    """

    topic: str
    subscriber: str
    generation: int
    cursor: int
    session: str
    lease_ms: int
    silent_ms: int  # by the clock of the proxy; 0: it was given up at a bound of its topic


class ControlSeen(Line, frozen=True, tag="control_seen"):
    """A subscriber left a topic that it was not subscribed to: taken, and nothing was moved."""

    subscriber: str
    epoch: int


class Trimmed(Line, frozen=True, tag="trimmed"):
    """A topic begins here now; what was below had been acknowledged by all, or is told as LOST."""

    topic: str
    start: int


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
    # fill_disk, free_disk, rollback, power_loss, replace (`detail`: pid of the life whose work
    # another one goes on with), quiet (no more faults from here on)
    target: str = ""
    detail: str = ""


class Finished(Line, frozen=True, tag="finished"):
    """At the end of a run: whether a process did all that it was expected to do."""

    target: str
    done: bool
    expected: bool = True  # False: it was not asked to finish
    drained: bool = False  # a subscriber that must have received everything that is stored
    messages: int | None = None  # of a publisher's plan; None: nobody knows
    detail: str = ""  # exit code, or why not


ProxyLine = Stored | Created | Granted | Position | DeadLettered | Expired | ControlSeen | Trimmed
AnyLine = (
    Begin | End | Invoke | Ok | Failed | Unknown | ProxyLine | Found | FoundEnd | Event | Finished
)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyLine)


def encode_line(line: AnyLine) -> bytes:
    """A line as JSON, with its line end."""
    return _encoder.encode(line) + b"\n"


def decode_line(text: bytes) -> AnyLine:
    """Read a line.

    Raises:
        msgspec.DecodeError: it is no line of a history; the text says where.
    """
    line: AnyLine = _decoder.decode(text)
    return line
