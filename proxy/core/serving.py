"""Which of several proxies serves a store: when a standby takes over, and how long answers count.

The store has a row with a term. A transaction of the one that serves, and at least one each
`beat_s`, changes the beat of the row; the store refuses it when the term is over. A standby that
has seen the same beat for `silence_s` writes the next term. Answers from memory are not refused by
the store, so they have a lease: it counts from the sending of the last beat that was confirmed,
and ends before any standby can have taken over. Only lengths of time are compared, each measured
by the clock of one machine. Pure.
Source: "Leases", Gray and Cheriton (1989); client-go, leaderelection.
"""

from __future__ import annotations

from msgspec import Struct

from .storage import NotServingError


class ServingTiming(Struct, frozen=True, kw_only=True):
    """Lengths of time; `beat_s` < `answers_s` < `silence_s`."""

    beat_s: float = 0.5  # between two beats
    answers_s: float = 2.0  # after the sending of the last confirmed beat
    silence_s: float = 3.0  # of the same beat, after which a standby takes over
    look_s: float = 0.25  # between two looks of a standby


TIMING = ServingTiming()


class ServingRow(Struct, frozen=True):
    """The row, as a standby reads it."""

    term: int
    beat: int  # of this term
    holder: str  # a name for people; "": the term was given back


class SilenceWatch:
    """What a standby has seen of the row."""

    def __init__(self, timing: ServingTiming = TIMING) -> None:
        self._timing = timing
        self._seen: ServingRow | None = None
        self._since_s = 0.0

    def is_over(self, row: ServingRow, now_s: float) -> bool:
        """Whether to take over, if the row is still this one when the next term is written.

        Args:
            now_s: after the row was read, so that the silence is not counted too long.
        """
        if self._seen != row:
            self._seen, self._since_s = row, now_s
        return not row.holder or now_s - self._since_s >= self._timing.silence_s


class Term:
    """The term of the process that serves, and how long its answers count."""

    def __init__(self, number: int, *, since_s: float, timing: ServingTiming = TIMING) -> None:
        """Begin.

        Args:
            since_s: before the term was written.
        """
        self.number = number
        self._timing = timing
        self._renewed_s = since_s
        self._asked_s: float | None = None  # when the loop has last asked; None: it has not begun

    def renewed(self, sent_at_s: float) -> None:
        """A transaction with our beat, sent at this time, is confirmed."""
        self._renewed_s = max(self._renewed_s, sent_at_s)

    def is_ours(self, now_s: float) -> bool:
        """Whether no other process can have taken over."""
        return now_s - self._renewed_s < self._timing.answers_s

    def confirm(self, now_s: float, why: str = "") -> None:
        """Ask for the loop whether an answer that is decided may leave.

        Args:
            why: the beats have ended, whatever commits are confirmed; "": they have not.

        Raises:
            NotServingError: another process may serve.
        """
        self._asked_s = now_s
        if why or not self.is_ours(now_s):
            reason = why or "the database has not confirmed it in time"
            raise NotServingError(f"term {self.number} of this proxy may be over: {reason}")

    def may_beat(self, now_s: float) -> bool:
        """Whether to keep the term; not for a loop that hangs, so that another process goes on."""
        return self._asked_s is None or now_s - self._asked_s <= self._timing.answers_s
