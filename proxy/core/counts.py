"""What came in and went out since the start, by kind. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import Any


class Counts:
    """Requests, answers and bodies since the start of the proxy; the engine counts."""

    def __init__(self) -> None:
        self.requests: defaultdict[type[Any], int] = defaultdict(int)  # well-formed, by verb
        self.refusals: defaultdict[type[Any], int] = defaultdict(int)  # by the type of the answer
        self.received_bytes = 0  # bodies of requests
        self.sent_bytes = 0  # bodies of answers
        self.sent_messages = 0  # in answers, repeats included


def name_of(kind: type[Any]) -> str:
    """The wire name of a verb or an answer: `PUT`, `STORAGE_FULL`."""
    return str(kind.__struct_config__.tag)
