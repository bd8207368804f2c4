"""What one submission may use. Pure."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from reliable_pubsub.common.core.errors import ConfigurationError

UNITS: Final = {"": 1, "s": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
WRITTEN_FACTOR: Final = 20  # of `disk_bytes`: all that its processes write, wherever it is


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of all processes of a submission together."""

    cpu_s: float = 300.0
    memory_bytes: int = 2 * 1024**3
    disk_bytes: int = 256 * 1024**2
    time_s: float = 240.0
    processes: int = 200


NAMES: Final = {"cpu": "cpu_s", "mem": "memory_bytes", "disk": "disk_bytes", "time": "time_s"}


def limits_in(text: str) -> Limits:
    """Read, for example, `cpu=60s,mem=512M,disk=100M,time=120s`; the rest has defaults.

    Raises:
        ConfigurationError: it cannot be read.
    """
    found: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"(\w+)=(\d+)([skmg]?)b?", part.strip().lower())
        if match is None or match[1] not in NAMES:
            raise ConfigurationError(
                f"--limits: {part!r} is not one of cpu=60s, mem=512M, disk=100M, time=120s"
            )
        found[NAMES[match[1]]] = int(match[2]) * UNITS[match[3]]
    return Limits(**found)


class Usage(Struct, frozen=True, kw_only=True):
    """What all processes of a submission use now."""

    cpu_s: float
    memory_bytes: int
    disk_bytes: int
    written_bytes: int
    time_s: float
    processes: int


def beyond(usage: Usage, limits: Limits) -> str | None:
    """Return which limit is passed, in words."""
    megabyte = 1024**2
    if usage.processes > limits.processes:
        return f"has more than {limits.processes} processes"
    if usage.memory_bytes > limits.memory_bytes:
        return f"uses more than {limits.memory_bytes // megabyte} MiB of memory"
    if usage.disk_bytes > limits.disk_bytes:
        return f"fills more than {limits.disk_bytes // megabyte} MiB of its folders"
    if usage.written_bytes > WRITTEN_FACTOR * limits.disk_bytes:
        return f"writes more than {WRITTEN_FACTOR * limits.disk_bytes // megabyte} MiB"
    if usage.cpu_s > limits.cpu_s:
        return f"uses more than {limits.cpu_s:g} s of CPU"
    if usage.time_s > limits.time_s:
        return f"takes longer than {limits.time_s:g} s"
    return None
