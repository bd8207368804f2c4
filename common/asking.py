"""A client's requests: `Asker` for those that need no session, `Session` for those that do."""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, Protocol

from .core.errors import TryLaterError
from .core.messages import AnyReply, Hello, Request, Role, TryLater
from .core.recorder import Recorder
from .core.retry import Clock, RetryPolicy, Silence, Transport, ask, unheard
from .core.session import claim_epoch, is_forgotten, refusal
from .state_file import ClientState, MemoryState
from .transport import ReqTransport, SystemClock

SESSIONS_MAX: Final = 10  # that one call begins, each because the proxy forgot the last


class Asker:
    """One client, one endpoint, one sequence of request numbers. One thread at a time."""

    def __init__(
        self,
        client: str,
        endpoint: str,
        *,
        retry: RetryPolicy,
        transport: Transport | None = None,
        clock: Clock | None = None,
        on_silence: Silence = unheard,
        role: Role | None = None,
    ) -> None:
        """Create an asker; its socket connects in the background.

        Args:
            role: names the logger; None: neither publisher nor subscriber.
            transport, clock: replaced by tests; default: a REQ socket and the system clock.
            on_silence: called for each attempt without an answer, as it happens.
        """
        self.client = client
        self.retry = retry
        self.clock = clock or SystemClock()
        self.log = logging.getLogger(f"reliable_pubsub.{role or 'asker'}")
        self.transport = transport or ReqTransport(endpoint)
        self._on_silence = on_silence
        self._request = 0

    def head(self, epoch: int = 0) -> dict[str, Any]:
        """The fields that every request has, with the next request number.

        Args:
            epoch: 0 for a request that needs no session.
        """
        self._request += 1
        return {"client": self.client, "epoch": epoch, "request": self._request}

    def ask(self, request: Request, body: bytes | None = None) -> tuple[AnyReply, bytes]:
        """Send a request until it is answered; see `retry.ask`."""
        telling = _Telling(self.log, request, self.transport.endpoint, self._on_silence)
        telling.say(logging.DEBUG, "asks")
        answer = ask(
            request,
            body,
            transport=self.transport,
            clock=self.clock,
            retry=self.retry,
            chance=random.random,
            on_silence=telling.silence,
            on_postponed=telling.postponed,
        )
        if self.log.isEnabledFor(logging.DEBUG):
            telling.say(logging.DEBUG, f"is answered {type(answer[0]).__name__}")
        return answer

    def close(self) -> None:
        """Close the socket."""
        close = getattr(self.transport, "close", None)  # a test's transport may have none
        if close is not None:
            close()


class _Telling:
    """Logs the outcome of one request."""

    __slots__ = ("_endpoint", "_log", "_on_silence", "_request")

    def __init__(
        self, log: logging.Logger, request: Request, endpoint: str, on_silence: Silence
    ) -> None:
        self._log = log
        self._request = request
        self._endpoint = endpoint
        self._on_silence = on_silence

    def silence(self, endpoint: str, attempt: int, attempts: int) -> None:
        """Implements `Silence`."""
        if attempt:
            self.say(logging.WARNING, "is not answered", attempt, attempts)
        else:
            self.say(logging.INFO, "is answered after all")
        self._on_silence(endpoint, attempt, attempts)

    def postponed(self, reply: TryLater, attempt: int, attempts: int) -> None:
        """Implements `Postponed`."""
        self.say(logging.WARNING, f"is answered {reply.code}: {reply.text}", attempt, attempts)

    def say(self, level: int, what: str, attempt: int = 0, attempts: int = 0) -> None:
        """One line, and its facts as attributes of the record."""
        if not self._log.isEnabledFor(level):
            return
        request = self._request
        facts = {
            "client": request.client,
            "endpoint": self._endpoint,
            "verb": request.__struct_config__.tag,
            "topic": getattr(request, "topic", None),
            "epoch": request.epoch,
            "request": request.request,
            "attempt": attempt,
            "attempts": attempts,
        }
        on = f" on {facts['topic']!r}" if facts["topic"] else ""
        tried = f" (attempt {attempt} of {attempts})" if attempt else ""
        self._log.log(
            level,
            "%s: %s%s, request %d of epoch %d at %s, %s%s",
            *(request.client, facts["verb"], on, request.request, request.epoch),
            *(self._endpoint, what, tried),
            extra=facts,
        )


class EpochMemory(Protocol):
    """Where the epoch of a client is kept."""

    epoch: int  # the last that was granted; 0: none

    def granted(self, epoch: int) -> Mapping[str, bytes | None]:
        """Set the next epoch; return the state values to write."""


class EpochOfProcess:
    """An epoch that ends with its process. Implements `EpochMemory`."""

    def __init__(self) -> None:
        """Create a memory without an epoch."""
        self.epoch = 0

    def granted(self, epoch: int) -> Mapping[str, bytes | None]:
        """Set the next epoch; nothing is written."""
        self.epoch = epoch
        return {}


class Session:
    """A client's session under an epoch; begun again when the proxy has forgotten it."""

    def __init__(
        self,
        asker: Asker,
        role: Role,
        *,
        memory: EpochMemory | None = None,
        state: ClientState | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """Create a session that is not connected.

        Args:
            memory, state: where the epoch is kept; None: in this process.
        """
        self.asker = asker
        self.client = asker.client
        self.connected = False
        self.nonce = secrets.token_bytes(16)  # of this process, in every HELLO
        self._role = role
        self._memory = memory or EpochOfProcess()
        self._state = state or MemoryState()
        self._recorder = recorder or Recorder()
        self._asked_epoch = 0  # of the last HELLO; may be granted without an answer

    def connect(self) -> None:
        """Get an epoch; any older process with this id is fenced from now on (rule R11)."""
        self.connected = False  # also if this is interrupted: the epoch may have been granted
        with self._recorder.call("hello") as call:
            call.invoke(epoch=self._memory.epoch + 1)
            epoch = claim_epoch(
                self._memory.epoch, self._hello, asked_epoch=self._asked_epoch, client=self.client
            )
            self._state.write(self._memory.granted(epoch), durable=False)
            call.ok(epoch=epoch)
        self.connected = True
        self.tell(logging.INFO, f"begins session {epoch}")

    def begin_again(self) -> None:
        """Continue after an interrupted call: keep the last requested epoch if it was granted.

        A higher one would fence a newer process, if there is one; so epoch and nonce stay.
        """
        self.connected = 0 < self._memory.epoch == self._asked_epoch

    def positions(self, *topics: str) -> AnyReply:
        """This publisher's numbering in these topics, as the proxy knows it."""
        return self._hello(self._memory.epoch, topics)

    def head(self) -> dict[str, Any]:
        """The fields that every request of this session has, with the next request number."""
        return self.asker.head(self._memory.epoch)

    def ask(self, request: Request, body: bytes | None = None) -> AnyReply:
        """Send a request until it is answered; for answers without a body."""
        return self.asker.ask(request, body)[0]

    def ask_as_known(self, ask: Callable[[], AnyReply]) -> AnyReply:
        """Send a request; if the proxy has forgotten the session, repeat it in a new one.

        Args:
            ask: sends the request; called once for each session.

        Raises:
            TryLaterError: the proxy forgot SESSIONS_MAX sessions in a row.
        """
        for _ in range(SESSIONS_MAX):
            if not self.connected:
                self.connect()
            reply = ask()
            if not self.is_forgotten(reply):
                return reply
        raise TryLaterError(
            code="FENCED", text="the proxy forgets this session again", attempts=SESSIONS_MAX
        )

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
        self.asker.log.log(level, "%s%s: %s", self.client, on, what, extra=facts)

    def refused(self, reply: AnyReply, topic: str = "") -> NoReturn:
        """Raise the error that a reply means."""
        raise refusal(reply, client=self.client, epoch=self._memory.epoch, topic=topic)

    def _hello(self, epoch: int, topics: tuple[str, ...] = ()) -> AnyReply:
        self._asked_epoch = epoch
        head = self.asker.head(epoch)
        return self.ask(Hello(**head, role=self._role, nonce=self.nonce, topics=topics))
