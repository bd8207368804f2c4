"""How far a step file is: the part of a client's state that a plan needs."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from .errors import ConfigurationError
from .steps import PlanPosition

FINISHED: Final = "the plan was finished before; --again runs it once more"


class PlanMark(Struct, frozen=True):
    """Everything before `step` and `message` is done; one record with what it did (rule R16)."""

    digest: str  # of the plan; another one means the file was changed
    step: int = 0
    message: int = 0
    run: int = 1  # counts how often the plan was begun
    output: str = ""  # a subscriber's output file; "": none so far
    output_bytes: int = 0  # of it, behind the last message that counts

    @property
    def position(self) -> PlanPosition:
        """The place in the plan."""
        return PlanPosition(self.step, self.message)

    def at(self, position: PlanPosition, output_bytes: int = 0) -> PlanMark:
        """The same run, further on."""
        return replace(
            self, step=position.step, message=position.message, output_bytes=output_bytes
        )


def begin_plan(mark: PlanMark | None, digest: str, *, again: bool, file: str) -> PlanMark:
    """Where to go on.

    Args:
        mark: what the client's state says; None if it never ran a plan.
        again: begin anew, also with another plan.

    Raises:
        ConfigurationError: the state belongs to another plan (hole H8).
    """
    if mark is None:
        return PlanMark(digest)
    if again:
        return PlanMark(
            digest, run=mark.run + 1, output=mark.output, output_bytes=mark.output_bytes
        )
    if mark.digest != digest:
        raise ConfigurationError(
            f"{file}: this id was running another plan (the file, or a file it names, was changed "
            "since); nothing was done. Put the old file back to finish it, or run with --again to "
            "begin the new one from its first step"
        )
    return mark
