"""`vectors.json`, read: golden bytes as data, for these tests and for clients in any language."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec import Struct

FILE = Path(__file__).with_name("vectors.json")


class Vector(Struct, frozen=True):
    """One message: what its header says, and its bytes."""

    header: dict[str, Any]
    frames: list[bytes]

    @property
    def body(self) -> bytes | None:
        """Its body frame, if it has one."""
        return self.frames[2] if len(self.frames) > 2 else None


class Step(Struct, frozen=True):
    """One request of a dialogue, and its answer."""

    request: Vector
    answer: Vector


class Refused(Struct, frozen=True):
    """Frames that are answered MALFORMED."""

    to: str  # the endpoint
    echo: bool  # whether the answer repeats client, epoch and request
    frames: list[bytes]


def in_bytes(value: Any) -> Any:
    """A value of the file, with bytes where it says `{"bin": hex}`."""
    if isinstance(value, list):
        return [in_bytes(one) for one in value]
    if isinstance(value, dict):
        if value.keys() == {"bin"}:
            return bytes.fromhex(value["bin"])
        return {key: in_bytes(one) for key, one in value.items()}
    return value


def in_json(value: Any) -> Any:
    """The other way round."""
    if isinstance(value, list):
        return [in_json(one) for one in value]
    if isinstance(value, dict):
        return {key: in_json(one) for key, one in value.items()}
    return {"bin": value.hex()} if isinstance(value, bytes) else value


def frames_of(one: dict[str, Any]) -> list[bytes]:
    """The frames of a message; none if they are not filled in yet (`python -m tests.wire`)."""
    return [bytes.fromhex(frame) for frame in one.get("frames", ())]


def vector(one: dict[str, Any]) -> Vector:
    """One message of the file."""
    return Vector(in_bytes(one["header"]), frames_of(one))


def _named(part: str) -> dict[str, Vector]:
    return {one["name"]: vector(one) for one in CONTENT[part]}


CONTENT: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
REQUESTS = _named("requests")
ANSWERS = _named("answers")
NODE_REQUESTS = _named("node_requests")
NODE_ANSWERS = _named("node_answers")
PUSHES = _named("pushes")
OFFERS = _named("offers")
BATCHES: dict[str, tuple[list[Any], int, bytes]] = {
    one["name"]: (in_bytes(one["columns"]), one["count"], bytes.fromhex(one["frame"]))
    for one in CONTENT["batches"]
}
MALFORMED = {
    one["name"]: Refused(one["to"], one["echo"], frames_of(one)) for one in CONTENT["malformed"]
}
DIALOGUES = {
    one["name"]: [
        Step(vector(step["request"]), vector(step.get("answer", {"header": {}})))
        for step in one["steps"]
    ]
    for one in CONTENT["dialogues"]
}
BODY = BATCHES["payloads"][2]  # one message, "hello"
