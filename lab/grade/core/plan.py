"""A run as data: what clients are asked, and the faults that are aimed at them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

Verb = Literal["subscribe", "put", "get", "ack", "unsubscribe"]
Aim = Literal[
    "",
    "answer lost",
    "request late",
    "broker killed at the request",
    "broker killed at the answer",
    "client killed at the answer",
    "broker down",
    "link cut",
]
BROKER: Final = "broker"
# What the judge writes in a run: the moment of a fault.
AIMS: Final[dict[Aim, str]] = {
    "answer lost": "loses the answer to {client}, and cuts the connection",
    "request late": "holds back the request of {client}",
    "broker killed at the request": "kills the broker as the request of {client} arrives",
    "broker killed at the answer": "kills the broker as it answers {client}; the answer is lost",
    "client killed at the answer": "kills {client} as the broker answers; the answer is lost",
    "broker down": "kills the broker, and restarts it {seconds:g} s later",
    "link cut": "cuts the link of {client} for {seconds:g} s",
}


class Ask(Struct, frozen=True, kw_only=True):
    """One line for a client, and the fault that meets it."""

    client: str
    op: Verb
    topic: str
    id: str = ""
    message: str = ""
    aim: Aim = ""
    seconds: float = 0.0  # of `broker down` and `link cut`


class Kill(Struct, frozen=True):
    """kill -9, and a restart with the same command."""

    who: str  # a client, or `BROKER`


class Deliver(Struct, frozen=True):
    """Let the requests pass that were held back."""


Step = Ask | Kill | Deliver
Plan = tuple[Step, ...]


def line_of(ask: Ask) -> dict[str, str]:
    """Return the object that the client reads, in the form of the task sheet."""
    line = {"op": ask.op, "topic": ask.topic}
    return line | {"id": ask.id, "message": ask.message} if ask.op == "put" else line


def is_fault(step: Step) -> bool:
    """Return whether a step kills a process, or has a fault."""
    return isinstance(step, Kill) or (isinstance(step, Ask) and step.aim != "")


def faults_in(plan: Sequence[Step]) -> int:
    """Count the faults."""
    return sum(map(is_fault, plan))


def puts_in(plan: Sequence[Step]) -> int:
    """Count the messages."""
    return sum(isinstance(step, Ask) and step.op == "put" for step in plan)
