"""The requests of one client: numbers, attempts, and what the log says of them. Pure."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from .conversation import Conversation
from .messages import AnyReply, Request, Role, TryLater
from .retry import RetryPolicy, Silence, asking, unheard


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
        self.retry = retry
        self.log = logging.getLogger(f"reliable_pubsub.{role or 'asker'}")
        self._chance = chance
        self._on_silence = on_silence
        self._request = 0

    def head(self, epoch: int = 0) -> dict[str, Any]:
        """The fields that every request has, with the next request number.

        Args:
            epoch: 0 for a request that needs no session.
        """
        self._request += 1
        return {"client": self.client, "epoch": epoch, "request": self._request}

    def asking(
        self, request: Request, body: bytes | None = None
    ) -> Conversation[tuple[AnyReply, bytes]]:
        """Send a request until it is answered; see `retry.asking`."""
        telling = _Telling(self.log, request, self.endpoint, self._on_silence)
        is_debugged = self.log.isEnabledFor(logging.DEBUG)
        if is_debugged:
            telling.say(logging.DEBUG, "asks")
        answer = yield from asking(
            request,
            body,
            endpoint=self.endpoint,
            retry=self.retry,
            chance=self._chance,
            on_silence=telling.silence,
            on_postponed=telling.postponed,
        )
        if is_debugged:
            telling.say(logging.DEBUG, f"is answered {type(answer[0]).__name__}")
        return answer


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
