"""Fill in the bytes that `vectors.json` lacks: `python -m tests.wire`.

Write a new message without `frames`, a new step of a dialogue with the header of its request (and
with `body`, in hex, where it has one); `crc` may be left out. What is there already stays as it is,
so that golden bytes never change unnoticed. Read what was filled in before you keep it.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from reliable_pubsub.common.core.batch import crc32

from .dialogue import a_proxy_of_dialogues
from .vectors import CONTENT, FILE, frames_of, in_bytes, in_json

MESSAGES = ("requests", "answers", "node_requests", "node_answers")
PARTS = {"requests", "steps", "frames", "request"}  # what is broken into lines
LINE_CHARS_MAX = 100


def fill_in(one: dict[str, Any]) -> None:
    """The frames of a message, from its header and its body."""
    body = bytes.fromhex(one.pop("body", ""))
    header = in_bytes(one["header"])
    if body and "verb" in header:
        header.setdefault("crc", crc32(body))
    frames = [b"RPS1", msgspec.msgpack.encode(header), *([body] if body else [])]
    one["header"], one["frames"] = in_json(header), [frame.hex() for frame in frames]


def fill_in_dialogue(steps: list[dict[str, Any]]) -> None:
    """The frames of requests, and the answers of a proxy, from its beginning on."""
    proxy = a_proxy_of_dialogues()
    for step in steps:
        if "frames" not in step["request"]:
            fill_in(step["request"])
        answer = proxy.frames(frames_of(step["request"]))
        header = in_json(msgspec.msgpack.decode(answer[1]))
        step.setdefault("answer", {"header": header, "frames": [frame.hex() for frame in answer]})


def as_text(value: Any, depth: int = 0) -> str:
    """JSON with a line for each header and each frame."""
    text = json.dumps(value)
    if isinstance(value, dict):
        broken = bool(PARTS & value.keys())
        broken &= depth != 2 or "steps" in value or len(text) >= LINE_CHARS_MAX
    else:
        first = value[0] if isinstance(value, list) and value else 0
        is_long = depth == 3 and len(text) > LINE_CHARS_MAX - 10
        broken = isinstance(first, dict) or (isinstance(first, str) and (depth == 1 or is_long))
    if not broken:
        return text
    pad, pairs = " " * (depth + 1), isinstance(value, dict)
    inner = [
        f"{json.dumps(key)}: {json.dumps(one) if key == 'header' else as_text(one, depth + 1)}"
        for key, one in (value.items() if pairs else ())
    ] or [as_text(one, depth + 1) for one in value]
    begin, end = "{}" if pairs else "[]"
    return f"{begin}\n{pad}" + f",\n{pad}".join(inner) + f"\n{' ' * depth}{end}"


if __name__ == "__main__":
    for part in MESSAGES:
        for one in CONTENT[part]:
            if "frames" not in one:
                fill_in(one)
    for dialogue in CONTENT["dialogues"]:
        fill_in_dialogue(dialogue["steps"])
    FILE.write_text(as_text(CONTENT) + "\n", encoding="utf-8")
