"""Files of keys: their form, which is that of `zmq.auth` (ZPL), and who is known by which key."""

from __future__ import annotations

import re
from typing import Final

from .errors import ConfigurationError

KEY_CHARS: Final = 40
_KEY = re.compile(r"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}\Z")
_LINE = re.compile(r"(?m)^\s*(public|secret)-key\s*=\s*[\"']?([^\s\"']+)[\"']?\s*$")
PUBLIC_SUFFIX: Final = ".key"
SECRET_SUFFIX: Final = ".key_secret"


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


def certificate(name: str, public: str, secret: str | None = None) -> str:
    """The text of a file, in the form of `zmq.auth`."""
    lines = [
        f"# The {'SECRET' if secret else 'public'} key of {name}, for reliable-pubsub (CURVE).",
        "# Keep it on this machine." if secret else "# For those who talk with it.",
        "metadata",
        f'    name = "{name}"',
        "curve",
        f'    public-key = "{public}"',
    ]
    if secret:
        lines.append(f'    secret-key = "{secret}"')
    return "\n".join(lines) + "\n"


def clients_of(document: object, path: str) -> dict[str, str]:
    """Read a document that maps public keys to names.

    Returns:
        The name by public key.

    Raises:
        ConfigurationError: it is another sort of document, or a key or name is not one.
    """
    if not isinstance(document, dict) or not document:
        raise ConfigurationError(
            f"{path}: expected a map of public keys to names, as `{'x' * 4}...: sensor-1`"
        )
    for key, name in document.items():
        if not isinstance(key, str) or not is_key(key):
            raise ConfigurationError(
                f"{path}: {key!r:.80} is not a public key: expected {KEY_CHARS} characters of Z85, "
                "which `reliable-pubsub keys show NAME` prints; put it in quotes"
            )
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"{path}: the key {key} has no name, but {name!r:.80}")
    return dict(document)
