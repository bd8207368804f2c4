"""The requests of one client, and the one retry loop: Lazy Pirate, as a conversation. Pure.

Source: the ZeroMQ Guide, chapter 4, "Client-Side Reliability (Lazy Pirate Pattern)".
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from .answers import AnyReply, Malformed, TryLater
from .conversation import Conversation, Exchange, Reopen, Sleep
from .endpoint import endpoints_of
from .errors import MalformedError, ProxyUnreachableError, TryLaterError
from .message_base import Request, Role
from .retry import RetryPolicy, Silence, unheard
from .wire import decode_reply, encode

REOPEN: Final = Reopen()


class Requester:
    """One client, one endpoint, one sequence of request numbers."""

    def __init__(
        self,
        client: str,
        endpoint: str,
        *,
        retry: RetryPolicy,
        chance: Callable[[], float],
        on_silence: Silence = unheard,
        role: Role | None = None,
    ) -> None:
        """Create a requester; no request is sent.

        Args:
            chance: 0 <= chance < 1, for the pauses between attempts.
            role: names the logger; None: neither publisher nor subscriber.
            on_silence: called for each attempt without an answer, as it happens.
        """
        self.client = client
        self.endpoint = endpoint
        self._endpoints_count = len(endpoints_of(endpoint))
        self.retry = retry
        self.log = logging.getLogger(f"reliable_pubsub.{role or 'asker'}")
        self._chance = chance
        self._on_silence = on_silence
        self.numbers = count(1)  # of requests

    def head(self, epoch: int = 0) -> dict[str, Any]:
        """The fields that every request has, with the next request number.

        Args:
            epoch: 0 for a request that needs no session.
        """
        return {"client": self.client, "epoch": epoch, "request": next(self.numbers)}

    def asking(
        self, request: Request, body: bytes | None = None, *, wait_s: float = 0.0
    ) -> Conversation[tuple[AnyReply, bytes]]:
        """Send a request until its answer comes; every attempt carries the same bytes.

        An answer that does not repeat client, epoch and request number belongs to another request
        and is dropped (rule R1). FULL, BUSY and STORAGE_FULL are asked again on the same socket. Of
        several endpoints the next one is asked after silence, and those asked before may still
        answer; one attempt of the policy is one round of them all, and a pause follows a round.

        Args:
            wait_s: how long the proxy may hold the answer; silence begins after that.

        Raises:
            ProxyUnreachableError: every attempt went unanswered. The outcome is unknown; the
                sequence inside the request makes it safe to ask again, now or after a restart.
            TryLaterError: the last attempt was answered with FULL, BUSY or STORAGE_FULL.
            MalformedError: the proxy cannot read this request, or speaks another protocol.
        """
        retry = self.retry
        exchange = Exchange(encode(request, body), retry.timeout_s + wait_s)
        asked = (request.request, request.epoch, request.client)
        several = self._endpoints_count
        attempts = (retry.retries_max + 1) * several
        waited_s = 0.0
        later: TryLater | None = None
        silent = False
        is_debugged = self.log.isEnabledFor(logging.DEBUG)
        if is_debugged:
            self._tell(logging.DEBUG, request, "asks")
        for attempt in range(1, attempts + 1):
            if attempt > 1 and (later is not None or (attempt - 1) % several == 0):
                pause_s = retry.pause_before(max((attempt - 1) // several, 1), self._chance())
                waited_s += pause_s
                yield Sleep(pause_s)
            frames = yield exchange
            reply: AnyReply | None = None
            if frames is None:
                waited_s += exchange.timeout_s
            else:
                try:
                    reply, answer_body = decode_reply(frames)
                    if isinstance(reply, Malformed) and reply.request in (0, request.request):
                        text = f"{self.endpoint} cannot read our request: {reply.text}"
                        raise MalformedError(text, is_our_request=True)
                except MalformedError:
                    yield REOPEN
                    raise
                if (reply.request, reply.epoch, reply.client) != asked:
                    yield REOPEN  # one reply for each request: the right one will not come
                    reply = None
            if reply is None:
                later = None
                silent = True
                self._tell(logging.WARNING, request, "is not answered", attempt, attempts)
                self._on_silence(self.endpoint, attempt, attempts)
                continue
            later = reply if isinstance(reply, TryLater) else None
            if silent or later or is_debugged:
                self._tell_of_answer(request, reply, attempt, attempts, after_silence=silent)
                silent = False
            if later is None:
                return reply, answer_body
        if later is not None:
            raise TryLaterError(code=later.code, text=later.text, attempts=attempts)
        yield REOPEN  # what is asked next is another request
        verb = str(type(request).__struct_config__.tag)
        raise ProxyUnreachableError(
            endpoint=self.endpoint, attempts=attempts, waited_s=waited_s, verb=verb
        )

    def _tell_of_answer(
        self, request: Request, reply: AnyReply, attempt: int, attempts: int, *, after_silence: bool
    ) -> None:
        if after_silence:
            self._tell(logging.INFO, request, "is answered after all")
            self._on_silence(self.endpoint, 0, attempts)
        if isinstance(reply, TryLater):
            what = f"is answered {reply.code}: {reply.text}"
            self._tell(logging.WARNING, request, what, attempt, attempts)
        else:
            self._tell(logging.DEBUG, request, f"is answered {type(reply).__name__}")

    def _tell(
        self, level: int, request: Request, what: str, attempt: int = 0, attempts: int = 0
    ) -> None:
        """Log one line, with its facts as attributes of the record."""
        if not self.log.isEnabledFor(level):
            return
        facts = {
            "client": request.client,
            "endpoint": self.endpoint,
            "verb": request.__struct_config__.tag,
            "topic": getattr(request, "topic", None),
            "epoch": request.epoch,
            "request": request.request,
            "attempt": attempt,
            "attempts": attempts,
        }
        on = f" on {facts['topic']!r}" if facts["topic"] else ""
        tried = f" (attempt {attempt} of {attempts})" if attempt else ""
        self.log.log(
            level,
            "%s: %s%s, request %d of epoch %d at %s, %s%s",
            *(request.client, facts["verb"], on, request.request, request.epoch),
            *(self.endpoint, what, tried),
            extra=facts,
        )
