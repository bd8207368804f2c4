"""Files of keys: their form, which is that of `zmq.auth` (ZPL), and who is known by which key."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime
from typing import Final

from msgspec import Struct

from .errors import ConfigurationError
from .names import KEY_PATTERN

KEY_CHARS: Final = 40
_KEY = re.compile(KEY_PATTERN)
_LINE = re.compile(r"(?m)^\s*(public|secret)-key\s*=\s*[\"']?([^\s\"']+)[\"']?\s*$")
_DATE = re.compile(r"(?m)^\s*(created|expires)\s*=\s*[\"']?([^\s\"']+)[\"']?\s*$")
PUBLIC_SUFFIX: Final = ".key"
SECRET_SUFFIX: Final = ".key_secret"


class KeyDates(Struct, frozen=True):
    """When a key was made, and when it ends; None: not written in its file, or never."""

    created: datetime | None = None
    expires: datetime | None = None


YEARS: Final = range(1970, 9000)  # of a date; others overflow in calculations
NO_DATES: Final = KeyDates()


def is_key(text: str) -> bool:
    """Whether it has the form of a key in Z85."""
    return _KEY.match(text) is not None


def parse_certificate(text: str, path: str) -> tuple[str, str | None]:
    """Read the form of `zmq.auth`: `public-key = "..."`, and `secret-key = "..."` in a secret file.

    Returns:
        The public key, and the secret key if the file has one.

    Raises:
        ConfigurationError: there is no public key, or a key has another form.
    """
    found: dict[str, str] = {}
    for kind, key in _LINE.findall(text):
        if not is_key(key):
            raise ConfigurationError(
                f"{path}: the {kind} key is not a key: expected {KEY_CHARS} characters of Z85, as "
                "`reliable-pubsub keys new` writes them"
            )
        found.setdefault(kind, key)
    if "public" not in found:
        raise ConfigurationError(
            f"{path}: holds no public key: expected a file that `reliable-pubsub keys new` wrote, "
            f"NAME{PUBLIC_SUFFIX} or NAME{SECRET_SUFFIX}"
        )
    return found["public"], found.get("secret")


def parse_dates(text: str, path: str) -> KeyDates:
    """Read the dates of a key from the metadata of its file.

    Raises:
        ConfigurationError: a date has another form, or no zone.
    """
    found: dict[str, datetime] = {}
    for kind, date in _DATE.findall(text):
        with suppress(ValueError):
            found[kind] = datetime.fromisoformat(date)
        if kind not in found or found[kind].tzinfo is None or found[kind].year not in YEARS:
            raise ConfigurationError(
                f"{path}: {kind} is {date!r:.60}: expected a date such as 2027-11-27T00:00:00Z, "
                f"from {YEARS[0]} to {YEARS[-1]}"
            )
    return KeyDates(**found)


def certificate(
    name: str, public: str, secret: str | None = None, dates: KeyDates = NO_DATES
) -> str:
    """The text of a file, in the form of `zmq.auth`."""
    lines = [
        f"# The {'SECRET' if secret else 'public'} key of {name}, for reliable-pubsub (CURVE).",
        "# Keep it on this machine." if secret else "# For the peers that connect to it.",
        "metadata",
        f'    name = "{name}"',
        *(
            f'    {kind} = "{date:%Y-%m-%dT%H:%M:%SZ}"'
            for kind, date in (("created", dates.created), ("expires", dates.expires))
            if date
        ),
        "curve",
        f'    public-key = "{public}"',
    ]
    if secret:
        lines.append(f'    secret-key = "{secret}"')
    return "\n".join(lines) + "\n"
