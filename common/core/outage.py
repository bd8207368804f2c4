"""Reports once that a client has had no answer for a while, and once that it ended. Pure."""

from __future__ import annotations

import logging
from math import inf
from typing import Final

from .answers import TryLater

SILENCE_S: Final = 2.0  # without an answer, after which that is reported


class Outage:
    """The time since a client's last definite answer, in all its calls."""

    def __init__(self, log: logging.Logger, client: str, endpoint: str) -> None:
        """Create it for a client that has sent no request."""
        self._log = log
        self._client = client
        self._endpoint = endpoint
        self._lasts_s = 0.0
        self._is_reported = False

    @property
    def has_begun(self) -> bool:
        """Return whether an attempt has had no definite answer since the last one."""
        return self._lasts_s > 0

    def lasts(self, seconds: float) -> None:
        """Add time without a definite answer."""
        self._lasts_s += max(seconds, 0.0)

    def report(self, verb: str, left_s: float, *, later: TryLater | None, is_shown: bool) -> None:
        """Report the outage, unless it is short or already reported.

        Args:
            verb: that is asked.
            left_s: how long the call keeps asking; infinity: without an end.
            later: the proxy answers this.
            is_shown: the program does not report it itself.
        """
        if self._is_reported or self._lasts_s < SILENCE_S:
            return
        self._is_reported = True
        what, advice = f"no answer from {self._endpoint} to {verb}", ""
        if later is None:
            advice = ". Is the proxy running? `reliable-pubsub proxy` starts it"
        else:
            what = f"{self._endpoint} answers {verb} with {later.code} ({later.text})"
        then = "retries until it is stopped"
        if left_s < inf:
            then = f"keeps asking for up to {left_s:.0f} s more" if left_s > 0 else "gives up"
        self._tell(f"{what} for {self._lasts_s:.0f} s; the call {then}{advice}", is_shown)

    def ends(self, *, is_shown: bool) -> None:
        """Report the end, if the beginning was reported."""
        if self._is_reported:
            self._tell(f"{self._endpoint} answers again", is_shown)
        self._lasts_s, self._is_reported = 0.0, False

    def _tell(self, what: str, is_shown: bool) -> None:
        level = logging.WARNING if is_shown else logging.DEBUG
        facts = {"client": self._client, "endpoint": self._endpoint}
        self._log.log(level, "%s: %s", self._client, what, extra=facts)
