"""A submission: the commands in `pubsub.yaml`. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from msgspec import Struct

from reliable_pubsub.common.core.errors import ConfigurationError

FILE: Final = "pubsub.yaml"
# The words that a command may contain; the first ones must be there.
WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "build": (),
    "broker": ("port", "data"),
    "client": ("broker", "id", "state"),
}


class Commands(Struct, frozen=True):
    """How a submission is built and started."""

    broker: str
    client: str
    build: str = ""

    def broker_command(self, port: int, data: str) -> list[str]:
        return filled(self.broker, {"port": str(port), "data": data})

    def client_command(self, broker: str, id: str, state: str) -> list[str]:
        return filled(self.client, {"broker": broker, "id": id, "state": state})


def filled(command: str, values: Mapping[str, str]) -> list[str]:
    """Split a command as a shell does, and put in the values: one with a space stays one word."""
    found = []
    for word in shlex.split(command):
        for name, value in values.items():
            word = word.replace(f"{{{name}}}", value)
        found.append(word)
    return found


def commands_in(data: object) -> Commands:
    """Read the content of a `pubsub.yaml`.

    Raises:
        ConfigurationError: it says what is missing or wrong.
    """
    if not isinstance(data, dict):
        raise ConfigurationError(f"{FILE}: needs the keys broker and client; see the task sheet")
    for key, value in data.items():
        if key not in WORDS:
            near = get_close_matches(str(key), WORDS, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigurationError(f"{FILE}: there is no key {key!r}{hint}")
        if not isinstance(value, str) or not value.strip():
            raise ConfigurationError(f"{FILE}: {key} must be a command, as text")
        _check_words(key, value)
    missing = [key for key in ("broker", "client") if key not in data]
    if missing:
        raise ConfigurationError(f"{FILE}: {missing[0]} is missing: the command that starts it")
    return Commands(**data)


def _check_words(key: str, command: str) -> None:
    try:
        shlex.split(command)
    except ValueError as error:
        raise ConfigurationError(f"{FILE}: {key}: a quote is not closed") from error
    if key == "build":
        return
    named = re.findall(r"\{(\w+)\}", command)
    for word in WORDS[key]:
        if word not in named:
            raise ConfigurationError(f"{FILE}: {key} must contain {{{word}}}")
