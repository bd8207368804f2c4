"""The requests of one client, and the one retry loop: Lazy Pirate, as a conversation. Pure.

Source: the ZeroMQ Guide, chapter 4, "Client-Side Reliability (Lazy Pirate Pattern)".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import count
from math import inf
from typing import Any, Final

from .answers import AnyReply, Malformed, TryLater
from .conversation import Await, Conversation, Exchange, Reopen, Sleep
from .endpoint import endpoints_of
from .errors import MalformedError, ProxyUnreachableError, TryLaterError
from .message_base import Request, Role
from .outage import SILENCE_S, Outage
from .retry import Patience, RetryPolicy, Silence, unheard
from .wire import decode_reply, encode

REOPEN: Final = Reopen()
MOVE_ON: Final = Reopen(is_wanted=True)


class Requester:
    """One client, one endpoint, one sequence of request numbers."""

    def __init__(
        self,
        client: str,
        endpoint: str,
        *,
        retry: RetryPolicy,
        chance: Callable[[], float],
        now_s: Callable[[], float] = float,
        on_silence: Silence = unheard,
        role: Role | None = None,
    ) -> None:
        """Create a requester; no request is sent.

        Args:
            chance: 0 <= chance < 1, for the pauses between attempts.
            now_s: the monotonic clock; only calls with a `timeout_s` need it.
            role: names the logger; None: neither publisher nor subscriber.
            on_silence: called for each attempt without an answer, as it happens; with it, the
                program reports an outage, and the log does not.
        """
        self.client = client
        self.endpoint = endpoint
        self._endpoints_count = len(endpoints_of(endpoint))
        self.retry = retry
        self.patience = Patience(now_s)
        self.log = logging.getLogger(f"reliable_pubsub.{role or 'asker'}")
        self._chance = chance
        self._on_silence = on_silence
        self._outage = Outage(self.log, client, endpoint)
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

        It ends after the attempts of the policy; in a call with `timeout_s`, when that is over.

        Args:
            wait_s: how long the proxy may hold the answer; silence begins after that.

        Raises:
            ProxyUnreachableError: every attempt went unanswered. The outcome is unknown; the
                sequence inside the request makes it safe to ask again, now or after a restart.
            TryLaterError: the last attempt was answered with FULL, BUSY or STORAGE_FULL.
            MalformedError: the proxy cannot read this request, or speaks another protocol.
        """
        retry, patience, outage = self.retry, self.patience, self._outage
        frames = encode(request, body)
        several = self._endpoints_count
        attempts = retry.attempts * several if patience.until_s is None else inf
        asked_s = retry.timeout_s + wait_s  # that an attempt waits
        waited_s, attempt = 0.0, 0
        later: TryLater | None = None
        is_debugged = self.log.isEnabledFor(logging.DEBUG)
        if is_debugged:
            self._tell(logging.DEBUG, request, "asks")
        while attempt < attempts and (left_s := patience.left_s) > 0:
            if attempt and (later is not None or attempt % several == 0):
                pause_s = retry.pause_before(max(attempt // several, 1), self._chance())
                pause_s = min(pause_s, left_s)
                waited_s += pause_s
                outage.lasts(pause_s)
                yield Sleep(pause_s)
                if (left_s := patience.left_s) <= 0:
                    break
            attempt += 1
            asked_s = min(asked_s, left_s)
            answer = yield Exchange(frames, min(asked_s, wait_s + SILENCE_S))
            if answer is None:
                outage.lasts(min(asked_s - wait_s, SILENCE_S))
                self._report(request, None, attempt, attempts)
                if asked_s > wait_s + SILENCE_S:
                    answer = yield Await(asked_s - wait_s - SILENCE_S)
                if answer is None:
                    yield MOVE_ON
            found = yield from self._read(request, answer)
            if found is None:
                later = None
                waited_s += asked_s
                self._tell(logging.INFO, request, "is not answered", attempt, attempts)
                self._on_silence(self.endpoint, attempt, _limit(attempts))
                continue
            reply = found[0]
            later = reply if isinstance(reply, TryLater) else None
            if later is not None or outage.has_begun or is_debugged:
                self._tell_of_answer(request, reply, attempt, attempts)
            if later is None:
                return found
        if later is not None:
            raise TryLaterError(
                code=later.code, text=later.text, attempts=attempt, timeout_s=patience.timeout_s
            )
        yield REOPEN  # what is asked next is another request
        raise self._unreachable(request, attempt, waited_s)

    def _unreachable(
        self, request: Request, attempts: int, waited_s: float
    ) -> ProxyUnreachableError:
        return ProxyUnreachableError(
            endpoint=self.endpoint,
            attempts=attempts,
            waited_s=waited_s,
            verb=str(type(request).__struct_config__.tag),
            timeout_s=self.patience.timeout_s,
        )

    def _read(
        self, request: Request, frames: Sequence[bytes] | None
    ) -> Conversation[tuple[AnyReply, bytes] | None]:
        """Return the answer, with its body; None if it is not the answer to this request."""
        if frames is None:
            return None
        try:
            reply, body = decode_reply(frames)
            if isinstance(reply, Malformed) and reply.request in (0, request.request):
                text = f"{self.endpoint} could not read our request: {reply.text}"
                raise MalformedError(text, is_our_request=True)
        except MalformedError:
            yield REOPEN
            raise
        asked = (request.request, request.epoch, request.client)
        if (reply.request, reply.epoch, reply.client) != asked:
            yield REOPEN  # one reply for each request: the right one will not come
            return None
        return reply, body

    def _report(
        self, request: Request, later: TryLater | None, attempt: int, attempts: float
    ) -> None:
        """Report an outage that lasts, once; the program may do it itself."""
        left_s = self.patience.left_s
        if self.patience.until_s is None:
            left_s = self.retry.longest_s(attempt, attempts)
        verb = str(request.__struct_config__.tag)
        is_shown = later is not None or self._on_silence is unheard
        self._outage.report(verb, left_s, later=later, is_shown=is_shown)

    def _tell_of_answer(
        self, request: Request, reply: AnyReply, attempt: int, attempts: float
    ) -> None:
        if isinstance(reply, TryLater):
            what = f"is answered {reply.code}: {reply.text}"
            self._tell(logging.INFO, request, what, attempt, attempts)
            self._report(request, reply, attempt, attempts)
            return
        self._tell(logging.DEBUG, request, f"is answered {type(reply).__name__}")
        if self._outage.has_begun:
            self._tell(logging.INFO, request, "is answered after all")
            self._outage.ends(is_shown=self._on_silence is unheard)
            self._on_silence(self.endpoint, 0, _limit(attempts))

    def _tell(
        self, level: int, request: Request, what: str, attempt: int = 0, attempts: float = 0
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
            "attempts": _limit(attempts),
        }
        on = f" on {facts['topic']!r}" if facts["topic"] else ""
        tried = f" (attempt {in_words(attempt, _limit(attempts))})" if attempt else ""
        self.log.log(
            level,
            "%s: %s%s, request %d of epoch %d at %s, %s%s",
            *(request.client, facts["verb"], on, request.request, request.epoch),
            *(self.endpoint, what, tried),
            extra=facts,
        )


def _limit(attempts: float) -> int:
    """Return the most attempts of a request; 0: no limit."""
    return 0 if attempts == inf else int(attempts)


def in_words(attempt: int, attempts: int) -> str:
    """Return an attempt and its limit, in words."""
    return f"{attempt} of {attempts}" if attempts else f"{attempt}"
