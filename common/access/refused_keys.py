"""Reads from the audit log which keys were refused."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec import Struct

from ..core.errors import ConfigurationError
from ..owner import denied_to
from .audit import FILES_MAX


class RefusedKey(Struct):
    """A public key that was refused; times are those of the log, as text."""

    first: str
    last: str
    times: int = 0


def refused_keys(audit_log: Path) -> tuple[dict[str, RefusedKey], int]:
    """Return the refused keys, and how many refusals have no line.

    Raises:
        ConfigurationError: the log is not there, or cannot be read.
    """
    older = [Path(f"{audit_log}.{number}") for number in range(FILES_MAX - 1, 0, -1)]
    found: dict[str, RefusedKey] = {}
    left_out = 0
    for file in (*(one for one in older if one.exists()), audit_log):
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            raise ConfigurationError(
                f"the audit log {file} cannot be read: {error.strerror}{denied_to(file, error)}"
            ) from error
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:  # the last line of a process that was killed
                continue
            if not isinstance(event, dict) or event.get("event") != "unknown_key":
                continue
            one = found.setdefault(event["key"], RefusedKey(event["time"], event["time"]))
            one.last = event["time"]
            one.times += 1
            left_out += event.get("lines_left_out", 0)
    return found, left_out
