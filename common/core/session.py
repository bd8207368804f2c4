"""The session of a client with its proxy, and what refusals mean. Pure."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, ParamSpec, Protocol

from msgspec import UnsetType

from .answers import (
    AnyReply,
    Conflict,
    Denied,
    Fenced,
    Gap,
    HelloAck,
    Limit,
    LogChanged,
    NotPossible,
    NotSub,
    OutOfRange,
    StageLost,
    Stale,
    Truncated,
)
from .conversation import Conversation, Save
from .errors import (
    ConflictError,
    DeniedError,
    FencedError,
    LimitError,
    LogChangedError,
    NotPossibleError,
    NotSubscribedError,
    OutOfRangeError,
    PubSubError,
    RefusedError,
    StageLostError,
    StaleError,
    TruncatedError,
    TryLaterError,
)
from .message_base import Request, Role
from .recorder import Recorder
from .requester import Requester
from .requests import Hello
from .status import Status, StatusReport

SESSIONS_BEGUN_MAX: Final = 10  # that one call begins, each because the proxy forgot the last


P = ParamSpec("P")


class EpochMemory(Protocol):
    """Where the epoch of a client is kept."""

    epoch: int  # the last that was granted; 0: none

    def granted(self, epoch: int) -> Mapping[str, bytes | None]:
        """Set the next epoch; return the state values to write."""


class EpochOfProcess:
    """An epoch that ends with its process. Implements `EpochMemory`."""

    def __init__(self) -> None:
        self.epoch = 0

    def granted(self, epoch: int) -> Mapping[str, bytes | None]:
        """Set the next epoch; nothing is written."""
        self.epoch = epoch
        return {}


class ClientSession:
    """A client's session under an epoch; begun again when the proxy has forgotten it."""

    def __init__(
        self,
        requester: Requester,
        role: Role,
        *,
        nonce: bytes,
        memory: EpochMemory | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """Create a session that is not connected.

        Args:
            nonce: of this process, random; in every HELLO.
            memory: where the epoch is kept; None: in this process.
        """
        self.requester = requester
        self.client = requester.client
        self.connected = False
        self.nonce = nonce
        self._role = role
        self._memory = memory or EpochOfProcess()
        self._recorder = recorder or Recorder()
        self._asked_epoch = 0  # of the last HELLO; may be granted without an answer

    def connecting(self) -> Conversation[None]:
        """Get an epoch; any older process with this id is fenced from now on (rule R11)."""
        self.connected = False  # also if this is interrupted: the epoch may have been granted
        with self._recorder.call("hello") as call:
            call.invoke(epoch=self._memory.epoch + 1)
            epoch = yield from claim_epoch(
                self._memory.epoch, self._claim, asked_epoch=self._asked_epoch, client=self.client
            )
            yield Save(self._memory.granted(epoch))
            call.ok(epoch=epoch)
        self.connected = True
        self.tell(logging.INFO, f"begins session {epoch}")

    def joining(self) -> Conversation[None]:
        """Begin a session for this id, unless it has one; another process's session stays.

        It asks above the epochs of what was forgotten, and never above one in use. What it begins
        is claimed by the next request that needs an epoch, with the same nonce.

        Raises:
            RefusedError: there is none, and this key or this proxy may not have another one.
        """
        epoch = 1
        while isinstance(reply := (yield from self._hello(epoch)), Fenced):
            if reply.forgotten is not True:
                return
            epoch = reply.current_epoch + 1
        if not isinstance(reply, HelloAck):
            self.refused(reply)
        self.connected = False  # an older epoch of this process is fenced by this one
        self._asked_epoch = max(self._asked_epoch, epoch)

    def begin_again(self) -> None:
        """Continue after an interrupted call: keep the last requested epoch if it was granted.

        A higher one would fence a newer process, if there is one; so epoch and nonce stay.
        """
        self.connected = 0 < self._memory.epoch == self._asked_epoch

    def positions(self, *topics: str) -> Conversation[AnyReply]:
        """This publisher's numbering in these topics, as the proxy knows it."""
        return self._hello(self._memory.epoch, topics)

    def head(self) -> dict[str, Any]:
        """The fields that every request of this session has, with the next request number."""
        number = next(self.requester.numbers)
        return {"client": self.client, "epoch": self._memory.epoch, "request": number}

    def asking(self, request: Request, body: bytes | None = None) -> Conversation[AnyReply]:
        """Send a request until it is answered; for answers without a body."""
        return (yield from self.requester.asking(request, body))[0]

    def topics(self) -> Conversation[tuple[str, ...]]:
        """Ask for the names of all topics, page by page; this needs no session."""
        found: list[str] = []
        after: str | UnsetType = ""
        while not isinstance(after, UnsetType):
            reply = yield from self.asking(Status(**self.head(), after_topic=after, rows_max=0))
            if not isinstance(reply, StatusReport):
                self.refused(reply)
            found += [one.topic for one in reply.topics]
            after = reply.next_topic
        return tuple(found)

    def asking_as_known(
        self, ask: Callable[P, Conversation[AnyReply]], *args: P.args, **kwargs: P.kwargs
    ) -> Conversation[AnyReply]:
        """Send a request; if the proxy has forgotten the session, repeat it in a new one.

        Args:
            ask: sends the request, with these arguments; called once for each session.

        Raises:
            TryLaterError: the proxy forgot SESSIONS_BEGUN_MAX sessions in a row.
        """
        for _ in range(SESSIONS_BEGUN_MAX):
            if not self.connected:
                yield from self.connecting()
            reply = yield from ask(*args, **kwargs)
            if not isinstance(reply, Fenced) or not self.is_forgotten(reply):
                return reply
        raise forgets_again()

    def asking_as_joined(
        self, ask: Callable[P, Conversation[AnyReply]], *args: P.args, **kwargs: P.kwargs
    ) -> Conversation[AnyReply]:
        """Send a request that needs a session of this id, of any epoch.

        Args:
            ask: sends the request, with these arguments; called again after each HELLO.

        Raises:
            TryLaterError: the proxy forgot SESSIONS_BEGUN_MAX sessions in a row.
        """
        for _ in range(SESSIONS_BEGUN_MAX):
            reply = yield from ask(*args, **kwargs)
            if not isinstance(reply, Fenced):
                return reply
            yield from self.joining()
        raise forgets_again()

    def is_forgotten(self, reply: AnyReply) -> bool:
        """Whether the proxy has forgotten the session it granted; then it is over."""
        forgotten = is_forgotten(reply, self._memory.epoch)
        if forgotten:
            self.connected = False
            self.tell(logging.INFO, "is forgotten by the proxy, and begins another session")
        return forgotten

    def tell(self, level: int, what: str, topic: str = "") -> None:
        """Log an event of the session, or of a topic in it."""
        epoch = self._memory.epoch
        on = f" on {topic!r}" if topic else ""
        facts = {"client": self.client, "epoch": epoch, "topic": topic or None}
        self.requester.log.log(level, "%s%s: %s", self.client, on, what, extra=facts)

    def refused(self, reply: AnyReply, topic: str = "") -> NoReturn:
        """Raise the error that a reply means."""
        raise refusal(reply, client=self.client, epoch=self._memory.epoch, topic=topic)

    def _claim(self, epoch: int) -> Conversation[AnyReply]:
        self._asked_epoch = epoch
        return self._hello(epoch)

    def _hello(self, epoch: int, topics: tuple[str, ...] = ()) -> Conversation[AnyReply]:
        head = self.requester.head(epoch)
        return self.asking(Hello(**head, role=self._role, nonce=self.nonce, topics=topics))


def claim_epoch(
    known_epoch: int,
    hello: Callable[[int], Conversation[AnyReply]],
    *,
    asked_epoch: int = 0,
    client: str,
) -> Conversation[int]:
    """Get an epoch above the known one; FENCED names the current one, so ask above that.

    Args:
        hello: sends HELLO for an epoch, and returns the reply.
        asked_epoch: the last one this process requested. If its reply was lost, it is requested
            again, never a lower one: a late copy of that HELLO would fence its own sender.

    Raises:
        RefusedError: anything but HELLO_ACK and FENCED.

    Source: docs/decisions/0004.
    """
    epoch = max(known_epoch + 1, asked_epoch)
    while True:
        reply = yield from hello(epoch)
        if isinstance(reply, HelloAck):
            return epoch
        if not isinstance(reply, Fenced):
            raise refusal(reply, client=client, epoch=epoch)
        epoch = reply.current_epoch + 1  # lower, if the proxy was replaced and knows less


def forgets_again() -> TryLaterError:
    text = "the proxy forgets this session again"
    return TryLaterError(code="FENCED", text=text, attempts=SESSIONS_BEGUN_MAX)


def is_forgotten(reply: AnyReply, epoch: int) -> bool:
    """Whether the proxy has forgotten a granted session: a new one must begin."""
    return isinstance(reply, Fenced) and (reply.current_epoch < epoch or reply.forgotten is True)


def refusal(reply: AnyReply, *, client: str, epoch: int, topic: str = "") -> PubSubError:
    """The error for a refusal of the proxy."""
    match reply:
        case Fenced():
            return FencedError(client=client, epoch=epoch, current_epoch=reply.current_epoch)
        case Conflict():
            return ConflictError(reply.text)
        case Gap() | LogChanged():  # a gap: acknowledged messages are missing at the proxy
            return LogChangedError(reply.text)
        case NotSub():
            return NotSubscribedError(reply.text)
        case Stale():
            return StaleError(reply.text)
        case Truncated():
            return TruncatedError(
                reply.text, topic=topic, start=reply.start, start_ns=reply.start_ns
            )
        case OutOfRange():
            return OutOfRangeError(reply.text, topic=topic, start=reply.start, end=reply.end)
        case NotPossible():
            return NotPossibleError(reply.text)
        case StageLost():
            return StageLostError(reply.text)
        case Limit():
            return LimitError(reply.text)
        case Denied():
            return DeniedError(reply.text, client=client, right=reply.right, topic=reply.topic)
        case _:
            return RefusedError(f"the proxy answered {type(reply).__name__}, which fits no request")
