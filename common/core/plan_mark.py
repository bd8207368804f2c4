"""The progress of a step file: the part of a client's state that a plan needs."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .errors import ConfigurationError
from .schemas import msgpack_decoder
from .steps import PlanPosition

FINISHED: Final = "the plan was finished before; --again runs it once more"


_encode = msgspec.msgpack.Encoder().encode


class PlanMark(Struct, frozen=True):
    """Everything before `step` and `message` is done; one record with what it did (rule R16)."""

    digest: str  # of the plan; another one means the file was changed
    steps: int = 0  # how many the plan has
    step: int = 0
    message: int = 0
    run: int = 1  # counts how often the plan was begun
    output: str = ""  # a subscriber's output file; "": none so far
    output_bytes: int = 0  # its length after the last message that counts

    @property
    def finished(self) -> bool:
        """Whether the plan is done."""
        return self.step >= self.steps

    @property
    def note(self) -> bytes:
        """What a client stores of it with the numbers or the cursor of its messages."""
        return _encode(self)

    def is_same_run(self, other: PlanMark | None) -> bool:
        """Whether both are places in one run of one plan."""
        return other is not None and (self.digest, self.run) == (other.digest, other.run)

    @property
    def position(self) -> PlanPosition:
        """The place in the plan."""
        return PlanPosition(self.step, self.message)

    def at(self, position: PlanPosition, output_bytes: int = 0) -> PlanMark:
        """The same run, further on."""
        return replace(
            self, step=position.step, message=position.message, output_bytes=output_bytes
        )


_decoder = msgpack_decoder(PlanMark)


def mark_of(note: bytes | None) -> PlanMark | None:
    """Read the note of a client; None if a step file did not write it."""
    try:
        return None if note is None else _decoder.decode(note)
    except msgspec.MsgspecError:
        return None


def place_in_plan(note: bytes | None, messages: int) -> dict[str, str | int]:
    """The fields `plan` and `plan_run` of a journal line, so many messages after a note."""
    mark = mark_of(note)
    if mark is None:
        return {}
    return {"plan": f"{mark.step}:{mark.message + messages}", "plan_run": mark.run}


def begin_plan(
    mark: PlanMark | None, digest: str, *, steps: int, again: bool, file: str
) -> PlanMark:
    """Return where to resume.

    Args:
        mark: what the client's state says; None if it never ran a plan.
        steps: how many the plan has.
        again: start from the beginning, also with another plan.

    Raises:
        ConfigurationError: the state belongs to another plan.
    """
    if mark is None:
        return PlanMark(digest, steps)
    if again:
        return PlanMark(
            digest, steps, run=mark.run + 1, output=mark.output, output_bytes=mark.output_bytes
        )
    if mark.digest != digest:
        if mark.finished:
            state = "has finished another plan, and this is a new one; run with --again to begin it"
        else:
            state = (
                f"is in the middle of another plan, at step {mark.step + 1} of {mark.steps}. Put "
                "the old file back to finish it, or run with --again to begin this one from its "
                "first step"
            )
        raise ConfigurationError(
            f"{file}: nothing was done: the file, or a file it names, is not the one this id ran "
            f"before. It {state}"
        )
    return mark
